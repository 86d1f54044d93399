//! Safely touching memory that may be out, closed or gone.
//!
//! A program passes addresses to the kernel. If the memory there is closed or does not exist, the kernel returns an
//! error. So bringing that memory in for the kernel must not crash either. [`touch`] reads a byte of each page with
//! instructions that the signal handlers know: a thread that faults there is served as usual if the page is only out,
//! and skips to the end if the page is not available ([`give_up`]).

use crate::arch::touch as routines;
use crate::interrupted::{go_on_at, instruction};
use millpond_core::PAGE_SIZE;

/// Reads a byte of each page of `start..end`, so that absent pages come in. Returns false at the first page that
/// cannot be read. SIGBUS and SIGSEGV must have handlers that call [`give_up`].
#[must_use]
pub fn touch(start: usize, end: usize) -> bool {
    let mut at = start;
    while at < end {
        // SAFETY: the routine reads one byte, and returns false if that faults.
        if !unsafe { routines::read(at) } {
            return false;
        }
        at = (at & !(PAGE_SIZE - 1)).saturating_add(PAGE_SIZE);
    }
    true
}

/// Copies `into.len()` bytes from `at`. Returns false if some of them cannot be read; the buffer's contents are
/// useless then. The conditions are those of [`touch()`].
#[must_use]
pub fn read(at: usize, into: &mut [u8]) -> bool {
    // SAFETY: the routine writes as many bytes as the slice has, and returns false if it cannot read.
    unsafe { routines::copy(into.as_mut_ptr(), at, into.len()) }
}

/// Copies `from` to `at`, which is the program's memory. Returns false if some of it cannot be written. The
/// conditions are those of [`touch()`].
#[must_use]
pub fn write(at: usize, from: &[u8]) -> bool {
    // SAFETY: the program requested that these bytes be written there; the routine returns false if it cannot.
    unsafe { routines::copy(at as *mut u8, from.as_ptr() as usize, from.len()) }
}

/// Makes a thread that faulted in [`touch()`], [`read`] or [`write()`] continue at the end that returns false. This
/// function itself returns false for a thread that faulted elsewhere.
pub fn give_up(context: &mut libc::ucontext_t) -> bool {
    let line = routines::line();
    let is_ours = line.instructions.contains(&instruction(context));
    if is_ours {
        go_on_at(context, line.end);
    }
    is_ours
}
