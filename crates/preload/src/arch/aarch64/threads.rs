//! A thread's own resources: its pointer, its words, its stack.

use core::arch::{asm, global_asm};
use core::ffi::c_void;

/// Returns the thread pointer.
#[inline]
pub fn thread_pointer() -> usize {
    let pointer: usize;
    // SAFETY: this reads a register.
    unsafe {
        asm!("mrs {}, tpidr_el0", out(reg) pointer, options(nostack, nomem, preserves_flags));
    }
    pointer
}

/// Returns the address of the calling thread's table of thread-local blocks (`dtv`).
pub fn tls_table() -> usize {
    // SAFETY: the thread pointer points to the table's address.
    unsafe { *(thread_pointer() as *const usize) }
}

global_asm!(
    ".pushsection .text.millpond_this_thread, \"ax\", @progbits",
    ".hidden millpond_this_thread",
    ".globl millpond_this_thread",
    ".type millpond_this_thread, @function",
    "millpond_this_thread:",
    "    mrs x0, tpidr_el0",
    "    adrp x1, :gottprel:millpond_thread",
    "    ldr x1, [x1, :gottprel_lo12:millpond_thread]",
    "    add x0, x0, x1",
    "    ret",
    ".size millpond_this_thread, . - millpond_this_thread",
    ".popsection",
);

global_asm!(
    ".pushsection .text.millpond_on_given, \"ax\", @progbits",
    ".hidden millpond_on_given",
    ".globl millpond_on_given",
    ".type millpond_on_given, @function",
    "millpond_on_given:",
    "    .cfi_startproc",
    "    stp x29, x30, [sp, #-16]!",
    "    .cfi_def_cfa_offset 16",
    "    .cfi_offset x29, -16",
    "    .cfi_offset x30, -8",
    "    mov x29, sp",
    "    .cfi_def_cfa x29, 16",
    "    mov sp, x2",
    "    blr x1",
    "    mov sp, x29",
    "    ldp x29, x30, [sp], #16",
    "    .cfi_def_cfa sp, 0",
    "    ret",
    "    .cfi_endproc",
    ".size millpond_on_given, . - millpond_on_given",
    ".popsection",
);

unsafe extern "C" {
    /// Returns the address of `millpond_thread` in the calling thread's storage.
    safe fn millpond_this_thread() -> *const c_void;
}

unsafe extern "C-unwind" {
    /// Calls `start` with `argument` on the stack that ends at `top`.
    fn millpond_on_given(argument: *mut c_void, start: Unwound, top: usize) -> *mut c_void;
}

/// A thread's function, which may unwind.
pub type Unwound = extern "C-unwind" fn(*mut c_void) -> *mut c_void;

/// Returns the address of this library's words for the calling thread, laid out in `guard/signals/thread.rs`.
#[inline]
pub fn this_thread() -> *const c_void {
    millpond_this_thread()
}

/// Calls `start` with `argument` on the stack that ends at `top`.
///
/// # Safety
/// There is enough memory below `top`, and nobody else uses it.
pub unsafe fn on_given(argument: *mut c_void, start: Unwound, top: usize) -> *mut c_void {
    // SAFETY: the caller guarantees the stack. The code above preserves what a C function must preserve.
    unsafe { millpond_on_given(argument, start, top) }
}
