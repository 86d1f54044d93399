//! A thread's own resources: its pointer, its words, its stack.

use core::arch::{asm, global_asm};
use core::ffi::c_void;

/// Returns the thread pointer.
#[inline]
pub fn thread_pointer() -> usize {
    let pointer: usize;
    // SAFETY: this reads a register: the first word that fs points to is its own address, by the ABI.
    unsafe {
        asm!("mov {}, fs:0", out(reg) pointer, options(nostack, readonly, preserves_flags));
    }
    pointer
}

/// Returns the address of the calling thread's table of thread-local blocks (`dtv`).
pub fn tls_table() -> usize {
    let table: usize;
    // SAFETY: the second word of the thread control block is the table's address.
    unsafe { asm!("mov {}, fs:8", out(reg) table, options(nostack, readonly)) };
    table
}

global_asm!(
    ".pushsection .text.millpond_this_thread, \"ax\", @progbits",
    ".hidden millpond_this_thread",
    ".globl millpond_this_thread",
    ".type millpond_this_thread, @function",
    "millpond_this_thread:",
    "    movq %fs:0, %rax",
    "    addq millpond_thread@gottpoff(%rip), %rax",
    "    ret",
    ".size millpond_this_thread, . - millpond_this_thread",
    ".popsection",
    options(att_syntax)
);

global_asm!(
    ".pushsection .text.millpond_on_given, \"ax\", @progbits",
    ".hidden millpond_on_given",
    ".globl millpond_on_given",
    ".type millpond_on_given, @function",
    "millpond_on_given:",
    "    .cfi_startproc",
    "    pushq %rbp",
    "    .cfi_def_cfa_offset 16",
    "    .cfi_offset %rbp, -16",
    "    movq %rsp, %rbp",
    "    .cfi_def_cfa_register %rbp",
    "    movq %rdx, %rsp",
    "    callq *%rsi",
    "    movq %rbp, %rsp",
    "    popq %rbp",
    "    .cfi_def_cfa %rsp, 8",
    "    ret",
    "    .cfi_endproc",
    ".size millpond_on_given, . - millpond_on_given",
    ".popsection",
    options(att_syntax)
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
