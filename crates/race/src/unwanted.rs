//! Unwanted memory: discards, lazy frees, volatile ranges.

use crate::program::{Thread, must};
use crate::world::Plot;
use millpond_core::{FreeMode, PageRange, Refusal};
use millpond_driver::Contents;
use std::sync::{Arc, PoisonError};

/// Whether a call was carried out, or refused because of a pin held by others.
fn done(result: Result<(), Refusal>) -> bool {
    match result {
        Ok(()) => true,
        Err(Refusal::Pinned { .. }) => false,
        Err(refusal) => panic!("{refusal:?} inside a region"),
    }
}

impl Thread {
    fn overlaps_volatile(plot: &Plot, range: PageRange) -> bool {
        let apart = |other: &PageRange| other.end() <= range.start || range.end() <= other.start;
        !plot.volatile.iter().all(apart)
    }

    pub(crate) fn discard_shared(&mut self, plot: &Plot) {
        let range = self.some_of(plot.named.1, 64);
        let world = Arc::clone(&self.world);
        let _unmoved = world.moves.read().unwrap_or_else(PoisonError::into_inner);
        self.forget(range);
    }

    /// Discards pages by the call for shared pages.
    pub fn forget(&mut self, range: PageRange) {
        let memory = self.world.memory();
        memory.now().oracle.discard_begins(self.me, range);
        let whole = done(self.world.driver.discard(range));
        must(memory.now().oracle.discard_ends(self.me, whole));
    }

    pub(crate) fn discard(&mut self, plot: &mut Plot) {
        let most = self.rng.pick(&[4, 16, 64]);
        let range = self.some_of(plot.named.1, most);
        let driver = Arc::clone(&self.world.driver);
        self.world
            .memory()
            .now()
            .oracle
            .discard_begins(self.me, range);
        // SAFETY: nobody else uses the region, and simulated bytes are not referred to.
        let in_place = unsafe { driver.discard_in_place(plot.named.0, range) };
        let whole = in_place == Ok(true) || done(driver.discard(range));
        must(
            self.world
                .memory()
                .now()
                .oracle
                .discard_ends(self.me, whole),
        );
        if self.rng.chance(500) {
            self.touch_all(range, 800);
        }
    }

    pub(crate) fn lazy_free_shared(&mut self, plot: &Plot) {
        let ranges = [
            self.some_of(plot.named.1, 32),
            self.some_of(plot.named.1, 8),
        ];
        let world = Arc::clone(&self.world);
        let _unmoved = world.moves.read().unwrap_or_else(PoisonError::into_inner);
        self.free(&ranges, FreeMode::Shared);
    }

    fn free(&mut self, ranges: &[PageRange], mode: FreeMode) {
        let memory = self.world.memory();
        for &range in ranges {
            memory.now().oracle.free_begins(self.me, range);
        }
        let whole = done(self.world.driver.lazy_free(ranges, mode));
        memory.now().oracle.free_ends(self.me, whole);
    }

    pub(crate) fn lazy_free(&mut self, plot: &mut Plot) {
        let range = self.some_of(plot.named.1, 24);
        if self.rng.chance(200) {
            self.free(&[range], FreeMode::Stored);
        } else {
            let memory = self.world.memory();
            memory.now().oracle.free_begins(self.me, range);
            // SAFETY: nobody else uses the region, so it has no pins, and simulated bytes are not referred to.
            let freed = unsafe { self.world.driver.free_in_place(range) };
            memory.now().oracle.free_ends(self.me, true);
            if !freed {
                self.free(&[range], FreeMode::Exclusive);
            }
        }
        if self.rng.chance(600) {
            self.touch_all(range, 700);
        }
    }

    /// Marks a range volatile, or takes a mark back.
    pub(crate) fn mark_or_ask(&mut self, plot: &mut Plot) {
        if plot.volatile.is_empty() || self.rng.chance(300) {
            let range = self.some_of(plot.named.1, 32);
            if Self::overlaps_volatile(plot, range) {
                return;
            }
            self.mark(range);
            plot.volatile.push(range);
            return;
        }
        let range = plot.volatile.swap_remove(0);
        self.ask_for(range);
        self.touch_all(range, 500);
    }

    /// Marks a range volatile.
    ///
    /// # Panics
    /// When the driver refuses.
    pub fn mark(&mut self, range: PageRange) {
        self.world.memory().now().oracle.volatile_begins(range);
        let marked = self.world.driver.mark_volatile(range);
        assert!(marked.is_ok(), "{range} cannot be volatile: {marked:?}");
    }

    /// Takes the mark of a volatile range back.
    ///
    /// # Panics
    /// When the range was not marked, or its contents are wrong.
    pub fn ask_for(&mut self, range: PageRange) {
        let memory = self.world.memory();
        memory.now().oracle.discard_begins(self.me, range);
        let contents = self.world.driver.mark_nonvolatile(range);
        let contents = contents.expect("it was marked");
        let survived = contents == Contents::Survived;
        let oracle = &mut memory.now().oracle;
        must(oracle.discard_ends(self.me, !survived));
        must(oracle.volatile_ends(range, survived));
    }
}
