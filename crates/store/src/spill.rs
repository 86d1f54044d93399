//! Compressed RAM (the *front*) first, and a file (the *back*) for the slots that the front cannot take.
//!
//! An incompressible folio goes to the file directly. In RAM it would take as much as its eviction frees, and a budget
//! that covers both would gain nothing.
//!
//! `tiered.rs` compares this store with the others that put one place before another.
//!
//! A slot is in one of the two, and stays there until it is released or the front has more than it may have. A small
//! folio that was loaded from the back and leaves unchanged goes to the front all the same, as long as that has room.
//! Otherwise a program that only reads would go on reading from the file pages for which RAM has room by now. (A
//! python3 that reads objects at random did so, since an object's count of references is the same again when its page
//! leaves.)
//!
//! When the front is full, each save would compress in vain before it goes to the back. So after a refusal the front is
//! skipped until as many bytes have been freed there as the refused folio has, or its limit rises. The two share one
//! key for checksums, so that checksums are computed only once.
//!
//! How much RAM the front may have changes while it runs ([`Upkeep::limit_ram`]). A program that needs more for memory
//! that cannot be managed, its code above all, leaves less for everything else, and whether RAM is worth more here or
//! to the program itself depends on what the program does. The part of the front that is beyond its limit moves to
//! the back ([`Upkeep::trim_ram`]). Without that the limit held only for new slots, and cold pages and copies of pages
//! that had come back unchanged kept 45 MiB of a front that should have had 2. Slots are moved by chunks of the
//! front's memory, so that each slot that moves gives memory back.

use crate::arena::is_too_much;
use crate::compressed_ram::CompressedRam;
use crate::file::FileStore;
use crate::image::{self, BLOCK, Contents, Image, MAX_PAGES, MAX_SLOT, RAM_BLOCK};
use crate::mem::Mapping;
use arrayvec::ArrayVec;
use millpond_core::SlotId;
use millpond_core::SlotPart;
use millpond_core::port::{
    Forks, Load, LoadError, Recompress, Recompressed, SaveError, Saved, Slots, StoreUsage, Tier,
    Tiers, Upkeep,
};
use rustix::io::Errno;
use std::cell::Cell;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Instant;

/// The most loads that go to the file together.
const TOGETHER: usize = 16;
/// Number of bytes of folios that one call moves.
const AT_ONCE: usize = 1 << 20;
/// Number of slots that one call examines, most of which need not move. The caller is inside the gate, for which a
/// fork, a snapshot or a move of memory waits.
const LOOKED_AT: u32 = 4096;
/// Longest folio, in bytes, that moves from the back to the front. A page of a larger one is read in a few
/// microseconds, and a larger one would be split up.
const COMES_FORWARD: usize = BLOCK;
/// Number of calls that do not retry after a slot that should move could not.
const REST: u32 = 64;

/// Two stores, where the second takes the slots that the first does not.
pub struct Spill {
    front: CompressedRam,
    back: FileStore,
    /// The front is skipped while the bytes ever freed in it are fewer than this.
    retry_at: AtomicU64,
    from_front: Counted,
    from_back: Counted,
    /// The slot to examine next, in search of those that have to move.
    next: AtomicU32,
    /// Number of slots examined in this round. A round goes over all of them once.
    looked_at: AtomicU32,
    /// Bytes moved in this round.
    moved: AtomicUsize,
    /// Number of further calls that do not try to move anything.
    resting: AtomicU32,
}

/// The loads from one of the two stores.
#[derive(Default)]
struct Counted {
    loads: AtomicU64,
    nanos: AtomicU64,
}

impl Counted {
    fn count(&self, since: Instant) {
        self.count_all(1, since);
    }

    /// Counts `loads` loads, which were made together.
    fn count_all(&self, loads: u64, since: Instant) {
        self.loads.fetch_add(loads, Relaxed);
        let nanos = since.elapsed().as_nanos() as u64;
        self.nanos.fetch_add(nanos, Relaxed);
    }

    fn so_far(&self) -> Tier {
        Tier {
            loads: self.loads.load(Relaxed),
            nanos: self.nanos.load(Relaxed),
        }
    }
}

