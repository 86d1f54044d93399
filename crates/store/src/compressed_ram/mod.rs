//! Compressed RAM: the store without a device.
//!
//! Three quarters of the memory of programs compresses three to one by LZ4, at about a microsecond a page; that is ten
//! times faster than the fastest disk. Incompressible blocks are stored unchanged, and blocks that repeat one word need
//! no memory beyond their record. Compressed bytes lie in an [`Arena`].
//!
//! When the memory is nearly full, blocks that were not wanted for a while are compressed again by zstd, in the
//! background (`recompress.rs`).

mod forget;
mod gather;
mod packing;
mod recompress;
mod refused;

use crate::arena::Arena;
use crate::checksum::Checksums;
use crate::codec::{COMPRESSED_MAX, Codec, Stored, block_sum, pays};
use crate::error::OpenError;
use crate::image::{self, Image, ImageBlock, MAX_BLOCKS, RAM_BLOCK};
use crate::mem::{LINE, PAGE, prefetch};
use crate::paged::{encode, kept_sums};
use crate::scratch::{Scratch, ScratchPool};
use crate::slot_table::{Block, ClaimError, Kind, SlotTable, Taken};
use crate::zstd::Unpackers;
use forget::{Place, forgotten_of};
use gather::Gathering;
use millpond_core::SlotId;
use millpond_core::SlotPart;
use millpond_core::port::{
    Forks, LoadError, Recompress, Recompressed, SaveError, Saved, Slots, StoreUsage, Upkeep,
};
use packing::Packing;
use recompress::Recompression;
use refused::Refused;
use rustix::io::Errno;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU32, AtomicU64};

/// Number of records of a slot of 64 KiB.
const FEW: usize = 4;

/// The part of its limit, in eighths, from which compressed RAM counts as short.
const SHORT: u64 = 7;

/// Number of cache lines of a stream that are prefetched: the processor fetches the rest on its own once it sees the
/// first ones read.
const EXPECTED: usize = 4;

/// The configuration of a [`CompressedRam`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CompressedRamConfig {
    /// The most bytes of RAM for compressed data, including the free space in between and the arena's own records; no
    /// limit if `None`. The slot table (32 bytes for each slot number in use) and working memory (at most 2.6 MiB) come
    /// on top.
    pub max_bytes: Option<u64>,
}

/// The treatment of a block that compression does not shrink.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Incompressible {
    /// The block is stored unchanged.
    Keep,
    /// The slot is refused: there is a better place for it elsewhere.
    Refuse,
}

/// Why a block was not put.
enum NotPut {
    /// Compression does not shrink it, and such a block is refused.
    Incompressible,
    /// The arena is full.
    NoRoom,
}

/// Keeps slots in RAM, compressed by LZ4, or by zstd if they are unused while RAM is short.
///
/// A forked child has its own copy of everything, through copy-on-write.
pub struct CompressedRam {
    table: SlotTable,
    pub(crate) sums: Checksums,
    scratches: ScratchPool,
    arena: Arena,
    max_bytes: Option<u64>,
    /// Number of forgotten pages of slots that are still here.
    forgotten: AtomicU64,
    /// No slot of this number or above is here.
    top: AtomicU32,
    unpackers: Unpackers,
    recompression: Recompression,
    gathering: Gathering,
    packing: Packing,
    refused: Refused,
}

impl CompressedRam {
    /// The smallest limit: it holds a single 64 KiB block and the memory around it.
    pub const MIN_BYTES: u64 = 128 << 10;

    /// Makes an empty store.
    ///
    /// # Errors
    /// The limit is below [`CompressedRam::MIN_BYTES`], or the kernel provides no memory for tables.
    pub fn new(config: CompressedRamConfig) -> Result<Self, OpenError> {
        if let Some(bytes) = config.max_bytes.filter(|bytes| *bytes < Self::MIN_BYTES) {
            return Err(OpenError::LimitTooSmall {
                bytes,
                least: Self::MIN_BYTES,
            });
        }
        let memory = |errno| OpenError::Memory { errno };
        Ok(Self {
            table: SlotTable::new(RAM_BLOCK).map_err(memory)?,
            sums: Checksums::new().map_err(|errno| OpenError::Random { errno })?,
            scratches: ScratchPool::new(COMPRESSED_MAX).map_err(memory)?,
            arena: Arena::new(config.max_bytes.unwrap_or(u64::MAX)).map_err(memory)?,
            max_bytes: config.max_bytes,
            forgotten: AtomicU64::new(0),
            top: AtomicU32::new(0),
            unpackers: Unpackers::new().map_err(memory)?,
            recompression: Recompression::new(),
            gathering: Gathering::new(),
            packing: Packing::new(),
            refused: Refused::new().map_err(memory)?,
        })
    }

