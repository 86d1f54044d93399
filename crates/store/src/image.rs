//! The summary of a folio's contents that is made before any of it is stored.
//!
//! A folio is divided into blocks, so that a part of a 2 MiB slot can be loaded without decompressing all of it. Each
//! page has its own checksum, so each load verifies every byte that it hands out, and a page that was loaded alone can
//! be known to be unchanged. The store chooses the length of a block. In RAM it is 16 KiB, in which each page is
//! compressed separately ([`paged`](crate::paged)): in a block of 64 KiB one page took 6 µs to load, of which 5 went
//! into its neighbours. In a file a block is 64 KiB, because it begins at a block of the file, and the rest of its last
//! file block is lost. Inside, it is compressed by 16 KiB as well (`file/segments.rs`).

use crate::checksum::{BLOCK_PAGES, Checksums};
use crate::mem::PAGE;
use crate::slot_table::{Block, Kind, Pinned};
use millpond_core::SlotPart;
use millpond_core::addr::MAX_ORDER;
use millpond_core::port::{SaveError, Saved};
use rustix::io::Errno;

/// Bytes in the longest block; the last one of a slot may be shorter.
pub(crate) const BLOCK: usize = 64 << 10;
/// Bytes in a block of compressed RAM.
pub(crate) const RAM_BLOCK: usize = 16 << 10;
/// Bytes in the longest slot.
pub(crate) const MAX_SLOT: usize = 4096 << MAX_ORDER;
/// Pages in the longest slot.
pub(crate) const MAX_PAGES: usize = MAX_SLOT / PAGE;
/// Blocks in the longest slot.
pub(crate) const MAX_BLOCKS: usize = MAX_SLOT / RAM_BLOCK;

/// The summary of a folio's contents.
pub(crate) struct Image<'a> {
    pub(crate) data: &'a [u8],
    /// Bytes in a block.
    block: usize,
    /// One bit for each block, set if every word of the block is the same.
    fills: u128,
    /// The checksums, one for each page. Those of pages in a fill are not set.
    sums: &'a [u128],
    /// Whether every word of the whole slot is the same. If so, the slot has a single record, however long it is.
    whole: bool,
    keys: &'a Checksums,
}

/// The result of [`Image::of`].
pub(crate) enum Contents<'a> {
    /// The contents are only zeros.
    AllZero,
    /// The contents are to be stored.
    Image(Image<'a>),
}

/// A part of an image that gets a record.
#[derive(Clone, Copy)]
pub(crate) struct ImageBlock<'a> {
    pub(crate) data: &'a [u8],
    pub(crate) sum: u128,
    /// The checksums of the block's pages; empty for a fill.
    pub(crate) pages: &'a [u128],
    /// The word that fills the block, if one does.
    pub(crate) word: Option<u64>,
}

