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
use crate::supervisor::Supervisor;
use millpond_core::PAGE_SIZE;
use millpond_store::Front;
use std::time::{Duration, Instant};

/// So long the server may take to accept a slot: it waits for the network itself, until for ten seconds nothing went.
const PATIENCE: Duration = Duration::from_secs(60);
/// So long a server that took nothing is left alone.
const LEFT_ALONE: Duration = Duration::from_millis(200);
/// Bytes that one call of the thread that keeps house moves.
const AT_ONCE: usize = 2 << 20;

impl Supervisor {
    /// Moves at least `wanted` bytes of slots. The answer is whether anything was moved.
    pub(crate) fn move_bytes(&self, front: &Front, wanted: usize) -> bool {
        let mut moved = 0;
        while moved < wanted {
            match self.move_oldest(front) {
                Some(bytes) => moved += bytes,
                None => break,
            }
        }
        moved > 0
    }

    /// Moves some slots if the store in front is nearly full. The answer is whether there is more to move now.
    pub(crate) fn move_some(&self, front: &Front) -> bool {
        // Whether more than so many eighths of the room in front are used.
        let is_nearly_full = |eighths| front.stored_bytes() > front.room() / 8 * eighths;
        self.let_go_of_pending();
        is_nearly_full(7) && self.move_bytes(front, AT_ONCE) && is_nearly_full(6)
    }

    /// Moves the slot that was saved first. The answer is its length, or `None` if there is none, or it cannot be moved
    /// now.
    pub(crate) fn move_oldest(&self, front: &Front) -> Option<usize> {
        let now = Instant::now();
        if self.is_left_alone(now) {
            return None;
        }
        let account = self.account()?;
        let until = now + PATIENCE;
        let mut desk = self.relay.sit(FOR_SAVES, until).ok()?;
        loop {
            let (slot, word) = front.slots().take_oldest()?;
            let len = usize::from(word.pages()) * PAGE_SIZE;
            let is_read = front.read_taken(slot, word, |store| {
                desk.fill(len, |window| store.load(slot, 0, window))
            });
            if !is_read {
                continue;
            }
            let ask = Ask {
                act: Act::Save,
                account,
                number: 0,
                first_page: 0,
                len,
            };
            let Ok(place) = desk.ask(ask, until) else {
                front.slots().put_back(slot, word);
                self.leave_alone(Instant::now() + LEFT_ALONE);
                return None;
            };
            match front.let_go(slot, word) {
                Some(settling) => front.arrived(slot, settling, place),
                None => self.let_go(place),
            }
            return Some(len);
        }
    }
}
