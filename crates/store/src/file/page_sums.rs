//! The checksum of each page that lies in the file as it is, so that one page can be read, and known to be unchanged, by itself.
//!
//! A record's checksum covers a block of up to 64 KiB. What does not compress was read whole for one page of it: 91 µs on a virtual disk for 47, and
//! saved again when the page left, as nobody could tell that it had not changed. Sixteen bytes for each such page are kept instead, by the
//! number of its block in the file, in pieces that are mapped when first needed and never move. Compressed blocks need none: their pages have no
//! place of their own.
//!
//! A forked child reads its parent's file by the parent's checksums, of which it has a copy, and begins others for its own.

use super::alloc::FILE_BLOCK;
use super::{GENERATIONS, locate};
use crate::mem::{Mapping, PAGE};
use crate::slot_table::Block;
use rustix::io::Errno;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering::*};
use std::sync::{Mutex, PoisonError};

/// Blocks of a file that have checksums here: those of its first TiB.
const MOST: u64 = 1 << 28;
/// Blocks of a piece.
const PIECE: u64 = 4096;
const PIECE_BYTES: usize = PIECE as usize * size_of::<Sum>();
const _: () = assert!(FILE_BLOCK == PAGE);

type Sum = [AtomicU64; 2];
type Piece = AtomicPtr<Sum>;

/// No memory for another piece.
#[derive(Debug)]
pub(crate) struct NoMemory;

/// See the module.
pub(crate) struct PageSums {
    /// Pointers to the pieces of each file; null where there is none yet.
    directories: [AtomicPtr<Piece>; GENERATIONS],
    /// Blocks of each file that can have checksums.
    blocks: u64,
    growing: Mutex<()>,
    pieces: AtomicU64,
}

impl PageSums {
    /// For files of up to `blocks` blocks; the first file is the process's own.
    pub(crate) fn new(blocks: u64) -> Result<Self, Errno> {
        let sums = Self {
            directories: [const { AtomicPtr::new(ptr::null_mut()) }; GENERATIONS],
            blocks: blocks.min(MOST),
            growing: Mutex::new(()),
            pieces: AtomicU64::new(0),
        };
        sums.begin(0)?;
        Ok(sums)
    }

    fn entries(&self) -> usize {
        self.blocks.div_ceil(PIECE) as usize
    }

    /// From now on file `file` is the process's own.
    pub(crate) fn begin(&self, file: usize) -> Result<(), Errno> {
        let directory = Mapping::new(self.entries() * size_of::<Piece>())?;
        self.directories[file].store(directory.into_raw().cast(), Release);
        Ok(())
    }

    fn directory(&self, file: usize) -> &[Piece] {
        match self.directories.get(file).map(|of| of.load(Acquire)) {
            // SAFETY: a directory that is published has so many entries, zeros (null) at first, lives as long as `self`, and is only used as
            // atomics.
            Some(of) if !of.is_null() => unsafe { std::slice::from_raw_parts(of, self.entries()) },
            _ => &[],
        }
    }

    /// The checksum of a block of a file, if it has a place.
    fn at(&self, file: usize, block: u64) -> Option<&Sum> {
        let piece = self
            .directory(file)
            .get((block / PIECE) as usize)?
            .load(Acquire);
        // SAFETY: a piece that is published is mapped, holds `PIECE` of these and lives as long as `self`. Zeros are valid.
        (!piece.is_null()).then(|| unsafe { &*piece.add((block % PIECE) as usize) })
    }

    fn grow(&self, file: usize, block: u64) -> Result<(), NoMemory> {
        let entry = self.directory(file).get((block / PIECE) as usize);
        let entry = entry.ok_or(NoMemory)?;
        let _growing = self.growing.lock().unwrap_or_else(PoisonError::into_inner);
        if entry.load(Relaxed).is_null() {
            let piece = Mapping::new(PIECE_BYTES).map_err(|_| NoMemory)?;
            entry.store(piece.into_raw().cast(), Release);
            self.pieces.fetch_add(1, Relaxed);
        }
        Ok(())
    }

    /// Whether pages of `block`, `len` bytes that lie in the file as they are, have checksums of their own.
    pub(crate) fn know(&self, block: &Block, len: usize) -> bool {
        let (_, offset) = locate(block);
        len > PAGE && (offset + len as u64).div_ceil(FILE_BLOCK as u64) <= self.blocks
    }

    /// Notes those of a block that is about to be published.
    ///
    /// # Errors
    /// Not all of them have a place: the block must not be published.
    pub(crate) fn note(&self, block: &Block, pages: &[u128]) -> Result<(), NoMemory> {
        if !self.know(block, pages.len() * PAGE) {
            return Ok(());
        }
        let (file, offset) = locate(block);
        for (at, sum) in (offset / FILE_BLOCK as u64..).zip(pages) {
            if self.at(file, at).is_none() {
                self.grow(file, at)?;
            }
            let [low, high] = self.at(file, at).ok_or(NoMemory)?;
            low.store(*sum as u64, Relaxed);
            high.store((sum >> 64) as u64, Relaxed);
        }
        Ok(())
    }

    /// Whether page `number` of `block`, `len` bytes, has this checksum, as far as that is known.
    pub(crate) fn is(&self, block: &Block, len: usize, number: usize, sum: u128) -> bool {
        let (file, offset) = locate(block);
        let at = offset / FILE_BLOCK as u64 + number as u64;
        self.know(block, len)
            && self.at(file, at).is_some_and(|[low, high]| {
                u128::from(low.load(Relaxed)) | u128::from(high.load(Relaxed)) << 64 == sum
            })
    }

    /// RAM of all pieces.
    pub(crate) fn ram_bytes(&self) -> u64 {
        self.pieces.load(Relaxed) * PIECE_BYTES as u64
    }
}

impl Drop for PageSums {
    fn drop(&mut self) {
        for file in 0..GENERATIONS {
            for piece in self.directory(file) {
                let piece = piece.load(Relaxed);
                if !piece.is_null() {
                    // SAFETY: it came from `into_raw` of a mapping of this length, and nobody borrows from it any more.
                    drop(unsafe { Mapping::from_raw(piece.cast(), PIECE_BYTES) });
                }
            }
            let directory = self.directories[file].load(Relaxed);
            if !directory.is_null() {
                let len = self.entries() * size_of::<Piece>();
                let len = len.next_multiple_of(PAGE).max(PAGE);
                // SAFETY: as above.
                drop(unsafe { Mapping::from_raw(directory.cast(), len) });
            }
        }
    }
}
