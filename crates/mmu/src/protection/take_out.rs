//! Captures pages of memory that is watched through protections: they are closed, read into frames, and dropped.
//!
//! Neighbouring folios of the arena go together with these three calls, wherever their frames lie. If pages can be
//! marked, a single call is enough ([`guards`](super::guards)).

use millpond_core::{Frame, PageRange, TakeOutError};

use super::ProtectedMemory;
use crate::common::{Capture, Common, Install};
use crate::held::Taking;
use crate::reservation::HUGE;
use crate::sys::advise::Span;

/// The maximum number of folios captured together. Their frames are recorded on the stack.
const TOGETHER: usize = 32;

impl Capture for ProtectedMemory {
    fn common(&self) -> &Common {
        &self.common
    }

    fn capture(&self, src: usize, dst: usize, len: usize) -> Result<(), TakeOutError> {
        self.populate(dst, len);
        let into = [Span { start: dst, len }];
        // SAFETY: the frame is leased.
        match unsafe { self.capture_into(src, len, &into) } {
            true => Ok(()),
            false => Err(TakeOutError::Immovable),
        }
    }

    /// Counts folios that are neighbours in the arena, up to 2 MiB.
    fn run_length(&self, work: &[(PageRange, Frame)], taking: &Taking) -> usize {
        let first = self.common.at(work[0].0.start);
        let mut next = first;
        for (n, &(at, frame)) in work.iter().take(TOGETHER).enumerate() {
            let (start, len) = self.common.folio(at, frame);
            let ends_run = || taking.is_held(start, len) || start + len - first > HUGE;
            if start != next || (n > 0 && ends_run()) {
                return n;
            }
            next += len;
        }
        work.len().min(TOGETHER)
    }

    fn capture_run(&self, run: &[(PageRange, Frame)], results: &mut [Result<(), TakeOutError>]) {
        if run.len() > 1 && self.capture_together(run) {
            return results.fill(Ok(()));
        }
        for (&(at, frame), result) in run.iter().zip(results) {
            let lease = self.common.pool.lease(frame);
            let (src, len) = self.common.folio(at, frame);
            *result = self.capture(src, lease.addr(), len);
        }
    }
}

impl ProtectedMemory {
    /// Captures neighbouring folios. Returns false on failure, with all folios unchanged.
    fn capture_together(&self, run: &[(PageRange, Frame)]) -> bool {
        let pool = &self.common.pool;
        let leases: [_; TOGETHER] =
            core::array::from_fn(|n| run.get(n).map(|&(_, frame)| pool.lease(frame)));
        let mut into = [Span { start: 0, len: 0 }; TOGETHER];
        for (span, lease) in into.iter_mut().zip(leases.iter().flatten()) {
            (span.start, span.len) = (lease.addr(), lease.len());
            self.populate(span.start, span.len);
        }
        let into = &into[..run.len()];
        let src = self.common.at(run[0].0.start);
        let len = into.iter().map(|span| span.len).sum();
        // SAFETY: the frames are leased.
        unsafe { self.capture_into(src, len, into) }
    }

    /// Captures `len` bytes at `src` into frames, which follow each other in `into`. On failure nothing has changed,
    /// and the frames are holes.
    ///
    /// # Safety
    /// The frames are leased, and have room for `len` bytes.
    unsafe fn capture_into(&self, src: usize, len: usize, into: &[Span]) -> bool {
        // SAFETY: the caller guarantees the frames.
        if unsafe { self.protection.mark_out(src, len, into) } {
            return true;
        }
        // Phase 1: from now on a thread that touches the pages waits.
        let is_closed = self.protection.begin_capture(src, len);
        // Phase 2: read the pages.
        // SAFETY: the caller guarantees the frames.
        if !is_closed || unsafe { self.protection.read(src, into) } < len {
            if is_closed {
                self.protection.undo_capture(src, len);
            }
            into.iter()
                .for_each(|span| self.common.drop_pages(span.start, span.len));
            return false;
        }
        // Phase 3: drop the pages.
        self.protection.end_capture(src, len);
        true
    }
}
