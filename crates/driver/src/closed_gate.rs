//! Closing the gate, and the faults that come while it is closed.
//!
//! The thread that reads faults (handler delivery) must never wait at the gate: the thread that closed it may be moving
//! mappings, and the kernel completes such a move only after the reading thread has read its event. So the reader
//! defers a fault that finds the gate closed: the faulting thread sleeps in the kernel. The thread that opens the gate
//! again wakes all sleepers, and they fault once more.
//!
//! No fault is forgotten between the two. The reader notes that it defers one (`deferred`) and then tries the gate a
//! second time; the opener opens the gate and then checks the note. If the second try fails, the opening is still to
//! come, and so is the check.

use crate::driver::Driver;
use crate::memory::Memory;
#[cfg(feature = "shuttle")]
use crate::sabotage::{self, Sabotage};
use millpond_core::PageIndex;
use millpond_sync::Passage;
use millpond_sync::atomic::Ordering::SeqCst;
use millpond_sync::{RwLockReadGuard, RwLockWriteGuard};

/// A guard: the gate is closed while the value lives.
pub struct ClosedGate<'a, M: Memory> {
    driver: &'a Driver<M>,
    passage: Option<Passage<RwLockWriteGuard<'a, ()>>>,
}

impl<M: Memory> Driver<M> {
    /// Waits until all threads that work on memory have left, and lets none in.
    pub fn close_gate(&self) -> ClosedGate<'_, M> {
        ClosedGate {
            driver: self,
            passage: Some(self.gate.close()),
        }
    }

    /// Enters the gate for a fault. Returns `None` if the fault is deferred to the thread that opens the gate, which
    /// wakes the faulting thread.
    pub fn enter_for_fault(&self, page: PageIndex) -> Option<Passage<RwLockReadGuard<'_, ()>>> {
        if self.delivery.is_by_signal() {
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

    /// Forgets deferred faults in the child of a fork: no thread sleeps there.
    pub fn forget_deferred(&self) {
        self.deferred.store(false, SeqCst);
    }
}

impl<M: Memory> Drop for ClosedGate<'_, M> {
    fn drop(&mut self) {
        self.passage = None;
        #[cfg(feature = "shuttle")]
        if sabotage::is_out(Sabotage::FaultForgotten) {
            return;
        }
        if self.driver.deferred.swap(false, SeqCst) {
            self.driver.mmu.wake(self.driver.mmu.arena());
        }
    }
}
