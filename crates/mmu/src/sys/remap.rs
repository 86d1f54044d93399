//! `mremap`, as one function.

use core::ffi::c_void;

use rustix::io::Errno;
use rustix::mm::{MremapFlags, mremap_fixed};

/// Moves the page tables of `len` bytes at `src` to `dst`, whose mapping is replaced. `src` stays mapped, and is empty.
///
/// # Safety
/// No Rust reference covers either range, and `dst` is nobody's.
pub(crate) unsafe fn move_tables(src: usize, dst: usize, len: usize) -> Result<(), Errno> {
    let flags = MremapFlags::MAYMOVE | MremapFlags::DONTUNMAP;
    // SAFETY: the caller's promise; the kernel moves what is mapped and touches no contents.
    let at = unsafe { mremap_fixed(src as *mut c_void, len, len, flags, dst as *mut c_void) }?;
    debug_assert_eq!(at as usize, dst);
    Ok(())
}
