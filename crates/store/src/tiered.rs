//! A store in front, and behind it a slow place for the slots that were saved first.
//!
//! Three stores put one place before another. This file is what two of them share.
//!
//! | | [`Spill`](crate::Spill) | `RemoteStore` | `Relayed` |
//! | --- | --- | --- | --- |
//! | in front | compressed RAM | any store | any store |
//! | behind | a file | objects elsewhere | what the supervisor of a run keeps |
//! | what a save meets first | the front, unless that is full or the bytes do not compress | the front | the front |
//! | what leaves the front | what lies in its last chunks | what was saved first | what was saved first |
//! | who moves it | the housekeeping thread | a thread that packs many slots into an object | whoever finds no room |
//! | who knows where a slot is | the tables of both | [`SlotPlaces`] | [`SlotPlaces`] |
//! | which of both has it meanwhile | the front, until the back has it | the same | the same |
//! | a fork | both serve the child | refused | the supervisor opens an account for the child |
//!
//! **`RemoteStore` and `Relayed` have this in common**, which is [`Tiered`]: every slot is saved in front, and a save
//! that the front refuses is repeated as long as the place makes room. A load asks the front unless the slot has left.
//! A slot is released where it is. What has left is counted. Everything else is the front's own work: its limits, its
//! compaction, its descriptors. [`Front`] has the steps by which a slot leaves, and notices when the slot was released
//! meanwhile: [`take_oldest`](SlotPlaces::take_oldest), [`read_taken`](Front::read_taken), [`let_go`](Front::let_go),
//! [`arrived`](Front::arrived).
//!
//! **They differ in the rest**, which is [`Place`]: how room is made in front (one place waits for its own thread, the
//! other moves slots in the thread that saves), how a load and a release reach the place, what the place takes itself,
//! whether a page that leaves memory is still as the place has it, and what a fork means.
//!
//! **`Spill` stands apart.** Both of its places are on this machine, and it uses that: one computation of checksums
//! serves both, a save that the front refuses hands the same image to the file, the loads of several slots reach the
//! file together, and each load is timed. It has no table of its own, since both places answer at once that they do not
//! have a slot, and it needs no order by age, since it moves what frees memory. As a `Place` it would cost 16 bytes for
//! each slot and a queue's lock in each save, and would share only the calls that are passed on. So `Spill` shares
//! [`StoreUsage`]'s sum with this file, and nothing else.
//!
//! A slot is in at least one of both places at each moment. The front releases it only when the place has taken it
//! (`slot_places.rs` has the states), and a slot that is read behind stays there: what is used again is saved anew in
//! front when it leaves memory again, and its old slot dies.
//!
//! Pages of a slot that nobody will read again ([`Slots::forget`]) keep their room in front until the slot is released:
//! a slot with holes could not move as a whole.

use crate::slot_places::{SlotPlaces, SlotState, SlotWord};
use millpond_core::port::{
    Beyond, Forks, LoadError, Recompress, Recompressed, SaveError, Saved, Slots, Store, StoreUsage,
    Tiers, Upkeep,
};
use millpond_core::{PAGE_SIZE, SlotId, SlotPart};
use rustix::io::Errno;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// What a [`Tiered`] needs of the place behind its front.
///
/// Calls about different slots may run at the same time, from threads that serve a fault: none may call the program's
/// allocator or touch managed memory. Of [`Forks`], a place does its own part; the front's is done by [`Tiered`].
pub trait Place: Forks {
    /// Whether `data`, pages that leave memory, is what the place still has as `part`, so that it need not be saved. A
    /// place that does not know says no.
    fn still_holds(&self, _front: &Front, _part: SlotPart, _data: &[u8]) -> bool {
        false
    }

    /// How often slots have left the front so far: a save notes it before it asks the front ([`Refused::seen`]).
    fn departures(&self) -> u64 {
        0
    }

    /// Makes room in front after it has refused a save, or waits until room is made. Returns whether to ask it again.
    fn make_room(&self, front: &Front, refused: &Refused) -> bool;

    /// Notes that `bytes` more bytes were saved in front.
    fn saved(&self, _bytes: u64) {}

    /// Reads `out`, whole pages, of a slot that has left the front, from its page `first_page` on. The pages lie within
    /// the slot, whose state was `word` when the load found that it had left.
    ///
    /// # Errors
    /// `out` may hold anything then. The place counts what is lost by [`Front::note_lost`].
    fn load(
        &self,
        front: &Front,
        slot: SlotId,
        word: SlotWord,
        first_page: u16,
        out: &mut [u8],
    ) -> Result<(), LoadError>;

    /// Ends a slot that has left the front, by [`Front::end`], and frees its room here. Returns false if the slot has
    /// changed since `word`; the caller looks again then.
    fn free(&self, front: &Front, slot: SlotId, word: SlotWord) -> bool;

    /// What the place takes itself: stored bytes, and bytes of RAM. The slots in it are the front's to count.
    fn usage(&self) -> StoreUsage;

    /// How long nothing has answered there, in milliseconds; zero while it answers.
    fn away_ms(&self) -> u64;

