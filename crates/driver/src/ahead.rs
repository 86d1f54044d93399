//! Huge pages ahead of a stream: for a thread that touches new memory leaf by leaf, the background thread clears the
//! next leaves in advance on another processor (`mmu/src/staging/ahead.rs`).
//!
//! If the other processor has to be woken, too, waking a thread costs the waking thread half as much as the clearing
//! that it saves. So a stream wakes the background thread only once. Then that thread looks for work by itself, on a
//! timer, at its own processor's expense, until it has found none for a while.
//!
//! The pages belong to the budget like any others: they are made only while there is much room, count as overhead from
//! the next look at the limit on (which comes before faults can take that room), and go back when room becomes scarce
//! or the stream ends.

use crate::driver::Driver;
use crate::memory::Memory;
use millpond_core::PageCount;
use millpond_sync::atomic::Ordering;
use std::time::Duration;

/// Minimum available memory with which pages are made: the governor checks the limit several times before it is used
/// up.
const ROOM: PageCount = PageCount(8192);
/// Available memory below which the prepared pages go back.
const LITTLE: PageCount = PageCount(ROOM.0 / 2);
/// Time for which the thread sleeps between two looks.
pub const LOOK: Duration = Duration::from_micros(100);
/// Number of looks without work before the thread sleeps until it is woken.
const LOOKS: u32 = 20;

impl<M: Memory> Driver<M> {
    /// Whether there is enough room to take some of it ahead of need.
    pub fn has_room_ahead(&self, available: PageCount) -> bool {
        // The huge page is made on the node where the thread runs. If regions are placed on nodes, that would be the
        // wrong one.
        available >= ROOM && self.nodes.is_empty()
    }

    /// Wakes the background thread if there is something to make ahead and the thread does not look by itself. Called
    /// after a fault in a process that has room.
    pub fn ask_ahead(&self) {
        if self.mmu.wants_huge_ready() && !self.looks_again_soon() {
            self.kick();
        }
    }

    /// Whether the background thread looks by itself, after `LOOK`.
    pub fn looks_again_soon(&self) -> bool {
        self.looks_ahead.load(Ordering::Relaxed) > 0
    }

    /// Makes the requested huge pages. The background thread calls this.
    pub fn make_ahead(&self) {
        let mut made = false;
        while self.mmu.wants_huge_ready() && !self.stop.load(Ordering::Relaxed) {
            // The page is made outside the gate: making it touches nothing but a slot, so a thread that closes the gate
            // need not wait for it.
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

    /// Gives the prepared pages back if so little room is left.
    pub fn spare_ahead(&self, available: PageCount) {
        if available < LITTLE {
            self.mmu.drop_huge_ready();
        }
    }
}
