//! Calls that the kernel finishes later are refused: `io_uring`, and the asynchronous I/O of `libaio`.
//!
//! What such a call is to read or write is named in a ring that both sides map, and touched by the kernel when it gets
//! to it. No filter sees the addresses, and memory that is out then makes the operation fail with `EFAULT`. To hold all
//! that is in the ring would mean to follow it. So the rings are refused, as by a kernel without them, and programs
//! turn to threads or `epoll`. Sandboxes refuse them too, so programs are used to it.
//!
//! They are refused where they are asked for by a function: `syscall` of the C library, `liburing`, `libaio`. A program
//! that makes the call by an instruction of its own, with its parameters outside of the space, gets its ring;
//! operations on memory that is out then fail with `EFAULT`. (The filter could refuse the number, but it is
//! inherited, and a child that has no managed memory would lose its rings without a word.)

use crate::dlopen::find_next;
use crate::guard::is_on;
use core::ffi::{c_int, c_long, c_uint, c_void};
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Whether a call by number is refused, with `ENOSYS`. Says so once. `mark` is the third argument, by which the store's
/// own reads are known.
pub fn refuse(number: c_long, mark: usize) -> bool {
    let is_asked = match number {
        libc::SYS_io_uring_setup => true,
        libc::SYS_io_setup => mark != millpond::IO_OF_STORE,
        _ => false,
    };
    let is_refused = is_asked && is_on();
    if is_refused {
        say();
    }
    is_refused
}

/// Whether a library for such rings is linked to the program. That is a hint, and no proof: many programs can do
/// without. Those that make rings by `syscall` are not known.
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

/// The answer of a library that is asked for a ring: the error by itself.
fn refused() -> c_int {
    say();
    -libc::ENOSYS
}

exports! {
    /// It refuses under direct delivery.
    [io_setup: Held]
    unsafe extern "C" fn io_setup(count: c_int, context: *mut c_void) -> c_int {
        type Setup = unsafe extern "C" fn(c_int, *mut c_void) -> c_int;
        if is_on() {
            return refused();
        }
        match find_next(c"io_setup") {
            // SAFETY: the library's function of this name has this type; the caller guarantees the rest.
            Some(real) => unsafe { core::mem::transmute::<usize, Setup>(real)(count, context) },
            None => -libc::ENOSYS,
        }
    }

    /// It refuses under direct delivery.
    [io_setup: Held]
    unsafe extern "C" fn io_queue_init(count: c_int, context: *mut c_void) -> c_int {
        type Setup = unsafe extern "C" fn(c_int, *mut c_void) -> c_int;
        if is_on() {
            return refused();
        }
        match find_next(c"io_queue_init") {
            // SAFETY: the library's function of this name has this type; the caller guarantees the rest.
            Some(real) => unsafe { core::mem::transmute::<usize, Setup>(real)(count, context) },
            None => -libc::ENOSYS,
        }
    }

    /// It refuses under direct delivery.
    [io_uring_setup: Held]
    unsafe extern "C" fn io_uring_queue_init(
        entries: c_uint,
        ring: *mut c_void,
        flags: c_uint,
    ) -> c_int {
        type Setup = unsafe extern "C" fn(c_uint, *mut c_void, c_uint) -> c_int;
        if is_on() {
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

    /// It refuses under direct delivery.
    [io_uring_setup: Held]
    unsafe extern "C" fn io_uring_queue_init_params(
        entries: c_uint,
        ring: *mut c_void,
        params: *mut c_void,
    ) -> c_int {
        type Setup = unsafe extern "C" fn(c_uint, *mut c_void, *mut c_void) -> c_int;
        if is_on() {
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
