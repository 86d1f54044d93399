//! The batch of ranges that were zeroed by their owner and have not been marked yet.
//!
//! The kernel collects folios on each processor before it takes the lock of the lists (`lru_lazyfree`), because the
//! lock costs more than the work. Here it is the signal mask around the lock, two system calls. A mark may come late
//! ([`FreeMode::Cleared`]): until then the memory counts as used, nothing else. So whoever wants the truth, and whoever
//! needs memory, marks the batch first. A thread that reclaims only tries the lock: the holder may be the thread that
//! it interrupted.

use super::Driver;
use crate::signals::SignalsBlocked;
use millpond_core::limits::CLEAR_PAGES;
use millpond_core::{Commands, Event, FreeMode, PageCount, PageIndex, PageRange, Reply};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

/// Ranges in a batch. Half of them again would save a hundredth of a microsecond each.
const BATCH: usize = 32;
/// After a page was found missing, this many calls at most go the long way before the short one is tried again.
const PATIENCE: u32 = 64;

/// See the [module](self).
pub(super) struct Freed {
    /// Whether a whole batch fits under the cap for lazily freed memory, which must hold without anybody looking.
    fits: bool,
    batch: Mutex<Batch>,
    /// Calls that go the long way before the short one is tried again.
    skip: AtomicU32,
    /// How many that will be after the next miss.
    misses: AtomicU32,
}

#[derive(Clone, Copy)]
struct Batch {
    ranges: [PageRange; BATCH],
    len: usize,
}

const EMPTY: Batch = Batch {
    ranges: [PageRange {
        start: PageIndex(0),
        len: PageCount(0),
    }; BATCH],
    len: 0,
};

impl Freed {
    /// For a manager that keeps at most `cap` pages lazily freed.
    pub(super) const fn new(cap: PageCount) -> Self {
        Self {
            fits: cap.0 >= BATCH as u32 * CLEAR_PAGES,
            batch: Mutex::new(EMPTY),
            skip: AtomicU32::new(0),
            misses: AtomicU32::new(0),
        }
    }

    /// Whether the short way is worth trying: not soon after it was found closed, as each attempt is a signal.
    fn is_promising(&self) -> bool {
        let skip = self.skip.load(Ordering::Relaxed);
        if skip > 0 {
            self.skip.store(skip - 1, Ordering::Relaxed);
        }
        skip == 0 && self.fits
    }

    fn found_missing(&self) {
        let misses = (2 * self.misses.load(Ordering::Relaxed)).clamp(1, PATIENCE);
        self.misses.store(misses, Ordering::Relaxed);
        self.skip.store(misses, Ordering::Relaxed);
    }

    /// Takes what has been collected, if nobody is collecting at the moment.
    fn take(&self) -> Option<Batch> {
        let mut batch = self.batch.try_lock().ok()?;
        (batch.len > 0).then(|| {
            let taken = *batch;
            batch.len = 0;
            taken
        })
    }
}

impl Driver {
    /// Lazily frees a small range of mapped memory without a system call. False when that cannot be done: then nothing
    /// is marked, though bytes may have been zeroed.
    ///
    /// # Safety
    /// The range is part of a region without pins, and no reference to its bytes is in use.
    pub(crate) unsafe fn free_in_place(&self, range: PageRange) -> bool {
        if range.len.0 > CLEAR_PAGES || !self.freed.is_promising() {
            return false;
        }
        // SAFETY: the caller's promise.
        if !unsafe { self.mmu.zero_if_mapped(range) } {
            self.freed.found_missing();
            return false;
        }
        let full = {
            // Taken by a thread that marks, or by this one, in which a signal handler frees memory.
            let Ok(mut batch) = self.freed.batch.try_lock() else {
                return false;
            };
            let len = batch.len;
            let Some(place) = batch.ranges.get_mut(len) else {
                // Whoever filled it has not come to mark it yet.
                return false;
            };
            *place = range;
            batch.len = len + 1;
            batch.len == BATCH
        };
        self.freed.misses.store(0, Ordering::Relaxed);
        if full {
            self.mark_freed();
        }
        true
    }

    /// Marks what was freed in place, and drops what is beyond the cap.
    fn mark_freed(&self) {
        let _quiet = SignalsBlocked::new();
        let _inside = self.gate.enter();
        if self.mark_freed_inside() {
            self.trim_lazyfree();
        }
    }

    /// The same for threads inside the gate, without the cap. False when there was nothing to mark.
    pub(super) fn mark_freed_inside(&self) -> bool {
        let Some(batch) = self.freed.take() else {
            return false;
        };
        let mut commands = Commands::new();
        for &(mut range) in &batch.ranges[..batch.len] {
            loop {
                let mode = FreeMode::Cleared;
                let reply = self
                    .lock()
                    .handle(Event::LazyFree { range, mode }, &mut commands);
                self.carry_out(&mut commands);
                match reply {
                    Reply::More { from } => range = range.tail(from),
                    // Refused when the region is gone meanwhile: there is nothing to mark.
                    _ => break,
                }
            }
        }
        true
    }
}
