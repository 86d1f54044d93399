//! Zeroes memory that may be absent, without asking the core.
//!
//! The core knows whether a page is mapped, but behind its lock. A thread of the program that takes that lock has to
//! block its signals first: two system calls, 0.65 µs, half of the cost of zeroing 64 KiB. So a range that is given
//! back is zeroed without asking. If a page is missing, the fault must not bring in contents that are about to be
//! dropped: a thread that faults here continues at the end that returns false ([`skip`](super::skip)).
//!
//! The stores are like those of any other thread of the program. A page that is being taken out meanwhile gets them
//! first, or they fault.

use super::Common;
use crate::arch;
use millpond_core::PageRange;

impl Common {
    /// Implements [`Memory::zero_if_mapped`](crate::Memory::zero_if_mapped).
    ///
    /// # Safety
    /// `at` lies in the arena, is writable by the program where it is mapped, and no reference to its bytes is in
    /// use.
    pub(crate) unsafe fn zero_if_mapped(&self, at: PageRange) -> bool {
        // SAFETY: the caller guarantees it; with in-thread delivery the SIGBUS handler is in place, or there is no
        // fault yet.
        self.can_skip()
            && unsafe {
                arch::zero_if_mapped(self.at(at.start) as *mut u8, at.len.bytes() as usize)
            }
    }
}
