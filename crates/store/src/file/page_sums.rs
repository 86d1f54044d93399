//! The checksums of pages that lie in the file uncompressed, so that a single page can be read, and known to be
//! unchanged, without its block.
//!
//! A record's checksum covers a block of up to 64 KiB. Without these checksums an incompressible block was read whole
//! for one of its pages (91 µs on a virtual disk, where a page takes 47), and saved again when the page was evicted,
//! because the store could not tell that it was unchanged. So sixteen bytes are kept for each such page, indexed by the
//! number of its block in the file, in pieces that are mapped when first needed and never move. The pages of compressed
//! blocks have no place of their own; [`segments`](super::segments) keeps their checksums.
//!
//! A forked child reads its parent's file with a copy of the parent's checksums, and starts new ones for its own file.

use super::alloc::FILE_BLOCK;
use super::areas::FILES;
use super::locate;
use crate::checksum::KeptSum;
use crate::mem::PAGE;
use crate::pieces::Pieces;
use crate::slot_table::{Block, NoMemory};
use rustix::io::Errno;
use std::sync::OnceLock;

/// Number of blocks of a file that have checksums here: those of its first TiB.
const MOST: u64 = 1 << 28;
const _: () = assert!(FILE_BLOCK == PAGE);

/// The checksums of single pages. The module's documentation describes them.
pub(crate) struct PageSums {
    /// The checksums of each file that the process has or had.
    files: [OnceLock<Pieces<KeptSum>>; FILES],
    /// Number of blocks of each file that can have checksums.
    blocks: u64,
}

impl PageSums {
    /// Makes checksums for files of up to `blocks` blocks.
    pub(crate) fn new(blocks: u64) -> Self {
        Self {
            files: [const { OnceLock::new() }; FILES],
            blocks: blocks.min(MOST),
        }
    }

    /// Starts the checksums of file `file`, which is one of the process's own from now on.
    pub(crate) fn begin(&self, file: usize) -> Result<(), Errno> {
        let sums = Pieces::new(self.blocks)?;
        self.files[file].set(sums).map_err(|_| Errno::EXIST)
    }

    fn of(&self, file: usize) -> Option<&Pieces<KeptSum>> {
        self.files.get(file)?.get()
    }

    /// Whether the pages of `block`, which has `len` bytes, have checksums of their own, that is, lie in the file
    /// uncompressed.
    pub(crate) fn know(&self, block: &Block, len: usize) -> bool {
        let (_, offset) = locate(block);
        len > PAGE && (offset + len as u64).div_ceil(FILE_BLOCK as u64) <= self.blocks
    }

    /// Records the checksums of a block that is about to be published.
    ///
    /// # Errors
    /// There is no memory for some of them. The block must not be published.
    pub(crate) fn note(&self, block: &Block, pages: &[u128]) -> Result<(), NoMemory> {
        if !self.know(block, pages.len() * PAGE) {
            return Ok(());
        }
        let (file, offset) = locate(block);
        let sums = self.of(file).ok_or(NoMemory)?;
        for (at, sum) in (offset / FILE_BLOCK as u64..).zip(pages) {
            sums.get_or_grow(at).ok_or(NoMemory)?.set(*sum);
        }
        Ok(())
    }

    /// Whether page `number` of `block`, which has `len` bytes, has this checksum, as far as that is known.
    pub(crate) fn is(&self, block: &Block, len: usize, number: usize, sum: u128) -> bool {
        let (file, offset) = locate(block);
        let at = offset / FILE_BLOCK as u64 + number as u64;
        let found = || self.of(file)?.get(at);
        self.know(block, len) && found().is_some_and(|kept| kept.get() == sum)
    }

    /// The RAM that all checksums take.
    pub(crate) fn ram_bytes(&self) -> u64 {
        let files = self.files.iter().filter_map(OnceLock::get);
        files.map(Pieces::piece_bytes).sum()
    }
}
