//! Blocks of 64 KiB that are compressed in four *segments*, so that one page can be read, decompressed, and known to be
//! unchanged without the rest.
//!
//! Compressed as one stream, a block had to be read, decompressed and checked as a whole for one of its pages, and the
//! page was saved again when it was evicted, because the store could not tell that it was unchanged. LZ4 gains little
//! by looking back further than 16 KiB. So each 16 KiB is compressed separately, one segment directly after the other,
//! and to read a part of a block the store reads only the blocks of the file that hold its segments. For a page of data
//! that compresses to a quarter these are two blocks; the whole block would be five.
//!
//! The ends of the segments, and the checksum of each page, are kept in RAM, 264 bytes for 64 KiB, in an *index* of
//! their own that the record's place names. Shorter slots have none: such a slot as a whole is hardly more than what is
//! read in any case ([`clusters`](super::clusters)).
//!
//! A forked child has a copy of all indices, just as of the records.

use crate::checksum::{BLOCK_PAGES, KeptSum};
use crate::codec::{compress, decompress, decompress_part};
use crate::image::BLOCK;
use crate::mem::PAGE;
use crate::pieces::{Entry, Pieces};
use crate::scratch::Tables;
use millpond_core::port::LoadError;
use millpond_sync::{Held, Rank, Ranked};
use rustix::io::Errno;
use std::num::NonZeroU32;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::*};

/// Number of bytes in a segment, before compression.
const SEGMENT: usize = 16 << 10;
const SEGMENTS: usize = BLOCK / SEGMENT;
/// Number of bits of a place that name an index.
pub(super) const INDEX_BITS: u32 = 24;
/// Number of indices that there can be: 1 TiB in blocks of 64 KiB.
const MOST: u64 = 1 << INDEX_BITS;

/// The ends of all segments but the last, in the compressed bytes, 16 bits each. In a free index, the number of the
/// next free one.
struct Ends(AtomicU64);

// SAFETY: it is an atomic, for which zeros are valid and which any thread may use.
unsafe impl Entry for Ends {}

/// The number of an index, which names the checksums and ends of a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Index(pub(super) NonZeroU32);

struct Spare {
    /// The head of the chain of free indices.
    free: u32,
    /// The last index that was ever used.
    end: u32,
}

/// The indices of all blocks. The module's documentation describes them.
pub(super) struct Segments {
    sums: Pieces<KeptSum>,
    ends: Pieces<Ends>,
    spare: Ranked<Spare>,
}

impl Segments {
    pub(super) fn new() -> Result<Self, Errno> {
        Ok(Self {
            sums: Pieces::new(MOST * BLOCK_PAGES as u64)?,
            ends: Pieces::new(MOST)?,
            spare: Ranked::new(Rank::SegmentIndices, Spare { free: 0, end: 0 }),
        })
    }

    fn spare(&self) -> Held<'_, Spare> {
        self.spare.lock()
    }

    fn ends(&self, index: Index) -> Option<&AtomicU64> {
        Some(&self.ends.get(index.0.get().into())?.0)
    }

    fn sum(&self, index: Index, page: usize) -> Option<&KeptSum> {
        self.sums
            .get(u64::from(index.0.get()) * BLOCK_PAGES as u64 + page as u64)
    }

    /// Takes an unused index. Returns `None` if there is no memory for one.
    pub(super) fn take(&self) -> Option<Index> {
        let mut spare = self.spare();
        if let Some(free) = NonZeroU32::new(spare.free) {
            spare.free = self.ends(Index(free))?.load(Relaxed) as u32;
            return Some(Index(free));
        }
        let next = u64::from(spare.end) + 1;
        if next >= MOST {
            return None;
        }
        self.ends.get_or_grow(next)?;
        // All checksums of a block are in one piece.
        self.sums.get_or_grow(next * BLOCK_PAGES as u64)?;
        spare.end = next as u32;
        NonZeroU32::new(spare.end).map(Index)
    }

    /// Frees `index`, which is no longer in use.
    pub(super) fn give_back(&self, index: Index) {
        let mut spare = self.spare();
        if let Some(next) = self.ends(index) {
            next.store(spare.free.into(), Relaxed);
            spare.free = index.0.get();
        }
    }

    /// Compresses `data`, a whole block whose pages have these checksums, to the start of `out`. Returns how many bytes
    /// that took, if they are no more than `most`.
    pub(super) fn encode(
        &self,
        index: Index,
        (data, pages): (&[u8], &[u128]),
        tables: &mut Tables,
        out: &mut [u8],
        most: usize,
    ) -> Option<usize> {
        let (mut end, mut ends) = (0, 0);
        for (n, segment) in data.chunks(SEGMENT).enumerate() {
            end += compress(segment, tables, &mut out[end..]);
            if end > most {
                return None;
            }
            if n + 1 < SEGMENTS {
                ends |= (end as u64) << (16 * n);
            }
        }
        self.ends(index)?.store(ends, Relaxed);
        for (n, sum) in pages.iter().enumerate() {
            self.sum(index, n)?.set(*sum);
        }
        Some(end)
    }

    /// The bounds of the segments in the `size` bytes that a block was compressed to.
    pub(super) fn bounds(&self, index: Index, size: u16) -> Option<Bounds> {
        let ends = self.ends(index)?.load(Relaxed);
        let mut bounds = [0; SEGMENTS + 1];
        for (n, bound) in bounds[1..SEGMENTS].iter_mut().enumerate() {
            *bound = (ends >> (16 * n)) as u16;
        }
        bounds[SEGMENTS] = size;
        bounds.is_sorted().then_some(Bounds(bounds))
    }

    /// Whether page `number` of a block has this checksum.
    pub(super) fn is(&self, index: Index, number: usize, sum: u128) -> bool {
        self.sum(index, number)
            .is_some_and(|kept| kept.get() == sum)
    }

    /// The RAM that all indices take.
    pub(super) fn ram_bytes(&self) -> u64 {
        self.sums.piece_bytes() + self.ends.piece_bytes()
    }
}

