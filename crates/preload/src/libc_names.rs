//! The C library's other names for its allocator: `__libc_malloc` and its relatives.
//!
//! Profilers and message-passing libraries that replace `malloc` themselves use these names to reach the allocator
//! behind theirs. The program frees such a block with `free`, which is ours and knows only the blocks that it gave
//! out. It took the C library's own blocks for stray pointers and ended the process. So all names lead to one
//! allocator, as they do in the C library.

use crate::malloc::{calloc_for, free, malloc_for, memalign, pvalloc, realloc_for, valloc};
use core::ffi::c_void;

/// A caller other than the dynamic linker, which does not call these functions.
const NOBODY: usize = 0;

exports! {
    [none: Blocks]
    unsafe extern "C" fn __libc_malloc(size: usize) -> *mut c_void = unsafe {
        malloc_for(size, NOBODY)
    }

    [none: Blocks]
    unsafe extern "C" fn __libc_calloc(count: usize, size: usize) -> *mut c_void = unsafe {
        calloc_for(count, size, NOBODY)
    }

    [none: Blocks]
    unsafe extern "C" fn __libc_realloc(block: *mut c_void, size: usize) -> *mut c_void = unsafe {
        realloc_for(block, size, NOBODY)
    }

    [none: Blocks]
    unsafe extern "C" fn __libc_free(block: *mut c_void) = free;

    [none: Blocks]
    unsafe extern "C" fn __libc_memalign(align: usize, size: usize) -> *mut c_void = memalign;

    [none: Blocks]
    unsafe extern "C" fn __libc_valloc(size: usize) -> *mut c_void = valloc;

    [none: Blocks]
    unsafe extern "C" fn __libc_pvalloc(size: usize) -> *mut c_void = pvalloc;
}
