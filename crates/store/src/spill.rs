//! Compressed RAM first, a file for what it cannot take.
//!
//! What does not compress goes to the file at once: in RAM it would take as much as it gave, and a budget that covers
//! both would gain nothing by its eviction.
//!
//! A slot is in one of the two and stays there until it is released. When the front is full, each
//! save would compress for nothing before it goes to the back; so after a refusal the front is
//! passed by until as many bytes have been freed there as the refused folio has, or its limit rises. Checksums share
//! one key, so that they are made once for both.
//!
//! How much of it may be RAM changes while it runs ([`Store::limit_ram`]): a program that needs more for what cannot be
//! managed, its code above all, leaves less for everything else. Where what is in RAM takes a quarter of its size or
//! less, the front may have half as much again: each page that it takes from the program keeps four or more from the
//! file, where a page costs ten times as much. (redis-server over four times its memory, compressed 20 times, had one
//! page in ten in the file, and took 29 s for 11.)

use crate::compressed_ram::CompressedRam;
use crate::file::FileStore;
use crate::image::{self, Image, MAX_PAGES, RAM_BLOCK};
use millpond_core::SlotPart;
use millpond_core::port::{LoadError, SaveError, Saved, Store, StoreUsage};
use millpond_core::swap::SlotId;
use rustix::io::Errno;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// What compresses to such a part of its size, as a divisor, may have more RAM …
const WELL: u64 = 4;
/// … by such a part, as a divisor.
const MORE_RAM: u64 = 2;

/// Two stores in a row.
pub struct Spill {
    front: CompressedRam,
    back: FileStore,
    /// The front is passed by while fewer bytes than this have ever been freed in it.
    retry_at: AtomicU64,
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

    fn put(&self, slot: SlotId, image: &Image<'_>) -> Result<(), SaveError> {
        if self.front.holds(slot) || self.back.holds(slot) {
            return Err(SaveError::Io(Errno::EXIST.raw_os_error()));
        }
        let freed = self.front.freed_bytes();
        let front_first = !image.has_bytes() || freed >= self.retry_at.load(Relaxed);
        if front_first {
            match self.front.put_compressed(slot, image) {
                Ok(true) => return Ok(()),
                Ok(false) => {}
                Err(SaveError::Full) => {
                    self.retry_at
                        .store(freed + image.data.len() as u64, Relaxed);
                }
                Err(error) => return Err(error),
            }
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
        let holds = |part: SlotPart, image: &Image<'_>| {
            let in_file = || {
                let room = &mut [0; MAX_PAGES];
                let for_file = image.for_file(room);
                for_file.is_some_and(|image| self.back.holds_image(part, &image))
            };
            self.front.holds_image(part, image) || self.back.holds(part.slot) && in_file()
        };
        let put = |image: &Image<'_>| self.put(slot, image);
        image::save(data, RAM_BLOCK, previous, &self.front.sums, holds, put)
    }

    fn load(&self, slot: SlotId, first_page: u16, out: &mut [u8]) -> Result<(), LoadError> {
        match self.front.load(slot, first_page, out) {
            Err(LoadError::Missing) => self.back.load(slot, first_page, out),
            other => other,
        }
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
