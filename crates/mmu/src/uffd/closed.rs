//! The operations on memory that is watched by protections, because there is no userfaultfd (`protection`).
//!
//! Each method answers `None` where there is one. Frames are ordinary memory then: a hole is given pages by the first
//! write to it, and contents are always copied.

use core::ffi::c_void;

use rustix::io::Errno;
use rustix::mm::Advice;

use millpond_core::{Frame, InstallError, PAGE_SIZE, PageRange, Placed, TakeOutError};

use super::Uffd;
use crate::error::MmuError;
use crate::held::Taking;
use crate::protection::Wish;
use crate::reservation::HUGE;
use crate::sys::advise::Span;
use crate::sys::mm::madvise;

/// The most folios that are captured together, whose frames are noted on the stack.
const TOGETHER: usize = 32;

impl Uffd {
    /// Copies into pages of the arena, which are absent. The error is the number of bytes that are mapped: none.
    ///
    /// # Safety
    /// The source is readable, and not a part of the arena.
    pub(super) unsafe fn install_closed(
        &self,
        dst: usize,
        src: usize,
        len: usize,
    ) -> Option<Result<(), usize>> {
        let protection = self.protection.as_ref()?;
        let done = if self.zeros.are_at(src) {
            protection.install_zeros(dst, len)
        } else {
            // SAFETY: the caller guarantees it.
            unsafe { protection.install(dst, src, len) }
        };
        Some(if done { Ok(()) } else { Err(0) })
    }

