//! Converts blocks to bytes and back, and checks that the block comes back unchanged.
//!
//! LZ4 is used both ways, by two libraries, each where it is the faster one on the usual contents of a mapped page.
//! `lz4_flex` compresses (0.4 to 0.9 µs a page in blocks of 64 KiB, the reference library 0.9 to 1.1), and the
//! reference library decompresses. Half-empty heaps and arrays of small numbers compress to matches that overlap
//! themselves, which `lz4_flex` copies a byte at a time: it takes 1.5 to 2.3 µs a page, the reference library 0.15 to
//! 0.28.
//!
//! The reference library can also stop early ([`decompress_part`]). Then it copies a match that continues beyond the
//! part byte by byte, so a part that ends in a long run costs up to 5 µs, where the whole block would take 1; text,
//! tables of a database and code take as long as their share of the block.

use crate::checksum::Checksums;
use crate::image::BLOCK;
use crate::mem::PAGE;
use crate::paged;
use crate::scratch::Tables;
use crate::slot_table::{Block, Kind};
use crate::zstd::{Unpacker, Unpackers};
use core::ffi::{c_char, c_int};
use lz4_flex::block::{compress_into_with_table, get_maximum_output_size};
use millpond_core::port::LoadError;

/// The room that [`compress`] needs for any block.
pub(crate) const COMPRESSED_MAX: usize = get_maximum_output_size(BLOCK);

/// Compresses `block` to the start of `out` (at least [`COMPRESSED_MAX`] bytes). Returns how many bytes that took: at
/// worst more than the block has.
pub(crate) fn compress(block: &[u8], tables: &mut Tables, out: &mut [u8]) -> usize {
    let table = if block.len() < usize::from(u16::MAX) {
        &mut tables.small
    } else {
        &mut tables.large
    };
    compress_into_with_table(block, out, table).unwrap_or(usize::MAX)
}

/// Whether compressing `len` bytes to `size` is worth the decompression: it must save at least an eighth.
pub(crate) fn pays(size: usize, len: usize) -> bool {
    size <= len - len / 8
}

/// The part of a block that is wanted, and where it goes.
pub(crate) struct Want<'a> {
    /// Number of bytes in the whole block.
    pub(crate) len: usize,
    /// The offset at which the part begins: a multiple of a page.
    pub(crate) from: usize,
    /// The buffer for the part: whole pages.
    pub(crate) out: &'a mut [u8],
}

/// The stored form of a block.
#[derive(Clone, Copy)]
pub(crate) struct Stored<'a> {
    /// The stored bytes; empty for a fill.
    pub(crate) bytes: &'a [u8],
    /// What compressed the bytes.
    pub(crate) codec: Codec<'a>,
    /// The checksums of the block's pages, where they are kept. Then the block's own checksum is made of them, and
    /// each page has a stream of its own.
    pub(crate) pages: Option<&'a PageSums>,
}

/// What compressed a block.
#[derive(Clone, Copy)]
pub(crate) enum Codec<'a> {
    Lz4,
    /// It was zstd, for which these are the contexts.
    Zstd(&'a Unpackers),
}

impl<'a> Codec<'a> {
    /// What decompresses the block's streams.
    pub(crate) fn open(self) -> Decoder<'a> {
        match self {
            Self::Lz4 => Decoder::Lz4,
            Self::Zstd(unpackers) => Decoder::Zstd(unpackers.acquire()),
        }
    }
}

/// What decompresses a block's streams, one after the other.
pub(crate) enum Decoder<'a> {
    Lz4,
    Zstd(Unpacker<'a>),
}

impl Decoder<'_> {
    /// Fills `out` from `bytes`. If these are damaged, this fails, or the checksum refuses the result.
    pub(crate) fn decompress(&mut self, bytes: &[u8], out: &mut [u8]) -> Result<(), LoadError> {
        match self {
            Self::Lz4 => decompress(bytes, out),
            Self::Zstd(unpacker) => unpacker.unpack(bytes, out),
        }
    }
}

/// The checksums of pages, as they are stored.
pub(crate) type PageSums = [[u8; size_of::<u128>()]];

