//! The location of each slot of a store that has a slow tier behind it: in the store in front (*local*), on its way, or
//! behind it (*remote*).
//!
//! Slot numbers are dense, so the table is an array of two words for each slot, 16 bytes, in pieces that are mapped
//! when first needed. The first word is the slot's state; the second is the next slot in the queue or the slot's place
//! behind, of which this table knows only the number.
//!
//! ```text
//! first word    state (3) | queued (1) | pages (10) | generation (32)
//! second word   queued: the next slot, plus one.  remote: its place
//!
//!            save                  taken                 stored                  let go
//!   empty ──────────▶ local ─────────────────▶ moving ──────────────▶ settling ──────────▶ remote
//!     ▲                                                                                      │  ▲
//!     │                                                                                      └──┘ rewritten
//!     └── release, from every state but settling: the generation is one higher
//! ```
//!
//! Two threads may work on a slot: one sent by the core (save, load, release), only one at a time except for loads, and
//! a *mover*, which takes slots to the tier behind. The mover changes a slot's state only by a compare-and-swap of the
//! first word, which includes the generation. So it notices if the slot has been released in the meantime; then the
//! data that it has sent is dead. In *settling* the bytes are in both places, and the mover takes them out of the store
//! in front. A release waits for that, which takes microseconds: otherwise it would find the number of the slot still
//! taken there. A load reads from the front as long as it finds the bytes there, and checks the state again when it
//! does not.
//!
//! The owner of the table decides whether a remote slot may change its place there: `millpond-remote` changes it under
//! a lock of its own.
//!
//! The *queue* has the slots in the order in which they were saved. A released slot stays in the queue, and is skipped
//! when its turn comes; if its number is reused before that, it has the old turn. So no slot is in the queue twice, and
//! the queue needs no memory except the table.

use crate::pieces::Pieces;
use millpond_core::SlotId;
use millpond_core::port::{LoadError, Slots};
use millpond_sync::{Rank, Ranked};
use rustix::io::Errno;
use rustix::thread::{NanosleepRelativeResult, Timespec, nanosleep};
use std::sync::atomic::{AtomicU64, Ordering::*};

/// The place of a slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u64)]
pub enum SlotState {
    /// The slot holds nothing.
    Empty = 0,
    /// The store in front has it.
    Local = 1,
    /// The store in front has it, and it is being packed or sent.
    Moving = 2,
    /// Both have it.
    Settling = 3,
    /// An object has it.
    Remote = 4,
}

const STATE: u64 = 7;
const QUEUED: u64 = 1 << 3;
const PAGES_SHIFT: u32 = 4;
const GENERATION_SHIFT: u32 = 32;

/// Number of all slots that there can be.
const SLOTS: u64 = 1 << 32;

/// The contents of the first word.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SlotWord(u64);

impl SlotWord {
    /// The place of the slot.
    pub fn state(self) -> SlotState {
        match self.0 & STATE {
            1 => SlotState::Local,
            2 => SlotState::Moving,
            3 => SlotState::Settling,
            4 => SlotState::Remote,
            _ => SlotState::Empty,
        }
    }

    /// Pages of the slot.
    pub fn pages(self) -> u16 {
        (self.0 >> PAGES_SHIFT & 0x3ff) as u16
    }

    /// How often the number of the slot was used before.
    pub fn generation(self) -> u32 {
        (self.0 >> GENERATION_SHIFT) as u32
    }

    /// Whether both words describe the same use of the slot, in the same state.
    pub fn is_like(self, other: Self) -> bool {
        self.0 & !QUEUED == other.0 & !QUEUED
    }

    fn with_state(self, state: SlotState) -> Self {
        Self(self.0 & !STATE | state as u64)
    }
}

/// The queue's ends: slots, plus one.
#[derive(Default)]
struct Queue {
    head: u64,
    tail: u64,
}

/// The location of each slot: in the store in front, on its way, or in the tier behind it. The top of this file
/// explains how threads share a slot.
///
/// ```
/// use millpond_core::SlotId;
/// use millpond_store::{SlotPlaces, SlotState};
///
/// let places = SlotPlaces::new()?;
/// assert!(places.make_room(SlotId(3)));
/// places.saved(SlotId(3), 1);
/// let (slot, moving) = places.take_oldest().unwrap();
/// let settling = places.change(slot, moving, SlotState::Settling).unwrap();
/// places.set_place(slot, 77);
/// places.change(slot, settling, SlotState::Remote).unwrap();
/// assert_eq!((slot, places.place(slot)), (SlotId(3), 77));
/// # Ok::<(), rustix::io::Errno>(())
/// ```
pub struct SlotPlaces {
    slots: Pieces<[AtomicU64; 2]>,
    queue: Ranked<Queue>,
}

