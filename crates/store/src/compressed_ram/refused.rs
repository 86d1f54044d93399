//! Blocks that did not fit, and their lengths.
//!
//! A folio that a full store refuses stays in memory and is offered again whenever something was released, as it may
//! fit now. Mostly it does not: for a program that sorts 96 MB of lines in 61 MiB, 377,000 folios were refused, and 40
//! % of its 24 seconds went into compressing the same pages again. So the length of a refused block is recorded, and
//! the block is compressed again only when the arena has room for that length.
//!
//! Contents are identified by their checksum, which is computed before anything is compressed. So a page that was
//! modified since counts as a different one, and nothing has to be forgotten. A block replaces another one in the table
//! if their checksums begin alike: the replaced one is then compressed once more than necessary.

use crate::mem::Mapping;
use rustix::io::Errno;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// The most blocks that are remembered: 256 MiB of them.
const PLACES: usize = 1 << 14;
/// The bits of a word that hold a length. Those above belong to the checksum.
const LENGTH_BITS: u32 = 17;

/// The table. Its memory is backed from the first refusal on.
pub(super) struct Refused {
    words: Mapping,
    /// Whether anything was ever refused: most stores are never full.
    any: AtomicBool,
}

impl Refused {
    pub(super) fn new() -> Result<Self, Errno> {
        let words = Mapping::new(PLACES * size_of::<AtomicU64>())?;
        Ok(Self {
            words,
            any: AtomicBool::new(false),
        })
    }

    /// The word for a block with this checksum, and its value, without the length, if the block is known.
    fn word(&self, sum: u128) -> (&AtomicU64, u64) {
        let place = (sum >> 64) as usize % PLACES;
        // SAFETY: the mapping has `PLACES` words, initially zero, which are only used as atomics.
        let word = unsafe { &*self.words.as_ptr().cast::<AtomicU64>().add(place) };
        (word, sum as u64 >> LENGTH_BITS << LENGTH_BITS)
    }

    /// Records that there was no room for `len` bytes of a block with this checksum.
    pub(super) fn note(&self, sum: u128, len: usize) {
        let (word, known) = self.word(sum);
        word.store(known | len as u64, Relaxed);
        self.any.store(true, Relaxed);
    }

    /// Whether nothing has been refused so far.
    pub(super) fn is_empty(&self) -> bool {
        !self.any.load(Relaxed)
    }

    /// The bytes that a block with this checksum takes, if it was refused.
    pub(super) fn len_of(&self, sum: u128) -> Option<usize> {
        let (word, known) = self.word(sum);
        let there = word.load(Relaxed);
        let len = there ^ known;
        (len != 0 && len >> LENGTH_BITS == 0).then_some(len as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_block_is_recognized_by_its_whole_checksum() {
        let refused = Refused::new().unwrap();
        let sum = 0x1234_5678_9abc_def0_0fed_cba9_8765_4321_u128;
        assert_eq!(refused.len_of(sum), None);
        assert_eq!(refused.len_of(0), None);
        refused.note(sum, 64 << 10);
        assert_eq!(refused.len_of(sum), Some(64 << 10));
        assert_eq!(refused.len_of(sum ^ 1 << 63), None);
        assert_eq!(refused.len_of(sum ^ 1 << 64), None);
        // A checksum with the same place.
        refused.note(sum ^ 1 << 120, 1);
        assert_eq!(refused.len_of(sum ^ 1 << 120), Some(1));
    }
}
