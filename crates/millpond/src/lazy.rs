//! Giving memory back lazily: alternatives of a [`Region`] to [`discard`](Region::discard).
//!
//! | | afterwards the bytes are | noticed by itself | cost for 64 KiB |
//! | --- | --- | --- | --- |
//! | [`discard`](Region::discard) | zeros | | system calls, and a fault when used again |
//! | [`lazy_free`](Region::lazy_free) | the old ones or zeros, until written | a write | 1.4 µs, no fault when used again |
//! | [`mark_volatile`](Region::mark_volatile) | the old ones, or gone as a whole | nothing: the owner asks | 0.1 µs |

use crate::error::{RangeError, VolatileError};
use crate::region::Region;
use millpond_core::tables::volatile::VolatileRefusal;
use millpond_core::{FreeMode, PageRange, Refusal};
use millpond_driver::Contents;
use std::ops::Range;

impl Region {
    /// Tells the manager that the contents of `range` (byte offsets, multiples of 4,096; the region's own end is
    /// allowed) are no longer needed. Until it is written to, each page reads as before or as zeros, and once zeros,
    /// always zeros; a write keeps the page (`MADV_FREE`). When memory is short, this memory goes before any other and
    /// is not written to the store. Until then using it again costs nothing. The store's copy of it is released at
    /// once.
    ///
    /// # Errors
    /// A bad or unaligned range, or a pinned page in it.
    ///
    /// ```
    /// # let manager = millpond::Manager::builder().ram(16 << 20).build()?;
    /// let mut region = manager.region(1 << 20)?;
    /// region.as_mut_slice().fill(7);
    /// region.lazy_free(0..1 << 19)?;
    /// assert!(matches!(region.as_slice()[0], 0 | 7));
    /// assert_eq!(manager.stats().lazyfree_bytes(), 1 << 19);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn lazy_free(&mut self, range: Range<usize>) -> Result<(), RangeError> {
        let range = self.whole_pages(&range)?;
        // SAFETY: the range is inside the region, which is borrowed mutably, and not pinned.
        if self.first_pinned(range).is_none() && unsafe { self.driver().free_in_place(range) } {
            return Ok(());
        }
        self.free_lazily(&[range], FreeMode::Exclusive)
    }

    /// [`Region::lazy_free`] of many ranges in one call.
    ///
    /// # Errors
    /// As for [`Region::lazy_free`]; a bad range or a pinned page anywhere refuses the whole call.
    pub fn lazy_free_vectored(&mut self, ranges: &[Range<usize>]) -> Result<(), RangeError> {
        self.free_vector(ranges, FreeMode::Exclusive)
    }

    /// [`Region::lazy_free`] for programs that share the region by its address: anything that other threads write
    /// concurrently is kept, or counts as written before the call. The pages are unmapped, and using one again costs a
    /// fault.
    ///
    /// # Safety
    /// No reference to bytes of the range may be in use: they may change.
    ///
    /// # Errors
    /// As [`Region::lazy_free`].
    pub unsafe fn lazy_free_shared(&self, range: Range<usize>) -> Result<(), RangeError> {
        let range = self.whole_pages(&range)?;
        self.free_lazily(&[range], FreeMode::Shared)
    }

    /// [`Region::lazy_free_shared`] of many ranges in one call.
    ///
    /// # Safety
    /// As for [`Region::lazy_free_shared`].
    ///
    /// # Errors
    /// As [`Region::lazy_free_vectored`].
    pub unsafe fn lazy_free_shared_vectored(
        &self,
        ranges: &[Range<usize>],
    ) -> Result<(), RangeError> {
        self.free_vector(ranges, FreeMode::Shared)
    }

    /// Allows the manager to drop the contents of `range` at any time, all or nothing, until
    /// [`mark_nonvolatile`](Region::mark_nonvolatile) of the same range. The mark costs no system call, whatever the
    /// length. Do not call this from a signal handler.
    ///
    /// # Safety
    /// Until the mark is removed, bytes of the range may change: no reference to them may be in use, and anything
    /// written there may be lost.
    ///
    /// # Errors
    /// A bad or unaligned range, one that overlaps a volatile one, or a pinned page.
    ///
    /// ```
    /// # let manager = millpond::Manager::builder().ram(16 << 20).build()?;
    /// use millpond::Contents;
    /// let mut cache = manager.region(1 << 20)?;
    /// cache.as_mut_slice()[0] = 7;
    /// // SAFETY: nothing refers to the bytes until they are asked for again.
    /// unsafe { cache.mark_volatile(0..1 << 20)? };
    /// match cache.mark_nonvolatile(0..1 << 20)? {
    ///     Contents::Survived => assert_eq!(cache.as_slice()[0], 7),
    ///     Contents::Purged => assert_eq!(cache.as_slice()[0], 0),
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub unsafe fn mark_volatile(&self, range: Range<usize>) -> Result<(), VolatileError> {
        let pages = self.whole_pages(&range)?;
        if let Some(page) = self.first_pinned(pages) {
            return Err(self.range_error(Refusal::Pinned { page }).into());
        }
        self.driver()
            .mark_volatile(pages)
            .map_err(|refusal| self.volatile_error(refusal, &range))
    }

    /// Asks for the contents of `range` again, if they are still there. Purged contents read as zeros.
    ///
    /// # Errors
    /// A bad or unaligned range, or one that was not marked as a whole.
    pub fn mark_nonvolatile(&self, range: Range<usize>) -> Result<Contents, VolatileError> {
        let pages = self.whole_pages(&range)?;
        self.driver()
            .mark_nonvolatile(pages)
            .map_err(|refusal| self.volatile_error(refusal, &range))
    }

    fn free_vector(&self, ranges: &[Range<usize>], mode: FreeMode) -> Result<(), RangeError> {
        let pages = ranges.iter().map(|range| self.whole_pages(range));
        self.free_lazily(&pages.collect::<Result<Vec<_>, _>>()?, mode)
    }

    fn free_lazily(&self, ranges: &[PageRange], mode: FreeMode) -> Result<(), RangeError> {
        let freed = self.driver().lazy_free(ranges, mode);
        freed.map_err(|refusal| self.range_error(refusal))
    }

    fn volatile_error(&self, refusal: VolatileRefusal, range: &Range<usize>) -> VolatileError {
        match refusal {
            VolatileRefusal::Overlaps { page } => VolatileError::Overlaps {
                offset: self.offset(page),
            },
            VolatileRefusal::NotVolatile => VolatileError::NotVolatile {
                start: range.start,
                end: range.end,
            },
        }
    }
}