    /// Implements [`Mmu::copy`](millpond_core::Mmu::copy): the source is a leased frame, or pages of the arena that may
    /// be closed. These are copied by way of a buffer.
    pub(super) fn install_copy_closed(
        &self,
        dst: usize,
        src: usize,
        len: usize,
        frame: Option<Frame>,
    ) -> Result<Placed, InstallError> {
        let refused = super::install::refusal(len);
        let protection = self.protection.as_ref().ok_or(refused)?;
        let is_closed = src.wrapping_sub(self.arena.base()) < self.arena.len();
        let lease = frame
            .filter(|_| is_closed)
            .map(|frame| self.pool.lease(frame));
        let bounce = match &lease {
            None if is_closed => self.bounce.buffer(len),
            _ => None,
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
        let done = match is_closed {
            // SAFETY: the buffer is a leased frame, taken, or this function's own.
            true => unsafe { protection.copy(dst, src, len, buffer) },
            // SAFETY: the source is a leased, populated frame.
            false => unsafe { protection.install(dst, src, len) },
        };
        done.then_some(Placed::Copied).ok_or(refused)
    }

    /// Gives pages to a hole of the pool, if it is ordinary memory. The answer is whether it is.
    ///
    /// A hole reads as zeros without that, and a page that it lacks comes with the first write. One call for all of
    /// them takes a third of the time.
    pub(super) fn populate_closed(&self, at: usize, len: usize) -> bool {
        if len > PAGE_SIZE && self.is_watched_by_protections() {
            // SAFETY: the advice does what a write of the same bytes would do. Where the kernel does not know it, the
            // pages come one by one.
            let _ = unsafe { madvise(at as *mut c_void, len, Advice::LinuxPopulateWrite) };
        }
        self.is_watched_by_protections()
    }

    /// Captures one folio into a leased hole.
    pub(super) fn capture_closed(
        &self,
        src: usize,
        dst: usize,
        len: usize,
    ) -> Option<Result<(), TakeOutError>> {
        let protection = self.protection.as_ref()?;
        self.populate_closed(dst, len);
        // SAFETY: the frame is leased.
        if unsafe { protection.mark_out(src, len, &[Span { start: dst, len }]) } {
            return Some(Ok(()));
        }
        // Phase 1: from here on a thread that touches the pages waits.
        if !protection.begin_capture(src, len) {
            self.drop_pages(dst, len);
            return Some(Err(TakeOutError::Immovable));
        }
        // Phase 2: the pages are read.
        // SAFETY: the frame is leased.
        let read = unsafe { protection.read(src, &[Span { start: dst, len }]) };
        if read < len {
            protection.undo_capture(src, len);
            self.drop_pages(dst, len);
            return Some(Err(TakeOutError::Immovable));
        }
        // Phase 3: the pages are dropped.
        protection.end_capture(src, len);
        Some(Ok(()))
    }

    /// The number of folios from the start, which is not held, that are neighbours in the arena and are not held.
    pub(super) fn closed_run_length(&self, work: &[(PageRange, Frame)], taking: &Taking) -> usize {
        let mut next = self.at(work[0].0.start);
        for (n, &(at, frame)) in work.iter().take(TOGETHER).enumerate() {
            let (start, len) = self.folio(at, frame);
            if start != next
                || (n > 0
                    && (taking.is_held(start, len)
                        || start + len - self.at(work[0].0.start) > HUGE))
            {
                return n;
            }
            next += len;
        }
        work.len().min(TOGETHER)
    }

    /// Captures folios that are neighbours in the arena by three calls: one that closes them, one that reads them into
    /// their frames, wherever these lie, and one that drops them. Where pages can be marked one call does. The answer
    /// is false when that failed: all folios are as they were.
    pub(super) fn capture_closed_run(&self, run: &[(PageRange, Frame)]) -> bool {
        let Some(protection) = &self.protection else {
            return false;
        };
        let leases: [_; TOGETHER] =
            core::array::from_fn(|n| run.get(n).map(|&(_, frame)| self.pool.lease(frame)));
        let mut into = [Span { start: 0, len: 0 }; TOGETHER];
        for (span, lease) in into.iter_mut().zip(leases.iter().flatten()) {
            (span.start, span.len) = (lease.addr(), lease.len());
            self.populate_closed(span.start, span.len);
        }
        let into = &into[..run.len()];
        let (src, len) = (
            self.at(run[0].0.start),
            into.iter().map(|span| span.len).sum(),
        );
        // SAFETY: the frames are leased.
        if unsafe { protection.mark_out(src, len, into) } {
            return true;
        }
        let closed = protection.begin_capture(src, len);
        // SAFETY: the frames are leased.
        if !closed || unsafe { protection.read(src, into) } < len {
            if closed {
                protection.undo_capture(src, len);
            }
            into.iter()
                .for_each(|span| self.drop_pages(span.start, span.len));
            return false;
        }
        protection.end_capture(src, len);
        true
    }

    /// Zeroes pages in place, whatever their protection. The answer is whether that was done.
    pub(super) fn zero_closed(&self, at: PageRange) -> bool {
        let Some(protection) = &self.protection else {
            return false;
        };
        let zeros = Span {
            start: self.zeros.of(HUGE),
            len: HUGE,
        };
        protection.zero(self.at(at.start), at.len.bytes() as usize, zeros);
        true
    }

    /// Reads the first bytes of a page that is there, whatever its protection, into `seen`. The answer is false where
    /// pages can be looked at in place.
    pub(super) fn read_closed_page(&self, at: usize, seen: &mut [u64]) -> bool {
        let Some(protection) = &self.protection else {
            return false;
        };
        let span = Span {
            start: seen.as_mut_ptr() as usize,
            len: size_of_val(seen),
        };
        // SAFETY: the buffer is the caller's, which does not look at it meanwhile.
        unsafe { protection.read(at, &[span]) == span.len }
    }

    /// Gives the program this protection (the bits of `mprotect`) for a range that is open: pages get it when they come
    /// in, and those that are there at once. The answer is `None` where the kernel keeps the protection, and the
    /// program calls `mprotect` itself.
    pub fn protect_pages(&self, range: PageRange, prot: i32) -> Option<Result<(), MmuError>> {
        let protection = self.protection.as_ref()?;
        let changed = self.span(range).and_then(|_| {
            protection
                .wish_for(range, Wish::of(prot))
                .map_err(|errno| MmuError::Protect { range, errno })
        });
        if changed.is_ok() {
            self.reach.set(range, prot != libc::PROT_NONE);
        }
        Some(changed)
    }

    /// Gives a range up to a mapping of somebody else's, which is there or soon will be: no page comes in there any
    /// more, and no protection is changed. [`Uffd::remap_reserved`] makes the range part of the arena again.
    ///
    /// This is for memory that is watched by protections. Elsewhere [`Uffd::unwatch`] does as much.
    pub fn cede(&self, range: PageRange) {
        if let Some(protection) = &self.protection {
            protection.cede(range);
        }
    }

    /// Keeps pages, which the core has pinned, usable by the kernel until [`unpinned`](Self::unpinned) is called as
    /// often.
    pub fn pinned(&self, range: PageRange) {
        if let Some(protection) = &self.protection {
            protection.pin(range);
        }
    }

    /// Ends one [`pinned`](Self::pinned) of pages.
    pub fn unpinned(&self, range: PageRange) {
        if let Some(protection) = &self.protection {
            protection.unpin(range);
        }
    }

    /// Whether memory is watched by protections, because there is no userfaultfd.
    #[must_use]
    pub fn is_watched_by_protections(&self) -> bool {
        self.protection.is_some()
    }

    /// The number of runs of pages that the kernel has to keep apart, where memory is watched by protections.
    #[must_use]
    pub fn open_runs(&self) -> Option<usize> {
        Some(self.protection.as_ref()?.runs())
    }

    /// Has memory that is watched by protections get by with so few runs, for a test.
    #[doc(hidden)]
    pub fn limit_runs(&self, runs: usize) {
        if let Some(protection) = &self.protection {
            protection.limit_runs(runs);
        }
    }

    /// [`hand_over`](Self::hand_over) of closed pages. As all of them are closed, threads may touch both ranges
    /// meanwhile: they wait for the lock, or in the sink.
    ///
    /// # Safety
    /// The conditions are those of [`hand_over_watched`](Self::hand_over_watched).
    pub(super) unsafe fn hand_over_closed(
        &self,
        from: PageRange,
        to: PageRange,
    ) -> Option<Result<(), MmuError>> {
        let protection = self.protection.as_ref()?;
        let tables = || {
            let (src, dst) = (self.at(from.start), self.at(to.start));
            let pieces = self
                .mappings(src, from.len.bytes() as usize)
                .ok_or(Errno::TOOBIG)?;
            // SAFETY: the caller guarantees it, and both ranges were closed before.
            unsafe { self.move_mappings(src, dst, &pieces) }
        };
        let moved = protection.hand_over(from, to, tables);
        Some(moved.map_err(|errno| MmuError::HandOver { range: from, errno }))
    }

    /// Ends a [`hand_over_closed`](Self::hand_over_closed) of memory that threads touch meanwhile.
    pub(super) fn carry_closed(&self, from: PageRange, to: PageRange, keep: bool) {
        self.reach.carry(from, to);
        if !keep {
            self.watched(self.remap_reserved(from));
        }
    }
}