impl SlotPlaces {
    /// Makes a table in which no slot holds anything.
    ///
    /// # Errors
    /// The kernel gives no address space.
    pub fn new() -> Result<Self, Errno> {
        Ok(Self {
            slots: Pieces::new(SLOTS)?,
            queue: Ranked::new(Rank::RemoteQueue, Queue::default()),
        })
    }

    /// Whether the slot has room in the table. It has from then on.
    pub fn make_room(&self, slot: SlotId) -> bool {
        self.slots.get_or_grow(u64::from(slot.0)).is_some()
    }

    /// The present contents of the slot's first word.
    pub fn word(&self, slot: SlotId) -> SlotWord {
        let entry = self.slots.get(u64::from(slot.0));
        SlotWord(entry.map_or(0, |[first, _]| first.load(Acquire)))
    }

    /// The slot was saved in front: it waits for its turn from now on.
    pub fn saved(&self, slot: SlotId, pages: u16) {
        let Some([first, _]) = self.slots.get(u64::from(slot.0)) else {
            return;
        };
        let pages = u64::from(pages) << PAGES_SHIFT;
        let set = |word| word & (!0 << GENERATION_SHIFT | QUEUED) | pages | SlotState::Local as u64;
        let _ = first.fetch_update(AcqRel, Acquire, |word| Some(set(word)));
        self.enqueue(slot);
    }

    /// Puts the slot at the end of the queue, unless it is in it.
    fn enqueue(&self, slot: SlotId) {
        let Some([first, second]) = self.slots.get(u64::from(slot.0)) else {
            return;
        };
        let mut queue = self.queue.lock();
        if first.fetch_or(QUEUED, AcqRel) & QUEUED != 0 {
            return;
        }
        let this = u64::from(slot.0) + 1;
        second.store(0, Release);
        if let Some([_, last]) = queue
            .tail
            .checked_sub(1)
            .and_then(|last| self.slots.get(last))
        {
            last.store(this, Release);
        } else {
            queue.head = this;
        }
        queue.tail = this;
    }

    /// Takes the oldest slot that is still local out of the queue. From now on it is moving.
    pub fn take_oldest(&self) -> Option<(SlotId, SlotWord)> {
        let mut queue = self.queue.lock();
        loop {
            let index = queue.head.checked_sub(1)?;
            let [first, second] = self.slots.get(index)?;
            queue.head = second.load(Acquire);
            if queue.head == 0 {
                queue.tail = 0;
            }
            let word = first.fetch_and(!QUEUED, AcqRel) & !QUEUED;
            let found = SlotWord(word);
            let moving = found.with_state(SlotState::Moving);
            let is_taken = found.state() == SlotState::Local
                && first
                    .compare_exchange(word, moving.0, AcqRel, Acquire)
                    .is_ok();
            if is_taken {
                return Some((SlotId(index as u32), moving));
            }
        }
    }

    /// Gives a slot that was taken, and is still in the state `word`, back to the store in front: it has the next turn.
    pub fn put_back(&self, slot: SlotId, word: SlotWord) {
        if self.change(slot, word, SlotState::Local).is_none() {
            return;
        }
        let Some([first, second]) = self.slots.get(u64::from(slot.0)) else {
            return;
        };
        let mut queue = self.queue.lock();
        if first.fetch_or(QUEUED, AcqRel) & QUEUED != 0 {
            return;
        }
        let this = u64::from(slot.0) + 1;
        second.store(queue.head, Release);
        queue.head = this;
        if queue.tail == 0 {
            queue.tail = this;
        }
    }

    /// Changes the state of a slot that is still in the state `word`, and in that case returns its new state.
    pub fn change(&self, slot: SlotId, word: SlotWord, state: SlotState) -> Option<SlotWord> {
        let [first, _] = self.slots.get(u64::from(slot.0))?;
        let next = word.with_state(state);
        let changed = first.compare_exchange(word.0, next.0, AcqRel, Acquire);
        changed.is_ok().then_some(next)
    }

    /// The place behind of a slot that is remote.
    pub fn place(&self, slot: SlotId) -> u64 {
        let entry = self.slots.get(u64::from(slot.0));
        entry.map_or(0, |[_, second]| second.load(Acquire))
    }

    /// Sets the place behind of a slot that is settling or remote.
    pub fn set_place(&self, slot: SlotId, place: u64) {
        if let Some([_, second]) = self.slots.get(u64::from(slot.0)) {
            second.store(place, Release);
        }
    }

    /// Ends the slot's use if it is still in the state `word`. The next use of its number is another generation.
    pub fn end(&self, slot: SlotId, word: SlotWord) -> bool {
        let Some([first, _]) = self.slots.get(u64::from(slot.0)) else {
            return false;
        };
        let next =
            word.0 & QUEUED | u64::from(word.generation().wrapping_add(1)) << GENERATION_SHIFT;
        first
            .compare_exchange(word.0, next, AcqRel, Acquire)
            .is_ok()
    }

