//! Arrays that take memory on demand: they consist of pieces of 4,096 entries, which are mapped when first needed and
//! never move, so that readers need no lock to find an entry.

use crate::mem::{Mapping, PAGE};
use millpond_sync::{Rank, Ranked};
use rustix::io::Errno;
use std::marker::PhantomData;
use std::mem::size_of;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering::*};

/// Number of entries of a piece.
pub(crate) const PIECE: usize = 4096;

/// The types that may lie in an array.
///
/// # Safety
/// Zeros are a valid value, the type needs no drop, and any thread may use a reference.
pub unsafe trait Entry {}

// SAFETY: the array is made of atomics, for which zeros are valid and which any thread may use.
unsafe impl<const N: usize> Entry for [AtomicU64; N] {}

/// An array of entries that are initially zero.
///
/// ```
/// use millpond_store::Pieces;
/// use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
///
/// let words = Pieces::<[AtomicU64; 2]>::new(1 << 32)?;
/// assert!(words.get(7_000_000).is_none());
/// let [first, _] = words.get_or_grow(7_000_000).unwrap();
/// first.store(1, Relaxed);
/// # Ok::<(), rustix::io::Errno>(())
/// ```
pub struct Pieces<T> {
    /// Pointers to pieces, null where a piece is not mapped yet.
    directory: Mapping,
    /// Number of pointers in the directory.
    most: usize,
    growing: Ranked<()>,
    pieces: AtomicU32,
    /// One more than the last piece.
    end: AtomicU32,
    entries: PhantomData<T>,
}

impl<T: Entry> Pieces<T> {
    const BYTES: usize = PIECE * size_of::<T>();

    /// Makes an array of `len` entries.
    ///
    /// # Errors
    /// The kernel provides no address space for the directory.
    pub fn new(len: u64) -> Result<Self, Errno> {
        let most = len.div_ceil(PIECE as u64) as usize;
        Ok(Self {
            directory: Mapping::new(most * size_of::<AtomicPtr<T>>())?,
            most,
            growing: Ranked::new(Rank::TableGrowth, ()),
            pieces: AtomicU32::new(0),
            end: AtomicU32::new(0),
            entries: PhantomData,
        })
    }

    fn directory(&self) -> &[AtomicPtr<T>] {
        // SAFETY: the directory has this many pointers, initially zeroed (null) and only used as atomics.
        unsafe { std::slice::from_raw_parts(self.directory.as_ptr().cast(), self.most) }
    }

    /// The entry `index`, if its piece is mapped.
    pub fn get(&self, index: u64) -> Option<&T> {
        let piece = self.directory().get(index as usize / PIECE)?.load(Acquire);
        // SAFETY: a piece that is published is mapped, holds `PIECE` entries and lives as long as `self`. Zeros are
        // valid entries.
        (!piece.is_null()).then(|| unsafe { &*piece.add(index as usize % PIECE) })
    }

    /// The entry `index`; maps its piece if necessary. Returns `None` if there is no memory for it, or `index` is
    /// beyond the array.
    pub fn get_or_grow(&self, index: u64) -> Option<&T> {
        if let Some(entry) = self.get(index) {
            return Some(entry);
        }
        let _growing = self.growing.lock();
        let piece = index as usize / PIECE;
        let place = self.directory().get(piece)?;
        if place.load(Relaxed).is_null() {
            let new = Mapping::new(Self::BYTES).ok()?;
            place.store(new.into_raw().cast(), Release);
            self.pieces.fetch_add(1, Relaxed);
            self.end.fetch_max(piece as u32 + 1, Relaxed);
        }
        self.get(index)
    }

    /// The most RAM that the pieces alone can take.
    pub(crate) fn piece_bytes(&self) -> u64 {
        u64::from(self.pieces.load(Relaxed)) * Self::BYTES as u64
    }

    /// The most RAM that the pieces and the directory can take.
    pub fn ram_bytes(&self) -> u64 {
        let directory = (self.end.load(Relaxed) as usize * 8).next_multiple_of(PAGE);
        self.piece_bytes() + directory as u64
    }
}

impl<T> Drop for Pieces<T> {
    fn drop(&mut self) {
        let end = self.end.load(Relaxed) as usize;
        // SAFETY: the directory is as in `directory`; there are no pieces from `end` on.
        let used = unsafe {
            std::slice::from_raw_parts(self.directory.as_ptr().cast::<AtomicPtr<T>>(), end)
        };
        for piece in used.iter().map(|place| place.load(Relaxed)) {
            if !piece.is_null() {
                // SAFETY: the piece came from `into_raw` of a mapping of this length, and no entry is still borrowed.
                drop(unsafe { Mapping::from_raw(piece.cast(), PIECE * size_of::<T>()) });
            }
        }
    }
}
