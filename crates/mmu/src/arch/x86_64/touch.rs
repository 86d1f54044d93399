//! The two routines of [`crate::touch`]. Both return true at their end. A thread that faults between the first
//! instruction and `millpond_touch_fault` continues at `millpond_touch_skip`, which returns false.

use crate::arch::Line;

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

unsafe extern "C" {
    fn millpond_touch(at: usize) -> bool;
    fn millpond_touch_copy(to: *mut u8, from: usize, len: usize) -> bool;
    safe fn millpond_touch_fault();
    safe fn millpond_touch_skip();
}

/// # Safety
/// The handlers of SIGBUS and SIGSEGV call `give_up`.
pub(crate) unsafe fn read(at: usize) -> bool {
    // SAFETY: the code above reads one byte and only changes registers that a C function may change.
    unsafe { millpond_touch(at) }
}

/// # Safety
/// `to` has room for `len` bytes, or is memory that the program wants written. The handlers of SIGBUS and SIGSEGV
/// call `give_up`.
pub(crate) unsafe fn copy(to: *mut u8, from: usize, len: usize) -> bool {
    // SAFETY: the code above copies `len` bytes and only changes registers that a C function may change.
    unsafe { millpond_touch_copy(to, from, len) }
}

/// The instructions that may fault, and where a thread that faults there continues.
pub(crate) fn line() -> Line {
    Line {
        instructions: millpond_touch as *const () as usize
            ..millpond_touch_fault as *const () as usize,
        end: millpond_touch_skip as *const () as usize,
    }
}
