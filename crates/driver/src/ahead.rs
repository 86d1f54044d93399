//! Huge pages ahead of a stream: a thread that touches new memory leaf by leaf finds the next leaves cleared already,
//! by the background thread on another processor (`mmu/src/staging/ahead.rs`).
//!
//! Waking a thread costs the waking thread as much as half of the clearing that is spared, when the other processor has
//! to be woken, too. So a stream wakes the background thread once. Then that thread looks for work by itself, by a
//! timer, at its own processor's expense, until it has found none for a while.
//!
//! The pages belong to the budget like any others: they are made only while there is much room, count as overhead from
//! the next look at the limit on (there is one before faults can take that room), and go back when the room gets small
//! or the stream ends.

use crate::driver::Driver;
use crate::memory::Memory;
use millpond_core::PageCount;
use millpond_sync::atomic::Ordering;
use std::time::Duration;

/// Least available memory with which pages are made: the governor looks at the limit several times before it is used
/// up.
const ROOM: PageCount = PageCount(8192);
/// Available memory below which the pages that are ready go back.
const LITTLE: PageCount = PageCount(ROOM.0 / 2);
/// How long the thread sleeps between two looks.
pub const LOOK: Duration = Duration::from_micros(100);
/// Number of looks without work before the thread sleeps until it is woken.
const LOOKS: u32 = 20;

impl<M: Memory> Driver<M> {
    /// Whether there is so much room that some of it may be taken ahead of need.
    pub fn has_room_ahead(&self, available: PageCount) -> bool {
        // The huge page is made on the node where the thread runs. Where regions are placed on nodes, that would be the
        // wrong one.
        available >= ROOM && self.nodes.is_empty()
    }

    /// Wakes the background thread if there is something to be made ahead and the thread does not look by itself.
    /// Called after a fault in a process that has room.
    pub fn ask_ahead(&self) {
        if self.mmu.wants_huge_ready() && !self.looks_again_soon() {
            self.kick();
        }
    }

    /// Whether the background thread looks by itself, after `LOOK`.
    pub fn looks_again_soon(&self) -> bool {
        self.looks_ahead.load(Ordering::Relaxed) > 0
    }

    /// Makes the huge pages that are wanted. The background thread calls this.
    pub fn make_ahead(&self) {
        let mut made = false;
        while self.mmu.wants_huge_ready() && !self.stop.load(Ordering::Relaxed) {
            // The page is made outside of the gate: making it touches a slot and nothing else, so a thread that closes
            // the gate need not wait for it.
            let available = {
                let _inside = self.gate.enter();
                self.lock().available()
            };
            if !self.has_room_ahead(available) || !self.mmu.make_huge_ready() {
                break;
            }
            made = true;
        }
        let left = match made {
            true => LOOKS,
            false => self.looks_ahead.load(Ordering::Relaxed).saturating_sub(1),
        };
        self.looks_ahead.store(left, Ordering::Relaxed);
    }

    /// Gives the pages that are ready back when so little room is left.
    pub fn spare_ahead(&self, available: PageCount) {
        if available < LITTLE {
            self.mmu.drop_huge_ready();
        }
    }
}
