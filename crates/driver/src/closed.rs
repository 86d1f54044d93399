//! Closing the gate, and the faults that come meanwhile.
//!
//! The thread that reads faults (handler delivery) must never wait at the gate: whoever closed it may be moving
//! mappings, which the kernel ends only when that thread has read of it. So it leaves a fault that comes to a closed
//! gate to itself: the thread that faulted sleeps in the kernel, and whoever opens the gate again wakes all sleepers,
//! who fault once more.
//!
//! No fault is forgotten between the two. The reader notes that it leaves one (`deferred`) and then tries the gate a
//! second time; the opener opens the gate and then looks at the note. If the second try fails, the opening is still to
//! come, and so is the look.

use crate::driver::Driver;
use crate::state::lock::Passage;
use millpond_core::{Mmu, PAGE_SIZE, PageCount, PageIndex, PageRange};
use millpond_mmu::Delivery;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{RwLockReadGuard, RwLockWriteGuard};

/// The gate is closed while the value lives.
pub struct Closed<'a> {
    driver: &'a Driver,
    passage: Option<Passage<RwLockWriteGuard<'a, ()>>>,
}

impl Driver {
    /// Waits until all who work on memory have left, and lets nobody in.
    pub fn close_gate(&self) -> Closed<'_> {
        Closed {
            driver: self,
            passage: Some(self.gate.close()),
        }
    }

    /// Goes inside for a fault. `None` when it is left to be woken by whoever opens the gate.
    pub fn enter_for_fault(&self, page: PageIndex) -> Option<Passage<RwLockReadGuard<'_, ()>>> {
        if self.delivery == Delivery::InThread {
            return self.gate.try_enter().or_else(|| {
                let _waiting = self.watchdog.waits(page);
                Some(self.gate.enter())
            });
        }
        self.gate.try_enter().or_else(|| {
            self.deferred.store(true, SeqCst);
            self.gate.try_enter()
        })
    }

    /// In the child of a fork: nobody sleeps there.
    pub fn forget_deferred(&self) {
        self.deferred.store(false, SeqCst);
    }
}

impl Drop for Closed<'_> {
    fn drop(&mut self) {
        self.passage = None;
        if self.driver.deferred.swap(false, SeqCst) {
            let pages = self.driver.mmu.len() / PAGE_SIZE;
            let arena = PageRange::new(PageIndex(0), PageCount(pages as u32));
            self.driver.mmu.wake(arena);
        }
    }
}
