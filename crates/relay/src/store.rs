//! The store of a process: another store in front, and behind it what the server keeps for the run.
//!
//! Everything is saved in front. Slots go to the server when the store in front is nearly full (`mover.rs`), those
//! first that were saved first, and stay there when they are read: what is used again is saved anew in front when it
//! leaves memory again, and its old slot dies.
//!
//! Slots that die at the server are collected, and told to it by the hundred.
//!
//! Before a fork the server opens an account for the child, so that what the parent lets go of later is still there for
//! it; the child takes the account over before it does anything else. A process that has nothing at the server never
//! speaks to it.
//!
//! Pages of a slot that nobody will read again ([`Store::forget`]) keep their room in front until the slot is released:
//! a slot with holes could not be moved as a whole.

use crate::desk::{Act, Ask, Refusal, Relay};
use crate::layout::{FOR_LOADS, FOR_NOTES};
use millpond_core::port::{
    Beyond, LoadError, Recompress, Recompressed, SaveError, Saved, Store, StoreUsage, Tiers,
};
use millpond_core::{PAGE_SIZE, SlotId, SlotPart};
use millpond_store::{SlotPlaces, SlotWord};
use millpond_sync::{Rank, Ranked};
use rustix::io::Errno;
use std::sync::atomic::{AtomicU64, Ordering::*};
use std::time::{Duration, Instant};

/// So long a load may take. The server's store gives up before.
const LOAD_PATIENCE: Duration = Duration::from_secs(150);
/// So long a note may take, which asks for nothing but the server's attention.
const NOTE_PATIENCE: Duration = Duration::from_secs(10);
/// Slots that are let go of together.
const TOGETHER: usize = 512;
/// Most children that are known by their numbers. Accounts of more end with the children.
const CHILDREN: usize = 64;
/// Calls of a save that move slots before it says that there is no room.
const TRIES: usize = 16;

/// What the process still has to tell the server.
struct Notes {
    /// Slots there that nobody needs any more.
    dead: [u32; TOGETHER],
    count: usize,
    /// The store's number of a child, and its account.
    children: [(u64, u64); CHILDREN],
}

/// What was done beyond the machine, in numbers.
#[derive(Default)]
pub(crate) struct Counters {
    pub(crate) slots: AtomicU64,
    pub(crate) bytes: AtomicU64,
    loads: AtomicU64,
    lost_loads: AtomicU64,
}

/// Another store with what the server keeps behind it. The file of this type opens with how the two work together.
pub struct Relayed {
    pub(crate) local: Box<dyn Store>,
    pub(crate) relay: Relay,
    pub(crate) places: SlotPlaces,
    /// Bytes that the store in front has room for, beside RAM of which it says itself how much that may be.
    pub(crate) room: u64,
    pub(crate) counters: Counters,
    /// This process's account; zero before it has one.
    account: AtomicU64,
    /// The account of the child that the next fork makes; zero if it could not be had.
    of_next_child: AtomicU64,
    notes: Ranked<Notes>,
    /// The moment from which times are counted.
    since: Instant,
    /// Until then the server is left alone, in nanoseconds.
    alone_until: AtomicU64,
}

