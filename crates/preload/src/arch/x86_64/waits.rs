//! `poll` and `select`, using the calls of these names.

use crate::guard::call::{point, with_range};

/// # Safety
/// The arguments are those of `poll`, whose list has `len` bytes.
pub unsafe fn poll(args: [usize; 6], len: usize) -> isize {
    // SAFETY: the caller guarantees this.
    unsafe { with_range(libc::SYS_poll, args, args[0], len) }
}

/// # Safety
/// The arguments are those of `select`.
pub unsafe fn select(args: [usize; 6]) -> isize {
    // SAFETY: the caller guarantees this.
    unsafe { point(libc::SYS_select, args) }
}
