//! The place behind a process's store: what the supervisor keeps for the process.
//!
//! Everything is first saved in front. When the store in front is nearly full, slots go to the server (`mover.rs`),
//! in the order in which they were saved; `tiered.rs` of `millpond-store` has the rules by which the two places work
//! together.
//!
//! Slots that die at the server are collected, and reported to it by the hundred.
//!
//! Before a fork the server opens an account for the child, so that the child still has what the parent later
//! releases; the child takes the account over before it does anything else. A process that has nothing at the server
//! never contacts it.

use crate::desk::{Act, Ask, Refusal, Relay};
use crate::layout::{FOR_LOADS, FOR_NOTES};
use millpond_core::SlotId;
use millpond_core::port::{Forks, LoadError, Store, StoreUsage};
use millpond_store::{Front, Place, Refused, SlotWord, Tiered};
use millpond_sync::{Rank, Ranked};
use rustix::io::Errno;
use std::sync::atomic::{AtomicU64, Ordering::*};
use std::time::{Duration, Instant};

/// The maximum time for a load. The server's store gives up earlier.
const LOAD_PATIENCE: Duration = Duration::from_secs(150);
/// The maximum time for a note, which needs only the server's attention.
const NOTE_PATIENCE: Duration = Duration::from_secs(10);
/// Number of slots that are released together.
const TOGETHER: usize = 512;
/// The maximum number of children known by their numbers. Accounts of any others end when those children do.
const CHILDREN: usize = 64;
/// The number of times that a save moves slots before it reports that there is no room.
const TRIES: usize = 16;

/// What the process has yet to tell the server.
struct Notes {
    /// Slots at the server that nobody needs any more.
    dead: [u32; TOGETHER],
    count: usize,
    /// The store's number for a child, and the child's account.
    children: [(u64, u64); CHILDREN],
}

/// The store of a process under `millpond run`: another store, and behind it what the supervisor keeps.
pub type Relayed = Tiered<Supervisor>;

/// What the supervisor of a run keeps for this process, as the process sees it. The file of this type explains how.
pub struct Supervisor {
    pub(crate) relay: Relay,
    /// This process's account; zero before it has one.
    account: AtomicU64,
    /// The account of the child that the next fork creates; zero if there is none.
    of_next_child: AtomicU64,
    notes: Ranked<Notes>,
    /// The moment from which times are counted.
    since: Instant,
    /// The time until which the server is left alone, in nanoseconds.
    alone_until: AtomicU64,
}

impl Supervisor {
    /// Puts what the supervisor keeps behind `front`, which must be empty. `front` has room for `room` bytes,
    /// excluding RAM, whose limit it reports itself ([`Tiers::ram_most`](millpond_core::port::Tiers::ram_most)).
    /// Slots leave it once seven eighths of the total are used.
    ///
    /// # Errors
    /// The kernel has no address space for a table.
    pub fn behind(front: Box<dyn Store>, relay: Relay, room: u64) -> Result<Relayed, Errno> {
        let notes = Notes {
            dead: [0; TOGETHER],
            count: 0,
            children: [(0, 0); CHILDREN],
        };
        let supervisor = Self {
            relay,
            account: AtomicU64::new(0),
            of_next_child: AtomicU64::new(0),
            notes: Ranked::new(Rank::RelayNotes, notes),
            since: Instant::now(),
            alone_until: AtomicU64::new(0),
        };
        Ok(Tiered::new(Front::new(front, room)?, supervisor))
    }

    fn nanos(&self, at: Instant) -> u64 {
        at.saturating_duration_since(self.since).as_nanos() as u64
    }

    pub(crate) fn is_left_alone(&self, now: Instant) -> bool {
        self.nanos(now) < self.alone_until.load(Relaxed)
    }

    pub(crate) fn leave_alone(&self, until: Instant) {
        self.alone_until.store(self.nanos(until), Relaxed);
    }

    /// Tells the server something, with `bytes` in the window.
    fn note(&self, act: Act, account: u64, number: u64, bytes: &[u8]) -> Result<u64, Refusal> {
        let until = Instant::now() + NOTE_PATIENCE;
        let mut desk = self.relay.sit(FOR_NOTES, until)?;
        desk.put(bytes);
        let ask = Ask {
            act,
            account,
            number,
            first_page: 0,
            len: bytes.len(),
        };
        desk.ask(ask, until)
    }

    /// Returns this process's account, and opens it if there is none yet.
    pub(crate) fn account(&self) -> Option<u64> {
        let known = self.account.load(Acquire);
        if known != 0 {
            return Some(known);
        }
        let _notes = self.notes.lock();
        let known = self.account.load(Acquire);
        if known != 0 {
            return Some(known);
        }
        let process = u64::from(self.relay.process());
        let account = self.note(Act::Begin, 0, process, &[]).ok()?;
        self.account.store(account, Release);
        Some(account)
    }

