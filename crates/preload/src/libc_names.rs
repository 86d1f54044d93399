//! The C library's other names for its allocator: `__libc_malloc` and its relatives.
//!
//! Profilers and message-passing libraries that replace `malloc` themselves ask by these names for the allocator behind
//! theirs. The program frees such a block by `free`, which is ours and knows the blocks that it gave out. The C
//! library's own blocks it took for stray pointers, and ended the process. So all names lead to one allocator, as they
//! do in the C library.

use crate::malloc::{calloc_for, free, malloc_for, memalign, pvalloc, realloc_for, valloc};
use core::ffi::c_void;

/// A caller that is not the dynamic linker, which does not call these functions.
const NOBODY: usize = 0;

/// Replaces the C library's `__libc_malloc`.
///
/// # Safety
/// The conditions are those of `malloc`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn __libc_malloc(size: usize) -> *mut c_void {
    // SAFETY: any size may be asked for.
    unsafe { malloc_for(size, NOBODY) }
}

/// Replaces the C library's `__libc_calloc`.
///
/// # Safety
/// The conditions are those of `calloc`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn __libc_calloc(count: usize, size: usize) -> *mut c_void {
    // SAFETY: any sizes may be asked for.
    unsafe { calloc_for(count, size, NOBODY) }
}

/// Replaces the C library's `__libc_realloc`.
///
/// # Safety
/// The conditions are those of `realloc`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn __libc_realloc(block: *mut c_void, size: usize) -> *mut c_void {
    // SAFETY: the caller guarantees what this call needs.
    unsafe { realloc_for(block, size, NOBODY) }
}

/// Replaces the C library's `__libc_free`.
///
/// # Safety
/// The conditions are those of `free`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn __libc_free(block: *mut c_void) {
    // SAFETY: the caller guarantees what this call needs.
    unsafe { free(block) }
}

/// Replaces the C library's `__libc_memalign`.
///
/// # Safety
/// The conditions are those of `memalign`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn __libc_memalign(align: usize, size: usize) -> *mut c_void {
    // SAFETY: the caller guarantees what this call needs.
    unsafe { memalign(align, size) }
}

/// Replaces the C library's `__libc_valloc`.
///
/// # Safety
/// The conditions are those of `valloc`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn __libc_valloc(size: usize) -> *mut c_void {
    // SAFETY: the caller guarantees what this call needs.
    unsafe { valloc(size) }
}

/// Replaces the C library's `__libc_pvalloc`.
///
/// # Safety
/// The conditions are those of `pvalloc`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn __libc_pvalloc(size: usize) -> *mut c_void {
    // SAFETY: the caller guarantees what this call needs.
    unsafe { pvalloc(size) }
}
