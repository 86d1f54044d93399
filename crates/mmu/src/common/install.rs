//! Fills frames and maps contents. The steps that do not depend on what watches the memory surround those that do.
//!
//! [`Install`] requires the latter of each kind of memory, and has the former as its own methods. All of it is
//! compiled for each kind: an operation determines the kind once, where it begins
//! ([`RealMemory`](crate::RealMemory)).

use millpond_core::{
    FillOrInstallError, FilledAndInstalled, Frame, InstallError, LoadError, PAGE_SIZE, PageRange,
    Placed,
};

use super::Capture;
use crate::bounce::Buffer;
use crate::pool::Lease;

/// The way in.
pub(crate) trait Install: Capture {
    /// Gives zeroed pages to a leased hole of the pool.
    fn populate(&self, at: usize, len: usize);

    /// Maps new pages with the bytes of a buffer, or of a leased and populated frame, where nothing is mapped. These
    /// contents exist, so they are mapped whatever the program has done to the protection meanwhile, page by page if
    /// necessary. The error is the number of bytes, from the start, that are mapped.
    fn copy_in(&self, dst: usize, src: usize, len: usize) -> Result<(), usize>;

    /// Maps the pages of a leased and populated frame, or copies of them.
    fn install_leased(
        &self,
        lease: &Lease<'_>,
        frame: Frame,
        at: PageRange,
    ) -> Result<Placed, InstallError>;

    /// Implements [`Mmu::fill`](millpond_core::Mmu::fill).
    fn fill_frame(
        &self,
        frame: Frame,
        fresh: bool,
        fill: &mut dyn FnMut(&mut [u8]) -> Result<(), LoadError>,
    ) -> Result<(), LoadError> {
        let mut lease = self.common().pool.lease(frame);
        if fresh {
            self.populate(lease.addr(), lease.len());
        }
        // SAFETY: the frame is populated, either just now or according to the caller.
        fill(unsafe { lease.bytes_mut() })
    }

    /// Implements [`Mmu::install`](millpond_core::Mmu::install).
    fn install_frame(&self, frame: Frame, at: PageRange) -> Result<Placed, InstallError> {
        let lease = self.common().pool.lease(frame);
        self.install_leased(&lease, frame, at)
    }

    /// Implements [`Mmu::fill_and_install`](millpond_core::Mmu::fill_and_install).
    fn fill_at(
        &self,
        frame: Frame,
        fresh: bool,
        at: PageRange,
        fill: &mut dyn FnMut(&mut [u8]) -> Result<(), LoadError>,
    ) -> FilledAndInstalled {
        let mut lease = self.common().pool.lease(frame);
        let filled = if !fresh {
            // SAFETY: the caller guarantees that the frame is populated.
            fill(unsafe { lease.bytes_mut() })
        } else if let Some(mut buffer) = self.common().bounce.buffer(lease.len()) {
            let filled = fill(buffer.bytes_mut());
            let outcome = filled.map_err(FillOrInstallError::Fill);
            return FilledAndInstalled::past_frame(
                outcome.and_then(|()| self.install_buffer(&mut lease, &mut buffer, at)),
            );
        } else {
            self.populate(lease.addr(), lease.len());
            // SAFETY: the frame was populated just now.
            fill(unsafe { lease.bytes_mut() })
        };
        FilledAndInstalled::through_frame(filled, || self.install_leased(&lease, frame, at))
    }

    /// Maps new pages with the buffer's bytes at `at`. On an error nothing is mapped, and the hole has become a
    /// populated frame with these bytes, or with what the program has since made of them.
    fn install_buffer(
        &self,
        hole: &mut Lease<'_>,
        buffer: &mut Buffer<'_>,
        at: PageRange,
    ) -> Result<(), FillOrInstallError> {
        let (dst, len) = (self.common().at(at.start), at.len.bytes() as usize);
        let Err(copied) = self.copy_in(dst, buffer.addr(), len) else {
            return Ok(());
        };
        self.populate(hole.addr(), len);
        // SAFETY: the frame was populated just now.
        unsafe { hole.bytes_mut() }.copy_from_slice(buffer.bytes_mut());
        self.take_back(dst, hole.addr(), 0, copied);
        Err(FillOrInstallError::Install(refusal(len)))
    }

    /// Undoes a partial mapping: `moved` bytes were moved, and `copied` more were copied. Afterwards none of it is
    /// mapped, and the frame is populated with the bytes that the program last saw.
    fn take_back(&self, dst: usize, src: usize, moved: usize, copied: usize) {
        for offset in (0..moved + copied).step_by(PAGE_SIZE) {
            let (dst, src) = (dst + offset, src + offset);
            if offset >= moved {
                self.common().drop_pages(src, PAGE_SIZE);
            }
            if self.capture(dst, src, PAGE_SIZE).is_err() {
                // The address is now mapped by something else: the program's bytes there went with their mapping.
                self.populate(src, PAGE_SIZE);
            }
        }
    }
}

/// Returns the refusal for an install of `len` bytes where something else is mapped.
pub(crate) fn refusal(len: usize) -> InstallError {
    if len > PAGE_SIZE {
        InstallError::Split
    } else {
        InstallError::Gone
    }
}
