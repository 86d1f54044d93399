//! Moving: the slots that were saved first go beyond the machine, when the store in front has no room left.
//!
//! There is no thread for it. A thread whose save finds no room moves as much as it needs itself, as a thread that
//! finds no memory reclaims itself; the thread that keeps house begins earlier, at seven eighths of the room, so that
//! this is rare. Both are inside the gate, so a fork finds no slot that is half moved.
//!
//! A slot goes from the store in front straight into the window of a desk. When the server has it, it is let go in
//! front. The server has not sent it yet then: it has it in RAM, and whoever asks for it gets it from there.
//!
//! A server that takes nothing, as its own room is used up or what is behind it does not answer, is left alone for a
//! moment. The slot is the next one again.

use crate::desk::{Act, Ask};
use crate::layout::FOR_SAVES;
use crate::store::Relayed;
use millpond_core::{PAGE_SIZE, SlotId};
use millpond_store::{SlotState, SlotWord};
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// So long the server may take to accept a slot: it waits for the network itself, until for ten seconds nothing went.
const PATIENCE: Duration = Duration::from_secs(60);
/// So long a server that took nothing is left alone.
const LEFT_ALONE: Duration = Duration::from_millis(200);
/// Bytes that one call of the thread that keeps house moves.
const AT_ONCE: usize = 2 << 20;

impl Relayed {
    /// Moves at least `wanted` bytes of slots. The answer is whether anything was moved.
    pub(crate) fn make_room(&self, wanted: usize) -> bool {
        let mut moved = 0;
        while moved < wanted {
            match self.move_oldest() {
                Some(bytes) => moved += bytes,
                None => break,
            }
        }
        moved > 0
    }

    /// Moves some slots if the store in front is nearly full. The answer is whether there is more to move now.
    pub(crate) fn move_some(&self) -> bool {
        self.let_go_of_pending();
        self.is_nearly_full(7) && self.make_room(AT_ONCE) && self.is_nearly_full(6)
    }

    /// Whether so many eighths of the room in front are used.
    fn is_nearly_full(&self, eighths: u64) -> bool {
        let tiers = self.local.tiers();
        let room = self
            .room
            .saturating_add(tiers.map_or(0, |tiers| tiers.ram_most));
        self.local.usage().stored_bytes > room / 8 * eighths
    }

    /// Moves the slot that was saved first. The answer is its length, or `None` if there is none, or it cannot be moved
    /// now.
    pub(crate) fn move_oldest(&self) -> Option<usize> {
        let now = Instant::now();
        if self.is_left_alone(now) {
            return None;
        }
        let account = self.account()?;
        let until = now + PATIENCE;
        let mut desk = self.relay.sit(FOR_SAVES, until).ok()?;
        loop {
            let (slot, word) = self.places.take_oldest()?;
            let len = usize::from(word.pages()) * PAGE_SIZE;
            let loaded = desk.fill(len, |window| self.local.load(slot, 0, window));
            if !self.places.word(slot).is_like(word) {
                // It was released meanwhile, and what was read may be anything.
                continue;
            }
            if loaded.is_err() {
                // It stays there for its owner to find out why it cannot be read.
                self.places.change(slot, word, SlotState::Local);
                continue;
            }
            let ask = Ask {
                act: Act::Save,
                account,
                number: 0,
                first_page: 0,
                len,
            };
            match desk.ask(ask, until) {
                Ok(place) => {
                    self.settle(slot, word, place);
                    return Some(len);
                }
                Err(_) => {
                    self.places.put_back(slot, word);
                    self.leave_alone(Instant::now() + LEFT_ALONE);
                    return None;
                }
            }
        }
    }

    /// Lets a slot go in front that the server has as `place`, unless it was released since it was read.
    fn settle(&self, slot: SlotId, word: SlotWord, place: u64) {
        let Some(settling) = self.places.change(slot, word, SlotState::Settling) else {
            return self.let_go(place);
        };
        self.local.release(slot);
        self.places.set_place(slot, place);
        self.counters.slots.fetch_add(1, Relaxed);
        let bytes = u64::from(word.pages()) * PAGE_SIZE as u64;
        self.counters.bytes.fetch_add(bytes, Relaxed);
        self.places.change(slot, settling, SlotState::Remote);
    }
}
