//! How a folio's bytes come back: from a batch that waits, from a cluster that is kept, or by one read, then each block is restored and
//! checked.
//!
//! What is read of a block is all of its extent, since its checksum covers it, unless its pages have checksums of their own.

use super::alloc::FILE_BLOCK;
use super::clusters::Clusters;
use super::{FileStore, extent, io, locate};
use crate::codec::{Stored, Want, restore};
use crate::mem::PAGE;
use crate::slot_table::{Block, Kind};
use millpond_core::port::LoadError;
use millpond_core::swap::SlotId;
use rustix::io::Errno;
use std::ops::Range;

/// What is read of a block.
struct Piece {
    /// Of the file.
    blocks: Range<u64>,
    /// The part that is wanted and nothing else.
    cut: bool,
}

impl FileStore {
    /// Reads a part of `slot`.
    pub(crate) fn get(
        &self,
        slot: SlotId,
        first_page: u16,
        out: &mut [u8],
    ) -> Result<(), LoadError> {
        let slot = self.table.pin(slot).ok_or(LoadError::Missing)?;
        let from = usize::from(first_page) * PAGE;
        let to = from + out.len();
        // Each block with its length and the part of it that is wanted.
        let wanted = || {
            let blocks = slot.blocks_of(first_page, out.len())?;
            Some(blocks.map(move |(block, at, len)| {
                let part = from.saturating_sub(at)..len.min(to - at);
                (block, len, part)
            }))
        };
        let mut parted = false;
        let mut pieces = wanted()
            .ok_or(LoadError::Missing)?
            .filter(|(block, ..)| block.kind != Kind::Fill)
            .map(|(block, len, part)| {
                let piece = self.piece(&block, len, &part);
                parted |= part.len() < len && !piece.cut;
                (locate(&block).0, piece.blocks)
            });
        // A slot's extent is contiguous, so one read brings all of the blocks.
        let first = pieces.next();
        let (file, mut extent) = first.clone().unwrap_or((0, 0..0));
        extent.end = pieces.last().map_or(extent.end, |(_, last)| last.end);
        let blocks = wanted().ok_or(LoadError::Missing)?;

        let wire = Clusters::wire_for(&extent);
        let mut scratch = first.map(|_| self.scratches.acquire(wire));
        let (wire, mut plain) = match &mut scratch {
            Some(scratch) => {
                let parts = scratch.parts();
                let wire = self.read(file, &extent, parted, parts.wire)?;
                (wire, Some(parts.plain))
            }
            None => (&[][..], None),
        };
        let mut rest = out;
        for (block, len, part) in blocks {
            let (out, after) = rest.split_at_mut(part.len());
            rest = after;
            let mut bytes = &[][..];
            if block.kind != Kind::Fill {
                let piece = self.piece(&block, len, &part);
                bytes = &wire[(piece.blocks.start - extent.start) as usize * FILE_BLOCK..];
                if piece.cut {
                    out.copy_from_slice(&bytes[..part.len()]);
                    let first = part.start / PAGE;
                    let mut pages = (first..).zip(out.chunks(PAGE));
                    let right = |(n, page)| self.page_sums.is(&block, len, n, self.sums.of(page));
                    if !pages.all(right) {
                        return Err(LoadError::Corrupt);
                    }
                    continue;
                }
                bytes = match block.kind {
                    Kind::Raw => &bytes[..len],
                    _ => &bytes[..block.size.into()],
                };
            }
            let want = Want {
                len,
                from: part.start,
                out,
            };
            let stored = Stored { bytes, pages: None };
            restore(&block, stored, &self.sums, want, || {
                plain
                    .as_deref_mut()
                    .expect("a block with bytes has a scratch")
            })?;
        }
        Ok(())
    }

    /// Reads blocks from the file, or from what waits to get there, into `wire`, which has room for what comes with them. Answers them alone. `parted`: only
    /// a part of them is wanted.
    fn read<'w>(
        &self,
        file: usize,
        blocks: &Range<u64>,
        parted: bool,
        wire: &'w mut [u8],
    ) -> Result<&'w [u8], LoadError> {
        let len = (blocks.end - blocks.start) as usize * FILE_BLOCK;
        if self.pending.read(file, blocks, &mut wire[..len]) {
            return Ok(&wire[..len]);
        }
        let error = |errno: Errno| LoadError::Io(errno.raw_os_error());
        let mut plan = None;
        if Clusters::takes(blocks, parted) {
            match self.clusters.get(file, blocks, &mut wire[..len]) {
                Ok(()) => return Ok(&wire[..len]),
                Err(what) => plan = what,
            }
        }
        let fd = self.file(file).ok_or(error(Errno::BADF))?;
        let Some(plan) = plan else {
            let offset = blocks.start * FILE_BLOCK as u64;
            io::read_all(fd, &mut wire[..len], offset).map_err(error)?;
            return Ok(&wire[..len]);
        };
        let most = (plan.blocks.end - plan.blocks.start) as usize * FILE_BLOCK;
        let from = (blocks.start - plan.blocks.start) as usize * FILE_BLOCK;
        let offset = plan.blocks.start * FILE_BLOCK as u64;
        let read = io::read_some(fd, &mut wire[..most], from + len, offset).map_err(error)?;
        self.clusters.keep(file, &plan, blocks, &wire[..read]);
        Ok(&wire[from..from + len])
    }

    /// What is read for `part` of a block of `len` bytes: of one that lies there as it is, the part alone, if its pages can be checked.
    fn piece(&self, block: &Block, len: usize, part: &Range<usize>) -> Piece {
        let start = locate(block).1 / FILE_BLOCK as u64;
        let cut = block.kind == Kind::Raw && part.len() < len && self.page_sums.know(block, len);
        let bytes = if cut {
            part.clone()
        } else {
            0..extent(block, len)
        };
        let at = |byte: usize| start + (byte / FILE_BLOCK) as u64;
        Piece {
            blocks: at(bytes.start)..at(bytes.end),
            cut,
        }
    }
}
