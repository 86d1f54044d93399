//! Decompression of LZ4 blocks.
//!
//! Compression is `lz4_flex`'s. Its decompressor copies matches that overlap themselves byte by
//! byte, and such matches are what half-empty heaps and arrays of small numbers compress to: a page
//! with 3 KiB of one repeated word took it 1.05 µs, and takes 0.2 here; on machine code this is a
//! quarter faster. Here a match's period is doubled with each copy, and short copies have fixed
//! lengths, which compile to single moves. All of it is safe code: the file that the bytes come
//! from may be damaged, and then this answers `false` or gives bytes that the checksum refuses.
//!
//! A block is a row of sequences: a token (lengths, four bits each), literals, the distance of a
//! match, with lengths of 15 and more continued in bytes that are added up until one is not 255.
//! The last sequence has literals alone.

/// What short copies copy, and may write too much of: it is overwritten by what follows.
const STRIDE: usize = 16;
/// The shortest match.
const MIN_MATCH: usize = 4;

/// Decompresses `bytes` to `out`, and says whether that filled it exactly.
pub(crate) fn decompress(bytes: &[u8], out: &mut [u8]) -> bool {
    sequences(bytes, out) == Some(out.len())
}

/// Bytes written; `None` when `bytes` are no LZ4 or more than `out` holds.
fn sequences(bytes: &[u8], out: &mut [u8]) -> Option<usize> {
    let (mut from, mut to) = (0, 0);
    loop {
        let token = usize::from(*bytes.get(from)?);
        from += 1;

        let mut len = token >> 4;
        if len == 15 {
            len += length(bytes, &mut from)?;
        }
        if let (true, Some(out), Some(bytes)) = (
            len <= STRIDE,
            out.get_mut(to..to + STRIDE),
            bytes.get(from..from + STRIDE),
        ) {
            out.copy_from_slice(bytes);
        } else {
            out.get_mut(to..to + len)?
                .copy_from_slice(bytes.get(from..from + len)?);
        }
        from += len;
        to += len;
        if from == bytes.len() {
            return Some(to);
        }

        let distance = usize::from(u16::from_le_bytes(*bytes.get(from..)?.first_chunk()?));
        from += 2;
        let start = to.checked_sub(distance)?;
        let mut len = MIN_MATCH + (token & 15);
        if token & 15 == 15 {
            len += length(bytes, &mut from)?;
        }
        let end = to + len;
        if distance >= STRIDE && len <= 2 * STRIDE && to + 2 * STRIDE <= out.len() {
            out.copy_within(start..start + STRIDE, to);
            if len > STRIDE {
                out.copy_within(start + STRIDE..start + 2 * STRIDE, to + STRIDE);
            }
        } else {
            repeat(out.get_mut(start..end)?, distance)?;
        }
        to = end;
    }
}

/// The rest of a length that did not fit in the token.
fn length(bytes: &[u8], from: &mut usize) -> Option<usize> {
    let mut len = 0;
    loop {
        let byte = *bytes.get(*from)?;
        *from += 1;
        len += usize::from(byte);
        if byte != 255 {
            return Some(len);
        }
    }
}

/// Fills `out` with repetitions of its first `period` bytes.
fn repeat(out: &mut [u8], period: usize) -> Option<()> {
    if period == 0 {
        return None;
    }
    if let (8, Some((first, rest))) = (period, out.split_first_chunk_mut::<8>()) {
        let (words, tail) = rest.as_chunks_mut();
        words.fill(*first);
        tail.copy_from_slice(&first[..tail.len()]);
        return Some(());
    }
    let mut done = period;
    while done < out.len() {
        let len = done.min(out.len() - done);
        out.copy_within(..len, done);
        done += len;
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use lz4_flex::block::{compress_into, get_maximum_output_size};
    use proptest::prelude::*;

    fn compressed(data: &[u8]) -> Vec<u8> {
        let mut out = vec![0; get_maximum_output_size(data.len())];
        let len = compress_into(data, &mut out).unwrap();
        out.truncate(len);
        out
    }

    /// Runs of any period, with literals between.
    fn runs() -> impl Strategy<Value = Vec<u8>> {
        let run = (prop::collection::vec(any::<u8>(), 1..40), 1usize..300);
        prop::collection::vec(run, 1..40).prop_map(|runs| {
            let repeated = runs
                .iter()
                .flat_map(|(word, len)| word.iter().copied().cycle().take(*len));
            repeated.collect()
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(400))]

        #[test]
        fn what_was_compressed_comes_back(data in runs()) {
            let bytes = compressed(&data);
            let mut out = vec![0xaa; data.len()];
            prop_assert!(decompress(&bytes, &mut out));
            prop_assert_eq!(&out, &data);
            prop_assert!(!decompress(&bytes, &mut vec![0; data.len() + 1]));
            prop_assert!(!decompress(&bytes, &mut vec![0; data.len() - 1]));
        }

        #[test]
        fn damaged_bytes_do_no_harm(data in runs(), at in any::<prop::sample::Index>(), byte in any::<u8>()) {
            let mut bytes = compressed(&data);
            let at = at.index(bytes.len());
            bytes[at] = byte;
            let _ = decompress(&bytes, &mut vec![0; data.len()]);
            let _ = decompress(&bytes[..at], &mut vec![0; data.len()]);
        }

        #[test]
        fn noise_does_no_harm(bytes in prop::collection::vec(any::<u8>(), 0..300), len in 0usize..1000) {
            let _ = decompress(&bytes, &mut vec![0; len]);
        }
    }
}