    /// A description of the store in one line, for reports.
    ///
    /// ```
    /// # use millpond_store::*;
    /// let store = CompressedRam::new(CompressedRamConfig { max_bytes: Some(64 << 20) })?;
    /// assert_eq!(store.describe(), "compressed RAM (lz4), at most 64 MiB");
    /// # Ok::<(), OpenError>(())
    /// ```
    #[must_use]
    pub fn describe(&self) -> String {
        match self.max_bytes {
            Some(bytes) => format!("compressed RAM (lz4), at most {} MiB", bytes >> 20),
            None => "compressed RAM (lz4)".to_owned(),
        }
    }

    /// Whether `part` is exactly this image.
    pub(crate) fn holds_image(&self, part: SlotPart, image: &Image<'_>) -> bool {
        let Some(slot) = self.table.pin(part.slot) else {
            return false;
        };
        if slot.pages() == image.pages() {
            let whole = slot.blocks().all(|block| forgotten_of(&block) == 0);
            return part.first == 0 && whole && image.is_held_by(&slot);
        }
        image.is_held_from(&slot, part.first, |block, len, number, page, sum| {
            if forgotten_of(block) >> number & 1 == 1 {
                return false;
            }
            // SAFETY: the block is part of a slot that is pinned.
            let stored = unsafe { self.stored(block, len) };
            match (block.kind, stored.pages) {
                (Kind::Packed, Some(pages)) => {
                    pages[number] == sum.to_le_bytes() && block_sum(pages, &self.sums) == block.sum
                }
                (Kind::Raw, _) => stored.bytes[number * PAGE..][..PAGE] == *page,
                // The block has a single page.
                _ => block.sum == sum,
            }
        })
    }

