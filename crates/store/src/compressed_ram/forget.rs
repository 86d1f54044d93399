//! Forgotten pages give their memory back before their slot does.
//!
//! A folio is evicted as a whole and comes back page by page if a program uses memory at random. Each modified page is
//! evicted again under a slot of its own, and its former copy is useless. Under zram the kernel frees such a copy when
//! the page comes back. Here it lies in a block with three others, so the block is rebuilt without it: the streams of
//! the other pages are copied to a smaller object, still compressed. That takes less than a microsecond, and is skipped
//! if the smaller object would be of the same class.
//!
//! The upper bits of a block's place (`Place`) record which of its pages were forgotten; the bits below record the
//! compressor, and whether the block must not be compressed again (`recompress.rs`). A load of a forgotten page is the
//! caller's mistake, and fails as such.

use crate::arena::{Arena, Handle};
use crate::codec::{Stored, Want, restore};
use crate::compressed_ram::CompressedRam;
use crate::image::RAM_BLOCK;
use crate::mem::PAGE;
use crate::paged::{kept_sums, size_without, without};
use crate::slot_table::{Block, Kind, Pinned};
use millpond_core::SlotPart;
use millpond_core::port::LoadError;
use std::ops::Range;
use std::sync::atomic::Ordering::Relaxed;

/// Pages of the longest block.
const PAGES: usize = RAM_BLOCK / PAGE;
/// The bits of a place that name the object. All of them are set if the object no longer exists.
const OBJECT: u64 = ZSTD - 1;
/// The bit of a place whose streams are zstd. Other places' streams are LZ4.
const ZSTD: u64 = SETTLED >> 1;
/// The bit of a place whose block is not compressed again.
const SETTLED: u64 = 1 << (FORGOTTEN - 1);
/// The first of the bits that say which pages were forgotten.
const FORGOTTEN: u32 = u64::BITS - PAGES as u32;

/// Replaces each byte of a forgotten page when a slot moves. It is not zero, because zeros need no slot.
const NOTHING: u8 = 0xa5;

const _: () = assert!(PAGES <= u8::BITS as usize);

/// The place of a block that has an object: a fill has none, and uses all bits of its place for its word.
#[derive(Clone, Copy)]
pub(super) struct Place(u64);

impl Place {
    /// The place of `block`, which is not a fill.
    pub(super) fn of(block: &Block) -> Self {
        debug_assert_ne!(block.kind, Kind::Fill);
        Self(block.place)
    }

    /// The place of a block whose streams are in `object`, and are zstd if it says so.
    pub(super) fn new(object: Handle, is_zstd: bool) -> Self {
        Self(object.0 | if is_zstd { ZSTD } else { 0 })
    }

    /// This place with another object, or with none.
    pub(super) fn with(self, object: Option<Handle>) -> Self {
        Self(object.map_or(OBJECT, |object| object.0) | self.0 & !OBJECT)
    }

    /// This place with these pages forgotten, a bit each, in addition to those that already were.
    fn without_pages(self, forgotten: u8) -> Self {
        Self(self.0 | u64::from(forgotten) << FORGOTTEN)
    }

    /// This place, marked as not to be compressed again.
    pub(super) fn settled(self) -> Self {
        Self(self.0 | SETTLED)
    }

    /// The place of this block with its streams as zstd, in another object.
    pub(super) fn as_zstd(self, object: Handle) -> Self {
        Self(self.with(Some(object)).0 | ZSTD)
    }

    /// The place as stored in a record.
    pub(super) fn bits(self) -> u64 {
        self.0
    }

    /// Whether the block's streams are zstd.
    pub(super) fn is_zstd(self) -> bool {
        self.0 & ZSTD != 0
    }

    /// Whether the block is not compressed again.
    pub(super) fn is_settled(self) -> bool {
        self.0 & (SETTLED | ZSTD) != 0
    }

    /// The block's object, unless all pages were forgotten.
    pub(super) fn object(self) -> Option<Handle> {
        let object = self.0 & OBJECT;
        (object != OBJECT).then_some(Handle(object))
    }

    /// The pages that were forgotten, a bit each.
    pub(super) fn forgotten(self) -> u8 {
        (self.0 >> FORGOTTEN) as u8
    }
}

/// The pages of a block that were forgotten, a bit each.
pub(super) fn forgotten_of(block: &Block) -> u8 {
    match block.kind {
        Kind::Fill => 0,
        _ => Place::of(block).forgotten(),
    }
}

/// The pages in a range of a block's bytes, a bit each.
pub(super) fn pages_in(bytes: Range<usize>) -> u8 {
    let pages = bytes.start / PAGE..bytes.end.div_ceil(PAGE);
    pages.fold(0, |bits, page| bits | 1 << page)
}

