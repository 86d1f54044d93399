//! Wrappers of calls that programs make often.
//!
//! A call that the filter stops costs a signal, almost 2 µs. Reading and writing is what programs do all day, with
//! buffers from `malloc`. And what a vector or a message names is not seen by the filter at all, which looks at the
//! arguments only. So the functions for that are replaced. Where nothing that the call touches lies in the space, or
//! there is no direct delivery, they call the C library's. Otherwise the memory is held and the call made at the gate.
//! That costs no signal.
//!
//! | file | functions |
//! | --- | --- |
//! | `io` | `read`, `write`, `pread`, `pwrite` |
//! | `vectors` | `readv`, `writev`, `preadv`, `pwritev` and their successors |
//! | `net` | `send`, `recv` and their relatives with addresses and with messages |
//! | `poll` | `poll`, `select`, `epoll_wait` |
//! | `copies` | `process_vm_readv`, `process_vm_writev` |
//! | `devices` | `ioctl` |
//! | `rings` | `io_uring` and the kernel's asynchronous I/O, which are refused |
//!
//! They are cancellation points, as in the C library ([`super::cancel`]), and so are of the ABI that unwinds.
//!
//! The C library's own calls (`fread`, `getline`) do not come here. They are stopped by the filter where the buffer
//! of a stream lies in the space, a buffer's length at a time. The few places where it makes calls with vectors have
//! them name memory of its own stack.

pub mod copies;
mod devices;
mod io;
mod net;
mod poll;
mod rings;
mod vectors;

pub use rings::{are_linked as rings_are_linked, refuse};

use super::real;
use core::ffi::c_void;

/// Looks the C library's functions up. The program must not run yet.
pub fn find() {
    for functions in [
        devices::FUNCTIONS,
        io::FUNCTIONS,
        vectors::FUNCTIONS,
        net::FUNCTIONS,
        poll::FUNCTIONS,
        super::cancel::FUNCTIONS,
    ] {
        real::find(functions);
    }
}

/// Whether the kernel's touch of one of several addresses must be prepared.
#[inline]
fn concern(addresses: &[*const c_void]) -> bool {
    super::is_on()
        && addresses
            .iter()
            .any(|at| crate::space::contains(*at as usize))
}

/// Ends the process as the C library does where a buffer is too short for what it is to take.
#[cold]
fn overflow() -> ! {
    unsafe extern "C" {
        fn __chk_fail() -> !;
    }
    // SAFETY: the C library's function of this name takes nothing and does not return.
    unsafe { __chk_fail() }
}
