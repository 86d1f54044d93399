//! What is known about a folio's contents before any of it is stored.
//!
//! A folio is cut into blocks, so that a part of a 2 MiB slot can be loaded without decompressing all
//! of it. Each block has its own checksum, so each load verifies every byte that it hands out. How
//! long a block is, is the store's choice. In RAM it is 16 KiB: one page of a block of 64 KiB took 6 µs
//! to get at, of which 5 went into its neighbours. In a file it is 64 KiB, as far back as LZ4 reaches:
//! a block begins at a block of the file, and what is left of that is lost.

use crate::checksum::Checksums;
use crate::slot_table::{Block, Kind, Pinned};
use millpond_core::addr::MAX_ORDER;
use millpond_core::port::{SaveError, Saved};
use millpond_core::swap::SlotId;
use rustix::io::Errno;

/// Bytes in the longest block; the last one of a slot may be shorter.
pub(crate) const BLOCK: usize = 64 << 10;
/// Bytes in a block of compressed RAM.
pub(crate) const RAM_BLOCK: usize = 16 << 10;
/// Bytes in the longest slot.
pub(crate) const MAX_SLOT: usize = 4096 << MAX_ORDER;
/// Blocks in the longest slot.
pub(crate) const MAX_BLOCKS: usize = MAX_SLOT / RAM_BLOCK;

/// A folio's contents, summed up.
pub(crate) struct Image<'a> {
    pub(crate) data: &'a [u8],
    /// Bytes in a block.
    block: usize,
    /// One bit a block: every word of it is the same.
    fills: u128,
    /// One for each block; only the first when `whole`.
    sums: [u128; MAX_BLOCKS],
    /// Every word of the whole slot is the same: it has a single record, however long it is.
    whole: bool,
}

/// What [`Image::of`] found.
#[expect(clippy::large_enum_variant, reason = "a box would be allocated")]
pub(crate) enum Contents<'a> {
    /// Nothing but zeros.
    AllZero,
    /// Something to store.
    Image(Image<'a>),
}

impl<'a> Image<'a> {
    /// Sums up `data`, 1 to 512 pages, by blocks of `block` bytes; `None` when it is not that.
    pub(crate) fn of(data: &'a [u8], block: usize, sums: &Checksums) -> Option<Contents<'a>> {
        let len = data.len();
        if len == 0 || !len.is_multiple_of(4096) || len > MAX_SLOT {
            return None;
        }
        let mut image = Image {
            data,
            block,
            fills: 0,
            sums: [0; MAX_BLOCKS],
            whole: false,
        };
        match same_filled(data) {
            Some(0) => return Some(Contents::AllZero),
            Some(word) => {
                image.whole = true;
                image.fills = 1;
                image.sums[0] = sums.of_fill(word, len);
            }
            None => {
                for (i, block) in data.chunks(block).enumerate() {
                    image.sums[i] = match same_filled(block) {
                        Some(word) => {
                            image.fills |= 1 << i;
                            sums.of_fill(word, block.len())
                        }
                        None => sums.of(block),
                    };
                }
            }
        }
        Some(Contents::Image(image))
    }

    /// Pages of the slot.
    pub(crate) fn pages(&self) -> u16 {
        (self.data.len() / 4096) as u16
    }

    /// The parts that get a record each: contents, checksum, and the word that fills it, if one
    /// does.
    pub(crate) fn blocks(&self) -> impl Iterator<Item = (&'a [u8], u128, Option<u64>)> {
        let size = if self.whole {
            self.data.len()
        } else {
            self.block
        };
        self.data.chunks(size).enumerate().map(|(i, block)| {
            let word = (self.fills >> i & 1 == 1).then(|| first_word(block));
            (block, self.sums[i], word)
        })
    }

    /// The same contents by the blocks of a file.
    pub(crate) fn for_file(&self, sums: &Checksums) -> Option<Image<'a>> {
        match Image::of(self.data, BLOCK, sums)? {
            Contents::AllZero => None,
            Contents::Image(image) => Some(image),
        }
    }

    /// Whether some block has bytes to store.
    pub(crate) fn has_bytes(&self) -> bool {
        !self.whole
    }

    /// Whether the slot holds exactly this.
    pub(crate) fn is_held_by(&self, slot: &Pinned<'_>) -> bool {
        slot.pages() == self.pages()
            && slot
                .blocks()
                .map(|block| (block.sum, block.kind == Kind::Fill))
                .eq(self.blocks().map(|(_, sum, word)| (sum, word.is_some())))
    }
}

/// What every store's `save` does: nothing for zeros and for what `previous` holds already, `put` for the rest.
pub(crate) fn save(
    data: &[u8],
    block: usize,
    previous: Option<SlotId>,
    sums: &Checksums,
    holds: impl Fn(SlotId, &Image<'_>) -> bool,
    put: impl FnOnce(&Image<'_>) -> Result<(), SaveError>,
) -> Result<Saved, SaveError> {
    match Image::of(data, block, sums) {
        None => Err(SaveError::Io(Errno::INVAL.raw_os_error())),
        Some(Contents::AllZero) => Ok(Saved::AllZero),
        Some(Contents::Image(image)) if previous.is_some_and(|slot| holds(slot, &image)) => {
            Ok(Saved::Unchanged)
        }
        Some(Contents::Image(image)) => put(&image).map(|()| Saved::Stored),
    }
}

impl Block {
    /// The record of a block that repeats `word`.
    pub(crate) fn fill(word: u64, sum: u128) -> Self {
        Self {
            kind: Kind::Fill,
            place: word,
            size: 0,
            sum,
        }
    }
}

fn first_word(data: &[u8]) -> u64 {
    data.first_chunk()
        .map_or(0, |bytes| u64::from_ne_bytes(*bytes))
}

/// The word that `data` (a multiple of 128 bytes) repeats, if it does. Most data is told apart
/// within 128 bytes.
fn same_filled(data: &[u8]) -> Option<u64> {
    let word = first_word(data);
    for piece in data.chunks_exact(128) {
        let mut differs = 0;
        for bytes in piece.as_chunks::<8>().0 {
            differs |= u64::from_ne_bytes(*bytes) ^ word;
        }
        if differs != 0 {
            return None;
        }
    }
    Some(word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_byte_counts() {
        let mut data = vec![7; 4096];
        assert_eq!(same_filled(&data), Some(u64::from_ne_bytes([7; 8])));
        data[4095] = 8;
        assert_eq!(same_filled(&data), None);
    }

    #[test]
    fn lengths_that_are_no_folio_are_refused() {
        let sums = Checksums::new().unwrap();
        for len in [0, 1, 4095, 4097, (2 << 20) + 4096] {
            assert!(
                Image::of(&vec![1; len], BLOCK, &sums).is_none(),
                "{len} bytes"
            );
        }
    }
}
