//! Blocks to bytes and back, with the check that both are the same.
//!
//! LZ4 both ways, by two libraries, each where it is the faster one on a mapped page's usual contents: `lz4_flex`
//! compresses (0.4 to 0.9 µs a page in blocks of 64 KiB, the reference library 0.9 to 1.1), the
//! reference library decompresses. Matches that overlap themselves, which is what half-empty heaps and
//! arrays of small numbers compress to, take `lz4_flex` a byte at a time: 1.5 to 2.3 µs a page against 0.15 to 0.28.

use crate::checksum::Checksums;
use crate::image::BLOCK;
use crate::lz4::{Malformed, decompress_start};
use crate::mem::PAGE;
use crate::paged;
use crate::scratch::Tables;
use crate::slot_table::{Block, Kind};
use lz4_flex::block::{compress_into_with_table, get_maximum_output_size};
use millpond_core::port::LoadError;

/// Room that [`compress`] wants for any block.
pub(crate) const COMPRESSED_MAX: usize = get_maximum_output_size(BLOCK);

/// Compresses `block` to the start of `out` (at least [`COMPRESSED_MAX`]) and answers how many
/// bytes that took: more than the block has, at worst.
pub(crate) fn compress(block: &[u8], tables: &mut Tables, out: &mut [u8]) -> usize {
    let table = if block.len() < usize::from(u16::MAX) {
        &mut tables.small
    } else {
        &mut tables.large
    };
    compress_into_with_table(block, out, table).unwrap_or(usize::MAX)
}

/// Whether `size` bytes for `len` are worth the decompression: an eighth saved, at least.
pub(crate) fn pays(size: usize, len: usize) -> bool {
    size <= len - len / 8
}

/// Which part of a block is wanted, and where it goes.
pub(crate) struct Want<'a> {
    /// Bytes in the whole block.
    pub(crate) len: usize,
    /// Where the part begins: at a page.
    pub(crate) from: usize,
    /// Filled with the part: whole pages.
    pub(crate) out: &'a mut [u8],
}

/// What the medium has for a block.
#[derive(Clone, Copy)]
pub(crate) struct Stored<'a> {
    /// Nothing for a fill.
    pub(crate) bytes: &'a [u8],
    /// The checksums of its pages, where they are kept: the block's own is made of them, and each page has a stream of
    /// its own.
    pub(crate) pages: Option<&'a PageSums>,
}

/// Checksums of pages, as they are stored.
pub(crate) type PageSums = [[u8; size_of::<u128>()]];

/// Restores a part of `block` from what is `stored` of it, and checks every page that it hands out. `plain` is asked
/// for when a part has to be cut from a decompressed block.
///
/// What is checked is the copy that the caller gets, whenever the block is wanted whole or its pages have checksums of
/// their own ([`paged`]); else all of the block is.
pub(crate) fn restore<'p>(
    block: &Block,
    stored: Stored<'_>,
    sums: &Checksums,
    want: Want<'_>,
    plain: impl FnOnce() -> &'p mut [u8; BLOCK],
) -> Result<(), LoadError> {
    let Stored { bytes, pages } = stored;
    let Want { len, from, out } = want;
    let whole = out.len() == len;
    let end = from + out.len();
    let sum = match (block.kind, pages) {
        (Kind::Fill, _) => {
            let word = block.place.to_ne_bytes();
            out.as_chunks_mut::<8>().0.fill(word);
            sums.of_fill(block.place, len)
        }
        (Kind::Raw, _) if whole => {
            out.copy_from_slice(bytes);
            sums.of_block(out)
        }
        (Kind::Raw, _) => {
            out.copy_from_slice(&bytes[from..end]);
            sums.of_block(bytes)
        }
        (Kind::Lz4, Some(pages)) => {
            let expected = pages.iter().enumerate().skip(from / PAGE);
            for (page, (number, sum)) in out.chunks_mut(PAGE).zip(expected) {
                paged::decode(bytes, pages.len(), number, page)?;
                if sums.of(page).to_le_bytes() != *sum {
                    return Err(LoadError::Corrupt);
                }
            }
            block_sum(pages, sums)
        }
        (Kind::Lz4, None) if whole => {
            decompress(bytes, out)?;
            sums.of_block(out)
        }
        (Kind::Lz4, None) => {
            let plain = &mut plain()[..len];
            decompress(bytes, plain)?;
            out.copy_from_slice(&plain[from..end]);
            sums.of_block(plain)
        }
    };
    if sum == block.sum {
        Ok(())
    } else {
        Err(LoadError::Corrupt)
    }
}

/// The checksum of the block whose pages have these.
pub(crate) fn block_sum(pages: &PageSums, sums: &Checksums) -> u128 {
    sums.of(pages.as_flattened())
}

/// Fills `out` from `bytes`, which may be damaged: then this fails, or the checksum refuses what it gives.
pub(crate) fn decompress(bytes: &[u8], out: &mut [u8]) -> Result<(), LoadError> {
    let from = i32::try_from(bytes.len()).map_err(|_| LoadError::Corrupt)?;
    let room = i32::try_from(out.len()).map_err(|_| LoadError::Corrupt)?;
    // SAFETY: the library reads `from` bytes of `bytes` at most and writes `room` bytes of `out` at most, whatever the
    // bytes are; it keeps no state, allocates nothing and sets no errno.
    let done = unsafe {
        lz4_sys::LZ4_decompress_safe(bytes.as_ptr().cast(), out.as_mut_ptr().cast(), from, room)
    };
    if done == room {
        Ok(())
    } else {
        Err(LoadError::Corrupt)
    }
}

/// As [`decompress`], of a block that goes on behind `out`.
pub(crate) fn decompress_part(bytes: &[u8], out: &mut [u8]) -> Result<(), LoadError> {
    decompress_start(bytes, out).map_err(|Malformed| LoadError::Corrupt)
}
