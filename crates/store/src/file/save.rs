//! How a folio's bytes get into the file: encoded in a scratch, then to a batch if they are few and by a write of their own if not, then
//! published.

use super::alloc::FILE_BLOCK;
use super::io;
use super::pending::{Medium, refusal};
use super::{FileStore, GENERATION_SHIFT, extent};
use crate::codec::{COMPRESSED_MAX, compress};
use crate::image::{BLOCK, Image, ImageBlock, MAX_BLOCKS};
use crate::scratch::Tables;
use crate::slot_table::{Block, ClaimError, Kind};
use millpond_core::port::SaveError;
use millpond_core::swap::SlotId;
use rustix::io::Errno;
use std::sync::atomic::Ordering::*;

impl FileStore {
    /// Keeps `image` as `slot`.
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
            data, sum, word, ..
        } in image.blocks()
        {
            blocks[count] = match (word, &mut scratch) {
                (None, Some(scratch)) => {
                    let parts = scratch.parts();
                    let (kind, size) = encode(data, &mut parts.wire[end..], parts.tables);
                    let block = Block {
                        kind,
                        place: (end / FILE_BLOCK) as u64,
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
        let (mut start, mut noted) = (0, true);
        if let (true, Some(scratch)) = (length > 0, &mut scratch) {
            let medium = self
                .medium()
                .ok_or(SaveError::Io(Errno::BADF.raw_os_error()))?;
            let wire = &scratch.parts().wire[..end];
            start = match self.pending.put(&medium, wire)? {
                Some(start) => start,
                None => self.write(&medium, wire)?,
            };
            for (block, part) in blocks.iter_mut().zip(image.blocks()) {
                if block.kind != Kind::Fill {
                    block.place += start | (medium.file as u64) << GENERATION_SHIFT;
                }
                if block.kind == Kind::Raw {
                    noted &= self.page_sums.note(block, part.pages).is_ok();
                }
            }
        }
        drop(scratch);
        if !noted || claim.publish(image.pages(), blocks).is_err() {
            if length > 0 {
                self.free(self.own.load(Acquire), start..start + length);
            }
            return Err(SaveError::Full);
        }
        self.stored.fetch_add(length, Relaxed);
        Ok(())
    }

    /// Writes what is too large to wait, and answers its first block.
    fn write(&self, medium: &Medium<'_>, wire: &[u8]) -> Result<u64, SaveError> {
        let length = (wire.len() / FILE_BLOCK) as u64;
        let start = self.blocks().alloc(length).ok_or(SaveError::Full)?;
        let blocks = start..start + length;
        let written = io::write_all(medium.fd, wire, start * FILE_BLOCK as u64);
        self.clusters.forget(medium.file, &blocks);
        written.map_err(|errno| {
            self.blocks().free(start, length);
            refusal(errno)
        })?;
        Ok(start)
    }
}

/// Puts `data` at the start of `out`, compressed when that saves a block of the file, and zeros up
/// to the next one.
fn encode(data: &[u8], out: &mut [u8], tables: &mut Tables) -> (Kind, u16) {
    if data.len() > FILE_BLOCK {
        let size = compress(data, tables, out);
        if size <= data.len() - FILE_BLOCK {
            out[size..size.next_multiple_of(FILE_BLOCK)].fill(0);
            return (Kind::Lz4, size as u16);
        }
    }
    out[..data.len()].copy_from_slice(data);
    (Kind::Raw, 0)
}
