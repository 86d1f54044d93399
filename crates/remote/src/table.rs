//! Where each slot is: in the store in front (*local*), on its way, or in a chunk of an object.
//!
//! Slot numbers are dense, so the table is an array of two words for each slot, 16 bytes, in pieces that are mapped
//! when first needed. The first word is the slot's state; the second is the next slot in the queue or the slot's place
//! in the store.
//!
//! ```text
//! first word    state (3) | queued (1) | pages (10) | generation (32)
//! second word   queued: the next slot, plus one.  remote: object (32) | its first chunk (32)
//!
//!            save                  taken                 stored                  let go
//!   empty ──────────▶ local ─────────────────▶ moving ──────────────▶ settling ──────────▶ remote
//!     ▲                                                                                      │  ▲
//!     │                                                                                      └──┘ rewritten
//!     └── release, from every state but settling: the generation is one higher
//! ```
//!
//! Two threads meet at a slot: one that the core sends (save, load, release), of which there is one at a time but for
//! loads, and the thread that packs. The packer changes a slot's state only by a compare-and-swap of the first word, of
//! which the generation is a part. So it notices when the slot was released meanwhile, and what it has packed of the
//! slot is dead. In *settling* the bytes are in both places, and the packer takes them out of the store in front. A
//! release waits for that, which takes microseconds: it would find the number of the slot still taken there. A load
//! reads from the front as long as it finds the bytes there, and looks at the state again when it does not.
//!
//! A slot that is remote changes its place, and stops being remote, only under the lock of the objects
//! (`objects.rs`), so that exactly one object counts it as alive.
//!
//! The *queue* has the slots in the order in which they were saved. A slot that is released stays in the queue, and is
//! passed over when its turn comes; if its number is used again before, it has the old turn. So no slot is in the queue
//! twice, and the queue needs no memory beside the table.

use crate::objects::Spot;
use millpond_core::SlotId;
use millpond_store::Pieces;
use millpond_sync::{Rank, Ranked};
use rustix::io::Errno;
use rustix::thread::{NanosleepRelativeResult, Timespec, nanosleep};
use std::sync::atomic::{AtomicU64, Ordering::*};

/// The place of a slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u64)]
pub(crate) enum State {
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

/// What the first word says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SlotWord(u64);

impl SlotWord {
    pub(crate) fn state(self) -> State {
        match self.0 & STATE {
            1 => State::Local,
            2 => State::Moving,
            3 => State::Settling,
            4 => State::Remote,
            _ => State::Empty,
        }
    }

    /// Pages of the slot.
    pub(crate) fn pages(self) -> u16 {
        (self.0 >> PAGES_SHIFT & 0x3ff) as u16
    }

    /// How often the number of the slot was used before.
    pub(crate) fn generation(self) -> u32 {
        (self.0 >> GENERATION_SHIFT) as u32
    }

    /// Whether both words speak of one use of the slot, in one state.
    pub(crate) fn is_like(self, other: Self) -> bool {
        self.0 & !QUEUED == other.0 & !QUEUED
    }

    fn with_state(self, state: State) -> Self {
        Self(self.0 & !STATE | state as u64)
    }
}

/// The queue's ends: slots, plus one.
#[derive(Default)]
struct Queue {
    head: u64,
    tail: u64,
}

/// The table. The module's documentation describes it.
pub(crate) struct Table {
    slots: Pieces<[AtomicU64; 2]>,
    queue: Ranked<Queue>,
}

impl Table {
    pub(crate) fn new() -> Result<Self, Errno> {
        Ok(Self {
            slots: Pieces::new(SLOTS)?,
            queue: Ranked::new(Rank::RemoteQueue, Queue::default()),
        })
    }

    /// Whether the slot has room in the table. It has from then on.
    pub(crate) fn make_room(&self, slot: SlotId) -> bool {
        self.slots.get_or_grow(u64::from(slot.0)).is_some()
    }

    pub(crate) fn word(&self, slot: SlotId) -> SlotWord {
        let entry = self.slots.get(u64::from(slot.0));
        SlotWord(entry.map_or(0, |[first, _]| first.load(Acquire)))
    }

