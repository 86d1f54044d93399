//! The batch of ranges that were zeroed by their owner and have not been marked yet.
//!
//! The kernel collects folios on each processor before it takes the lock of the lists (`lru_lazyfree`), because the
//! lock costs more than the work. Here the signal mask around the lock costs more: two system calls. A mark may come
//! late ([`FreeMode::AlreadyZeroed`]): until then the memory merely counts as used. So a thread that needs exact
//! figures, or memory, first marks the batch. A reclaiming thread only tries the lock: its holder may be the thread
//! that it interrupted.

use crate::driver::Driver;
use crate::memory::Memory;
use crate::signals::SignalsBlocked;
use crate::state::lazy_batch::BATCH;
use millpond_core::limits::ZERO_IN_PLACE_PAGES;
use millpond_core::{Commands, Event, FreeMode, PageRange, Reply};
use millpond_sync::atomic::Ordering;

impl<M: Memory> Driver<M> {
    /// Lazily frees a small range of mapped memory without a system call. Returns false if that is impossible: then
    /// nothing is marked, although bytes may have been zeroed.
    ///
    /// # Safety
    /// The range is part of a region without pins, and no reference to its bytes is in use.
    pub unsafe fn free_in_place(&self, range: PageRange) -> bool {
        if range.len.0 > ZERO_IN_PLACE_PAGES || !self.lazy_batch.is_promising() {
            return false;
        }
        // SAFETY: the caller's promise.
        if !unsafe { self.mmu.zero_if_mapped(range) } {
            self.lazy_batch.found_missing();
            return false;
        }
        let full = {
            // The lock may be held by a thread that marks, or by this thread, when a signal handler interrupted it and
            // frees memory.
            let Some(mut batch) = self.lazy_batch.batch.try_out_of_order() else {
                return false;
            };
            let len = batch.len;
            let Some(place) = batch.ranges.get_mut(len) else {
                // The batch is full, and the thread that filled it has not marked it yet.
                return false;
            };
            *place = range;
            batch.len = len + 1;
            batch.len == BATCH
        };
        self.lazy_batch.misses.store(0, Ordering::Relaxed);
        if full {
            self.mark_lazy_batch();
        }
        true
    }

    /// Marks the ranges that were freed in place, and drops lazily freed memory beyond the cap.
    fn mark_lazy_batch(&self) {
        let _quiet = SignalsBlocked::new();
        let _inside = self.gate.enter();
        if self.mark_lazy_batch_inside() {
            self.trim_lazyfree();
        }
    }

    /// Marks the ranges that were freed in place, for threads inside the gate, without applying the cap. Returns false
    /// if there was nothing to mark.
    pub fn mark_lazy_batch_inside(&self) -> bool {
        let Some(batch) = self.lazy_batch.take() else {
            return false;
        };
        let mut commands = Commands::new();
        for &(mut range) in &batch.ranges[..batch.len] {
            loop {
                let mode = FreeMode::AlreadyZeroed;
                let reply = self
                    .lock()
                    .handle(Event::LazyFree { range, mode }, &mut commands);
                self.carry_out(&mut commands);
                match reply {
                    Reply::More { from } => range = range.tail(from),
                    // The core refuses if the region has ended in the meantime: then there is nothing to mark.
                    _ => break,
                }
            }
        }
        true
    }
}
