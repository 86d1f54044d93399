//! Demand: how much faults bring in. It determines how many freed frames the pool keeps (`ops/free.rs`): the mark is
//! the number of pages brought in since the last tick, or half of the former mark if that is more.

/// The pages that faults bring in between two ticks, and the mark that follows.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Demand {
    pub(crate) now: u32,
    pub(crate) mark: u32,
    /// Pages that are kept in place.
    pub(crate) kept: u32,
    /// Spare pages that go to the kernel regardless of the mark.
    pub(crate) unwanted: u32,
}

impl Demand {
    pub(crate) fn brought(&mut self, pages: u32) {
        self.now = self.now.saturating_add(pages);
    }

    /// Counts spare pages that go to the kernel because there were more frames like them than there may be.
    pub(crate) fn unwanted(&mut self, pages: u32) {
        self.unwanted += pages;
    }

    pub(crate) fn tick(&mut self) {
        self.mark = self.now.max(self.mark / 2);
        self.now = 0;
    }
}