/// Restores a part of `block` from its `stored` form, and checks every page that it hands out. `plain` is called when
/// a part has to be cut from a decompressed block.
///
/// Whenever the block is wanted whole or its pages have checksums of their own ([`paged`]), the check covers the copy
/// that the caller gets. Otherwise it covers all of the block.
pub(crate) fn restore<'p>(
    block: &Block,
    stored: Stored<'_>,
    sums: &Checksums,
    want: Want<'_>,
    plain: impl FnOnce() -> &'p mut [u8; BLOCK],
) -> Result<(), LoadError> {
    let Stored {
        bytes,
        codec,
        pages,
    } = stored;
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
        (Kind::Packed, Some(pages)) => {
            let mut decoder = codec.open();
            let expected = pages.iter().enumerate().skip(from / PAGE);
            for (page, (number, sum)) in out.chunks_mut(PAGE).zip(expected) {
                paged::decode(bytes, pages.len(), number, &mut decoder, page)?;
                if sums.of(page).to_le_bytes() != *sum {
                    return Err(LoadError::Corrupt);
                }
            }
            block_sum(pages, sums)
        }
        (Kind::Packed, None) if whole => {
            codec.open().decompress(bytes, out)?;
            sums.of_block(out)
        }
        (Kind::Packed, None) => {
            let plain = &mut plain()[..len];
            codec.open().decompress(bytes, plain)?;
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

/// The checksum of the block whose pages have these checksums.
pub(crate) fn block_sum(pages: &PageSums, sums: &Checksums) -> u128 {
    sums.of(pages.as_flattened())
}

/// Fills `out` from `bytes`. If these are damaged, this fails, or the checksum refuses the result.
pub(crate) fn decompress(bytes: &[u8], out: &mut [u8]) -> Result<(), LoadError> {
    let from = i32::try_from(bytes.len()).map_err(|_| LoadError::Corrupt)?;
    let room = i32::try_from(out.len()).map_err(|_| LoadError::Corrupt)?;
    // SAFETY: the library reads at most `from` bytes of `bytes` and writes at most `room` bytes of `out`, whatever
    // the bytes are. It keeps no state, allocates nothing and sets no errno.
    let done = unsafe {
        lz4_sys::LZ4_decompress_safe(bytes.as_ptr().cast(), out.as_mut_ptr().cast(), from, room)
    };
    if done == room {
        Ok(())
    } else {
        Err(LoadError::Corrupt)
    }
}

/// Fills `out` with the start of a block, like [`decompress`] where the block goes on behind `out`. Nothing in a block
/// points forward, so this costs what comes before the end of `out`, and nothing of what follows.
pub(crate) fn decompress_part(bytes: &[u8], out: &mut [u8]) -> Result<(), LoadError> {
    let from = i32::try_from(bytes.len()).map_err(|_| LoadError::Corrupt)?;
    let room = i32::try_from(out.len()).map_err(|_| LoadError::Corrupt)?;
    // SAFETY: as in `decompress`; the library stops when it has written `room` bytes.
    let done = unsafe {
        LZ4_decompress_safe_partial(
            bytes.as_ptr().cast(),
            out.as_mut_ptr().cast(),
            from,
            room,
            room,
        )
    };
    if done == room {
        Ok(())
    } else {
        Err(LoadError::Corrupt)
    }
}

unsafe extern "C" {
    /// Decompresses the `from` bytes of a block until `target` bytes are written, and never more than `room`. Returns
    /// how many were written; a negative number says that the block is damaged. It is in the library of `lz4_sys`,
    /// which does not name it.
    fn LZ4_decompress_safe_partial(
        block: *const c_char,
        out: *mut c_char,
        from: c_int,
        target: c_int,
        room: c_int,
    ) -> c_int;
}

#[cfg(test)]
mod tests {
    use super::*;
    use lz4_flex::block::{compress_into, get_maximum_output_size};
    use proptest::prelude::*;

    fn compress(data: &[u8]) -> Vec<u8> {
        let mut block = vec![0; get_maximum_output_size(data.len())];
        let size = compress_into(data, &mut block).unwrap();
        block.truncate(size);
        block
    }

    /// Data made of runs of a short pattern, of noise, and of bytes that were there before.
    fn data() -> impl Strategy<Value = Vec<u8>> {
        let piece = prop_oneof![
            (prop::collection::vec(any::<u8>(), 1..12), 1usize..2000)
                .prop_map(|(pattern, len)| pattern.into_iter().cycle().take(len).collect()),
            prop::collection::vec(any::<u8>(), 1..600),
            prop::collection::vec(0u8..4, 1..300),
        ];
        prop::collection::vec(piece, 1..12).prop_map(|pieces: Vec<Vec<u8>>| {
            let mut all = pieces.concat();
            all.extend_from_within(..all.len() / 3);
            all
        })
    }

    proptest! {
        #[test]
        fn any_prefix_of_a_block_decompresses_to_its_data(data in data(), at in any::<prop::sample::Index>()) {
            let block = compress(&data);
            let end = at.index(data.len() + 1);
            let mut out = vec![0xa5; end];
            prop_assert_eq!(decompress_part(&block, &mut out), Ok(()));
            prop_assert!(out == data[..end]);
            let mut all = vec![0xa5; data.len()];
            prop_assert_eq!(decompress_part(&block, &mut all), Ok(()));
            prop_assert!(all == data);
            prop_assert_eq!(decompress_part(&block, &mut vec![0; data.len() + 1]), Err(LoadError::Corrupt));
        }

        #[test]
        fn damage_is_an_error_or_other_bytes(data in data(), at in any::<prop::sample::Index>(), bits in 1u8..) {
            let mut block = compress(&data);
            let at = at.index(block.len());
            block[at] ^= bits;
            let mut out = vec![0; data.len()];
            // The answer does not matter, but the decompression must end and stay within its bounds.
            let _ = decompress_part(&block, &mut out);
            let _ = decompress_part(&block[at..], &mut out);
        }

        #[test]
        fn arbitrary_input_is_decompressed_without_a_panic(block in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = decompress_part(&block, &mut [0; 5000]);
        }
    }

    #[test]
    fn a_page_of_one_word_after_another_page_decompresses() {
        let mut data = vec![0; 16384];
        for (i, word) in data.as_chunks_mut::<8>().0.iter_mut().enumerate() {
            *word = (i as u64 / 512).to_le_bytes();
        }
        let block = compress(&data);
        for page in 1..=4 {
            let mut out = vec![9; page * 4096];
            assert_eq!(decompress_part(&block, &mut out), Ok(()));
            assert_eq!(out, data[..page * 4096]);
        }
    }
}