impl Spill {
    /// Makes a store that fills `front` up to its limit, then `back`.
    ///
    /// # Panics
    /// When `back` holds anything.
    #[must_use]
    pub fn new(front: CompressedRam, mut back: FileStore) -> Self {
        back.share_checksums(&front.sums);
        Self {
            front,
            back,
            retry_at: AtomicU64::new(0),
            from_front: Counted::default(),
            from_back: Counted::default(),
            next: AtomicU32::new(0),
            looked_at: AtomicU32::new(0),
            moved: AtomicUsize::new(0),
            resting: AtomicU32::new(0),
        }
    }

    /// A description of the store in one line, for reports.
    #[must_use]
    pub fn describe(&self) -> String {
        format!("{}, then {}", self.front.describe(), self.back.describe())
    }

    /// The usage of each of the two stores: front, back.
    #[must_use]
    pub fn usages(&self) -> (StoreUsage, StoreUsage) {
        (self.front.usage(), self.back.usage())
    }

    /// Whether the front may have room.
    fn is_front_open(&self) -> bool {
        self.front.freed_bytes() >= self.retry_at.load(Relaxed)
    }

    /// Stores `image` in the front, if it has room and all of it compresses. Returns whether it did.
    fn put_in_front(&self, slot: SlotId, image: &Image<'_>) -> Result<bool, SaveError> {
        let freed = self.front.freed_bytes();
        match self.front.put_compressed(slot, image) {
            Err(SaveError::Full) => {
                let retry_at = freed + image.data.len() as u64;
                self.retry_at.store(retry_at, Relaxed);
                Ok(false)
            }
            other => other,
        }
    }

    /// Starts a new round over all slots.
    fn begin_round(&self) {
        self.looked_at.store(0, Relaxed);
        self.moved.store(0, Relaxed);
    }

    /// Stops moving slots for a while.
    fn rest(&self) {
        self.begin_round();
        self.front.stop_draining();
        self.resting.store(REST, Relaxed);
    }

    fn put(&self, slot: SlotId, image: &Image<'_>) -> Result<(), SaveError> {
        let front_first = !image.has_bytes() || self.is_front_open();
        if front_first && self.put_in_front(slot, image)? {
            return Ok(());
        }
        let room = &mut [0; MAX_PAGES];
        let Some(for_file) = image.for_file(room) else {
            return self.front.put(slot, image);
        };
        match self.back.put(slot, &for_file) {
            // A slot that the front might still take must not be refused.
            Err(SaveError::Full) => self.front.put(slot, image),
            other => other,
        }
    }
}

impl Slots for Spill {
    fn save(
        &self,
        slot: SlotId,
        previous: Option<SlotPart>,
        data: &[u8],
    ) -> Result<Saved, SaveError> {
        let comes_from_back = Cell::new(false);
        let holds = |part: SlotPart, image: &Image<'_>| {
            if self.front.holds_image(part, image) {
                return true;
            }
            let in_file = || {
                let room = &mut [0; MAX_PAGES];
                let for_file = image.for_file(room);
                for_file.is_some_and(|image| self.back.holds_image(part, &image))
            };
            let unchanged = self.back.holds(part.slot) && in_file();
            comes_from_back.set(unchanged && data.len() <= COMES_FORWARD && self.is_front_open());
            unchanged && !comes_from_back.get()
        };
        let put = |image: &Image<'_>| {
            if self.front.holds(slot) || self.back.holds(slot) {
                return Err(SaveError::Io(Errno::EXIST.raw_os_error()));
            }
            if !comes_from_back.get() {
                return self.put(slot, image);
            }
            let came = self.put_in_front(slot, image)?;
            came.then_some(()).ok_or(SaveError::Full)
        };
        let saved = image::save(
            &image::NewSlot {
                data,
                block: RAM_BLOCK,
                previous,
                keys: &self.front.sums,
            },
            holds,
            put,
        );
        match saved {
            Err(SaveError::Full) if comes_from_back.get() => Ok(Saved::Unchanged),
            other => other,
        }
    }

    fn load(&self, slot: SlotId, first_page: u16, out: &mut [u8]) -> Result<(), LoadError> {
        let since = Instant::now();
        let (loaded, from) = match self.front.load(slot, first_page, out) {
            Err(LoadError::Missing) => (self.back.load(slot, first_page, out), &self.from_back),
            other => (other, &self.from_front),
        };
        if loaded.is_ok() {
            from.count(since);
        }
        loaded
    }

    fn load_all(&self, loads: &mut [Load<'_>]) -> Result<(), LoadError> {
        let mut behind = ArrayVec::<Load<'_>, TOGETHER>::new();
        for load in loads {
            let since = Instant::now();
            match self.front.load(load.slot, load.first_page, load.out) {
                Err(LoadError::Missing) if behind.is_full() => {
                    self.load(load.slot, load.first_page, load.out)?;
                }
                Err(LoadError::Missing) => behind.push(Load {
                    slot: load.slot,
                    first_page: load.first_page,
                    out: &mut *load.out,
                }),
                loaded => {
                    loaded?;
                    self.from_front.count(since);
                }
            }
        }
        let since = Instant::now();
        self.back.load_all(&mut behind)?;
        self.from_back.count_all(behind.len() as u64, since);
        Ok(())
    }

    fn expect(&self, page: SlotPart) {
        self.front.expect(page);
    }

    fn expect_bytes(&self, page: SlotPart) {
        self.front.expect_bytes(page);
    }

    fn forget(&self, part: SlotPart) {
        self.front.forget(part);
    }

    fn release(&self, slot: SlotId) {
        self.front.release(slot);
        self.back.release(slot);
    }
}