impl CompressedRam {
    /// Frees the memory of the pages of `part`, if the slot is here. The slot and its other pages stay.
    pub(crate) fn forget_pages(&self, part: SlotPart) {
        let Some(slot) = self.table.rewrite(part.slot) else {
            return;
        };
        let from = usize::from(part.first) * PAGE;
        let to = from + part.order.bytes();
        slot.change(part.first, to - from, |block, at, len| {
            let wanted = from.max(at) - at..to.min(at + len) - at;
            match block.kind {
                Kind::Fill => block,
                _ => self.forget_in(block, len, pages_in(wanted)),
            }
        });
    }

    /// What is left of a block of `len` bytes without these pages.
    fn forget_in(&self, block: Block, len: usize, pages: u8) -> Block {
        let place = Place::of(&block);
        let Some(object) = place.object() else {
            return block;
        };
        let forgotten = place.forgotten() | pages;
        let more = (forgotten ^ place.forgotten()).count_ones();
        self.forgotten.fetch_add(more.into(), Relaxed);
        let left = place.without_pages(pages);
        if forgotten == pages_in(0..len) {
            self.arena.free(object);
            return Block {
                place: left.with(None).0,
                ..block
            };
        }
        let (object, size) = self
            .repack(&block, len, forgotten)
            .unwrap_or((object, block.size));
        Block {
            place: left.with(Some(object)).0,
            size,
            ..block
        }
    }

    /// Moves the needed part of a block's object to a smaller one, if that gains memory. Returns the new object and the
    /// new number of compressed bytes.
    fn repack(&self, block: &Block, len: usize, forgotten: u8) -> Option<(Handle, u16)> {
        let old = Place::of(block).object()?;
        // SAFETY: the slot is being rewritten, so no thread frees the object, and no other thread uses it.
        let Stored { bytes, pages, .. } = unsafe { self.stored(block, len) };
        let sums = pages?;
        let size = size_without(bytes, sums.len(), forgotten)?;
        let (before, after) = (kept_sums(len) + bytes.len(), kept_sums(len) + size);
        if !Arena::is_smaller(after, before) {
            return None;
        }
        let new = self.arena.alloc(after).ok()?;
        // SAFETY: the object is new, so no other thread knows it, and it has room for these bytes.
        let room = unsafe { std::slice::from_raw_parts_mut(self.arena.address(new), after) };
        let (kept, streams) = room.split_at_mut(kept_sums(len));
        kept.copy_from_slice(sums.as_flattened());
        if without(bytes, sums.len(), forgotten, streams).is_none() {
            // The block is damaged: that is detected when its remaining pages are loaded.
            self.arena.free(new);
            return None;
        }
        self.arena.free(old);
        Some((new, size as u16))
    }

    /// Loads a whole pinned slot into `out`, for a move of the slot to another place. Forgotten pages are filled with
    /// [`NOTHING`]: no one asks for them.
    pub(super) fn load_what_is_left(
        &self,
        slot: &Pinned<'_>,
        out: &mut [u8],
    ) -> Result<(), LoadError> {
        let blocks = slot.blocks_of(0, out.len()).ok_or(LoadError::Missing)?;
        for (block, at, len) in blocks {
            let out = &mut out[at..at + len];
            let forgotten = forgotten_of(&block);
            if forgotten == 0 {
                self.load_from(&block, len, 0, out)?;
                continue;
            }
            for (number, page) in out.chunks_mut(PAGE).enumerate() {
                match forgotten >> number & 1 {
                    0 => self.load_from(&block, len, number * PAGE, page)?,
                    _ => page.fill(NOTHING),
                }
            }
        }
        Ok(())
    }

    /// Loads `out.len()` bytes of a block of `len` bytes, from byte `from` of it, for a pinned slot.
    pub(super) fn load_from(
        &self,
        block: &Block,
        len: usize,
        from: usize,
        out: &mut [u8],
    ) -> Result<(), LoadError> {
        // A slot that is filled with one word is a single block, with more pages than a byte has bits; none of them is
        // forgotten.
        let forgotten = forgotten_of(block);
        if forgotten != 0 && forgotten & pages_in(from..from + out.len()) != 0 {
            return Err(LoadError::Missing);
        }
        self.expect_block(block, len, from);
        // SAFETY: the slot is pinned, and the block has its object, since a page of it was not forgotten.
        let stored = unsafe { self.stored(block, len) };
        let want = Want { len, from, out };
        restore(block, stored, &self.sums, want, || {
            unreachable!("a block in RAM is cut between its streams")
        })
    }
}
