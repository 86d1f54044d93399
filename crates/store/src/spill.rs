//! Compressed RAM first, a file for what it cannot take.
//!
//! What does not compress goes to the file at once: in RAM it would take as much as it gave, and a budget that covers
//! both would gain nothing by its eviction.
//!
//! A slot is in one of the two, and stays there until it is released or the front has more than it may. A small folio
//! that was loaded from the back and leaves unchanged goes to the front all the same, as long as that has room: whoever
//! only reads would go on reading from the file what RAM has room for by now (a python3 that reads objects at random
//! was, since an object's count of references is what it was when the page leaves).
//!
//! When the front is full, each save would compress for nothing before it goes to the back; so after a refusal the
//! front is passed by until as many bytes have been freed there as the refused folio has, or its limit rises. Checksums
//! share one key, so that they are made once for both.
//!
//! How much of it may be RAM changes while it runs ([`Store::limit_ram`]): a program that needs more for what cannot be
//! managed, its code above all, leaves less for everything else, and whether RAM is worth more here or to the program
//! itself depends on what it does. What the front has beyond its limit moves to the back ([`Store::trim_ram`]): without
//! that the limit was one for what comes, and cold pages and copies of what had come back unchanged kept 45 MiB of a
//! front that should have had 2. It goes by chunks of the front's memory, so that each slot that moves gives memory
//! back.
//!
//! Where what is in RAM takes a quarter of its size or less, the front may have half as much again: each page that it
//! takes from the program keeps four or more from the file, where a page costs ten times as much. (redis-server over
//! four times its memory, compressed 20 times, had one page in ten in the file, and took 29 s for 11.)

use crate::arena::is_too_much;
use crate::compressed_ram::CompressedRam;
use crate::file::FileStore;
use crate::image::{self, BLOCK, Contents, Image, MAX_PAGES, MAX_SLOT, RAM_BLOCK};
use crate::mem::Mapping;
use millpond_core::SlotId;
use millpond_core::SlotPart;
use millpond_core::port::{LoadError, SaveError, Saved, Store, StoreUsage, Tier, Tiers};
use rustix::io::Errno;
use std::cell::Cell;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Instant;

/// What compresses to such a part of its size, as a divisor, may have more RAM …
const WELL: u64 = 4;
/// … by such a part, as a divisor.
const MORE_RAM: u64 = 2;
/// Bytes of folios that are moved by one call.
const AT_ONCE: usize = 1 << 20;
/// Slots that are looked at by one call, most of which have nothing that must move. The caller is inside the gate,
/// which a fork, a snapshot or a move of memory waits for.
const LOOKED_AT: u32 = 4096;
/// Folios up to so many bytes come forward. Of larger ones a page is read in a few microseconds, and they would be
/// taken apart.
const COMES_FORWARD: usize = BLOCK;
/// After what should move could not, so many calls do not try again.
const REST: u32 = 64;

/// Two stores in a row.
pub struct Spill {
    front: CompressedRam,
    back: FileStore,
    /// The front is passed by while fewer bytes than this have ever been freed in it.
    retry_at: AtomicU64,
    from_front: Counted,
    from_back: Counted,
    /// The front holds no slot of this number or above.
    top: AtomicU32,
    /// The slot to look at next for what has to move.
    next: AtomicU32,
    /// How many were looked at since the first of this round; a round is once over all of them.
    looked_at: AtomicU32,
    /// Bytes that moved in this round.
    moved: AtomicUsize,
    /// Calls that do not try to move anything.
    resting: AtomicU32,
}

/// Loads from one of the two.
#[derive(Default)]
struct Counted {
    loads: AtomicU64,
    nanos: AtomicU64,
}