impl Upkeep for Spill {
    fn usage(&self) -> StoreUsage {
        let (front, back) = self.usages();
        front + back
    }

    fn limit_ram(&self, bytes: u64) {
        if self.front.limit_ram(bytes) {
            self.retry_at.store(0, Relaxed);
        }
    }

    fn trim_ram(&self) -> bool {
        if self.resting.load(Relaxed) > 0 {
            self.resting.fetch_sub(1, Relaxed);
            return false;
        }
        let Some(chunk) = self.front.drain() else {
            return false;
        };
        let Ok(room) = Mapping::new(MAX_SLOT) else {
            return false;
        };
        // SAFETY: the mapping belongs to this call, is readable and writable, and outlives the slice.
        let room = unsafe { std::slice::from_raw_parts_mut(room.as_ptr(), MAX_SLOT) };
        let put = |slot, bytes: &[u8]| {
            let sums = &mut [0; MAX_PAGES];
            match Image::of(bytes, BLOCK, &self.front.sums, sums) {
                Some(Contents::Image(image)) => self.back.put(slot, &image),
                _ => Err(SaveError::Io(Errno::INVAL.raw_os_error())),
            }
        };
        let top = self.front.top();
        let before = self.looked_at.load(Relaxed);
        let here = top.saturating_sub(before).min(LOOKED_AT);
        let mut moved = 0;
        for done in 1..=here {
            let slot = self.next.load(Relaxed) % top;
            self.next.store(slot + 1, Relaxed);
            let slot = SlotId(slot);
            match self
                .front
                .hand_on(slot, chunk, room, |bytes| put(slot, bytes))
            {
                Ok(bytes) => moved += bytes,
                // The file is full, or refuses the slot.
                Err(_) => {
                    self.rest();
                    return false;
                }
            }
            if moved >= AT_ONCE {
                self.looked_at.store(before + done, Relaxed);
                self.moved.fetch_add(moved, Relaxed);
                return self.front.drain().is_some();
            }
        }
        self.looked_at.store(before + here, Relaxed);
        let moved = self.moved.fetch_add(moved, Relaxed) + moved;
        if before + here < top {
            return self.front.drain().is_some();
        }
        self.begin_round();
        // The remaining slots cannot be read; their chunks must not be closed permanently.
        if self.front.drain().is_some() && moved == 0 {
            self.rest();
        }
        false
    }

    fn recompress(&self, worth_it: bool) -> Recompress {
        self.front.recompress(worth_it)
    }

    fn recompressed(&self) -> Recompressed {
        self.front.recompressed()
    }

    fn tiers(&self) -> Option<Tiers> {
        let (ram_bytes, ram_most) = self.front.ram();
        Some(Tiers {
            ram: self.from_front.so_far(),
            behind: self.from_back.so_far(),
            ram_bytes,
            ram_most,
            moves: is_too_much(ram_bytes, ram_most),
        })
    }

    fn stay_awake(&self, on: bool) {
        self.back.stay_awake(on);
    }

    fn write_behind(&self) {
        self.back.write_behind();
    }