    /// The stored bytes and checksums of a block of `len` bytes.
    ///
    /// # Panics
    /// When all pages of the block were forgotten.
    ///
    /// # Safety
    /// The block is part of a slot that is pinned, or that the caller rewrites, while the bytes are in use.
    unsafe fn stored(&self, block: &Block, len: usize) -> Stored<'_> {
        let (sums, bytes) = match block.kind {
            Kind::Fill => {
                return Stored {
                    bytes: &[],
                    codec: Codec::Lz4,
                    pages: None,
                };
            }
            Kind::Raw => (0, len),
            Kind::Packed => (kept_sums(len), block.size.into()),
        };
        let place = Place::of(block);
        let object = place.object();
        let object = object.expect("a page of the block is still needed");
        // SAFETY: the slot is pinned, so its objects stay, and none is written after its publication. The object has at
        // least the bytes that were put in it.
        let object =
            unsafe { std::slice::from_raw_parts(self.arena.address(object), sums + bytes) };
        let (sums, bytes) = object.split_at(sums);
        Stored {
            bytes,
            codec: match place.is_zstd() {
                true => Codec::Zstd(&self.unpackers),
                false => Codec::Lz4,
            },
            pages: (!sums.is_empty()).then_some(sums.as_chunks().0),
        }
    }

    /// Prefetches the first bytes that a load of a block of `len` bytes needs, from byte `from` of the block on: its
    /// checksums and ends, and its stream, which starts about there. The ends would say exactly where it starts, but
    /// one cache miss later.
    ///
    /// Compressed memory is in no cache: a load waited for the record, for sums and ends, and for the stream, one after
    /// the other. With the prefetch a page takes 0.65 µs instead of 0.73; a page of Python's takes 1.55 instead of
    /// 1.76. A fault knows the page before it has memory for it. It prefetches the record then, and these bytes once it
    /// has the memory. A random access, of which every second one loads, takes 4.07 µs instead of 4.24 (4.11 with the
    /// record alone).
    fn expect_block(&self, block: &Block, len: usize, from: usize) {
        if block.kind != Kind::Packed {
            return;
        }
        let Some(object) = Place::of(block).object() else {
            return;
        };
        let (object, sums) = (self.arena.address(object), kept_sums(len));
        prefetch(object);
        prefetch(object.wrapping_add(sums));
        let about = sums + usize::from(block.size) * from / len;
        for line in 0..EXPECTED {
            prefetch(object.wrapping_add(about + line * LINE));
        }
    }

    /// Prefetches the checksums with which a page will be compared, while its own is computed. An unchanged page takes
    /// 0.82 µs instead of 0.89.
    fn expect_sums(&self, part: SlotPart, len: usize) {
        let Some(slot) = self.table.pin(part.slot) else {
            return;
        };
        let blocks = slot.blocks_of(part.first, len);
        if let Some((block, ..)) = blocks.and_then(|mut blocks| blocks.next())
            && block.kind == Kind::Packed
            && let Some(object) = Place::of(&block).object()
        {
            prefetch(self.arena.address(object));
        }
    }

    /// One more than the highest number of any slot that was ever here.
    pub(crate) fn top(&self) -> u32 {
        self.top.load(Relaxed)
    }

    /// Whether `slot` holds anything.
    pub(crate) fn holds(&self, slot: SlotId) -> bool {
        self.table.pin(slot).is_some()
    }

    /// Limits compressed data to `bytes` of RAM from now on, within the limit that the store was made with. Returns
    /// whether that is more than before.
    pub(crate) fn limit_ram(&self, bytes: u64) -> bool {
        let most = self.max_bytes.unwrap_or(u64::MAX);
        let bytes = bytes.max(Self::MIN_BYTES).min(most);
        self.arena.set_max_ram(bytes) < bytes
    }

    /// Whether RAM is short.
    fn is_short(&self) -> bool {
        let (ram, most) = self.ram();
        ram / SHORT >= most / 8
    }

    /// Bytes of RAM for scratches and contexts.
    fn working_bytes(&self) -> u64 {
        let tools = self.recompression.ram_bytes() + self.packing.ram_bytes();
        self.scratches.ram_bytes() + self.unpackers.ram_bytes() + tools
    }

    /// Bytes of RAM that compressed data takes, and the most that it may take.
    pub(crate) fn ram(&self) -> (u64, u64) {
        (self.arena.ram_bytes(), self.arena.max_ram())
    }

    /// The number of bytes ever freed, rounded up to their classes.
    pub(crate) fn freed_bytes(&self) -> u64 {
        self.arena.freed_bytes()
    }

    /// Stores `image` as `slot`.
    pub(crate) fn put(&self, slot: SlotId, image: &Image<'_>) -> Result<(), SaveError> {
        self.put_as(slot, image, Incompressible::Keep).map(|_| ())
    }

    /// Stores `image` as `slot` if all of it compresses. Returns whether it did.
    pub(crate) fn put_compressed(
        &self,
        slot: SlotId,
        image: &Image<'_>,
    ) -> Result<bool, SaveError> {
        self.put_as(slot, image, Incompressible::Refuse)
    }

    /// The chunk from which on objects have to go ([`Arena::drain`]), if the store exceeds its limit.
    pub(crate) fn drain(&self) -> Option<usize> {
        self.arena.drain().map(|chunk| chunk as usize)
    }

    /// Ends the draining of chunks, because there is no room elsewhere for the objects that have to go.
    pub(crate) fn stop_draining(&self) {
        self.arena.stop_draining();
    }

    /// Moves `slot`, if some of it lies in `chunk` or a later one: passes its bytes to `put`, which stores them under
    /// the same number somewhere else, and forgets it here. `room` is large enough for the longest slot. Returns the
    /// number of bytes of the folio, or none if it stays. A slot that cannot be read stays, too, for its owner to find.
    ///
    /// A thread that loads the slot during the move finds it here until it is there. A thread that releases the slot
    /// waits, and releases it in both places.
    ///
    /// # Errors
    /// The errors are those of `put`; the slot then stays.
    pub(crate) fn hand_on(
        &self,
        slot: SlotId,
        chunk: usize,
        room: &mut [u8],
        put: impl FnOnce(&[u8]) -> Result<(), SaveError>,
    ) -> Result<usize, SaveError> {
        let Some(pinned) = self.table.pin(slot) else {
            return Ok(0);
        };
        let lies_there = |block: Block| {
            block.kind != Kind::Fill
                && (Place::of(&block).object()).is_some_and(|object| object.chunk() >= chunk)
        };
        let bytes = &mut room[..usize::from(pinned.pages()) * PAGE];
        if !pinned.blocks().any(lies_there) || self.load_what_is_left(&pinned, bytes).is_err() {
            return Ok(0);
        }
        put(bytes)?;
        self.free(&pinned.take());
        Ok(bytes.len())
    }

    fn free(&self, slot: &Taken<'_>) {
        let mut forgotten = 0;
        for (block, _) in slot.blocks().filter(|(block, _)| block.kind != Kind::Fill) {
            forgotten += u64::from(forgotten_of(&block).count_ones());
            if let Some(object) = Place::of(&block).object() {
                self.arena.free(object);
            }
        }
        if forgotten > 0 {
            self.forgotten.fetch_sub(forgotten, Relaxed);
        }
    }

    /// Flips a bit of each compressed block of `slot`.
    #[cfg(test)]
    pub(crate) fn damage(&self, slot: SlotId) {
        let pinned = self.table.pin(slot).unwrap();
        for block in pinned.blocks().filter(|block| block.kind == Kind::Packed) {
            // SAFETY: the object belongs to the slot, which is pinned, and holds at least this byte. Tests that
            // damage slots have no other thread.
            unsafe { *self.arena.address(Place::of(&block).object().unwrap()) ^= 4 };
        }
    }

    fn put_as(
        &self,
        slot: SlotId,
        image: &Image<'_>,
        incompressible: Incompressible,
    ) -> Result<bool, SaveError> {
        if !self.may_fit(image) {
            return Err(SaveError::Full);
        }
        let claim = self.table.claim(slot).map_err(|error| match error {
            ClaimError::Taken => SaveError::Io(Errno::EXIST.raw_os_error()),
            ClaimError::NoMemory => SaveError::Full,
        })?;
        self.top.fetch_max(slot.0.saturating_add(1), Relaxed);
        let (mut few, mut many);
        let blocks = if image.block_count() <= FEW {
            few = [Block::NONE; FEW];
            &mut few[..]
        } else {
            many = [Block::NONE; MAX_BLOCKS];
            &mut many[..]
        };
        let mut count = 0;
        let (mut full, mut refused) = (false, false);
        let mut scratch = image
            .has_bytes()
            .then(|| self.scratches.acquire(COMPRESSED_MAX));
        for part in image.blocks() {
            let block = match (part.word, &mut scratch) {
                (None, Some(scratch)) => self.put_block(&part, scratch, incompressible),
                _ => Ok(Block::fill(part.word.unwrap_or(0), part.sum)),
            };
            match block {
                Ok(block) => blocks[count] = block,
                Err(NotPut::Incompressible) => refused = true,
                Err(NotPut::NoRoom) => full = true,
            }
            if full || refused {
                break;
            }
            count += 1;
        }
        drop(scratch);
        let blocks = &blocks[..count];
        if full || refused || claim.publish(image.pages(), blocks).is_err() {
            let put = blocks.iter().filter(|block| block.kind != Kind::Fill);
            for object in put.filter_map(|block| Place::of(block).object()) {
                self.arena.free(object);
            }
            return if refused {
                Ok(false)
            } else {
                Err(SaveError::Full)
            };
        }
        Ok(true)
    }

    /// Whether the arena has room for each block of `image` whose compressed length is known.
    fn may_fit(&self, image: &Image<'_>) -> bool {
        if self.refused.is_empty() {
            return true;
        }
        let bytes = image.blocks().filter(|part| part.word.is_none());
        let mut known = bytes.filter_map(|part| self.refused.len_of(part.sum));
        known.all(|len| self.arena.has_room(len))
    }

    /// Puts a block into an object of its own, compressed if that pays off: by zstd if RAM is short and there is no
    /// other place than this one.
    fn put_block(
        &self,
        part: &ImageBlock<'_>,
        scratch: &mut Scratch<'_>,
        incompressible: Incompressible,
    ) -> Result<Block, NotPut> {
        let scratch = scratch.parts();
        let pages = kept_sums(part.data.len());
        if incompressible == Incompressible::Keep && self.is_short() {
            let packed = self.packing.encode(part.data, scratch.wire);
            if let Some(size) = packed.filter(|&size| pays(size + pages, part.data.len())) {
                return self.put_bytes(part, Kind::Packed, &scratch.wire[..size], true);
            }
        }
        let size = encode(part.data, scratch.tables, scratch.wire);
        let (kind, bytes) = if pays(size.saturating_add(pages), part.data.len()) {
            (Kind::Packed, &scratch.wire[..size])
        } else if incompressible == Incompressible::Keep {
            (Kind::Raw, part.data)
        } else {
            return Err(NotPut::Incompressible);
        };
        self.put_bytes(part, kind, bytes, false)
    }

    /// Puts `bytes`, the stored form of a block, into an object. If there is no room, records the length it would need.
    fn put_bytes(
        &self,
        part: &ImageBlock<'_>,
        kind: Kind,
        bytes: &[u8],
        is_zstd: bool,
    ) -> Result<Block, NotPut> {
        let sums = match kind {
            Kind::Packed if kept_sums(part.data.len()) > 0 => part.pages,
            _ => &[],
        };
        let len = size_of_val(sums) + bytes.len();
        let object = self.arena.alloc(len).map_err(|_| {
            self.refused.note(part.sum, len);
            NotPut::NoRoom
        })?;
        // SAFETY: the object is new, so no other thread knows it, and it has room for these bytes.
        unsafe {
            let mut at = self.arena.address(object);
            for sum in sums {
                at.cast::<[u8; 16]>().write(sum.to_le_bytes());
                at = at.add(size_of::<u128>());
            }
            at.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
        }
        Ok(Block {
            kind,
            place: Place::new(object, is_zstd).bits(),
            size: bytes.len() as u16,
            sum: part.sum,
        })
    }
}

