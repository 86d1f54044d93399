//! jemalloc's own interface, for programs that link its shared library.
//!
//! Debian's `redis-server` is such a program. Its calls bind to this library like those of `malloc`, and have to,
//! because blocks of one interface are freed by the other.

use crate::malloc::{calloc, free, malloc_usable_size, memalign, move_internal};
use crate::owner::{Owner, of};
use crate::threads::wants_internal;
use crate::{internal_alloc, jemalloc};
use core::ffi::{c_char, c_int, c_void};
use tikv_jemalloc_sys as je;

const ZERO: c_int = 0x40;
const LG_ALIGN: c_int = 0x3f;

fn align_of(flags: c_int) -> usize {
    1 << (flags & LG_ALIGN)
}

/// Replaces jemalloc's `mallocx`.
///
/// # Safety
/// The conditions are those of the function that this one replaces.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn mallocx(size: usize, flags: c_int) -> *mut c_void {
    if !wants_internal() {
        jemalloc::before_block(size);
        // SAFETY: the caller guarantees what this call needs.
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

/// Replaces jemalloc's `rallocx`.
///
/// # Safety
/// The conditions are those of the function that this one replaces.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn rallocx(block: *mut c_void, size: usize, flags: c_int) -> *mut c_void {
    if of(block, "rallocx") == Owner::Program {
        jemalloc::before_block(size);
        // SAFETY: the caller guarantees what this call needs.
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

/// Replaces jemalloc's `xallocx`.
///
/// # Safety
/// The conditions are those of the function that this one replaces.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn xallocx(
    block: *mut c_void,
    size: usize,
    extra: usize,
    flags: c_int,
) -> usize {
    match of(block, "xallocx") {
        // SAFETY: the caller guarantees what this call needs.
        Owner::Program => unsafe { je::xallocx(block, size, extra, flags) },
        // SAFETY: the block is internal and live. It keeps its size, which is a valid answer.
        Owner::Internal => unsafe { internal_alloc::size_of_block(block.cast()) },
    }
}

/// Replaces jemalloc's `sallocx`.
///
/// # Safety
/// The conditions are those of the function that this one replaces.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn sallocx(block: *const c_void, _: c_int) -> usize {
    // SAFETY: the caller guarantees what this call needs.
    unsafe { malloc_usable_size(block.cast_mut()) }
}

/// Replaces jemalloc's `dallocx`.
///
/// # Safety
/// The conditions are those of the function that this one replaces.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn dallocx(block: *mut c_void, flags: c_int) {
    match of(block, "dallocx") {
        // SAFETY: the caller guarantees what this call needs.
        Owner::Program => unsafe { je::dallocx(block, flags) },
        // SAFETY: the caller guarantees what this call needs.
        Owner::Internal => unsafe { free(block) },
    }
}

/// Replaces jemalloc's `sdallocx`.
///
/// # Safety
/// The conditions are those of the function that this one replaces.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn sdallocx(block: *mut c_void, size: usize, flags: c_int) {
    match of(block, "sdallocx") {
        // SAFETY: the caller guarantees what this call needs.
        Owner::Program => unsafe { je::sdallocx(block, size, flags) },
        // SAFETY: the caller guarantees what this call needs.
        Owner::Internal => unsafe { free(block) },
    }
}

/// Replaces jemalloc's `nallocx`.
///
/// # Safety
/// The conditions are those of the function that this one replaces.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn nallocx(size: usize, flags: c_int) -> usize {
    // SAFETY: the caller guarantees what this call needs.
    unsafe { je::nallocx(size, flags) }
}

/// Replaces jemalloc's `mallctl`.
///
/// # Safety
/// The conditions are those of the function that this one replaces.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn mallctl(
    name: *const c_char,
    old: *mut c_void,
    old_len: *mut usize,
    new: *mut c_void,
    new_len: usize,
) -> c_int {
    // SAFETY: the caller guarantees what this call needs.
    unsafe { je::mallctl(name, old, old_len, new, new_len) }
}

/// Replaces jemalloc's `mallctlnametomib`.
///
/// # Safety
/// The conditions are those of the function that this one replaces.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn mallctlnametomib(
    name: *const c_char,
    mib: *mut usize,
    mib_len: *mut usize,
) -> c_int {
    // SAFETY: the caller guarantees what this call needs.
    unsafe { je::mallctlnametomib(name, mib, mib_len) }
}

/// Replaces jemalloc's `mallctlbymib`.
///
/// # Safety
/// The conditions are those of the function that this one replaces.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn mallctlbymib(
    mib: *const usize,
    mib_len: usize,
    old: *mut c_void,
    old_len: *mut usize,
    new: *mut c_void,
    new_len: usize,
) -> c_int {
    // SAFETY: the caller guarantees what this call needs.
    unsafe { je::mallctlbymib(mib, mib_len, old, old_len, new, new_len) }
}

/// Replaces jemalloc's `malloc_stats_print`.
///
/// # Safety
/// The conditions are those of the function that this one replaces.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn malloc_stats_print(
    write: Option<unsafe extern "C" fn(*mut c_void, *const c_char)>,
    argument: *mut c_void,
    options: *const c_char,
) {
    // SAFETY: the caller guarantees what this call needs.
    unsafe { je::malloc_stats_print(write, argument, options) }
}
