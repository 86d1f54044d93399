//! Blocks of compressed RAM: a sequence of pages, each of which can be loaded without the others.
//!
//! ```text
//!     checksum of each page | end of each stream but the last | stream of each page
//!          16 bytes                    2 bytes               LZ4 or zstd, or as it is
//! ```
//!
//! Blocks used to be a single stream. LZ4 looks back, so a load of the fourth page had to decompress the three before
//! it, while a program that reads at random wants one page of a folio that was evicted with its neighbours. For pages
//! from programs' memory (Python, SQLite, a C++ compiler), a load took 4.0, 3.5 and 4.8 µs on average, and now takes
//! 1.4 to 1.9, 1.5 and 1.7 to 2.0.
//!
//! The cost is the repetition that a page could find in the three before it: compressed, these pages were 29.2, 24.1
//! and 22.8 % of their size, and now are 31.4, 28.4 and 24.3. The kernel's zram, which compresses page by page, has the
//! same cost.
//!
//! All streams of a block are LZ4, or all are zstd ([`compressed_ram`](crate::compressed_ram) records which, next to
//! the block's place). An incompressible page lies in the block unchanged, and is recognized by its length. A block of
//! a single page is its stream and nothing else.

use crate::codec::{Decoder, compress};
use crate::mem::PAGE;
use crate::scratch::Tables;
use crate::zstd::Packer;
use millpond_core::port::LoadError;

const END: usize = size_of::<u16>();

/// The bytes of the checksums in front of the streams of a block of `len` bytes: one checksum for each page, unless the
/// block's own is the only one.
pub(crate) fn kept_sums(len: usize) -> usize {
    match len / PAGE {
        1 => 0,
        pages => pages * size_of::<u128>(),
    }
}

/// The bytes that the ends of streams take.
fn ends(pages: usize) -> usize {
    (pages - 1) * END
}

/// Compresses the pages of `block` by LZ4 to the start of `out`, ends and streams. Returns how many bytes that took.
pub(crate) fn encode(block: &[u8], tables: &mut Tables, out: &mut [u8]) -> usize {
    encode_by(block, out, |page, out| compress(page, tables, out))
}

/// [`encode`] by zstd, which compresses more and takes longer.
pub(crate) fn encode_densely(block: &[u8], packer: &mut Packer, out: &mut [u8]) -> usize {
    encode_by(block, out, |page, out| {
        packer.pack(page, &mut out[..PAGE - 1]).unwrap_or(PAGE)
    })
}

fn encode_by(
    block: &[u8],
    out: &mut [u8],
    mut compress: impl FnMut(&[u8], &mut [u8]) -> usize,
) -> usize {
    let mut end = ends(block.len() / PAGE);
    for (n, page) in block.chunks_exact(PAGE).enumerate() {
        if n > 0 {
            let before = (end as u16).to_le_bytes();
            out[(n - 1) * END..n * END].copy_from_slice(&before);
        }
        let mut size = compress(page, &mut out[end..]);
        if size >= PAGE {
            size = PAGE;
            out[end..end + PAGE].copy_from_slice(page);
        }
        end += size;
    }
    end
}

/// The stream of page `number` in what [`encode`] made of a block of `pages` pages. `None` if `bytes` are damaged.
fn stream_of(bytes: &[u8], pages: usize, number: usize) -> Option<&[u8]> {
    let end_of = |page: usize| -> Option<usize> {
        let at = page * END;
        let end = bytes.get(at..at + END)?;
        Some(u16::from_le_bytes([end[0], end[1]]).into())
    };
    let start = match number {
        0 => ends(pages),
        _ => end_of(number - 1)?,
    };
    let end = match number + 1 == pages {
        true => bytes.len(),
        false => end_of(number)?,
    };
    bytes.get(start..end)
}

/// Restores page `number` of a block of `pages` pages from the bytes that [`encode`] made of it. The checksum rejects
/// wrong bytes that result from damage.
pub(crate) fn decode(
    bytes: &[u8],
    pages: usize,
    number: usize,
    decoder: &mut Decoder<'_>,
    out: &mut [u8],
) -> Result<(), LoadError> {
    let stream = stream_of(bytes, pages, number).ok_or(LoadError::Corrupt)?;
    if stream.len() == PAGE {
        out.copy_from_slice(stream);
        return Ok(());
    }
    decoder.decompress(stream, out)
}

/// Writes to `out` what [`encode`] would have made of a block of `pages` pages whose pages `dropped` (a bit each) take
/// no bytes. Returns how many bytes that took; `None` if `bytes` are damaged, or the result does not fit.
pub(crate) fn without(bytes: &[u8], pages: usize, dropped: u8, out: &mut [u8]) -> Option<usize> {
    recode(bytes, pages, dropped, out, |_, stream, out| {
        out.get_mut(..stream.len())?.copy_from_slice(stream);
        Some(stream.len())
    })
}

/// Writes to `out` a block of `pages` pages like that of `bytes`, with streams that `change` makes from the old ones,
/// and without the pages `dropped` (a bit each). `change` receives the page's number, writes the new stream to the
/// start of its output slice, and returns how many bytes that took. Returns how many bytes the whole block took; `None`
/// if `bytes` are damaged, or something does not fit.
pub(crate) fn recode(
    bytes: &[u8],
    pages: usize,
    dropped: u8,
    out: &mut [u8],
    mut change: impl FnMut(usize, &[u8], &mut [u8]) -> Option<usize>,
) -> Option<usize> {
    let mut end = ends(pages);
    for number in 0..pages {
        if number > 0 {
            let at = (number - 1) * END;
            out.get_mut(at..at + END)?
                .copy_from_slice(&(end as u16).to_le_bytes());
        }
        if dropped >> number & 1 == 0 {
            let stream = stream_of(bytes, pages, number)?;
            end += change(number, stream, out.get_mut(end..)?)?;
        }
    }
    Some(end)
}