    /// Has something leave a front whose RAM is beyond its limit and finds no room on this machine. Returns whether
    /// anything has left.
    fn relieve(&self, front: &Front) -> bool;

    /// Does the work of [`Upkeep::move_away`], if the place has no thread of its own for that.
    fn move_away(&self, _front: &Front) -> bool {
        false
    }
}

/// A save that the front has refused.
#[derive(Clone, Copy, Debug)]
pub struct Refused {
    /// The number of bytes that were to be saved.
    pub len: usize,
    /// How often this save was refused before.
    pub tries: usize,
    /// The answer of [`Place::departures`] just before the front was asked.
    pub seen: u64,
}

/// What was done behind the front, in numbers.
#[derive(Default)]
struct Counters {
    slots: AtomicU64,
    bytes: AtomicU64,
    loads: AtomicU64,
    lost_loads: AtomicU64,
}

/// The store in front, which of its slots have left, and the steps by which they leave.
pub struct Front {
    store: Box<dyn Store>,
    slots: SlotPlaces,
    room: u64,
    behind: Counters,
}

impl Front {
    /// Makes a front of `store`, which must be empty and has room for `room` bytes beside the RAM whose limit it
    /// reports itself ([`Tiers::ram_most`]).
    ///
    /// # Errors
    /// The kernel gives no address space for the table of slots.
    pub fn new(store: Box<dyn Store>, room: u64) -> Result<Arc<Self>, Errno> {
        Ok(Arc::new(Self {
            store,
            slots: SlotPlaces::new()?,
            room,
            behind: Counters::default(),
        }))
    }

    /// The store in front.
    #[must_use]
    pub fn store(&self) -> &dyn Store {
        &*self.store
    }

    /// The table that says where each slot is.
    #[must_use]
    pub fn slots(&self) -> &SlotPlaces {
        &self.slots
    }

    /// The number of bytes for which the store in front has room now, its RAM included.
    #[must_use]
    pub fn room(&self) -> u64 {
        let ram = self.store.tiers().map_or(0, |tiers| tiers.ram_most);
        self.room.saturating_add(ram)
    }

    /// The number of bytes that are stored in front.
    #[must_use]
    pub fn stored_bytes(&self) -> u64 {
        self.store.usage().stored_bytes
    }

    /// Slots that have left the front and live, and the bytes of their pages.
    #[must_use]
    pub fn behind(&self) -> (u64, u64) {
        let Counters { slots, bytes, .. } = &self.behind;
        (slots.load(Relaxed), bytes.load(Relaxed))
    }

    /// Loads of slots that have left the front, and those of them that failed.
    #[must_use]
    pub fn loads_behind(&self) -> (u64, u64) {
        let Counters {
            loads, lost_loads, ..
        } = &self.behind;
        (loads.load(Relaxed), lost_loads.load(Relaxed))
    }

    /// Counts a load that got no page from the place behind.
    pub fn note_lost(&self) {
        self.behind.lost_loads.fetch_add(1, Relaxed);
    }

    /// Has `read` load a slot that was taken off the queue, and says whether what it read is the slot. It is not if the
    /// slot was released meanwhile. A slot that cannot be read stays in front, for its owner to find out why.
    pub fn read_taken(
        &self,
        slot: SlotId,
        word: SlotWord,
        read: impl FnOnce(&dyn Slots) -> Result<(), LoadError>,
    ) -> bool {
        let loaded = read(&*self.store);
        if !self.slots.word(slot).is_like(word) {
            return false;
        }
        if loaded.is_err() {
            self.slots.change(slot, word, SlotState::Local);
        }
        loaded.is_ok()
    }

    /// Releases a slot in front that the place behind has taken. The slot is settling from then on, until
    /// [`Front::arrived`]. Returns `None` if it was released since it was read: what the place has of it is dead.
    #[must_use]
    pub fn let_go(&self, slot: SlotId, word: SlotWord) -> Option<SlotWord> {
        let settling = self.slots.change(slot, word, SlotState::Settling)?;
        self.store.release(slot);
        Some(settling)
    }

    /// Notes that a settling slot is at `place` behind, and only there.
    pub fn arrived(&self, slot: SlotId, settling: SlotWord, place: u64) {
        self.slots.set_place(slot, place);
        self.behind.slots.fetch_add(1, Relaxed);
        self.behind.bytes.fetch_add(bytes_of(settling), Relaxed);
        self.slots.change(slot, settling, SlotState::Remote);
    }

    /// Ends a slot that has left the front, if it is still as `word` says, and returns the place that it had. A place
    /// that moves its slots calls this under the lock under which it moves them.
    #[must_use]
    pub fn end(&self, slot: SlotId, word: SlotWord) -> Option<u64> {
        let place = self.slots.place(slot);
        if !self.slots.end(slot, word) {
            return None;
        }
        self.behind.slots.fetch_sub(1, Relaxed);
        self.behind.bytes.fetch_sub(bytes_of(word), Relaxed);
        Some(place)
    }
}

fn bytes_of(word: SlotWord) -> u64 {
    u64::from(word.pages()) * PAGE_SIZE as u64
}