    /// Notes that a slot at the server is no longer needed.
    pub(crate) fn let_go(&self, place: u64) {
        let mut notes = self.notes.lock();
        if notes.count == TOGETHER {
            self.tell_dead(&mut notes);
        }
        let count = notes.count;
        notes.dead[count] = place as u32;
        notes.count = count + 1;
    }

    /// Tells the server which slots nobody needs any more.
    pub(crate) fn let_go_of_pending(&self) {
        let mut notes = self.notes.lock();
        if notes.count > 0 {
            self.tell_dead(&mut notes);
        }
    }

    fn tell_dead(&self, notes: &mut Notes) {
        let mut bytes = [0; 4 * TOGETHER];
        let dead = &notes.dead[..notes.count];
        for (bytes, slot) in bytes.chunks_exact_mut(4).zip(dead) {
            bytes.copy_from_slice(&slot.to_ne_bytes());
        }
        let len = 4 * notes.count;
        notes.count = 0;
        // A server that is gone keeps nothing. One that does not answer keeps them until this process ends.
        let _ = self.note(Act::Release, self.account.load(Acquire), 0, &bytes[..len]);
    }

    /// Takes over the account that the parent had opened.
    fn adopt(&self) -> Result<(), Errno> {
        self.relay.note_process();
        let mut notes = self.notes.lock();
        // It is up to the parent to report these.
        notes.count = 0;
        notes.children = [(0, 0); CHILDREN];
        if self.account.load(Acquire) == 0 {
            return Ok(());
        }
        let account = self.of_next_child.swap(0, AcqRel);
        self.account.store(account, Release);
        let process = u64::from(self.relay.process());
        let adopted = account != 0 && self.note(Act::Adopt, account, process, &[]).is_ok();
        adopted.then_some(()).ok_or(Errno::CONNREFUSED)
    }
}

impl Place for Supervisor {
    fn make_room(&self, front: &Front, refused: &Refused) -> bool {
        refused.tries < TRIES && self.move_bytes(front, refused.len)
    }

    fn load(
        &self,
        front: &Front,
        slot: SlotId,
        _: SlotWord,
        first_page: u16,
        out: &mut [u8],
    ) -> Result<(), LoadError> {
        let until = Instant::now() + LOAD_PATIENCE;
        let loaded = self.relay.sit(FOR_LOADS, until).and_then(|mut desk| {
            let ask = Ask {
                act: Act::Load,
                account: self.account.load(Relaxed),
                number: front.slots().place(slot),
                first_page,
                len: out.len(),
            };
            desk.ask(ask, until)?;
            desk.take(out);
            Ok(())
        });
        loaded.map_err(|refusal| {
            front.note_lost();
            refusal.into()
        })
    }

    /// A slot that is there stays there until it is released, and nobody else does that.
    fn free(&self, front: &Front, slot: SlotId, word: SlotWord) -> bool {
        let ended = front.end(slot, word);
        ended.map(|place| self.let_go(place)).is_some()
    }

    /// What the supervisor stores is its own, not this process's.
    fn usage(&self) -> StoreUsage {
        StoreUsage::default()
    }

    fn away_ms(&self) -> u64 {
        self.relay.away_ms()
    }

    fn relieve(&self, front: &Front) -> bool {
        self.move_oldest(front).is_some()
    }

    fn move_away(&self, front: &Front) -> bool {
        self.move_some(front)
    }
}

impl Forks for Supervisor {
    fn expect_child(&self) {
        self.let_go_of_pending();
        let account = self.account.load(Acquire);
        let of_child = match account {
            0 => 0,
            account => self.note(Act::Fork, account, 0, &[]).unwrap_or(0),
        };
        self.of_next_child.store(of_child, Release);
    }

    fn before_fork(&self, child: u64) {
        let of_child = self.of_next_child.load(Acquire);
        let mut notes = self.notes.lock();
        if of_child != 0
            && let Some(free) = notes.children.iter_mut().find(|(_, account)| *account == 0)
        {
            *free = (child, of_child);
        }
    }

    fn after_fork_in_child(&self) -> Result<(), i32> {
        self.adopt().map_err(Errno::raw_os_error)
    }

    fn child_gone(&self, child: u64) {
        let account = {
            let mut notes = self.notes.lock();
            let mut children = notes.children.iter_mut();
            let known = children.find(|(number, account)| *number == child && *account != 0);
            known.map(std::mem::take)
        };
        if let Some((_, account)) = account {
            // A server that is gone has no accounts.
            let _ = self.note(Act::End, account, 0, &[]);
        }
    }
}
