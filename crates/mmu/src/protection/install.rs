//! Maps contents, or zeros, in memory that is watched through protections: pages are written while they are closed,
//! and then opened. Contents are always copied; a frame stays populated.

use core::ffi::c_void;

use rustix::mm::Advice;

use millpond_core::{CopyFrom, Frame, InstallError, PAGE_SIZE, PageRange, Placed};

use super::ProtectedMemory;
use crate::common::{Install, refusal};
use crate::pool::Lease;
use crate::reservation::HUGE;
use crate::sys::advise::Span;
use crate::sys::mm::madvise;

impl Install for ProtectedMemory {
    /// Not needed for correctness: a hole reads as zeros anyway, and a missing page comes with the first write. But
    /// one call for all pages takes a third of the time.
    fn populate(&self, at: usize, len: usize) {
        if len > PAGE_SIZE {
            // SAFETY: the advice has the effect of writing the same bytes. If the kernel does not know it, the pages
            // come one by one.
            let _ = unsafe { madvise(at as *mut c_void, len, Advice::LinuxPopulateWrite) };
        }
    }

    fn copy_in(&self, dst: usize, src: usize, len: usize) -> Result<(), usize> {
        // SAFETY: the source is a leased, populated frame or a buffer.
        if unsafe { self.protection.install(dst, src, len) } {
            return Ok(());
        }
        for done in (0..len).step_by(PAGE_SIZE) {
            // SAFETY: the source is a leased, populated frame or a buffer.
            if !unsafe { self.protection.install(dst + done, src + done, PAGE_SIZE) } {
                return Err(done);
            }
        }
        Ok(())
    }

    fn install_leased(
        &self,
        lease: &Lease<'_>,
        frame: Frame,
        at: PageRange,
    ) -> Result<Placed, InstallError> {
        let (dst, len) = self.common.folio(at, frame);
        match self.copy_in(dst, lease.addr(), len) {
            Ok(()) => Ok(Placed::Copied),
            Err(copied) => {
                self.take_back(dst, lease.addr(), 0, copied);
                Err(refusal(len))
            }
        }
    }
}

impl ProtectedMemory {
    /// Implements [`Mmu::install_zero`](millpond_core::Mmu::install_zero).
    pub(super) fn install_zero(&self, at: PageRange) -> Result<Placed, InstallError> {
        let (start, len) = (self.common.at(at.start), at.len.bytes() as usize);
        let done = self.protection.install_zeros(start, len);
        done.then_some(Placed::Copied).ok_or(refusal(len))
    }

    /// Implements [`Mmu::install_zero_all`](millpond_core::Mmu::install_zero_all). Neighbouring folios without frames
    /// are installed together, up to 2 MiB, or one by one if that fails.
    pub(super) fn install_zero_all(
        &self,
        work: &[(PageRange, Option<Frame>)],
        results: &mut [Result<Placed, InstallError>],
    ) {
        assert_eq!(work.len(), results.len(), "one result for each folio");
        let mut first = 0;
        while first < work.len() {
            let (count, len) = self.zero_run(&work[first..]);
            let (run, results) = (&work[first..first + count], &mut results[first..]);
            first += count;
            let start = self.common.at(run[0].0.start);
            let together = count > 1 && self.protection.install_zeros(start, len);
            for (&(at, _), result) in run.iter().zip(results) {
                *result = match together {
                    true => Ok(Placed::Copied),
                    false => self.install_zero(at),
                };
            }
        }
    }

    /// Returns the number and the bytes of the folios, from the start, that are installed together.
    fn zero_run(&self, work: &[(PageRange, Option<Frame>)]) -> (usize, usize) {
        let from = self.common.at(work[0].0.start);
        let mut bytes = 0;
        for (n, &(at, frame)) in work.iter().enumerate() {
            let len = at.len.bytes() as usize;
            let is_next = self.common.at(at.start) == from + bytes;
            let is_next = is_next && frame.is_none() && work[0].1.is_none();
            if n > 0 && (!is_next || bytes + len > HUGE) {
                return (n, bytes);
            }
            bytes += len;
        }
        (work.len(), bytes)
    }

    /// Implements [`Mmu::copy`](millpond_core::Mmu::copy).
    pub(super) fn install_copy(
        &self,
        at: PageRange,
        from: CopyFrom,
        frame: Option<Frame>,
    ) -> Result<Placed, InstallError> {
        let (dst, len) = (self.common.at(at.start), at.len.bytes() as usize);
        let done = match from {
            CopyFrom::Mapped(first) => self.copy_pages(dst, self.common.at(first), len, frame),
            CopyFrom::Frame { frame, first } => {
                let lent = self.common.pool.lease(frame);
                let src = lent.addr() + usize::from(first) * PAGE_SIZE;
                // SAFETY: the source is a leased, populated frame.
                unsafe { self.protection.install(dst, src, len) }
            }
        };
        done.then_some(Placed::Copied).ok_or(refusal(len))
    }

    /// Copies pages of the arena that may be closed, through a frame or a buffer.
    fn copy_pages(&self, dst: usize, src: usize, len: usize, frame: Option<Frame>) -> bool {
        let lease = frame.map(|frame| self.common.pool.lease(frame));
        let bounce = match &lease {
            None => self.common.bounce.buffer(len),
            Some(_) => None,
        };
        let mut page = [0u8; PAGE_SIZE];
        let buffer = match (&lease, &bounce) {
            (Some(lease), _) => Span {
                start: lease.addr(),
                len,
            },
            (None, Some(bounce)) => Span {
                start: bounce.addr(),
                len,
            },
            (None, None) => Span {
                start: page.as_mut_ptr() as usize,
                len: PAGE_SIZE,
            },
        };
        // SAFETY: the buffer is a leased frame, a taken buffer, or this function's own.
        unsafe { self.protection.copy(dst, src, len, buffer) }
    }
}
