//! `malloc` and its relatives, as the C library specifies them.
//!
//! Each function chooses between two allocators: jemalloc for the program, and the internal one for callers that must
//! not have managed memory (see [`crate::internal_alloc`]). The choices at allocation and at `free` take a few loads
//! and compares each.
//!
//! One of these callers is the dynamic linker, recognised by the address that it calls from. Its blocks hold the
//! descriptions of the loaded libraries and each thread's table of thread-local blocks; creating a thread reads and
//! writes all of these. The child of a fork creates threads before anything serves its faults, and the blocks must be
//! present. So `malloc`, `calloc` and `realloc` start with one instruction that reads the caller's address.

use crate::owner::{Owner, of};
use crate::threads::{internal_block, wants_internal};
use crate::{arch, decay, filters, internal_alloc, jemalloc, linker, raw, realloc};
use core::ffi::{c_int, c_void};
use core::mem::transmute;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};
use rustix::io::Errno;
use tikv_jemalloc_sys as je;

const PAGE: usize = 4096;
/// The alignment of every block.
const NATURAL: usize = 16;

/// The size that identifies the C library's second level of thread-specific data: `calloc(32, 16)`. In a child
/// process the C library clears the second levels of threads that are gone before any fork handler runs, so they must
/// be ordinary memory.
const KEY_LEVEL: (usize, usize) = (32, 16);

/// Whether the process uses another `malloc` than ours.
static IS_ANOTHERS: AtomicBool = AtomicBool::new(false);

/// Finds out whose `malloc` the process uses. Called once, before the space is there: until then all of our blocks are
/// internal ones.
pub fn find() {
    // SAFETY: the name is a C string.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"malloc".as_ptr()) } as usize;
    IS_ANOTHERS.store(
        found != malloc as *const () as usize && !leads_here(found),
        Relaxed,
    );
}

/// Returns whether the process uses another `malloc` than ours, linked into the program or loaded before us. In that
/// case the dynamic linker and the C library get their blocks from it, in managed memory.
pub fn is_anothers() -> bool {
    IS_ANOTHERS.load(Relaxed)
}

/// Returns whether this address is a stub that jumps to our `malloc`. A program that does not run at any address, and
/// takes the address of `malloc`, has a stub of its own for it, and the dynamic linker gives everybody the stub's
/// address. Debian's `python3` is such a program.
fn leads_here(found: usize) -> bool {
    type Malloc = unsafe extern "C" fn(usize) -> *mut c_void;
    type Free = unsafe extern "C" fn(*mut c_void);
    // SAFETY: the dynamic linker found a function of this name; the name of the other one is a C string.
    let (allocate, release) = unsafe {
        let release = libc::dlsym(libc::RTLD_DEFAULT, c"free".as_ptr());
        (
            transmute::<usize, Option<Malloc>>(found),
            transmute::<*mut c_void, Option<Free>>(release),
        )
    };
    let (Some(allocate), Some(release)) = (allocate, release) else {
        return false;
    };
    // SAFETY: these are the process's allocator, which the dynamic linker has used already.
    unsafe {
        let block = allocate(1);
        let is_ours = internal_alloc::owns(block as usize);
        release(block);
        is_ours
    }
}

