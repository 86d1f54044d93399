//! How a folio's bytes come back: from a waiting batch, from a kept cluster, or by one read. Then each block is
//! restored and checked.
//!
//! A block's whole extent is read, since its checksum covers it, unless its pages have checksums of their own: then
//! only the part that holds the wanted pages is read.

use super::alloc::FILE_BLOCK;
use super::clusters::Clusters;
use super::segments::Bounds;
use super::{FileStore, extent, index_of, io, locate};
use crate::codec::{Codec, Stored, Want, restore};
use crate::image::{BLOCK, MAX_SLOT};
use crate::mem::PAGE;
use crate::slot_table::{Block, Kind, Pinned};
use arrayvec::ArrayVec;
use millpond_core::SlotId;
use millpond_core::port::LoadError;
use rustix::io::Errno;
use std::ops::Range;

/// Number of blocks of the longest slot.
const MOST: usize = MAX_SLOT / BLOCK;

/// A block of which some part is wanted.
struct Piece {
    block: Block,
    /// The block's length in memory.
    len: usize,
    /// The part of the block that is wanted.
    part: Range<usize>,
    /// The range of the block's bytes in the file that is needed.
    bytes: Range<usize>,
    /// The blocks of the file to read for that; unused for a fill.
    blocks: Range<u64>,
    by: By,
}

/// How a part is made from the bytes that were read.
#[derive(Clone, Copy)]
enum By {
    /// The part is taken from the block, which is checked as a whole.
    Block,
    /// The part was read alone.
    Itself,
    /// The part is made from its segments.
    Segments(Bounds),
}

impl Piece {
    fn is_stored(&self) -> bool {
        self.block.kind != Kind::Fill
    }

    /// Whether more is read than is wanted.
    fn is_parted(&self) -> bool {
        self.is_stored() && self.part.len() < self.len && matches!(self.by, By::Block)
    }

    /// The blocks of the file that hold all of the piece's block, if that is compressed in segments; otherwise the
    /// blocks that are read.
    fn extent(&self) -> Range<u64> {
        match self.by {
            By::Segments(_) => {
                let start = locate(&self.block).1 / FILE_BLOCK as u64;
                start..start + (extent(&self.block, self.len) / FILE_BLOCK) as u64
            }
            _ => self.blocks.clone(),
        }
    }

    /// The piece's bytes, in the buffer that was read from block `from` of the file on.
    fn bytes<'w>(&self, wire: &'w [u8], from: u64) -> &'w [u8] {
        if !self.is_stored() {
            return &[];
        }
        let start = (self.blocks.start - from) as usize * FILE_BLOCK;
        &wire[start + self.bytes.start % FILE_BLOCK..][..self.bytes.len()]
    }
}