/// The bytes that [`without`] takes.
pub(crate) fn size_without(bytes: &[u8], pages: usize, dropped: u8) -> Option<usize> {
    let kept = (0..pages).filter(|number| dropped >> number & 1 == 0);
    kept.map(|number| stream_of(bytes, pages, number).map(<[u8]>::len))
        .try_fold(ends(pages), |sum, len| Some(sum + len?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::COMPRESSED_MAX;
    use crate::image::RAM_BLOCK;
    use crate::scratch::ScratchPool;

    /// Pages of zeros, of text, and of noise that does not compress.
    fn block(kinds: &[u8]) -> Vec<u8> {
        let mut draw = 88_172_645_463_325_252_u64;
        let page = |(n, kind): (usize, &u8)| -> Vec<u8> {
            let byte = |at: usize| match kind {
                0 => 0,
                1 => (at / (37 + n)) as u8,
                _ => {
                    draw ^= draw << 13;
                    draw ^= draw >> 7;
                    draw ^= draw << 17;
                    (draw >> 32) as u8
                }
            };
            (0..PAGE).map(byte).collect()
        };
        kinds.iter().enumerate().flat_map(page).collect()
    }

    #[test]
    fn each_page_comes_by_itself() {
        let pool = ScratchPool::new(COMPRESSED_MAX).unwrap();
        let mut scratch = pool.acquire(COMPRESSED_MAX);
        let parts = scratch.parts();
        for kinds in [&[1][..], &[1, 2], &[2, 0, 1], &[0, 1, 2, 1], &[2, 2, 2, 2]] {
            let data = block(kinds);
            assert!(data.len() <= RAM_BLOCK);
            let size = encode(&data, parts.tables, parts.wire);
            let incompressible = kinds.iter().filter(|&&kind| kind == 2).count();
            assert!(size >= incompressible * PAGE, "{kinds:?}: {size} bytes");
            assert!(
                size < (incompressible + 1) * PAGE,
                "{kinds:?}: {size} bytes"
            );
            for (n, page) in data.chunks(PAGE).enumerate() {
                let mut out = vec![0xa5; PAGE];
                let decoded = decode(
                    &parts.wire[..size],
                    kinds.len(),
                    n,
                    &mut Decoder::Lz4,
                    &mut out,
                );
                assert_eq!(decoded, Ok(()), "page {n} of {kinds:?}");
                assert_eq!(out, page, "page {n} of {kinds:?}");
            }
        }
    }

    #[test]
    fn dropped_pages_take_no_space_and_the_others_come_back() {
        let pool = ScratchPool::new(COMPRESSED_MAX).unwrap();
        let mut scratch = pool.acquire(COMPRESSED_MAX);
        let parts = scratch.parts();
        let data = block(&[1, 2, 0, 1]);
        let size = encode(&data, parts.tables, parts.wire);
        let bytes = &parts.wire[..size];
        for dropped in 0..16_u8 {
            let mut small = vec![0; size_without(bytes, 4, dropped).unwrap()];
            assert_eq!(without(bytes, 4, dropped, &mut small), Some(small.len()));
            let wrong = &mut vec![0; small.len() - 1];
            assert_eq!(without(bytes, 4, dropped, wrong), None);
            for (n, page) in data.chunks(PAGE).enumerate() {
                let mut out = vec![0xa5; PAGE];
                let decoded = decode(&small, 4, n, &mut Decoder::Lz4, &mut out);
                match dropped >> n & 1 {
                    0 => assert!(
                        decoded == Ok(()) && out == page,
                        "page {n} without {dropped:#b}"
                    ),
                    _ => assert_eq!(decoded, Err(LoadError::Corrupt)),
                }
            }
            // The same once more: pages are dropped one after the other.
            let fewer = dropped | 1;
            let mut smaller = vec![0; size_without(&small, 4, fewer).unwrap()];
            assert_eq!(without(&small, 4, fewer, &mut smaller), Some(smaller.len()));
            assert_eq!(
                decode(&smaller, 4, 3, &mut Decoder::Lz4, &mut vec![0; PAGE]).is_ok(),
                fewer < 8
            );
        }
        assert_eq!(size_without(&bytes[..3], 4, 1), None);
    }

    #[test]
    fn damage_is_an_error_or_other_bytes() {
        let pool = ScratchPool::new(COMPRESSED_MAX).unwrap();
        let mut scratch = pool.acquire(COMPRESSED_MAX);
        let parts = scratch.parts();
        let data = block(&[1, 0, 2, 1]);
        let size = encode(&data, parts.tables, parts.wire);
        let bytes = parts.wire[..size].to_vec();
        let mut out = vec![0; PAGE];
        for at in 0..64 {
            for bit in 0..8 {
                let mut bytes = bytes.clone();
                bytes[at] ^= 1 << bit;
                for n in 0..4 {
                    // The result does not matter, but `decode` must stay within the given bytes.
                    let _ = decode(&bytes, 4, n, &mut Decoder::Lz4, &mut out);
                }
            }
        }
        for len in 0..40 {
            for n in 0..4 {
                let _ = decode(&bytes[..len], 4, n, &mut Decoder::Lz4, &mut out);
            }
        }
        assert_eq!(
            decode(&[], 4, 2, &mut Decoder::Lz4, &mut out),
            Err(LoadError::Corrupt)
        );
    }
}