    /// The slot was saved in front: it waits for its turn from now on.
    pub(crate) fn saved(&self, slot: SlotId, pages: u16) {
        let Some([first, _]) = self.slots.get(u64::from(slot.0)) else {
            return;
        };
        let pages = u64::from(pages) << PAGES_SHIFT;
        let set = |word| word & (!0 << GENERATION_SHIFT | QUEUED) | pages | State::Local as u64;
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

    /// Takes the slot out of the queue that was saved first of those that are still local. It is moving from now on.
    pub(crate) fn take_oldest(&self) -> Option<(SlotId, SlotWord)> {
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
            let moving = found.with_state(State::Moving);
            let is_taken = found.state() == State::Local
                && first
                    .compare_exchange(word, moving.0, AcqRel, Acquire)
                    .is_ok();
            if is_taken {
                return Some((SlotId(index as u32), moving));
            }
        }
    }

    /// Changes the state of a slot that is still as `word` says. The answer is what it is now, if so.
    pub(crate) fn change(&self, slot: SlotId, word: SlotWord, state: State) -> Option<SlotWord> {
        let [first, _] = self.slots.get(u64::from(slot.0))?;
        let next = word.with_state(state);
        let changed = first.compare_exchange(word.0, next.0, AcqRel, Acquire);
        changed.is_ok().then_some(next)
    }

    /// The place of a slot that is remote. The caller holds the lock of the objects.
    pub(crate) fn spot(&self, slot: SlotId) -> Spot {
        let entry = self.slots.get(u64::from(slot.0));
        let word = entry.map_or(0, |[_, second]| second.load(Acquire));
        Spot {
            object: (word >> 32) as u32,
            chunk: word as u32,
        }
    }

    /// Sets the place of a slot that is settling or remote. The caller holds the lock of the objects.
    pub(crate) fn set_spot(&self, slot: SlotId, spot: Spot) {
        if let Some([_, second]) = self.slots.get(u64::from(slot.0)) {
            let word = u64::from(spot.object) << 32 | u64::from(spot.chunk);
            second.store(word, Release);
        }
    }

    /// Ends what the slot holds if it is still as `word` says. The next use of its number is another generation.
    pub(crate) fn end(&self, slot: SlotId, word: SlotWord) -> bool {
        let Some([first, _]) = self.slots.get(u64::from(slot.0)) else {
            return false;
        };
        let next =
            word.0 & QUEUED | u64::from(word.generation().wrapping_add(1)) << GENERATION_SHIFT;
        first
            .compare_exchange(word.0, next, AcqRel, Acquire)
            .is_ok()
    }

    pub(crate) fn ram_bytes(&self) -> u64 {
        self.slots.ram_bytes()
    }
}

/// Waits a moment for another thread, which needs microseconds: awake at first, then asleep.
pub(crate) fn pause(tries: &mut u32) {
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
        fn slots_leave_in_the_order_in_which_they_came(work in prop::collection::vec((0u8..4, 0u32..12), 1..300)) {
            let table = Table::new().unwrap();
            let mut queue: VecDeque<u32> = VecDeque::new();
            let mut local = [false; 12];
            for (act, number) in work {
                let slot = SlotId(number);
                prop_assert!(table.make_room(slot));
                let word = table.word(slot);
                match act {
                    0 | 1 => if word.state() == State::Empty {
                        table.saved(slot, 3);
                        local[number as usize] = true;
                        if !queue.contains(&number) {
                            queue.push_back(number);
                        }
                    },
                    2 => {
                        let ends = word.state() != State::Empty;
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
                        if let Some((slot, word)) = taken {
                            prop_assert_eq!((word.state(), word.pages()), (State::Moving, 3));
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
    fn what_was_sent_of_an_earlier_use_is_not_taken_for_the_slot() {
        let table = Table::new().unwrap();
        let slot = SlotId(5);
        assert!(table.make_room(slot));
        table.saved(slot, 1);
        let (_, moving) = table.take_oldest().unwrap();
        assert!(table.end(slot, moving));
        table.saved(slot, 1);
        let (_, again) = table.take_oldest().unwrap();
        assert_eq!(table.change(slot, moving, State::Settling), None);
        assert!(table.change(slot, again, State::Settling).is_some());
    }
}
