//! jemalloc's own interface, for programs that link its shared library.
//!
//! Debian's `redis-server` is such a program. Like its calls of `malloc`, its calls of this interface bind to this
//! library. They must, because blocks of one interface are freed through the other.

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

exports! {
    [none: Blocks]
    unsafe extern "C" fn mallocx(size: usize, flags: c_int) -> *mut c_void {
        if !wants_internal() {
            jemalloc::before_block(size);
            // SAFETY: the caller guarantees what this call needs.
            return unsafe { je::mallocx(size, flags) };
        }
        if flags & ZERO != 0 && align_of(flags) <= 16 {
            // SAFETY: any size may be requested.
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

    [none: Blocks]
    unsafe extern "C" fn rallocx(block: *mut c_void, size: usize, flags: c_int) -> *mut c_void {
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

    [none: Blocks]
    unsafe extern "C" fn xallocx(
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

    [none: Blocks]
    unsafe extern "C" fn sallocx(block: *const c_void, _flags: c_int) -> usize = unsafe {
        malloc_usable_size(block.cast_mut())
    }

    [none: Blocks]
    unsafe extern "C" fn dallocx(block: *mut c_void, flags: c_int) = unsafe {
        match of(block, "dallocx") {
            Owner::Program => je::dallocx(block, flags),
            Owner::Internal => free(block),
        }
    }

    [none: Blocks]
    unsafe extern "C" fn sdallocx(block: *mut c_void, size: usize, flags: c_int) = unsafe {
        match of(block, "sdallocx") {
            Owner::Program => je::sdallocx(block, size, flags),
            Owner::Internal => free(block),
        }
    }

    [none: Blocks]
    unsafe extern "C" fn nallocx(size: usize, flags: c_int) -> usize = je::nallocx;

    [none: Blocks]
    unsafe extern "C" fn mallctl(
        name: *const c_char,
        old: *mut c_void,
        old_len: *mut usize,
        new: *mut c_void,
        new_len: usize,
    ) -> c_int = je::mallctl;

    [none: Blocks]
    unsafe extern "C" fn mallctlnametomib(
        name: *const c_char,
        mib: *mut usize,
        mib_len: *mut usize,
    ) -> c_int = je::mallctlnametomib;

    [none: Blocks]
    unsafe extern "C" fn mallctlbymib(
        mib: *const usize,
        mib_len: usize,
        old: *mut c_void,
        old_len: *mut usize,
        new: *mut c_void,
        new_len: usize,
    ) -> c_int = je::mallctlbymib;

    [none: Blocks]
    unsafe extern "C" fn malloc_stats_print(
        write: Option<unsafe extern "C" fn(*mut c_void, *const c_char)>,
        argument: *mut c_void,
        options: *const c_char,
    ) = je::malloc_stats_print;
}
