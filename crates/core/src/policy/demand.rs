//! What faults bring in, by which the pool keeps what is freed (`ops/free.rs`): the mark is the higher of what was
//! brought in since the last tick and half of what it was.

/// How much faults bring in between two ticks.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Demand {
    pub(crate) now: u32,
    pub(crate) mark: u32,
    /// Pages that are kept where they are.
    pub(crate) kept: u32,
    /// Spare pages that go to the kernel whatever the mark says.
    pub(crate) unwanted: u32,
}

impl Demand {
    pub(crate) fn brought(&mut self, pages: u32) {
        self.now = self.now.saturating_add(pages);
    }

    /// A frame is spare because there was more like it than there may be.
    pub(crate) fn unwanted(&mut self, pages: u32) {
        self.unwanted += pages;
    }

    pub(crate) fn tick(&mut self) {
        self.mark = self.now.max(self.mark / 2);
        self.now = 0;
    }
}
