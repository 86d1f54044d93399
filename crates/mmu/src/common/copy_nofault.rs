//! Copies memory that may be absent, without waiting for it.
//!
//! A thread that must not wait for a store wants to know whether the memory that it needs is there. Asking first is
//! useless: the memory may be gone a moment later. So the thread copies, and skips to the end if a page is missing
//! ([`skip`](super::skip)). That needs neither a lock nor a system call, and the copied bytes were really there.
//!
//! The bytes are read and written as by any other thread of the program. A page that is being taken out meanwhile is
//! copied before that, or is missing. A page that may not be written (shared with a snapshot, or lazily freed) counts
//! as missing for a write.

use super::Common;
use crate::arch;

impl Common {
    /// Implements [`RealMemory::copy_nofault`](crate::RealMemory::copy_nofault).
    ///
    /// # Safety
    /// The conditions are those of [`std::ptr::copy_nonoverlapping`], except that memory of the arena may be absent.
    pub(crate) unsafe fn copy_nofault(&self, from: *const u8, to: *mut u8, len: usize) -> bool {
        // SAFETY: the caller guarantees it; with in-thread delivery the SIGBUS handler is in place, or there is no
        // fault yet.
        self.can_skip() && (len == 0 || unsafe { arch::copy_nofault(from, to, len) })
    }
}
