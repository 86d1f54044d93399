//! Captures pages. The steps that do not depend on what watches the memory surround those that do
//! ([`Install`](super::Install) is the other half).
//!
//! If the kernel is using a page of a folio for a system call, the folio is held (`held.rs`), and stays:
//! [`TakeOutError::Busy`].

use millpond_core::{Frame, PageRange, TakeOutError};

use super::Common;
use crate::held::Taking;

/// The way out.
pub(crate) trait Capture {
    /// Returns what both kinds of memory have in common.
    fn common(&self) -> &Common;

    /// Captures `len` bytes at `src` into the leased hole `dst`. Either all of them are captured or none.
    fn capture(&self, src: usize, dst: usize, len: usize) -> Result<(), TakeOutError>;

    /// Returns how many folios can be captured together from the start, which is not held. None of them is held.
    fn run_length(&self, work: &[(PageRange, Frame)], taking: &Taking) -> usize;

    /// Captures folios together, or one by one if that fails.
    fn capture_run(&self, run: &[(PageRange, Frame)], results: &mut [Result<(), TakeOutError>]);

    /// Implements [`Mmu::take_out`](millpond_core::Mmu::take_out).
    fn capture_one(&self, at: PageRange, frame: Frame) -> Result<(), TakeOutError> {
        let lease = self.common().pool.lease(frame);
        let (src, len) = self.common().folio(at, frame);
        let taking = Taking::begin();
        match taking.is_held(src, len) {
            true => Err(TakeOutError::Busy),
            false => self.capture(src, lease.addr(), len),
        }
    }

    /// Implements [`Mmu::take_out_all`](millpond_core::Mmu::take_out_all).
    fn capture_all(&self, work: &[(PageRange, Frame)], results: &mut [Result<(), TakeOutError>]) {
        assert_eq!(work.len(), results.len(), "one result for each folio");
        let taking = Taking::begin();
        let mut first = 0;
        while first < work.len() {
            let (start, len) = self.common().folio(work[first].0, work[first].1);
            if taking.is_held(start, len) {
                results[first] = Err(TakeOutError::Busy);
                first += 1;
                continue;
            }
            let end = first + self.run_length(&work[first..], &taking);
            self.capture_run(&work[first..end], &mut results[first..end]);
            first = end;
        }
    }
}