/// The bounds of a block's segments in its compressed bytes.
#[derive(Clone, Copy)]
pub(super) struct Bounds([u16; SEGMENTS + 1]);

impl Bounds {
    fn bytes(&self, segments: Range<usize>) -> Range<usize> {
        self.0[segments.start].into()..self.0[segments.end].into()
    }

    /// The range of the compressed bytes that holds part `part` of the block.
    pub(super) fn span(&self, part: &Range<usize>) -> Range<usize> {
        self.bytes(segments_of(part))
    }

    /// Fills `out` with part `part` of the block from the bytes of its [`span`](Self::span). The result still has to be
    /// checked. `plain` is used where a part begins inside a segment.
    pub(super) fn restore(
        &self,
        bytes: &[u8],
        part: &Range<usize>,
        out: &mut [u8],
        plain: &mut [u8; BLOCK],
    ) -> Result<(), LoadError> {
        let base = self.span(part).start;
        let mut rest = out;
        for n in segments_of(part) {
            let at = self.bytes(n..n + 1);
            let bytes = &bytes[at.start - base..at.end - base];
            let start = n * SEGMENT;
            let from = part.start.saturating_sub(start);
            let to = SEGMENT.min(part.end - start);
            let (out, after) = rest.split_at_mut(to - from);
            rest = after;
            match (from, to) {
                (0, SEGMENT) => decompress(bytes, out)?,
                (0, _) => decompress_part(bytes, out)?,
                // The bytes of the segment before the part have to be decompressed with it; those after it need not be.
                _ => {
                    decompress_part(bytes, &mut plain[..to])?;
                    out.copy_from_slice(&plain[from..to]);
                }
            }
        }
        Ok(())
    }
}

fn segments_of(part: &Range<usize>) -> Range<usize> {
    part.start / SEGMENT..part.end.div_ceil(SEGMENT)
}

const _: () = assert!(SEGMENT.is_multiple_of(PAGE) && BLOCK.is_multiple_of(SEGMENT));

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checksum::Checksums;
    use crate::codec::COMPRESSED_MAX;
    use crate::scratch::ScratchPool;

    /// Repeating numbers, such that each segment compresses to a different length.
    fn block() -> Vec<u8> {
        (0..BLOCK)
            .map(|at| (at / (3 + at / SEGMENT)) as u8)
            .collect()
    }

    #[test]
    fn each_part_comes_from_its_span_alone() {
        let segments = Segments::new().unwrap();
        let pool = ScratchPool::new(COMPRESSED_MAX).unwrap();
        let mut scratch = pool.acquire(COMPRESSED_MAX);
        let parts = scratch.parts();
        let (data, keys) = (block(), Checksums::new().unwrap());
        let pages: Vec<u128> = data.chunks(PAGE).map(|page| keys.of(page)).collect();
        let index = segments.take().unwrap();
        let mut encode = |most| {
            let image = (&data[..], &pages[..]);
            segments.encode(index, image, parts.tables, parts.wire, most)
        };
        let size = encode(BLOCK - PAGE).unwrap();
        assert_eq!(encode(size - 1), None);
        assert_eq!(encode(size), Some(size));
        let bounds = segments.bounds(index, size as u16).unwrap();
        for (from, to) in (0..16).flat_map(|from| (from + 1..=16).map(move |to| (from, to))) {
            let part = from * PAGE..to * PAGE;
            let mut out = vec![0; part.len()];
            let bytes = parts.wire[bounds.span(&part)].to_vec();
            let restored = bounds.restore(&bytes, &part, &mut out, parts.plain);
            assert_eq!(restored, Ok(()), "pages {from} to {to}");
            assert_eq!(out, data[part], "pages {from} to {to}");
        }
        for (n, sum) in pages.iter().enumerate() {
            assert!(segments.is(index, n, *sum) && !segments.is(index, n, sum ^ 1));
        }
    }

    #[test]
    fn an_index_belongs_to_one_caller_until_it_is_given_back() {
        let segments = Segments::new().unwrap();
        let taken: Vec<Index> = (0..300).map(|_| segments.take().unwrap()).collect();
        for (n, index) in taken.iter().enumerate() {
            assert!(!taken[..n].contains(index));
        }
        taken.iter().for_each(|index| segments.give_back(*index));
        for _ in 0..300 {
            assert!(taken.contains(&segments.take().unwrap()));
        }
        assert!(!taken.contains(&segments.take().unwrap()));
    }
}