    /// Loads from `front`, the store in front, unless the slot is remote: then returns its word.
    ///
    /// # Errors
    /// The load fails there.
    pub fn load(
        &self,
        front: &dyn Slots,
        slot: SlotId,
        first_page: u16,
        out: &mut [u8],
    ) -> Result<Option<SlotWord>, LoadError> {
        let mut tries = 0;
        loop {
            let word = self.word(slot);
            if word.state() == SlotState::Remote {
                return Ok(Some(word));
            }
            match front.load(slot, first_page, out) {
                // It is leaving, or has left since the look at its state.
                Err(LoadError::Missing)
                    if word.state() == SlotState::Settling || !self.word(slot).is_like(word) =>
                {
                    wait_for_mover(&mut tries);
                }
                loaded => return loaded.map(|()| None),
            }
        }
    }

    /// Ends the slot's use and releases it in `front`, the store in front, unless the slot is remote: then returns its
    /// word, and the caller ends its use.
    pub fn release(&self, front: &dyn Slots, slot: SlotId) -> Option<SlotWord> {
        let mut tries = 0;
        loop {
            let word = self.word(slot);
            match word.state() {
                SlotState::Empty => return None,
                SlotState::Settling => wait_for_mover(&mut tries),
                SlotState::Local | SlotState::Moving => {
                    if self.end(slot, word) {
                        front.release(slot);
                        return None;
                    }
                }
                SlotState::Remote => return Some(word),
            }
        }
    }

    /// The most RAM that the table takes.
    pub fn ram_bytes(&self) -> u64 {
        self.slots.ram_bytes()
    }
}

/// Waits a moment for another thread, which needs microseconds: first by spinning, then by sleeping. `tries` counts the
/// calls.
fn wait_for_mover(tries: &mut u32) {
    *tries += 1;
    if *tries < 100 {
        std::hint::spin_loop();
        return;
    }
    let moment = Timespec {
        tv_sec: 0,
        tv_nsec: 50_000,
    };
    // A signal may end the pause: then it was a short one.
    let (NanosleepRelativeResult::Ok
    | NanosleepRelativeResult::Interrupted(_)
    | NanosleepRelativeResult::Err(_)) = nanosleep(&moment);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    proptest! {
        /// Against a naive queue: slots are taken in the order in which they were saved, none twice, and none that was
        /// released. A number that is used again while it still waits keeps its turn.
        #[test]
        fn slots_leave_in_the_order_in_which_they_came(work in prop::collection::vec((0u8..5, 0u32..12), 1..300)) {
            let table = SlotPlaces::new().unwrap();
            let mut queue: VecDeque<u32> = VecDeque::new();
            let mut local = [false; 12];
            for (act, number) in work {
                let slot = SlotId(number);
                prop_assert!(table.make_room(slot));
                let word = table.word(slot);
                match act {
                    0 | 1 => if word.state() == SlotState::Empty {
                        table.saved(slot, 3);
                        local[number as usize] = true;
                        if !queue.contains(&number) {
                            queue.push_back(number);
                        }
                    },
                    2 => {
                        let ends = word.state() != SlotState::Empty;
                        prop_assert!(!ends || table.end(slot, word));
                        prop_assert!(!ends || table.word(slot).generation() == word.generation() + 1);
                        local[number as usize] = false;
                    }
                    _ => {
                        let expected = loop {
                            match queue.pop_front() {
                                Some(next) if !local[next as usize] => {}
                                next => break next,
                            }
                        };
                        let taken = table.take_oldest();
                        prop_assert_eq!(taken.map(|(slot, _)| slot.0), expected);
                        if act == 4 && let Some((slot, word)) = taken {
                            table.put_back(slot, word);
                            queue.push_front(slot.0);
                        } else if let Some((slot, word)) = taken {
                            prop_assert_eq!((word.state(), word.pages()), (SlotState::Moving, 3));
                            prop_assert!(table.word(slot).is_like(word));
                            local[slot.0 as usize] = false;
                        }
                    }
                }
            }
        }
    }

    /// A slot that was released and used again while it was being sent is another one: what was sent is not its.
    #[test]
    fn data_sent_for_an_earlier_use_of_a_slot_is_ignored() {
        let table = SlotPlaces::new().unwrap();
        let slot = SlotId(5);
        assert!(table.make_room(slot));
        table.saved(slot, 1);
        let (_, moving) = table.take_oldest().unwrap();
        assert!(table.end(slot, moving));
        table.saved(slot, 1);
        let (_, again) = table.take_oldest().unwrap();
        assert_eq!(table.change(slot, moving, SlotState::Settling), None);
        assert!(table.change(slot, again, SlotState::Settling).is_some());
    }
}
