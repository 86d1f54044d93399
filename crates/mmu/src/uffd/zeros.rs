//! The zeros that fresh pages are copied from.

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous};

use crate::error::MmuError;
use crate::reservation::HUGE;

/// Two MiB that read as zeros, from which fresh pages are copied. The kernel's own zero page would do for a reader,
/// but a page that is mapped from it is not accounted anywhere and has to be replaced at the first write.
pub(super) struct Zeros(usize);

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
        let at = at.map_err(fail)?;
        // SAFETY: the advice maps the pages that a read would map. Where the kernel does not know it, the first copy
        // maps them.
        let _ = unsafe { madvise(at, HUGE, Advice::LinuxPopulateRead) };
        Ok(Self(at as usize))
    }

    pub(super) fn addr(&self) -> usize {
        self.0
    }
}

impl Drop for Zeros {
    fn drop(&mut self) {
        // SAFETY: the memory was mapped by `new`; no copy runs while the value is dropped.
        let _ = unsafe { rustix::mm::munmap(self.0 as *mut core::ffi::c_void, HUGE) };
    }
}
