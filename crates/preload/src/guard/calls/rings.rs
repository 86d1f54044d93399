//! Refuses calls that the kernel finishes later: `io_uring`, and the asynchronous I/O of `libaio`.
//!
//! The memory that such a call reads or writes is named in a ring that both sides map, and the kernel touches it when
//! it gets around to it. No filter sees the addresses, and if the memory is absent at that point the operation fails
//! with `EFAULT`. To hold everything named in the ring we would have to track it. So we refuse the rings, like a
//! kernel without them, and programs fall back on threads or `epoll`. Sandboxes refuse them too, so programs are used
//! to it.
//!
//! We refuse them when they are requested through a function: the C library's `syscall`, `liburing`, `libaio`. A
//! program that makes the call by its own instruction, with its parameters outside the space, gets its ring;
//! operations on absent memory then fail with `EFAULT`. (The filter could refuse the number, but filters are
//! inherited, and a child that has no managed memory would silently lose its rings.)

use crate::dlopen::find_next;
use crate::guard::is_on_for_good;
use core::ffi::{c_int, c_long, c_uint, c_void};
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Returns whether a call by number is refused, with `ENOSYS`, and prints a line the first time. `mark` is the third
/// argument, which identifies the store's own reads.
pub fn refuse(number: c_long, mark: usize) -> bool {
    let is_asked = match number {
        libc::SYS_io_uring_setup => true,
        libc::SYS_io_setup => mark != millpond::IO_OF_STORE,
        _ => false,
    };
    let is_refused = is_asked && is_on_for_good();
    if is_refused {
        say();
    }
    is_refused
}

/// Returns whether a library for such rings is linked to the program. That is a hint, not proof: many programs can do
/// without rings. It misses programs that create rings by `syscall`.
pub fn are_linked() -> bool {
    [c"io_uring_queue_init", c"io_setup"]
        .into_iter()
        .any(|name| find_next(name).is_some())
}

#[cold]
fn say() {
    static IS_SAID: AtomicBool = AtomicBool::new(false);
    if !IS_SAID.swap(true, Relaxed) {
        millpond_mmu::report::line(format_args!(
            "io_uring and asynchronous I/O of the kernel are refused (ENOSYS) where faults are served in the thread \
             that faults; --delivery handler allows them"
        ));
    }
}

/// Returns what a library returns when it is asked for a ring: the bare error.
fn refused() -> c_int {
    say();
    -libc::ENOSYS
}

exports! {
    /// Refuses under direct delivery.
    [io_setup: Held]
    unsafe extern "C" fn io_setup(count: c_int, context: *mut c_void) -> c_int {
        type Setup = unsafe extern "C" fn(c_int, *mut c_void) -> c_int;
        if is_on_for_good() {
            return refused();
        }
        match find_next(c"io_setup") {
            // SAFETY: the library's function of this name has this type; the caller guarantees the rest.
            Some(real) => unsafe { core::mem::transmute::<usize, Setup>(real)(count, context) },
            None => -libc::ENOSYS,
        }
    }

    /// Refuses under direct delivery.
    [io_setup: Held]
    unsafe extern "C" fn io_queue_init(count: c_int, context: *mut c_void) -> c_int {
        type Setup = unsafe extern "C" fn(c_int, *mut c_void) -> c_int;
        if is_on_for_good() {
            return refused();
        }
        match find_next(c"io_queue_init") {
            // SAFETY: the library's function of this name has this type; the caller guarantees the rest.
            Some(real) => unsafe { core::mem::transmute::<usize, Setup>(real)(count, context) },
            None => -libc::ENOSYS,
        }
    }

    /// Refuses under direct delivery.
    [io_uring_setup: Held]
    unsafe extern "C" fn io_uring_queue_init(
        entries: c_uint,
        ring: *mut c_void,
        flags: c_uint,
    ) -> c_int {
        type Setup = unsafe extern "C" fn(c_uint, *mut c_void, c_uint) -> c_int;
        if is_on_for_good() {
            return refused();
        }
        match find_next(c"io_uring_queue_init") {
            // SAFETY: the library's function of this name has this type; the caller guarantees the rest.
            Some(real) => unsafe {
                core::mem::transmute::<usize, Setup>(real)(entries, ring, flags)
            },
            None => -libc::ENOSYS,
        }
    }

    /// Refuses under direct delivery.
    [io_uring_setup: Held]
    unsafe extern "C" fn io_uring_queue_init_params(
        entries: c_uint,
        ring: *mut c_void,
        params: *mut c_void,
    ) -> c_int {
        type Setup = unsafe extern "C" fn(c_uint, *mut c_void, *mut c_void) -> c_int;
        if is_on_for_good() {
            return refused();
        }
        match find_next(c"io_uring_queue_init_params") {
            // SAFETY: the library's function of this name has this type; the caller guarantees the rest.
            Some(real) => unsafe {
                core::mem::transmute::<usize, Setup>(real)(entries, ring, params)
            },
            None => -libc::ENOSYS,
        }
    }
}
