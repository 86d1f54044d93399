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