impl Relayed {
    /// Puts what the server keeps behind `local`, which must be empty and has room for `room` bytes, beside RAM of
    /// which it says itself how much that may be ([`Tiers::ram_most`]). Slots leave it from seven eighths of all of
    /// that on.
    ///
    /// # Errors
    /// The kernel gives no address space for a table.
    pub fn new(local: Box<dyn Store>, relay: Relay, room: u64) -> Result<Self, Errno> {
        let notes = Notes {
            dead: [0; TOGETHER],
            count: 0,
            children: [(0, 0); CHILDREN],
        };
        Ok(Self {
            local,
            relay,
            places: SlotPlaces::new()?,
            room,
            counters: Counters::default(),
            account: AtomicU64::new(0),
            of_next_child: AtomicU64::new(0),
            notes: Ranked::new(Rank::RelayNotes, notes),
            since: Instant::now(),
            alone_until: AtomicU64::new(0),
        })
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

    /// This process's account, which is opened now if there is none yet.
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

    /// A slot at the server is not needed any more.
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

    fn load_far(
        &self,
        slot: SlotId,
        word: SlotWord,
        first_page: u16,
        out: &mut [u8],
    ) -> Result<(), LoadError> {
        let end = usize::from(first_page) + out.len() / PAGE_SIZE;
        if out.is_empty() || end > usize::from(word.pages()) {
            return Err(LoadError::Missing);
        }
        self.counters.loads.fetch_add(1, Relaxed);
        let until = Instant::now() + LOAD_PATIENCE;
        let loaded = self.relay.sit(FOR_LOADS, until).and_then(|mut desk| {
            let ask = Ask {
                act: Act::Load,
                account: self.account.load(Relaxed),
                number: self.places.place(slot),
                first_page,
                len: out.len(),
            };
            desk.ask(ask, until)?;
            desk.take(out);
            Ok(())
        });
        loaded.map_err(|refusal| {
            self.counters.lost_loads.fetch_add(1, Relaxed);
            refusal.into()
        })
    }

    /// Takes over the account that the parent has had opened.
    fn adopt(&self) -> Result<(), Errno> {
        self.relay.note_process();
        let mut notes = self.notes.lock();
        // They are the parent's to tell.
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

impl Store for Relayed {
    fn save(
        &self,
        slot: SlotId,
        previous: Option<SlotPart>,
        data: &[u8],
    ) -> Result<Saved, SaveError> {
        if !self.places.make_room(slot) {
            return Err(SaveError::Full);
        }
        let mut tries = 0;
        loop {
            match self.local.save(slot, previous, data) {
                Err(SaveError::Full) if tries < TRIES && self.make_room(data.len()) => tries += 1,
                Ok(Saved::Stored) => {
                    self.places.saved(slot, (data.len() / PAGE_SIZE) as u16);
                    return Ok(Saved::Stored);
                }
                other => return other,
            }
        }
    }

    fn load(&self, slot: SlotId, first_page: u16, out: &mut [u8]) -> Result<(), LoadError> {
        match self.places.load(&*self.local, slot, first_page, out)? {
            Some(word) => self.load_far(slot, word, first_page, out),
            None => Ok(()),
        }
    }

    fn expect(&self, page: SlotPart) {
        self.local.expect(page);
    }

    fn expect_bytes(&self, page: SlotPart) {
        self.local.expect_bytes(page);
    }

    fn release(&self, slot: SlotId) {
        let Some(word) = self.places.release(&*self.local, slot) else {
            return;
        };
        // A slot that is there stays there until it is released, which nobody else does.
        let place = self.places.place(slot);
        if self.places.end(slot, word) {
            let bytes = u64::from(word.pages()) * PAGE_SIZE as u64;
            self.counters.slots.fetch_sub(1, Relaxed);
            self.counters.bytes.fetch_sub(bytes, Relaxed);
            self.let_go(place);
        }
    }

    fn usage(&self) -> StoreUsage {
        let local = self.local.usage();
        StoreUsage {
            slots: local.slots + self.counters.slots.load(Relaxed),
            logical_bytes: local.logical_bytes + self.counters.bytes.load(Relaxed),
            ram_bytes: local.ram_bytes + self.places.ram_bytes(),
            ..local
        }
    }

    fn beyond(&self) -> Beyond {
        Beyond {
            bytes: self.counters.bytes.load(Relaxed),
            loads: self.counters.loads.load(Relaxed),
            lost_loads: self.counters.lost_loads.load(Relaxed),
            away_ms: self.relay.away_ms(),
        }
    }

    fn move_away(&self) -> bool {
        self.move_some()
    }

    fn limit_ram(&self, bytes: u64) {
        self.local.limit_ram(bytes);
    }

    fn trim_ram(&self) -> bool {
        // Where what is behind RAM in front has no room either, a slot less there makes some.
        let is_stuck = || self.local.tiers().is_some_and(|tiers| tiers.moves);
        self.local.trim_ram() || (is_stuck() && self.move_oldest().is_some())
    }

    fn give_room_back(&self) -> bool {
        self.local.give_room_back()
    }

    fn recompress(&self, worth_it: bool) -> Recompress {
        self.local.recompress(worth_it)
    }

    fn recompressed(&self) -> Recompressed {
        self.local.recompressed()
    }

    fn tiers(&self) -> Option<Tiers> {
        self.local.tiers()
    }

    fn stay_awake(&self, on: bool) {
        self.local.stay_awake(on);
    }

    fn write_behind(&self) {
        self.local.write_behind();
    }

    fn descriptors(&self, keep: &mut dyn FnMut(i32)) {
        self.local.descriptors(keep);
    }

    fn after_fork_in_child(&self) -> Result<(), i32> {
        self.local.after_fork_in_child()?;
        self.adopt().map_err(Errno::raw_os_error)
    }

    fn expect_child(&self) {
        self.local.expect_child();
        self.let_go_of_pending();
        let account = self.account.load(Acquire);
        let of_child = match account {
            0 => 0,
            account => self.note(Act::Fork, account, 0, &[]).unwrap_or(0),
        };
        self.of_next_child.store(of_child, Release);
    }

    fn before_fork(&self, child: u64) {
        self.local.before_fork(child);
        let of_child = self.of_next_child.load(Acquire);
        let mut notes = self.notes.lock();
        if of_child != 0
            && let Some(free) = notes.children.iter_mut().find(|(_, account)| *account == 0)
        {
            *free = (child, of_child);
        }
    }

    fn child_gone(&self, child: u64) {
        self.local.child_gone(child);
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
