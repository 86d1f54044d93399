//! The gate: the one instruction by which system calls are made.
//!
//! A process whose calls are filtered by their addresses (`millpond-guard`) still changes its own arena: it protects,
//! drops and moves pages there. The filter lets everything pass that comes from one instruction. That instruction is
//! the gate. Without a filter there is no gate, and a call is made where it is needed.

use crate::arch;
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use rustix::io::Errno;

/// The address of the gate's code: a system call's instruction and a return. It is 0 where there is none.
static GATE: AtomicUsize = AtomicUsize::new(0);

/// Makes all system calls of this crate about memory at `gate` from now on.
///
/// # Safety
/// At `gate` lie a system call's instruction and a return, as long as the process.
pub unsafe fn set(gate: usize) {
    GATE.store(gate, Relaxed);
}

/// The answer of a call as the kernel gives it: the value, or the error.
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

/// Makes system call `number`, at the gate if there is one. The answer is the kernel's: an error is a number from
/// -4095 to -1.
///
/// # Safety
/// The conditions are those of the system call.
#[inline]
pub unsafe fn syscall(number: usize, args: [usize; 6]) -> isize {
    // SAFETY: the caller guarantees it, and who has set the gate that the code is there.
    unsafe {
        match GATE.load(Relaxed) {
            0 => arch::call(number, args),
            gate => arch::call_at(gate, number, args),
        }
    }
}

/// Makes system call `number` by an instruction of its own, which a filter looks at.
///
/// # Safety
/// The conditions are those of the system call.
#[inline]
pub unsafe fn unguarded(number: usize, args: [usize; 6]) -> isize {
    // SAFETY: the caller guarantees it.
    unsafe { arch::call(number, args) }
}
