//! jemalloc's own interface, for programs that link its shared library.
//!
//! Debian's `redis-server` is one. Its calls bind to this library like those of `malloc`, and have to, because blocks
//! of one interface are freed by the other.

use crate::internal_alloc;
use crate::malloc::{calloc, free, malloc_usable_size, memalign, move_internal};
use crate::owner::{Owner, of};
use crate::threads::wants_internal;
use core::ffi::{c_char, c_int, c_void};
use tikv_jemalloc_sys as je;

const ZERO: c_int = 0x40;
const LG_ALIGN: c_int = 0x3f;

fn align_of(flags: c_int) -> usize {
    1 << (flags & LG_ALIGN)
}

/// As `mallocx` of jemalloc.
///
/// # Safety
/// As there.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn mallocx(size: usize, flags: c_int) -> *mut c_void {
    if !wants_internal() {
        // SAFETY: as the caller promised.
        return unsafe { je::mallocx(size, flags) };
    }
    if flags & ZERO != 0 && align_of(flags) <= 16 {
        // SAFETY: any size may be asked for.
        return unsafe { calloc(1, size) };
    }
    // SAFETY: the alignment is a power of two.
    let block = unsafe { memalign(align_of(flags), size) };
    if flags & ZERO != 0 && !block.is_null() {
        // SAFETY: the block is new and has this many bytes.
        unsafe { block.cast::<u8>().write_bytes(0, size) };
    }
    block
}

/// As `rallocx` of jemalloc.
///
/// # Safety
/// As there.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn rallocx(block: *mut c_void, size: usize, flags: c_int) -> *mut c_void {
    if of(block, "rallocx") == Owner::Program {
        // SAFETY: as the caller promised.
        return unsafe { je::rallocx(block, size, flags) };
    }
    // SAFETY: the block is internal and live.
    unsafe {
        let old = internal_alloc::size_of_block(block.cast());
        let new = move_internal(block, size, align_of(flags));
        if flags & ZERO != 0 && !new.is_null() && size > old {
            new.cast::<u8>().add(old).write_bytes(0, size - old);
        }
        new
    }
}

/// As `xallocx` of jemalloc.
///
/// # Safety
/// As there.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn xallocx(
    block: *mut c_void,
    size: usize,
    extra: usize,
    flags: c_int,
) -> usize {
    match of(block, "xallocx") {
        // SAFETY: as the caller promised.
        Owner::Program => unsafe { je::xallocx(block, size, extra, flags) },
        // SAFETY: the block is internal and live; it keeps its size, which is an answer.
        Owner::Internal => unsafe { internal_alloc::size_of_block(block.cast()) },
    }
}

/// As `sallocx` of jemalloc.
///
/// # Safety
/// As there.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn sallocx(block: *const c_void, _: c_int) -> usize {
    // SAFETY: as the caller promised.
    unsafe { malloc_usable_size(block.cast_mut()) }
}

/// As `dallocx` of jemalloc.
///
/// # Safety
/// As there.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn dallocx(block: *mut c_void, flags: c_int) {
    match of(block, "dallocx") {
        // SAFETY: as the caller promised.
        Owner::Program => unsafe { je::dallocx(block, flags) },
        // SAFETY: as the caller promised.
        Owner::Internal => unsafe { free(block) },
    }
}

/// As `sdallocx` of jemalloc.
///
/// # Safety
/// As there.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn sdallocx(block: *mut c_void, size: usize, flags: c_int) {
    match of(block, "sdallocx") {
        // SAFETY: as the caller promised.
        Owner::Program => unsafe { je::sdallocx(block, size, flags) },
        // SAFETY: as the caller promised.
        Owner::Internal => unsafe { free(block) },
    }
}

/// As `nallocx` of jemalloc.
///
/// # Safety
/// As there.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn nallocx(size: usize, flags: c_int) -> usize {
    // SAFETY: as the caller promised.
    unsafe { je::nallocx(size, flags) }
}

/// As `mallctl` of jemalloc.
///
/// # Safety
/// As there.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn mallctl(
    name: *const c_char,
    old: *mut c_void,
    old_len: *mut usize,
    new: *mut c_void,
    new_len: usize,
) -> c_int {
    // SAFETY: as the caller promised.
    unsafe { je::mallctl(name, old, old_len, new, new_len) }
}

/// As `mallctlnametomib` of jemalloc.
///
/// # Safety
/// As there.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn mallctlnametomib(
    name: *const c_char,
    mib: *mut usize,
    mib_len: *mut usize,
) -> c_int {
    // SAFETY: as the caller promised.
    unsafe { je::mallctlnametomib(name, mib, mib_len) }
}

/// As `mallctlbymib` of jemalloc.
///
/// # Safety
/// As there.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn mallctlbymib(
    mib: *const usize,
    mib_len: usize,
    old: *mut c_void,
    old_len: *mut usize,
    new: *mut c_void,
    new_len: usize,
) -> c_int {
    // SAFETY: as the caller promised.
    unsafe { je::mallctlbymib(mib, mib_len, old, old_len, new, new_len) }
}

/// As `malloc_stats_print` of jemalloc.
///
/// # Safety
/// As there.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn malloc_stats_print(
    write: Option<unsafe extern "C" fn(*mut c_void, *const c_char)>,
    argument: *mut c_void,
    options: *const c_char,
) {
    // SAFETY: as the caller promised.
    unsafe { je::malloc_stats_print(write, argument, options) }
}
