//! Touching memory that may be out, closed or gone, without harm.
//!
//! A program names memory to the kernel. It may be closed, or no memory at all: then the kernel answers with an error.
//! So who brings it in for the kernel may not fail either. [`touch`] reads a byte of each page by instructions that the
//! signal handlers know: a thread that faults there is served as always where the page is only out, and is sent on
//! where the page cannot be had ([`give_up`]).

use crate::interrupted::{go_on_at, instruction};
use millpond_core::PAGE_SIZE;

/// Reads a byte of each page of `start..end`, so that pages which are out come in. The answer is false at the first
/// page that cannot be read. SIGBUS and SIGSEGV must have handlers that call [`give_up`].
#[must_use]
pub fn touch(start: usize, end: usize) -> bool {
    let mut at = start;
    while at < end {
        // SAFETY: the routine reads one byte, and answers false where that faults.
        if !unsafe { sys::read(at) } {
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
    unsafe { sys::copy(into.as_mut_ptr(), at, into.len()) }
}

/// Copies `from` to `at`, memory of the program's. The answer is false when some of it cannot be written. The
/// conditions are those of [`touch()`].
#[must_use]
pub fn write(at: usize, from: &[u8]) -> bool {
    // SAFETY: the program has asked for these bytes to be written there; the routine answers false where it cannot.
    unsafe { sys::copy(at as *mut u8, from.as_ptr() as usize, from.len()) }
}

/// Sends a thread that faulted in [`touch()`], [`read`] or [`write()`] to the end that answers false. This function
/// answers false for a thread that faulted elsewhere.
pub fn give_up(context: &mut libc::ucontext_t) -> bool {
    let (range, end) = sys::line();
    let is_ours = range.contains(&instruction(context));
    if is_ours {
        go_on_at(context, end);
    }
    is_ours
}

/// The two routines. Both answer true at their end. A thread that faults between the first instruction and
/// `millpond_touch_fault` is sent to `millpond_touch_skip`, which answers false.
mod sys {
    #[cfg(target_arch = "x86_64")]
    core::arch::global_asm!(
        ".pushsection .text.millpond_touch, \"ax\", @progbits",
        ".hidden millpond_touch, millpond_touch_copy, millpond_touch_fault, millpond_touch_skip",
        ".globl millpond_touch, millpond_touch_copy, millpond_touch_fault, millpond_touch_skip",
        ".type millpond_touch, @function",
        ".type millpond_touch_copy, @function",
        ".balign 64",
        "millpond_touch:",
        "    movb (%rdi), %al",
        "    movl $1, %eax",
        "    ret",
        ".size millpond_touch, . - millpond_touch",
        "millpond_touch_copy:",
        "    movq %rdx, %rcx",
        "    rep movsb",
        "    movl $1, %eax",
        "millpond_touch_fault:",
        "    ret",
        "millpond_touch_skip:",
        "    xorl %eax, %eax",
        "    ret",
        ".size millpond_touch_copy, . - millpond_touch_copy",
        ".popsection",
        options(att_syntax)
    );

    #[cfg(target_arch = "aarch64")]
    core::arch::global_asm!(
        ".pushsection .text.millpond_touch, \"ax\", @progbits",
        ".hidden millpond_touch, millpond_touch_copy, millpond_touch_fault, millpond_touch_skip",
        ".globl millpond_touch, millpond_touch_copy, millpond_touch_fault, millpond_touch_skip",
        ".type millpond_touch, @function",
        ".type millpond_touch_copy, @function",
        ".balign 64",
        "millpond_touch:",
        "    ldrb w1, [x0]",
        "    mov w0, #1",
        "    ret",
        ".size millpond_touch, . - millpond_touch",
        "millpond_touch_copy:",
        "    cbz x2, 2f",
        "1:",
        "    ldrb w3, [x1], #1",
        "    strb w3, [x0], #1",
        "    subs x2, x2, #1",
        "    b.ne 1b",
        "2:",
        "    mov w0, #1",
        "millpond_touch_fault:",
        "    ret",
        "millpond_touch_skip:",
        "    mov w0, #0",
        "    ret",
        ".size millpond_touch_copy, . - millpond_touch_copy",
        ".popsection",
    );

    unsafe extern "C" {
        fn millpond_touch(at: usize) -> bool;
        fn millpond_touch_copy(to: *mut u8, from: usize, len: usize) -> bool;
        safe fn millpond_touch_fault();
        safe fn millpond_touch_skip();
    }

    /// # Safety
    /// The handlers of SIGBUS and SIGSEGV call `give_up`.
    pub(super) unsafe fn read(at: usize) -> bool {
        // SAFETY: the code above reads one byte and changes only registers that a C function may change.
        unsafe { millpond_touch(at) }
    }

    /// # Safety
    /// `to` has room for `len` bytes, or is memory that the program wants written. The handlers of SIGBUS and SIGSEGV
    /// call `give_up`.
    pub(super) unsafe fn copy(to: *mut u8, from: usize, len: usize) -> bool {
        // SAFETY: the code above copies `len` bytes and changes only registers that a C function may change.
        unsafe { millpond_touch_copy(to, from, len) }
    }

    /// The addresses of the instructions that may fault, and where a thread that faults there goes on.
    pub(super) fn line() -> (core::ops::Range<usize>, usize) {
        let start = millpond_touch as *const () as usize;
        let end = millpond_touch_fault as *const () as usize;
        (start..end, millpond_touch_skip as *const () as usize)
    }
}
