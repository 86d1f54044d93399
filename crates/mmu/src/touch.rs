//! Touching memory that may be out, closed or gone, without harm.
//!
//! A program names memory to the kernel. It may be closed, or no memory at all: then the kernel answers with an error.
//! So who brings it in for the kernel may not fail either. [`touch`] reads a byte of each page by instructions that the
//! signal handlers know: a thread that faults there is served as always where the page is only out, and is sent on
//! where the page cannot be had ([`give_up`]).

use crate::arch::touch as routines;
use crate::interrupted::{go_on_at, instruction};
use millpond_core::PAGE_SIZE;

/// Reads a byte of each page of `start..end`, so that pages which are out come in. The answer is false at the first
/// page that cannot be read. SIGBUS and SIGSEGV must have handlers that call [`give_up`].
#[must_use]
pub fn touch(start: usize, end: usize) -> bool {
    let mut at = start;
    while at < end {
        // SAFETY: the routine reads one byte, and answers false where that faults.
        if !unsafe { routines::read(at) } {
            return false;
        }
        at = (at & !(PAGE_SIZE - 1)).saturating_add(PAGE_SIZE);
    }
    true
}

/// Copies `into.len()` bytes from `at`. The answer is false when some of them cannot be read; the bytes are of no use
/// then. The conditions are those of [`touch()`].
#[must_use]
pub fn read(at: usize, into: &mut [u8]) -> bool {
    // SAFETY: the routine writes as many bytes as the slice has, and answers false where it cannot read.
    unsafe { routines::copy(into.as_mut_ptr(), at, into.len()) }
}

/// Copies `from` to `at`, memory of the program's. The answer is false when some of it cannot be written. The
/// conditions are those of [`touch()`].
#[must_use]
pub fn write(at: usize, from: &[u8]) -> bool {
    // SAFETY: the program has asked for these bytes to be written there; the routine answers false where it cannot.
    unsafe { routines::copy(at as *mut u8, from.as_ptr() as usize, from.len()) }
}

/// Sends a thread that faulted in [`touch()`], [`read`] or [`write()`] to the end that answers false. This function
/// answers false for a thread that faulted elsewhere.
pub fn give_up(context: &mut libc::ucontext_t) -> bool {
    let line = routines::line();
    let is_ours = line.instructions.contains(&instruction(context));
    if is_ours {
        go_on_at(context, line.end);
    }
    is_ours
}
