//! What fresh pages are copied from.

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous};

use crate::error::MmuError;
use crate::reservation::HUGE;

/// Two MiB that read as zeros: what fresh pages are copied from. The kernel's own zero page would do for a reader,
/// but a page that is mapped from it is not accounted anywhere and has to be replaced at the first write.
pub(super) struct Zeros(usize);

impl Zeros {
    pub(super) fn new() -> Result<Self, MmuError> {
        let fail = |errno| MmuError::Reserve {
            what: "zero pages",
            bytes: HUGE,
            errno,
        };
        // SAFETY: a new mapping at an address of the kernel's choice.
        let at = unsafe {
            mmap_anonymous(
                core::ptr::null_mut(),
                HUGE,
                ProtFlags::READ,
                MapFlags::PRIVATE,
            )
        };
        let at = at.map_err(fail)?;
        // SAFETY: the advice maps what a read would map. Where it is unknown the first copy does so.
        let _ = unsafe { madvise(at, HUGE, Advice::LinuxPopulateRead) };
        Ok(Self(at as usize))
    }

    pub(super) fn addr(&self) -> usize {
        self.0
    }
}

impl Drop for Zeros {
    fn drop(&mut self) {
        // SAFETY: mapped by `new`; no copy runs while the value is dropped.
        let _ = unsafe { rustix::mm::munmap(self.0 as *mut core::ffi::c_void, HUGE) };
    }
}
