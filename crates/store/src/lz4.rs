//! LZ4 blocks, decompressed only as far as they are wanted.
//!
//! A block is a row of sequences. Each is a token, some literal bytes, and a copy: how far back it starts and how
//! long it is. Nothing points forward, so the start of a block can be had without the rest: a page of a file's
//! segment of four costs the work for the pages before it, and none for those behind. (The reference library can stop
//! early too, but then takes longer for a fourth of 16 KiB than for all of it.)
//!
//! *Runs.* Half-empty heaps and arrays of small numbers compress to matches that overlap themselves: eight bytes,
//! again and again. Such a match is copied from its start each time, and the bytes that can be copied double with
//! each step, so 3 KiB are nine moves and not 384. Everything else consists of short copies, which have a fixed
//! length; the bytes that are too many are overwritten by those that follow.
//!
//! For a whole block of text or code the library is faster by a third or a half, and is used. A page of a segment of
//! four takes on average 0.9 times the library's time here, and 0.4 times where data is made of runs.
//!
//! This is safe code: damaged input ends in an error or in wrong bytes, which the checksum finds.

/// The bytes are no LZ4 block, or one of fewer bytes than were asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Malformed;

/// Number of bytes that a short copy moves, even if fewer are needed.
const SHORT: usize = 16;

/// Fills `out` with the first bytes that `block` decompresses to.
pub(crate) fn decompress_start(block: &[u8], out: &mut [u8]) -> Result<(), Malformed> {
    match decompress_first(block, out, usize::MAX)? {
        true => Ok(()),
        false => Err(Malformed),
    }
}

/// Fills `out` like [`decompress_start`], if that takes no more than `most` sequences. The answer is whether it did.
pub(crate) fn decompress_first(
    block: &[u8],
    out: &mut [u8],
    most: usize,
) -> Result<bool, Malformed> {
    let end = out.len();
    let (mut at, mut done) = (0, 0);
    let mut left = most;
    while done < end {
        if left == 0 {
            return Ok(false);
        }
        left -= 1;
        let token = *block.get(at).ok_or(Malformed)?;
        at += 1;

        let mut literals = usize::from(token >> 4);
        if literals == 15 {
            literals += long_length(block, &mut at)?;
        }
        let room = end - done;
        match block.get(at..at + SHORT) {
            Some(bytes) if literals <= SHORT && room >= SHORT => {
                out[done..done + SHORT].copy_from_slice(bytes);
            }
            _ => {
                literals = literals.min(room);
                let bytes = block.get(at..at + literals).ok_or(Malformed)?;
                out[done..done + literals].copy_from_slice(bytes);
            }
        }
        at += literals;
        done += literals;
        if done == end {
            break;
        }

        let back = block.get(at..at + 2).ok_or(Malformed)?;
        let back = usize::from(u16::from_le_bytes([back[0], back[1]]));
        at += 2;
        let mut length = usize::from(token & 15) + 4;
        if length == 19 {
            length += long_length(block, &mut at)?;
        }
        let room = end - done;
        let from = done.checked_sub(back).filter(|_| back > 0);
        let from = from.ok_or(Malformed)?;
        if back >= SHORT && length <= 2 * SHORT && room >= 2 * SHORT {
            out.copy_within(from..from + SHORT, done);
            out.copy_within(from + SHORT..from + 2 * SHORT, done + SHORT);
            done += length;
        } else {
            let stop = done + length.min(room);
            while done < stop {
                let here = (done - from).min(stop - done);
                out.copy_within(from..from + here, done);
                done += here;
            }
        }
    }
    Ok(true)
}

/// Reads the rest of a length of all ones: bytes to be added, up to the first that is not 255.
fn long_length(block: &[u8], at: &mut usize) -> Result<usize, Malformed> {
    let mut length = 0;
    loop {
        let byte = *block.get(*at).ok_or(Malformed)?;
        *at += 1;
        length += usize::from(byte);
        if byte != 255 {
            return Ok(length);
        }
    }
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
        fn every_start_of_a_block_is_what_was_compressed(data in data(), at in any::<prop::sample::Index>()) {
            let block = compress(&data);
            let end = at.index(data.len() + 1);
            let mut out = vec![0xa5; end];
            prop_assert_eq!(decompress_start(&block, &mut out), Ok(()));
            prop_assert!(out == data[..end]);
            let mut all = vec![0xa5; data.len()];
            prop_assert_eq!(decompress_start(&block, &mut all), Ok(()));
            prop_assert!(all == data);
            prop_assert_eq!(decompress_start(&block, &mut vec![0; data.len() + 1]), Err(Malformed));
        }

        #[test]
        fn damage_is_an_error_or_other_bytes(data in data(), at in any::<prop::sample::Index>(), bits in 1u8..) {
            let mut block = compress(&data);
            let at = at.index(block.len());
            block[at] ^= bits;
            let mut out = vec![0; data.len()];
            // The answer does not matter, but the decompression must end and stay within its bounds.
            let _ = decompress_start(&block, &mut out);
            let _ = decompress_start(&block[at..], &mut out);
        }

        #[test]
        fn noise_is_no_danger(block in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = decompress_start(&block, &mut [0; 5000]);
        }
    }

    #[test]
    fn a_page_of_one_word_after_another_page_is_found_behind_it() {
        let mut data = vec![0; 16384];
        for (i, word) in data.as_chunks_mut::<8>().0.iter_mut().enumerate() {
            *word = (i as u64 / 512).to_le_bytes();
        }
        let block = compress(&data);
        for page in 1..=4 {
            let mut out = vec![9; page * 4096];
            assert_eq!(decompress_start(&block, &mut out), Ok(()));
            assert_eq!(out, data[..page * 4096]);
        }
    }
}
