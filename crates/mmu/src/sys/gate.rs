//! The gate: the single instruction that makes our system calls.
//!
//! A process whose calls are filtered by address (`millpond-guard`) still changes its own arena: it protects, drops
//! and moves pages there. There is one instruction from which the filter allows every system call: the gate. Without
//! a filter there is no gate, and each call is made in place.

use crate::arch;
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use rustix::io::Errno;

/// The address of the gate's code: a system call instruction and a return. 0 if there is no gate.
static GATE: AtomicUsize = AtomicUsize::new(0);

/// Makes all of this crate's memory system calls through `gate` from now on.
///
/// # Safety
/// At `gate` there are a system call instruction and a return, as long as the process lives.
pub unsafe fn set(gate: usize) {
    GATE.store(gate, Relaxed);
}

/// Converts a call's raw result into the value, or the error.
///
/// # Errors
/// The kernel's error.
#[inline]
pub fn check(answer: isize) -> Result<usize, Errno> {
    if (-4095..0).contains(&answer) {
        Err(Errno::from_raw_os_error(-answer as i32))
    } else {
        Ok(answer as usize)
    }
}

/// Makes system call `number`, through the gate if there is one. Returns the kernel's raw result: an error is a
/// number from -4095 to -1.
///
/// # Safety
/// The conditions are those of the system call.
#[inline]
pub unsafe fn syscall(number: usize, args: [usize; 6]) -> isize {
    // SAFETY: the caller guarantees it; whoever set the gate guarantees that the code is there.
    unsafe {
        match GATE.load(Relaxed) {
            0 => arch::call(number, args),
            gate => arch::call_at(gate, number, args),
        }
    }
}

/// Makes system call `number` with an instruction of its own, which a filter examines.
///
/// # Safety
/// The conditions are those of the system call.
#[inline]
pub unsafe fn unguarded(number: usize, args: [usize; 6]) -> isize {
    // SAFETY: the caller guarantees it.
    unsafe { arch::call(number, args) }
}