impl<'a> Image<'a> {
    /// Summarizes `data`, 1 to 512 pages, by blocks of `block` bytes, with `room` for a checksum of each page. Returns
    /// `None` for any other length.
    pub(crate) fn of(
        data: &'a [u8],
        block: usize,
        keys: &'a Checksums,
        room: &'a mut [u128],
    ) -> Option<Contents<'a>> {
        let len = data.len();
        if len == 0 || !len.is_multiple_of(PAGE) || len > MAX_SLOT {
            return None;
        }
        let (mut fills, mut whole) = (0, false);
        match same_filled(data) {
            Some(0) => return Some(Contents::AllZero),
            Some(_) => {
                whole = true;
                fills = 1;
            }
            None => {
                let pages = room.chunks_mut(block / PAGE);
                for (i, (block, sums)) in data.chunks(block).zip(pages).enumerate() {
                    if same_filled(block).is_some() {
                        fills |= 1 << i;
                    } else {
                        for (sum, page) in sums.iter_mut().zip(block.chunks(PAGE)) {
                            *sum = keys.of(page);
                        }
                    }
                }
            }
        }
        Some(Contents::Image(Image {
            data,
            block,
            fills,
            sums: &room[..len / PAGE],
            whole,
            keys,
        }))
    }

    fn block_size(&self) -> usize {
        if self.whole {
            self.data.len()
        } else {
            self.block
        }
    }

    /// Number of pages of the slot.
    pub(crate) fn pages(&self) -> u16 {
        (self.data.len() / PAGE) as u16
    }

    /// Number of parts that get a record.
    pub(crate) fn block_count(&self) -> usize {
        self.data.len().div_ceil(self.block_size())
    }

    /// The parts of the image, each of which gets a record.
    pub(crate) fn blocks(&self) -> impl Iterator<Item = ImageBlock<'a>> {
        let size = self.block_size();
        let pages = self.sums.chunks(size / PAGE);
        let blocks = self.data.chunks(size).zip(pages).enumerate();
        blocks.map(move |(i, (data, pages))| {
            if self.fills >> i & 1 == 1 {
                let word = first_word(data);
                ImageBlock {
                    data,
                    sum: self.keys.of_fill(word, data.len()),
                    pages: &[],
                    word: Some(word),
                }
            } else {
                ImageBlock {
                    data,
                    sum: self.keys.of_pages(pages),
                    pages,
                    word: None,
                }
            }
        })
    }

    /// Each page with its checksum, unless it is in a fill.
    fn each_page(&self) -> impl Iterator<Item = (&'a [u8], Option<u128>)> {
        let size = self.block_size() / PAGE;
        let pages = self.data.chunks(PAGE).zip(self.sums).enumerate();
        pages.map(move |(i, (page, &sum))| {
            let filled = self.fills >> (i / size) & 1 == 1;
            (page, (!filled).then_some(sum))
        })
    }

    /// The image of the same contents in blocks of a file. `None` for contents that are all zeros.
    pub(crate) fn for_file<'b>(&'b self, room: &'b mut [u128]) -> Option<Image<'b>> {
        match Image::of(self.data, BLOCK, self.keys, room)? {
            Contents::AllZero => None,
            Contents::Image(image) => Some(image),
        }
    }

    /// Whether some block has bytes to store.
    pub(crate) fn has_bytes(&self) -> bool {
        !self.whole
    }

    /// Whether the slot holds exactly these contents, all of them.
    pub(crate) fn is_held_by(&self, slot: &Pinned<'_>) -> bool {
        slot.pages() == self.pages()
            && slot
                .blocks()
                .map(|block| (block.sum, block.kind == Kind::Fill))
                .eq(self.blocks().map(|block| (block.sum, block.word.is_some())))
    }

    /// Whether the slot holds these contents from page `first` on, as far as its records and `stored` tell. `stored`
    /// answers for one page of a block whose bytes are stored, by the page's number in the block.
    pub(crate) fn is_held_from(
        &self,
        slot: &Pinned<'_>,
        first: u16,
        stored: impl Fn(&Block, usize, usize, &[u8], u128) -> bool,
    ) -> bool {
        let Some(mut blocks) = slot.blocks_of(first, self.data.len()) else {
            return false;
        };
        let mut at = usize::from(first) * PAGE;
        let mut block = blocks.next();
        self.each_page().all(|(page, sum)| {
            while let Some((_, start, len)) = block
                && at >= start + len
            {
                block = blocks.next();
            }
            let Some((block, start, len)) = block else {
                return false;
            };
            let number = (at - start) / PAGE;
            at += PAGE;
            match block.kind {
                Kind::Fill => same_filled(page) == Some(block.place),
                _ => stored(
                    &block,
                    len,
                    number,
                    page,
                    sum.unwrap_or_else(|| self.keys.of(page)),
                ),
            }
        })
    }
}

/// Data to be saved, and how the store divides it.
pub(crate) struct NewSlot<'a> {
    pub(crate) data: &'a [u8],
    /// Bytes in a block.
    pub(crate) block: usize,
    /// The slot that may hold the same bytes already.
    pub(crate) previous: Option<SlotPart>,
    pub(crate) keys: &'a Checksums,
}

/// The part of `save` that all stores share: nothing is stored for zeros and for contents that `previous` already
/// holds, and `put` stores the rest.
pub(crate) fn save(
    new: &NewSlot<'_>,
    holds: impl Fn(SlotPart, &Image<'_>) -> bool,
    put: impl FnOnce(&Image<'_>) -> Result<(), SaveError>,
) -> Result<Saved, SaveError> {
    let &NewSlot {
        data,
        block,
        previous,
        keys,
    } = new;
    // Most folios are small, and clearing room for the longest takes time.
    let (mut few, mut many);
    let room = if data.len() <= BLOCK {
        few = [0; BLOCK_PAGES];
        &mut few[..]
    } else {
        many = [0; MAX_PAGES];
        &mut many[..]
    };
    match Image::of(data, block, keys, room) {
        None => Err(SaveError::Io(Errno::INVAL.raw_os_error())),
        Some(Contents::AllZero) => Ok(Saved::AllZero),
        Some(Contents::Image(image)) if previous.is_some_and(|part| holds(part, &image)) => {
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

/// The word that `data` (a multiple of 128 bytes) repeats, if it does. Most data is found to differ within 128 bytes.
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
    fn lengths_that_no_folio_has_are_refused() {
        let sums = Checksums::new().unwrap();
        for len in [0, 1, 4095, 4097, (2 << 20) + 4096] {
            assert!(
                Image::of(&vec![1; len], BLOCK, &sums, &mut [0; 1024]).is_none(),
                "{len} bytes"
            );
        }
    }
}
