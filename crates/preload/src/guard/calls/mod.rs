//! Wrappers of calls that programs make often.
//!
//! A call that the filter stops costs a signal, almost 2 µs. Programs read and write all day, with buffers from
//! `malloc`. The filter, which sees only the arguments, cannot see the memory that a vector or a message names. So we
//! replace the functions for these. If nothing that the call touches lies in the space, or there is no direct
//! delivery, they call the C library's. Otherwise the memory is held and the call is made at the gate, which costs no
//! signal.
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
//! They are cancellation points, as in the C library ([`super::cancel`]), and therefore have the ABI that unwinds.
//!
//! The C library's own calls (`fread`, `getline`) bypass these wrappers. If the buffer of a stream lies in the space,
//! the filter stops them, once per buffer length. In the few places where the C library makes calls with vectors,
//! these name memory on its own stack.

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

/// Looks up the C library's functions. The program must not be running yet.
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

/// Returns whether the kernel's access to one of several addresses must be prepared.
#[inline]
fn concern(addresses: &[*const c_void]) -> bool {
    super::is_on()
        && addresses
            .iter()
            .any(|at| crate::space::contains(*at as usize))
}

/// Ends the process as the C library does when a buffer is too short for the data.
#[cold]
fn overflow() -> ! {
    unsafe extern "C" {
        fn __chk_fail() -> !;
    }
    // SAFETY: the C library's function of this name takes nothing and does not return.
    unsafe { __chk_fail() }
}
