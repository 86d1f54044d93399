//! The zeros that new pages are copied from.
//!
//! They are 2 MiB of addresses. The kernel's zero page is mapped at as many of them as copies have needed so far. The
//! copy itself would map an unmapped source, page by page and in a second attempt for each; mapping beforehand is
//! much cheaper. But mapping all 512 takes 30 µs, and a process that ends soon never needs more than a few.

use core::ffi::c_void;
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous};

use crate::error::MmuError;
use crate::reservation::HUGE;
use crate::small_pages::decline_huge_pages;

/// Bytes that are mapped at the beginning.
const FIRST: usize = 64 << 10;

/// 2 MiB that read as zeros, from which new pages are copied. The kernel's own zero page would suffice for a reader,
/// but a page that is mapped from it is not accounted anywhere and has to be replaced at the first write.
pub(crate) struct Zeros {
    addr: usize,
    /// Bytes from the start that are mapped. None of them is ever unmapped.
    mapped: AtomicUsize,
}

impl Zeros {
    pub(super) fn new() -> Result<Self, MmuError> {
        let fail = |errno| MmuError::Reserve {
            what: "zero pages",
            bytes: HUGE,
            errno,
        };
        // SAFETY: this makes a new mapping at an address that the kernel chooses.
        let at = unsafe {
            mmap_anonymous(
                core::ptr::null_mut(),
                HUGE,
                ProtFlags::READ,
                MapFlags::PRIVATE,
            )
        };
        let addr = at.map_err(fail)? as usize;
        decline_huge_pages(addr..addr + HUGE);
        let zeros = Self {
            addr,
            mapped: AtomicUsize::new(0),
        };
        zeros.map(FIRST);
        Ok(zeros)
    }

    /// Returns the address of `len` zeros to copy from: at most 2 MiB.
    pub(crate) fn of(&self, len: usize) -> usize {
        debug_assert!(len <= HUGE, "{len} zeros are asked for");
        if len > self.mapped.load(Relaxed) {
            self.map(len.next_power_of_two());
        }
        self.addr
    }

    /// Maps the first `len` bytes. If the kernel does not know the advice, the copies map them.
    fn map(&self, len: usize) {
        // SAFETY: the advice maps the pages that a read would map, in a mapping that this value owns.
        let _ = unsafe { madvise(self.addr as *mut c_void, len, Advice::LinuxPopulateRead) };
        self.mapped.fetch_max(len, Relaxed);
    }
}

impl Drop for Zeros {
    fn drop(&mut self) {
        // SAFETY: the memory was mapped by `new`; no copy runs while the value is dropped.
        let _ = unsafe { rustix::mm::munmap(self.addr as *mut c_void, HUGE) };
    }
}
