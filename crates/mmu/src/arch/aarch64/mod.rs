//! aarch64.

mod call;
pub(crate) mod frame;
pub(crate) mod touch;

pub(crate) use call::{call, call_at};

use super::Line;

/// A frame has that information in a record that emulators omit.
pub(crate) const TELLS_ACCESSES: bool = false;
/// Zeroing and copying without asking the core only saves time, and is not written for this processor.
pub(crate) const SKIPS_FAULTS: bool = false;
pub(crate) const MOVES_TABLES: bool = true;

/// # Safety
/// There are no conditions; the function is never called.
pub(crate) unsafe fn zero_if_mapped(_at: *mut u8, _len: usize) -> bool {
    false
}

/// # Safety
/// There are no conditions; the function is never called.
pub(crate) unsafe fn copy_nofault(_from: *const u8, _to: *mut u8, _len: usize) -> bool {
    false
}

/// Returns nothing: there are no such routines.
pub(crate) fn lines() -> [Line; 0] {
    []
}

/// # Safety
/// `at` is page-aligned, `len` is a multiple of the page size, the range is mapped writable, and no reference to it
/// is in use.
pub(crate) unsafe fn zero(at: *mut u8, len: usize) {
    // SAFETY: the caller guarantees it.
    unsafe { core::ptr::write_bytes(at, 0, len) }
}
