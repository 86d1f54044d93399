//! Huge pages ahead of a stream: who touches new memory by the leaf finds the next leaves cleared already, by the
//! background thread on another processor (`mmu/src/staging/ahead.rs`).
//!
//! Waking a thread costs the waker as much as half of the clearing that is spared, when the other processor has to be
//! woken, too. So a stream wakes it once. Then the thread looks for work by itself, by a timer, which is at its own
//! processor's expense, until it has found none for a while.
//!
//! The pages are the budget's like any others: they are made only while there is much room, count as overhead from the
//! next look at the limit on (there is one before faults can take that room), and go back when the room gets small or
//! the stream ends.

use crate::driver::Driver;
use millpond_core::PageCount;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Available memory with which pages are made: the governor looks at the limit several times before it is used up.
const ROOM: PageCount = PageCount(8192);
/// Less than this ends it.
const LITTLE: PageCount = PageCount(ROOM.0 / 2);
/// How long the thread sleeps between two looks.
pub const LOOK: Duration = Duration::from_micros(100);
/// Looks without work before it sleeps until it is woken.
const LOOKS: u32 = 20;

impl Driver {
    /// Whether there is so much room that some of it may be taken ahead of need.
    pub fn has_room_ahead(&self, available: PageCount) -> bool {
        // The page is made where the thread runs; where memory has its place, that would be another.
        available >= ROOM && self.nodes.is_empty()
    }

    /// After a fault in a process that has room: wakes the thread if there is something to be made ahead and it does
    /// not look by itself.
    pub fn ask_ahead(&self) {
        if self.mmu.wants_huge_ready() && !self.looks_again_soon() {
            self.kick();
        }
    }

    /// Whether the thread looks by itself, after `LOOK`.
    pub fn looks_again_soon(&self) -> bool {
        self.looks_ahead.load(Ordering::Relaxed) > 0
    }

    /// Makes what is wanted. The background thread's.
    pub fn make_ahead(&self) {
        let mut made = false;
        while self.mmu.wants_huge_ready() && !self.stop.load(Ordering::Relaxed) {
            // Made outside of the gate: it touches a slot and nothing else, and whoever closes the gate need not wait
            // for it.
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

    /// With so little room what is ready goes back.
    pub fn spare_ahead(&self, available: PageCount) {
        if available < LITTLE {
            self.mmu.drop_huge_ready();
        }
    }
}
