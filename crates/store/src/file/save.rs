//! How a folio's bytes get into the file: they are encoded in a scratch, then go to a batch if they are few or are
//! written separately otherwise, and then the slot is published. The thread that saves in the background does not wait
//! for the writes ([`pending`](super::pending)).

use super::alloc::FILE_BLOCK;
use super::areas::Media;
use super::io;
use super::pending::refusal;
use super::segments::Index;
use super::{FILE_SHIFT, FileStore, INDEX_SHIFT, extent, index_of};
use crate::codec::{COMPRESSED_MAX, compress};
use crate::image::{BLOCK, Image, ImageBlock, MAX_BLOCKS};
use crate::scratch::{Scratch, Tables};
use crate::slot_table::{Block, ClaimError, Kind};
use millpond_core::SlotId;
use millpond_core::port::SaveError;
use rustix::io::Errno;
use std::sync::atomic::Ordering::*;

impl FileStore {
    /// Stores `image` as `slot`.
    pub(crate) fn put(&self, slot: SlotId, image: &Image<'_>) -> Result<(), SaveError> {
        let claim = self.table.claim(slot).map_err(|error| match error {
            ClaimError::Taken => SaveError::Io(Errno::EXIST.raw_os_error()),
            ClaimError::NoMemory => SaveError::Full,
        })?;
        let mut blocks = [Block::NONE; MAX_BLOCKS];
        let mut count = 0;
        let mut end = 0;
        let most = image.data.len().next_multiple_of(BLOCK) + COMPRESSED_MAX - BLOCK;
        let mut scratch = image.has_bytes().then(|| self.scratches.acquire(most));
        for ImageBlock {
            data,
            sum,
            pages,
            word,
        } in image.blocks()
        {
            blocks[count] = match (word, &mut scratch) {
                (None, Some(scratch)) => {
                    let parts = scratch.parts();
                    let wire = &mut parts.wire[end..];
                    let (kind, size, index) = self.encode((data, pages), wire, parts.tables);
                    let index = index.map_or(0, |index| u64::from(index.0.get()) << INDEX_SHIFT);
                    let block = Block {
                        kind,
                        place: (end / FILE_BLOCK) as u64 | index,
                        size,
                        sum,
                    };
                    end += extent(&block, data.len());
                    block
                }
                _ => Block::fill(word.unwrap_or(0), sum),
            };
            count += 1;
        }
        let blocks = &mut blocks[..count];
        let length = (end / FILE_BLOCK) as u64;
        let placed = match scratch {
            Some(scratch) if length > 0 => self.place(blocks, image, scratch, end),
            _ => Ok((0, 0)),
        };
        let published = placed.and_then(|(file, start)| {
            claim.publish(image.pages(), blocks).map_err(|_| {
                if length > 0 {
                    self.free(file, start..start + length);
                }
                SaveError::Full
            })
        });
        match published {
            Ok(()) => {
                self.stored.fetch_add(length, Relaxed);
            }
            Err(_) => self.give_indices_back(blocks.iter().copied()),
        }
        published
    }

    /// Puts the extent of `blocks`, the first `len` bytes of the scratch's wire, into a file, or into a batch that
    /// waits for that, and records where the blocks are. Returns the number of the file, and the first block.
    fn place(
        &self,
        blocks: &mut [Block],
        image: &Image<'_>,
        mut scratch: Scratch<'_>,
        len: usize,
    ) -> Result<(usize, u64), SaveError> {
        let media = self.media();
        let (file, start) = match self.pending.put(&media, &scratch.parts().wire[..len])? {
            Some(place) => place,
            None => match self.pending.put_large(&media, scratch, len) {
                Ok(place) => place,
                Err(mut scratch) => Self::write(&media, &mut scratch.parts().wire[..len])?,
            },
        };
        let mut noted = true;
        for (block, part) in blocks.iter_mut().zip(image.blocks()) {
            if block.kind != Kind::Fill {
                block.place += start | (file as u64) << FILE_SHIFT;
            }
            if block.kind == Kind::Raw {
                noted &= self.page_sums.note(block, part.pages).is_ok();
            }
        }
        if noted {
            return Ok((file, start));
        }
        self.free(file, start..start + (len / FILE_BLOCK) as u64);
        Err(SaveError::Full)
    }

    /// Frees the indices of `blocks`, which no longer belong to a slot.
    pub(super) fn give_indices_back(&self, blocks: impl Iterator<Item = Block>) {
        for index in blocks.filter_map(|block| index_of(&block)) {
            self.segments.give_back(index);
        }
    }

    /// Writes an extent that is too large to wait to the first file that takes it, and returns the file's number and
    /// the extent's first block. Afterwards `wire` has the bytes of the file, possibly encrypted.
    fn write(media: &Media<'_>, wire: &mut [u8]) -> Result<(usize, u64), SaveError> {
        let length = (wire.len() / FILE_BLOCK) as u64;
        let mut why = SaveError::Full;
        for medium in media.iter() {
            let Some(start) = medium.alloc(length) else {
                continue;
            };
            medium.cipher.seal(medium.file, start, wire);
            let written = io::write_all(medium.fd, wire, start * FILE_BLOCK as u64);
            medium
                .clusters
                .forget(medium.file, &(start..start + length));
            medium.note(written);
            let Err(errno) = written else {
                return Ok((medium.file, start));
            };
            // The next file needs the bytes encrypted for their place there.
            medium.cipher.open(medium.file, start, wire);
            medium.blocks().free(start, length);
            if why == SaveError::Full {
                why = refusal(errno);
            }
        }
        Err(why)
    }

    /// Puts `data`, whose pages have these checksums, at the start of `out`. It is compressed when that saves a block
    /// of the file, in segments if it is long enough, and followed by zeros up to the next block.
    fn encode(
        &self,
        (data, pages): (&[u8], &[u128]),
        out: &mut [u8],
        tables: &mut Tables,
    ) -> (Kind, u16, Option<Index>) {
        let most = data.len().saturating_sub(FILE_BLOCK);
        let index = (data.len() == BLOCK)
            .then(|| self.segments.take())
            .flatten();
        let size = match index {
            Some(index) => self
                .segments
                .encode(index, (data, pages), tables, out, most),
            None if most > 0 => Some(compress(data, tables, out)).filter(|&size| size <= most),
            None => None,
        };
        if let Some(size) = size {
            out[size..size.next_multiple_of(FILE_BLOCK)].fill(0);
            return (Kind::Packed, size as u16, index);
        }
        if let Some(index) = index {
            self.segments.give_back(index);
        }
        out[..data.len()].copy_from_slice(data);
        (Kind::Raw, 0, None)
    }
}