impl Slots for CompressedRam {
    fn save(
        &self,
        slot: SlotId,
        previous: Option<SlotPart>,
        data: &[u8],
    ) -> Result<Saved, SaveError> {
        if let Some(part) = previous {
            self.expect_sums(part, data.len());
        }
        let holds = |part, image: &Image<'_>| self.holds_image(part, image);
        let put = |image: &Image<'_>| match self.put(slot, image) {
            Err(SaveError::Full) if self.gather_some() => self.put(slot, image),
            put => put,
        };
        image::save(
            &image::NewSlot {
                data,
                block: RAM_BLOCK,
                previous,
                keys: &self.sums,
            },
            holds,
            put,
        )
    }

    fn load(&self, slot: SlotId, first_page: u16, out: &mut [u8]) -> Result<(), LoadError> {
        let slot = self.table.pin(slot).ok_or(LoadError::Missing)?;
        let blocks = slot
            .blocks_of(first_page, out.len())
            .ok_or(LoadError::Missing)?;
        slot.note_use(first_page, out.len());
        let mut from = usize::from(first_page) * 4096;
        let mut rest = out;
        for (block, at, len) in blocks {
            let part = rest.len().min(at + len - from);
            let (out, after) = rest.split_at_mut(part);
            self.load_from(&block, len, from - at, out)?;
            from += part;
            rest = after;
        }
        Ok(())
    }

    fn expect(&self, page: SlotPart) {
        self.table.expect(page);
    }

    fn expect_bytes(&self, page: SlotPart) {
        let Some(slot) = self.table.pin(page.slot) else {
            return;
        };
        let block = slot.blocks_of(page.first, PAGE);
        if let Some((block, at, len)) = block.and_then(|mut blocks| blocks.next()) {
            self.expect_block(&block, len, usize::from(page.first) * PAGE - at);
        }
    }

    fn forget(&self, part: SlotPart) {
        self.forget_pages(part);
    }

    fn release(&self, slot: SlotId) {
        if let Some(slot) = self.table.take(slot) {
            self.free(&slot);
        }
    }
}

impl Upkeep for CompressedRam {
    fn recompress(&self, worth_it: bool) -> Recompress {
        self.recompress_some(worth_it)
    }

    fn recompressed(&self) -> Recompressed {
        self.recompression.so_far()
    }

    /// Tables and buffers are part of these bytes.
    fn limit_ram(&self, bytes: u64) {
        let beside = self.table.usage().ram_bytes + self.working_bytes();
        CompressedRam::limit_ram(self, bytes.saturating_sub(beside));
    }

    fn usage(&self) -> StoreUsage {
        let table = self.table.usage();
        StoreUsage {
            logical_bytes: table
                .logical_bytes
                .saturating_sub(self.forgotten.load(Relaxed) * PAGE as u64),
            stored_bytes: self.arena.live_bytes(),
            ram_bytes: table.ram_bytes + self.arena.ram_bytes() + self.working_bytes(),
            ..table
        }
    }
}

impl Forks for CompressedRam {
    fn after_fork_in_child(&self) -> Result<(), i32> {
        Ok(())
    }

    fn before_fork(&self, _: u64) {}

    fn child_gone(&self, _: u64) {}
}

#[cfg(test)]
mod tests;
