//! Calls for threads that must not wait: they use only pages that are in memory.
//!
//! A touch of memory that went to the store takes as long as the store does. A thread with a deadline would rather do
//! something else in the meantime, or answer with the data that it has, while another thread brings in the rest. Asking
//! whether a page is in memory would not help, because the page may be gone a moment later. So these calls do the work
//! if it can be done at once, and otherwise say so:
//!
//! | call | cost if everything is in memory | delivery |
//! | --- | --- | --- |
//! | [`Region::try_read`], [`Region::try_write`] | a copy: no lock, no system call | in-thread |
//! | [`Region::try_pin`] | two short locks, four system calls | both |
//! | [`Region::prefetch`] | a place in a queue; one of the manager's threads brings it in | both |

use crate::error::{AdviseError, PinError};
use crate::region::{PinGuard, Region};
use millpond_driver::prefetch::{self, PrefetchError};
use std::ops::Range;

impl Region {
    /// Copies the bytes from `offset` on into `out`, if all of them are mapped now. If not (a page is in the store, in
    /// limbo, or was never touched), the call returns false, and `out` may hold a part. With handler delivery the call
    /// also returns false if it cannot find out without waiting.
    ///
    /// Such a read does not count as a use of the page: a page that only such reads touch leaves memory like an unused
    /// one.
    ///
    /// # Panics
    /// When the range leaves the region.
    ///
    /// ```
    /// # let manager = millpond::Manager::builder().ram(16 << 20).build()?;
    /// let mut region = manager.region(1 << 20)?;
    /// let mut out = [0; 8];
    /// assert!(!region.try_read(0, &mut out)); // never touched
    /// region.as_mut_slice()[..8].fill(7);
    /// assert!(region.try_read(0, &mut out));
    /// assert_eq!(out, [7; 8]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use = "the bytes are there only if it says so"]
    pub fn try_read(&self, offset: usize, out: &mut [u8]) -> bool {
        let at = self.checked(offset, out.len());
        // SAFETY: the range is inside the region, which is readable where it is mapped. `out` is no part of the region,
        // as a region that is borrowed has no mutable slice.
        unsafe {
            self.driver()
                .mmu
                .copy_nofault(at, out.as_mut_ptr(), out.len())
        }
    }

    /// Copies `data` to the bytes from `offset` on, if all of them can be written at once. If not, the call returns
    /// false, and a part may have been written. It returns false where [`Region::try_read`] does, and also if a page is
    /// shared with a snapshot or was lazily freed.
    ///
    /// # Panics
    /// When the range leaves the region.
    ///
    /// ```
    /// # let manager = millpond::Manager::builder().ram(16 << 20).build()?;
    /// let mut region = manager.region(1 << 20)?;
    /// assert!(!region.try_write(4096, &[7; 8]));
    /// region.populate(4096..4104)?;
    /// region.as_mut_slice()[4096] = 0; // what was only read is zeros that cannot be written
    /// assert!(region.try_write(4096, &[7; 8]));
    /// assert_eq!(region.as_slice()[4103], 7);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use = "the bytes were written only if it says so"]
    pub fn try_write(&mut self, offset: usize, data: &[u8]) -> bool {
        // SAFETY: `&mut self` makes this the only user of the bytes.
        unsafe { self.try_write_shared(offset, data) }
    }

    /// [`Region::try_write`] for programs that share the region by its address.
    ///
    /// # Safety
    /// No reference to bytes of the range may be alive: they change.
    ///
    /// # Panics
    /// When the range leaves the region.
    #[must_use = "the bytes were written only if it says so"]
    pub unsafe fn try_write_shared(&self, offset: usize, data: &[u8]) -> bool {
        let at = self.checked(offset, data.len());
        // SAFETY: as in `try_read`, and the caller's contract.
        unsafe {
            self.driver()
                .mmu
                .copy_nofault(data.as_ptr(), at, data.len())
        }
    }

    /// [`Region::pin`] for pages that are already in memory; `None` if it would have to wait. Until the guard ends, no
    /// touch of the range faults, with one exception: the first write to a page that is shared with a snapshot copies
    /// it.
    ///
    /// A pin is exact to the page, so a large folio at an end of the range is split there. If that matters, pin a range
    /// that begins and ends at multiples of the folios' length.
    ///
    /// # Errors
    /// As [`Region::pin`].
    ///
    /// ```
    /// # let manager = millpond::Manager::builder().ram(16 << 20).build()?;
    /// use millpond::Advice;
    /// let mut region = manager.region(1 << 20)?;
    /// region.as_mut_slice().fill(7);
    /// assert!(region.try_pin(0..4096)?.is_some());
    /// region.advise(0..1 << 20, Advice::PageOut)?;
    /// assert!(region.try_pin(0..4096)?.is_none());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn try_pin(&self, range: Range<usize>) -> Result<Option<PinGuard<'_>>, PinError> {
        let pages = self.touched_pages(&range)?;
        let pinned = self.driver().try_pin(pages);
        let pinned = pinned.map_err(|refusal| self.not_pinned(pages, refusal))?;
        Ok(pinned.then(|| self.pinned(pages)))
    }

    /// Requests the pages that `range` touches, and returns at once. One of the manager's threads brings them in, one
    /// range after the other. If ranges are requested faster than they can be brought in, the oldest are forgotten. A
    /// page that the store has lost is skipped.
    ///
    /// # Errors
    /// A bad range, or the thread could not be started.
    ///
    /// ```
    /// # let manager = millpond::Manager::builder().ram(16 << 20).build()?;
    /// let mut region = manager.region(32 << 20)?;
    /// region.as_mut_slice().fill(7);
    /// region.prefetch(0..4096)?;
    /// let mut out = [0; 8];
    /// while !region.try_read(0, &mut out) {
    ///     std::thread::yield_now(); // or something better to do
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn prefetch(&self, range: Range<usize>) -> Result<(), AdviseError> {
        let pages = self.touched_pages(&range)?;
        let asked = prefetch::ask(self.pond().driver(), pages);
        asked.map_err(|PrefetchError(reason)| AdviseError::Thread { reason })
    }

    /// The address of `offset`, from which `len` bytes belong to the region.
    fn checked(&self, offset: usize, len: usize) -> *mut u8 {
        assert!(
            offset <= self.len() && len <= self.len() - offset,
            "{len} bytes from offset {offset} on are not in 0..{}",
            self.len()
        );
        // SAFETY: the offset is in the region, or its end.
        unsafe { self.as_ptr().add(offset) }
    }
}
