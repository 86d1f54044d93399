//! The uses of `mremap`, each as one function.

use core::ffi::c_void;

use rustix::io::Errno;
use rustix::mm::{MremapFlags, MsyncFlags};

use millpond_core::PAGE_SIZE;

use super::mm::{mremap, mremap_fixed, msync};

/// Moves the page tables of `len` bytes at `src` to `dst`, whose mapping is replaced. `src` stays mapped, and is
/// empty.
///
/// # Safety
/// No Rust reference covers either range, and nobody uses `dst`.
pub(crate) unsafe fn move_tables(src: usize, dst: usize, len: usize) -> Result<(), Errno> {
    let flags = MremapFlags::MAYMOVE | MremapFlags::DONTUNMAP;
    // SAFETY: the caller guarantees it; the kernel moves mappings and touches no contents.
    let at = unsafe { mremap_fixed(src as *mut c_void, len, len, flags, dst as *mut c_void) }?;
    debug_assert_eq!(at as usize, dst);
    Ok(())
}

/// Whether the addresses are mapped without a gap, and no part of them is locked in memory: POSIX forbids
/// `MS_INVALIDATE` for locked pages, and for memory without a file Linux does nothing else.
pub(crate) fn is_mapped_unlocked(at: usize, len: usize) -> bool {
    invalidate(at, len).is_ok()
}

/// Whether the addresses are mapped without a gap.
pub(crate) fn is_mapped(at: usize, len: usize) -> bool {
    invalidate(at, len) != Err(Errno::NOMEM)
}

fn invalidate(at: usize, len: usize) -> Result<(), Errno> {
    // SAFETY: the call changes nothing.
    unsafe { msync(at as *mut c_void, len, MsyncFlags::INVALIDATE) }
}

/// Returns how many of the `len` bytes from `at` lie in one mapping of the kernel; at least a page. Something must be
/// mapped after the `len` bytes.
///
/// Only one mapping at a time can be moved where userfaultfd is registered, and there is no cheap way to ask where
/// one ends. But a range that is asked to grow where something is in its way refuses with `ENOMEM` if it is one
/// mapping, and with `EFAULT` if it is several.
pub(crate) fn one_mapping(at: usize, len: usize) -> usize {
    let is_one = |len| {
        // SAFETY: nothing grows, because the next page is in use.
        let grown = unsafe {
            mremap(
                at as *mut c_void,
                len,
                len + PAGE_SIZE,
                MremapFlags::empty(),
            )
        };
        grown != Err(Errno::FAULT)
    };
    if is_one(len) {
        return len;
    }
    // One page is in one mapping, but not all of them are.
    let (mut one, mut several) = (PAGE_SIZE, len);
    while several - one > PAGE_SIZE {
        let middle = one + (several - one) / PAGE_SIZE / 2 * PAGE_SIZE;
        if is_one(middle) {
            one = middle;
        } else {
            several = middle;
        }
    }
    one
}