exports! {
    #[unsafe(naked)]
    [none: Blocks]
    unsafe extern "C" fn malloc(size: usize) -> *mut c_void {
        arch::caller_as_second!(malloc_for)
    }

    #[unsafe(naked)]
    [none: Blocks]
    unsafe extern "C" fn calloc(count: usize, size: usize) -> *mut c_void {
        arch::caller_as_third!(calloc_for)
    }

    [none: Blocks]
    unsafe extern "C" fn free(block: *mut c_void) {
        if block.is_null() {
            return;
        }
        match of(block, "free") {
            Owner::Program => {
                decay::follow();
                // SAFETY: jemalloc allocated the block, and the program frees it.
                unsafe { je::free(block) }
            }
            // When a program ends, the C library frees its table of exit handlers. The program may have forbidden
            // itself the calls with which we block signals, so the block is not freed.
            Owner::Internal if filters::are_set() => {}
            // SAFETY: the internal allocator allocated the block, and the program frees it.
            Owner::Internal => unsafe { internal_alloc::release(block.cast()) },
        }
    }

    #[unsafe(naked)]
    [none: Blocks]
    unsafe extern "C" fn realloc(block: *mut c_void, size: usize) -> *mut c_void {
        arch::caller_as_third!(realloc_for)
    }

    [none: Blocks]
    unsafe extern "C" fn reallocarray(
        block: *mut c_void,
        count: usize,
        size: usize,
    ) -> *mut c_void = unsafe {
        match count.checked_mul(size) {
            Some(total) => realloc(block, total),
            None => {
                raw::set_errno(Errno::NOMEM);
                null_mut()
            }
        }
    }

    /// An alignment that is not a power of two is rounded up.
    [none: Blocks]
    unsafe extern "C" fn memalign(align: usize, size: usize) -> *mut c_void {
        let Some(align) = align.max(NATURAL).checked_next_power_of_two() else {
            raw::set_errno(Errno::INVAL);
            return null_mut();
        };
        if wants_internal() {
            return internal_block(size, align);
        }
        jemalloc::before_block(size);
        if align == NATURAL {
            // SAFETY: any size may be requested.
            return unsafe { je::malloc(size) };
        }
        // SAFETY: the alignment is a power of two.
        unsafe { je::aligned_alloc(align, size) }
    }

    /// The same as `memalign`: an alignment that is not a power of two is rounded up, as in glibc up to 2.37. Later
    /// versions of glibc refuse it.
    [none: Blocks]
    unsafe extern "C" fn aligned_alloc(align: usize, size: usize) -> *mut c_void = memalign;

    [none: Blocks]
    unsafe extern "C" fn posix_memalign(
        result: *mut *mut c_void,
        align: usize,
        size: usize,
    ) -> c_int {
        if !align.is_power_of_two() || !align.is_multiple_of(size_of::<usize>()) {
            return libc::EINVAL;
        }
        if !wants_internal() {
            jemalloc::before_block(size);
            // SAFETY: the caller guarantees what this call needs; jemalloc leaves `errno` alone.
            return unsafe { je::posix_memalign(result, align, size) };
        }
        let block = internal_alloc::allocate(size, align);
        if block.is_null() {
            return libc::ENOMEM;
        }
        // SAFETY: the caller promises room for the result.
        unsafe { *result = block.cast() };
        0
    }

    [none: Blocks]
    unsafe extern "C" fn valloc(size: usize) -> *mut c_void {
        // SAFETY: the alignment is a power of two.
        unsafe { memalign(PAGE, size) }
    }

    [none: Blocks]
    unsafe extern "C" fn pvalloc(size: usize) -> *mut c_void {
        match size.max(1).checked_next_multiple_of(PAGE) {
            // SAFETY: the alignment is a power of two.
            Some(size) => unsafe { memalign(PAGE, size) },
            None => {
                raw::set_errno(Errno::NOMEM);
                null_mut()
            }
        }
    }

    [none: Blocks]
    unsafe extern "C" fn malloc_usable_size(block: *mut c_void) -> usize {
        if block.is_null() {
            return 0;
        }
        match of(block, "malloc_usable_size") {
            // SAFETY: jemalloc allocated the block, and it is live.
            Owner::Program => unsafe { je::malloc_usable_size(block) },
            // SAFETY: the internal allocator allocated the block, and it is live.
            Owner::Internal => unsafe { internal_alloc::size_of_block(block.cast()) },
        }
    }
}

pub unsafe extern "C" fn malloc_for(size: usize, caller: usize) -> *mut c_void {
    if wants_internal() || linker::contains(caller) {
        return internal_block(size, NATURAL);
    }
    if realloc::is_large(size) {
        return realloc::allocate(size, false);
    }
    // SAFETY: any size may be requested.
    unsafe { je::malloc(size) }
}

pub unsafe extern "C" fn calloc_for(count: usize, size: usize, caller: usize) -> *mut c_void {
    if wants_internal() || (count, size) == KEY_LEVEL || linker::contains(caller) {
        let block = count
            .checked_mul(size)
            .map_or(null_mut(), internal_alloc::allocate_zeroed);
        if block.is_null() {
            raw::set_errno(Errno::NOMEM);
        }
        return block.cast();
    }
    match count.checked_mul(size) {
        Some(total) if realloc::is_large(total) => realloc::allocate(total, true),
        // SAFETY: any sizes may be requested.
        _ => unsafe { je::calloc(count, size) },
    }
}

pub unsafe extern "C" fn realloc_for(
    block: *mut c_void,
    size: usize,
    caller: usize,
) -> *mut c_void {
    if block.is_null() {
        // SAFETY: any size may be requested.
        return unsafe { malloc_for(size, caller) };
    }
    if of(block, "realloc") == Owner::Program {
        decay::follow();
        if realloc::is_large(size) {
            // SAFETY: jemalloc allocated the block, and it is live.
            return unsafe { realloc::reallocate(block, size) };
        }
        // SAFETY: jemalloc allocated the block, and the program frees it.
        return unsafe { je::realloc(block, size) };
    }
    let allocate = |size| match linker::contains(caller) {
        true => internal_block(size, NATURAL),
        // SAFETY: any size may be requested.
        false => unsafe { memalign(NATURAL, size) },
    };
    // SAFETY: the caller guarantees this for an internal block.
    unsafe { move_to(block, size, allocate) }
}

/// Resizes a block of the internal allocator and gives it the owner that a new block would have.
///
/// # Safety
/// The block is live and the internal allocator owns it.
pub unsafe fn move_internal(block: *mut c_void, size: usize, align: usize) -> *mut c_void {
    // SAFETY: the caller guarantees this; `align` is a power of two.
    unsafe { move_to(block, size, |size| memalign(align, size)) }
}

unsafe fn move_to(
    block: *mut c_void,
    size: usize,
    allocate: impl FnOnce(usize) -> *mut c_void,
) -> *mut c_void {
    if size == 0 {
        // SAFETY: the program frees the block.
        unsafe { internal_alloc::release(block.cast()) };
        return null_mut();
    }
    // SAFETY: the block is live.
    let old = unsafe { internal_alloc::size_of_block(block.cast()) };
    let new = allocate(size);
    if !new.is_null() {
        // SAFETY: both blocks have this many bytes and are not the same.
        unsafe {
            new.cast::<u8>()
                .copy_from_nonoverlapping(block.cast(), old.min(size));
            internal_alloc::release(block.cast());
        }
    }
    new
}
