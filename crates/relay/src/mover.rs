//! Moving: when the store in front has no room left, the slots that were saved first go beyond the machine.
//!
//! There is no thread for it. A thread whose save finds no room itself moves as much as it needs, just as a thread
//! that finds no memory itself reclaims; the housekeeping thread starts earlier, at seven eighths of the room, so
//! that this is rare. Both are inside the gate, so a fork finds no slot that is half moved.
//!
//! A slot goes from the store in front straight into the window of a desk. Once the server has it, it is released in
//! front. By then the server has not yet sent it: the server has it in RAM, and serves requests for it from there.
//!
//! A server that takes nothing, because its own room is used up or the store behind it does not answer, is left alone
//! for a moment. Then the same slot is tried again.

use crate::desk::{Act, Ask};
use crate::layout::FOR_SAVES;
use crate::supervisor::Supervisor;
use millpond_core::PAGE_SIZE;
use millpond_store::Front;
use std::time::{Duration, Instant};

/// The maximum time for the server to accept a slot: it waits for the network itself, until nothing was sent for ten
/// seconds.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long a server that took nothing is left alone.
const LEFT_ALONE: Duration = Duration::from_millis(200);
/// Bytes that one call of the housekeeping thread moves.
const AT_ONCE: usize = 2 << 20;

impl Supervisor {
    /// Moves at least `wanted` bytes of slots. Returns whether anything was moved.
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

    /// Moves some slots if the store in front is nearly full. Returns whether there is more to move now.
    pub(crate) fn move_some(&self, front: &Front) -> bool {
        // Whether more than this many eighths of the room in front are used.
        let is_nearly_full = |eighths| front.stored_bytes() > front.room() / 8 * eighths;
        self.let_go_of_pending();
        is_nearly_full(7) && self.move_bytes(front, AT_ONCE) && is_nearly_full(6)
    }

    /// Moves the slot that was saved first. Returns its length, or `None` if there is none, or it cannot be moved
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