impl Counted {
    fn count(&self, since: Instant) {
        self.loads.fetch_add(1, Relaxed);
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
    /// A store that fills `front` up to its limit, then `back`.
    ///
    /// # Panics
    /// When `back` holds something.
    #[must_use]
    pub fn new(front: CompressedRam, mut back: FileStore) -> Self {
        back.share_checksums(&front.sums);
        Self {
            front,
            back,
            retry_at: AtomicU64::new(0),
            from_front: Counted::default(),
            from_back: Counted::default(),
            top: AtomicU32::new(0),
            next: AtomicU32::new(0),
            looked_at: AtomicU32::new(0),
            moved: AtomicUsize::new(0),
            resting: AtomicU32::new(0),
        }
    }

    /// One line for reports.
    #[must_use]
    pub fn describe(&self) -> String {
        format!("{}, then {}", self.front.describe(), self.back.describe())
    }

    /// What each of the two holds: front, back.
    #[must_use]
    pub fn usages(&self) -> (StoreUsage, StoreUsage) {
        (self.front.usage(), self.back.usage())
    }

    /// Whether the front may have room.
    fn is_front_open(&self) -> bool {
        self.front.freed_bytes() >= self.retry_at.load(Relaxed)
    }

    /// Keeps `image` in the front, if it has room and all of it compresses; whether that was so.
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

    /// The slots are gone over anew.
    fn begin_round(&self) {
        self.looked_at.store(0, Relaxed);
        self.moved.store(0, Relaxed);
    }

    /// Nothing moves for a while.
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
            // Nothing is refused that the front might still take.
            Err(SaveError::Full) => self.front.put(slot, image),
            other => other,
        }
    }
}

impl Store for Spill {
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
            self.top.fetch_max(slot.0 + 1, Relaxed);
            if !comes_from_back.get() {
                return self.put(slot, image);
            }
            let came = self.put_in_front(slot, image)?;
            came.then_some(()).ok_or(SaveError::Full)
        };
        let saved = image::save(data, RAM_BLOCK, previous, &self.front.sums, holds, put);
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

    fn expect(&self, page: SlotPart) {
        self.front.expect(page);
    }

    fn expect_bytes(&self, page: SlotPart) {
        self.front.expect_bytes(page);
    }

    fn release(&self, slot: SlotId) {
        self.front.release(slot);
        self.back.release(slot);
    }

    fn usage(&self) -> StoreUsage {
        let (front, back) = self.usages();
        StoreUsage {
            slots: front.slots + back.slots,
            logical_bytes: front.logical_bytes + back.logical_bytes,
            stored_bytes: front.stored_bytes + back.stored_bytes,
            ram_bytes: front.ram_bytes + back.ram_bytes,
            same_filled: front.same_filled + back.same_filled,
            incompressible: front.incompressible + back.incompressible,
        }
    }

    fn limit_ram(&self, bytes: u64) {
        let front = self.front.usage();
        let well = front.logical_bytes >= WELL * front.ram_bytes;
        let more = if well { bytes / MORE_RAM } else { 0 };
        if self.front.limit_ram(bytes + more) {
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
        // SAFETY: the mapping is this call's, readable and writable, and outlives the slice.
        let room = unsafe { std::slice::from_raw_parts_mut(room.as_ptr(), MAX_SLOT) };
        let put = |slot, bytes: &[u8]| {
            let sums = &mut [0; MAX_PAGES];
            match Image::of(bytes, BLOCK, &self.front.sums, sums) {
                Some(Contents::Image(image)) => self.back.put(slot, &image),
                _ => Err(SaveError::Io(Errno::INVAL.raw_os_error())),
            }
        };
        let top = self.top.load(Relaxed);
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
                // The file is full, or refuses.
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
        // What is left there can be read by nobody; its chunks must not be closed for good.
        if self.front.drain().is_some() && moved == 0 {
            self.rest();
        }
        false
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

    fn descriptors(&self, keep: &mut dyn FnMut(i32)) {
        self.back.descriptors(keep);
    }

    fn stay_awake(&self, on: bool) {
        self.back.stay_awake(on);
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

    /// What nobody can read does not move. Its chunk would be closed for good, and the front as small as what lies
    /// before it.
    #[test]
    fn what_cannot_move_closes_no_chunk_for_good() {
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
        // Room that comes free there is used again.
        (0..50).for_each(|slot| store.release(SlotId(slot)));
        assert!(save(100).is_ok());
        assert_eq!((store.usages().0.slots, store.usages().1.slots), (51, 0));
        // All are still there for their owners to find out.
        let mut out = vec![0; 16 << 10];
        for slot in 50..100 {
            let loaded = store.load(SlotId(slot), 0, &mut out);
            assert_eq!(loaded, Err(LoadError::Corrupt), "{slot}");
        }
    }

    /// One call looked at every slot there had ever been, inside the gate: a fork, a snapshot or a move of memory
    /// waited for all of them. What has to move lies behind 20,000 slots that hold nothing in RAM.
    #[test]
    fn one_call_looks_at_so_many_slots_at_most() {
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