    fn give_room_back(&self) -> bool {
        self.back.give_room_back()
    }
}

impl Forks for Spill {
    fn descriptors(&self, keep: &mut dyn FnMut(i32)) {
        self.back.descriptors(keep);
    }

    fn after_fork_in_child(&self) -> Result<(), i32> {
        self.front.after_fork_in_child()?;
        self.back.after_fork_in_child()
    }

    fn before_fork(&self, child: u64) {
        self.front.before_fork(child);
        self.back.before_fork(child);
    }

    fn child_gone(&self, child: u64) {
        self.front.child_gone(child);
        self.back.child_gone(child);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CompressedRamConfig, FileStoreConfig};

    /// Checks that slots that cannot be read do not move. Their chunk must not be closed permanently, or the front
    /// would stay as small as the part before it.
    #[test]
    fn slots_that_cannot_move_do_not_close_a_chunk_for_good() {
        let directory = tempfile::tempdir().unwrap();
        let config = FileStoreConfig {
            force_tmpfs: true,
            ..FileStoreConfig::in_directory(directory.path())
        };
        let front = CompressedRam::new(CompressedRamConfig {
            max_bytes: Some(8 << 20),
        });
        let store = Spill::new(front.unwrap(), FileStore::create(&config).unwrap());
        let text = |slot: u32| -> Vec<u8> {
            let word = |at: u32| u64::from(slot) << 32 | u64::from(at / 3);
            (0..2048).flat_map(|at| word(at).to_ne_bytes()).collect()
        };
        let save = |slot| store.save(SlotId(slot), None, &text(slot));
        (0..100).for_each(|slot| assert!(save(slot).is_ok()));
        assert_eq!(store.usages().0.slots, 100);
        (0..100).for_each(|slot| store.front.damage(SlotId(slot)));
        store.limit_ram(128 << 10);
        while store.trim_ram() {}
        assert_eq!(store.usages().1.slots, 0);
        // Room that becomes free there is used again.
        (0..50).for_each(|slot| store.release(SlotId(slot)));
        assert!(save(100).is_ok());
        assert_eq!((store.usages().0.slots, store.usages().1.slots), (51, 0));
        // All of the slots are still there for their owners to find the damage.
        let mut out = vec![0; 16 << 10];
        for slot in 50..100 {
            let loaded = store.load(SlotId(slot), 0, &mut out);
            assert_eq!(loaded, Err(LoadError::Corrupt), "{slot}");
        }
    }

    /// Covers a call that examined every slot that had ever existed, inside the gate: a fork, a snapshot or a move of
    /// memory waited for all of them. The slots that have to move come after 20,000 slots that hold nothing in RAM.
    #[test]
    fn one_call_examines_a_bounded_number_of_slots() {
        let directory = tempfile::tempdir().unwrap();
        let config = FileStoreConfig {
            force_tmpfs: true,
            ..FileStoreConfig::in_directory(directory.path())
        };
        let front = CompressedRam::new(CompressedRamConfig {
            max_bytes: Some(8 << 20),
        });
        let store = Spill::new(front.unwrap(), FileStore::create(&config).unwrap());
        let (fills, texts) = (20_000, 100);
        for slot in 0..fills {
            assert!(store.save(SlotId(slot), None, &[7; 4096]).is_ok());
        }
        let text = |slot: u32| -> Vec<u8> {
            let word = |at: u32| u64::from(slot) << 32 | u64::from(at / 3);
            (0..2048).flat_map(|at| word(at).to_ne_bytes()).collect()
        };
        for slot in fills..fills + texts {
            assert!(store.save(SlotId(slot), None, &text(slot)).is_ok());
        }
        store.limit_ram(128 << 10);
        let mut calls = 0;
        let mut at = store.next.load(Relaxed);
        while store.trim_ram() {
            let next = store.next.load(Relaxed);
            assert!(next - at <= LOOKED_AT, "{at} to {next}");
            (at, calls) = (next, calls + 1);
        }
        assert!(calls >= fills / LOOKED_AT, "{calls} calls");
        assert!(store.usages().1.slots > 0, "nothing moved");
        let mut out = vec![0; 16 << 10];
        for slot in fills..fills + texts {
            assert!(store.load(SlotId(slot), 0, &mut out).is_ok());
            assert_eq!(out, text(slot), "{slot}");
        }
    }
}
