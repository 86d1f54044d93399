//! Memory that was freed in place and is not marked yet (`lazy_batch.rs`).

use millpond_core::limits::ZERO_IN_PLACE_PAGES;
use millpond_core::{PageCount, PageIndex, PageRange};
use millpond_sync::atomic::{AtomicU32, Ordering};
use millpond_sync::{Rank, Ranked};

/// Ranges in a batch. Half as many again would save a hundredth of a microsecond for each range.
pub(crate) const BATCH: usize = 32;

/// Maximum number of calls that take the long path after a page was found missing, before the short path is tried
/// again.
pub(crate) const PATIENCE: u32 = 64;

/// The batch of ranges that were freed in place. See the [module](self).
pub struct LazyBatch {
    /// Whether a whole batch fits under the cap for lazily freed memory, which must hold without a check.
    pub(crate) fits: bool,
    pub(crate) batch: Ranked<Batch>,
    /// Calls that take the long path before the short one is tried again.
    pub(crate) skip: AtomicU32,
    /// Number of such calls after the next miss.
    pub(crate) misses: AtomicU32,
}

#[derive(Clone, Copy)]
pub(crate) struct Batch {
    pub(crate) ranges: [PageRange; BATCH],
    pub(crate) len: usize,
}

pub(crate) const EMPTY: Batch = Batch {
    ranges: [PageRange {
        start: PageIndex(0),
        len: PageCount(0),
    }; BATCH],
    len: 0,
};

impl LazyBatch {
    /// Makes the batch of a manager that keeps at most `cap` pages lazily freed.
    pub const fn new(cap: PageCount) -> Self {
        Self {
            fits: cap.0 >= BATCH as u32 * ZERO_IN_PLACE_PAGES,
            batch: Ranked::new(Rank::LazyBatch, EMPTY),
            skip: AtomicU32::new(0),
            misses: AtomicU32::new(0),
        }
    }

    /// Whether the short path is worth trying. Soon after a failure it is not, because each attempt costs a signal.
    pub(crate) fn is_promising(&self) -> bool {
        let skip = self.skip.load(Ordering::Relaxed);
        if skip > 0 {
            self.skip.store(skip - 1, Ordering::Relaxed);
        }
        skip == 0 && self.fits
    }

    pub(crate) fn found_missing(&self) {
        let misses = (2 * self.misses.load(Ordering::Relaxed)).clamp(1, PATIENCE);
        self.misses.store(misses, Ordering::Relaxed);
        self.skip.store(misses, Ordering::Relaxed);
    }

    /// Takes the ranges that have been collected, if no thread is collecting at the moment.
    pub(crate) fn take(&self) -> Option<Batch> {
        let mut batch = self.batch.try_out_of_order()?;
        (batch.len > 0).then(|| {
            let taken = *batch;
            batch.len = 0;
            taken
        })
    }
}