/// A store with a slow place behind it. The file of this type opens with how the two work together.
pub struct Tiered<P> {
    /// Dropped first: a place with a thread of its own ends that before the front goes.
    back: P,
    front: Arc<Front>,
}

impl<P: Place> Tiered<P> {
    /// Puts `back` behind `front`.
    #[must_use]
    pub fn new(front: Arc<Front>, back: P) -> Self {
        Self { back, front }
    }

    /// The store in front, and which of its slots have left.
    #[must_use]
    pub fn front(&self) -> &Front {
        &self.front
    }

    /// The place behind.
    #[must_use]
    pub fn back(&self) -> &P {
        &self.back
    }
}

impl<P: Place> Slots for Tiered<P> {
    fn save(
        &self,
        slot: SlotId,
        previous: Option<SlotPart>,
        data: &[u8],
    ) -> Result<Saved, SaveError> {
        let Self { back, front } = self;
        if previous.is_some_and(|part| back.still_holds(front, part, data)) {
            return Ok(Saved::Unchanged);
        }
        if !front.slots.make_room(slot) {
            return Err(SaveError::Full);
        }
        let len = data.len();
        let mut tries = 0;
        loop {
            let seen = back.departures();
            match front.store.save(slot, previous, data) {
                Err(SaveError::Full) if back.make_room(front, &Refused { len, tries, seen }) => {
                    tries += 1;
                }
                Ok(Saved::Stored) => {
                    front.slots.saved(slot, (len / PAGE_SIZE) as u16);
                    back.saved(len as u64);
                    return Ok(Saved::Stored);
                }
                other => return other,
            }
        }
    }

    fn load(&self, slot: SlotId, first_page: u16, out: &mut [u8]) -> Result<(), LoadError> {
        let Self { back, front } = self;
        let Some(word) = front.slots.load(&*front.store, slot, first_page, out)? else {
            return Ok(());
        };
        let pages = out.len() / PAGE_SIZE;
        if pages == 0 || usize::from(first_page) + pages > usize::from(word.pages()) {
            return Err(LoadError::Missing);
        }
        front.behind.loads.fetch_add(1, Relaxed);
        back.load(front, slot, word, first_page, out)
    }

    fn expect(&self, page: SlotPart) {
        self.front.store.expect(page);
    }

    fn expect_bytes(&self, page: SlotPart) {
        self.front.store.expect_bytes(page);
    }

    fn release(&self, slot: SlotId) {
        let Self { back, front } = self;
        while let Some(word) = front.slots.release(&*front.store, slot) {
            if back.free(front, slot, word) {
                return;
            }
        }
    }
}

impl<P: Place> Upkeep for Tiered<P> {
    fn usage(&self) -> StoreUsage {
        let (slots, logical_bytes) = self.front.behind();
        let behind = StoreUsage {
            slots,
            logical_bytes,
            ram_bytes: self.front.slots.ram_bytes(),
            ..StoreUsage::default()
        };
        self.front.store.usage() + behind + self.back.usage()
    }

    fn tiers(&self) -> Option<Tiers> {
        self.front.store.tiers()
    }

    fn beyond(&self) -> Beyond {
        let (_, bytes) = self.front.behind();
        let (loads, lost_loads) = self.front.loads_behind();
        Beyond {
            bytes,
            loads,
            lost_loads,
            away_ms: self.back.away_ms(),
        }
    }

    fn limit_ram(&self, bytes: u64) {
        self.front.store.limit_ram(bytes);
    }

    fn trim_ram(&self) -> bool {
        let Self { back, front } = self;
        // If what is behind RAM in front has no room either, a slot that leaves makes some.
        let is_stuck = || front.store.tiers().is_some_and(|tiers| tiers.moves);
        front.store.trim_ram() || (is_stuck() && back.relieve(front))
    }

    fn give_room_back(&self) -> bool {
        self.front.store.give_room_back()
    }

    fn move_away(&self) -> bool {
        self.back.move_away(&self.front)
    }

    fn recompress(&self, worth_it: bool) -> Recompress {
        self.front.store.recompress(worth_it)
    }

    fn recompressed(&self) -> Recompressed {
        self.front.store.recompressed()
    }

    fn stay_awake(&self, on: bool) {
        self.front.store.stay_awake(on);
    }

    fn write_behind(&self) {
        self.front.store.write_behind();
    }
}

impl<P: Place> Forks for Tiered<P> {
    fn descriptors(&self, keep: &mut dyn FnMut(i32)) {
        self.front.store.descriptors(keep);
        self.back.descriptors(keep);
    }

    fn expect_child(&self) {
        self.front.store.expect_child();
        self.back.expect_child();
    }

    fn before_fork(&self, child: u64) {
        self.front.store.before_fork(child);
        self.back.before_fork(child);
    }

    /// The place comes first: if the child cannot have it, the front makes no file for the child.
    fn after_fork_in_child(&self) -> Result<(), i32> {
        self.back.after_fork_in_child()?;
        self.front.store.after_fork_in_child()
    }

    fn child_gone(&self, child: u64) {
        self.front.store.child_gone(child);
        self.back.child_gone(child);
    }
}