/// A part of a slot that is wanted, and where it is.
pub(super) struct Wanted {
    pieces: ArrayVec<Piece, MOST>,
    /// The number of the file.
    pub(super) file: usize,
    /// The blocks of the file that are needed; none if all pieces are fills.
    pub(super) blocks: Range<u64>,
    /// The blocks of which they are a separately restored part.
    pub(super) around: Range<u64>,
    /// Whether only a part of them is wanted.
    pub(super) parted: bool,
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
        let wanted = self.wanted(&slot, first_page, out.len())?;
        if wanted.blocks.is_empty() {
            return self.restore(&wanted, &[], None, out);
        }
        let mut scratch = self.scratches.acquire(Clusters::wire_for(&wanted.blocks));
        let parts = scratch.parts();
        let at = self.fetch(&wanted, parts.wire)?;
        let wire = &mut parts.wire[at];
        self.cipher.open(wanted.file, wanted.blocks.start, wire);
        self.restore(&wanted, wire, Some(parts.plain), out)
    }

    /// The part of a slot that has `len` bytes from page `first_page` on.
    pub(super) fn wanted(
        &self,
        slot: &Pinned<'_>,
        first_page: u16,
        len: usize,
    ) -> Result<Wanted, LoadError> {
        let from = usize::from(first_page) * PAGE;
        let to = from + len;
        let pieces: ArrayVec<Piece, MOST> = slot
            .blocks_of(first_page, len)
            .ok_or(LoadError::Missing)?
            .map(|(block, at, len)| {
                self.piece(block, len, from.saturating_sub(at)..len.min(to - at))
            })
            .collect::<Result<_, _>>()?;
        // A slot's extent is contiguous, so one read fetches all of its blocks.
        let mut stored = pieces.iter().filter(|piece| piece.is_stored());
        let first = stored.next();
        let file = first.map_or(0, |first| locate(&first.block).0);
        let blocks = first.map_or(0..0, |first| {
            first.blocks.start..stored.next_back().unwrap_or(first).blocks.end
        });
        // The rest of a compressed block is more likely to be wanted than its neighbours in the file.
        let around = match &pieces[..] {
            [piece] => piece.extent(),
            _ => blocks.clone(),
        };
        Ok(Wanted {
            file,
            blocks,
            around,
            parted: pieces.iter().any(Piece::is_parted),
            pieces,
        })
    }

    /// Makes the wanted bytes from the bytes of the file, decrypted, and checks them. `plain` is present if any come
    /// from the file.
    pub(super) fn restore(
        &self,
        wanted: &Wanted,
        wire: &[u8],
        mut plain: Option<&mut [u8; BLOCK]>,
        out: &mut [u8],
    ) -> Result<(), LoadError> {
        let mut rest = out;
        for piece in &wanted.pieces {
            let (out, after) = rest.split_at_mut(piece.part.len());
            rest = after;
            let bytes = piece.bytes(wire, wanted.blocks.start);
            let plain = plain.as_deref_mut();
            let plain = || plain.expect("a block with bytes has a scratch");
            let Piece { block, part, .. } = piece;
            match piece.by {
                By::Block => {
                    let want = Want {
                        len: piece.len,
                        from: part.start,
                        out,
                    };
                    let stored = Stored {
                        bytes,
                        codec: Codec::Lz4,
                        pages: None,
                    };
                    restore(block, stored, &self.sums, want, plain)?;
                    continue;
                }
                By::Itself => out.copy_from_slice(bytes),
                By::Segments(bounds) => bounds.restore(bytes, part, out, plain())?,
            }
            self.check_pages(piece, out)?;
        }
        Ok(())
    }

    /// Checks that each page of the part of a block is unchanged since it was saved.
    fn check_pages(&self, piece: &Piece, pages: &[u8]) -> Result<(), LoadError> {
        let Piece { block, len, .. } = piece;
        let mut pages = (piece.part.start / PAGE..).zip(pages.chunks(PAGE));
        match pages.all(|(n, page)| self.is_page(block, *len, n, self.sums.of(page))) {
            true => Ok(()),
            false => Err(LoadError::Corrupt),
        }
    }

    /// Reads blocks from the file, or from the batches that wait to be written to it, into `wire`, which has room for
    /// the blocks that come with them. They are then as in the file, possibly encrypted. Returns the place of the
    /// wanted blocks in `wire`.
    fn fetch(&self, wanted: &Wanted, wire: &mut [u8]) -> Result<Range<usize>, LoadError> {
        let Wanted {
            file,
            blocks,
            around,
            parted,
            ..
        } = wanted;
        let len = (blocks.end - blocks.start) as usize * FILE_BLOCK;
        let pending = &self.pending;
        if pending.read(*file, blocks, &mut wire[..len], &self.scratches) {
            return Ok(0..len);
        }
        let error = |errno: Errno| LoadError::Io(errno.raw_os_error());
        let mut plan = None;
        if Clusters::takes(blocks, *parted) {
            match self.clusters.get(*file, blocks, around, &mut wire[..len]) {
                Ok(()) => return Ok(0..len),
                Err(what) => plan = what,
            }
        }
        let fd = self.file(*file).ok_or(error(Errno::BADF))?;
        let Some(plan) = plan else {
            let offset = blocks.start * FILE_BLOCK as u64;
            io::read_all(&self.awake, fd, &mut wire[..len], offset).map_err(error)?;
            return Ok(0..len);
        };
        let most = (plan.blocks.end - plan.blocks.start) as usize * FILE_BLOCK;
        let from = (blocks.start - plan.blocks.start) as usize * FILE_BLOCK;
        let offset = plan.blocks.start * FILE_BLOCK as u64;
        let read =
            io::read_some(&self.awake, fd, &mut wire[..most], from + len, offset).map_err(error)?;
        self.clusters.keep(*file, &plan, blocks, &wire[..read]);
        Ok(from..from + len)
    }

    /// Decides what to read for `part` of a block of `len` bytes: the part alone, or its segments, if its pages can be
    /// checked. Otherwise the whole block is read.
    fn piece(&self, block: Block, len: usize, part: Range<usize>) -> Result<Piece, LoadError> {
        let is_cut = part.len() < len && self.page_sums.know(&block, len);
        let (by, bytes) = match (block.kind, index_of(&block)) {
            (Kind::Raw, _) if is_cut => (By::Itself, part.clone()),
            (Kind::Packed, Some(index)) => {
                let bounds = self.segments.bounds(index, block.size);
                let bounds = bounds.ok_or(LoadError::Corrupt)?;
                (By::Segments(bounds), bounds.span(&part))
            }
            (Kind::Packed, None) => (By::Block, 0..block.size.into()),
            (Kind::Raw | Kind::Fill, _) => (By::Block, 0..extent(&block, len)),
        };
        let start = locate(&block).1 / FILE_BLOCK as u64;
        let blocks = start + (bytes.start / FILE_BLOCK) as u64
            ..start + bytes.end.div_ceil(FILE_BLOCK) as u64;
        Ok(Piece {
            block,
            len,
            part,
            bytes,
            blocks,
            by,
        })
    }
}
