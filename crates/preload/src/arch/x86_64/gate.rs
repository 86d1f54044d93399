//! The gate's code, and the path through it on which a thread may be cancelled.

use core::sync::atomic::AtomicUsize;

/// The code: `syscall; ret`.
pub const CODE: [u8; 3] = [0x0f, 0x05, 0xc3];
/// The offset from the gate's first instruction to the return address of a call, which is what a filter sees.
pub const RETURN: usize = 2;

/// The address of the gate's code for [`call`]; 0 until the gate is open.
pub static OPEN: AtomicUsize = AtomicUsize::new(0);

core::arch::global_asm!(
    ".pushsection .text.millpond_gate, \"ax\", @progbits",
    ".hidden millpond_gate_call",
    ".globl millpond_gate_call",
    ".type millpond_gate_call, @function",
    ".balign 16",
    "millpond_gate_call:",
    ".cfi_startproc",
    "    movq %rdi, %rax",
    "    movq %rsi, %r11",
    "    movq (%r11), %rdi",
    "    movq 8(%r11), %rsi",
    "    movq 16(%r11), %rdx",
    "    movq 24(%r11), %r10",
    "    movq 32(%r11), %r8",
    "    movq 40(%r11), %r9",
    "    movq {open}(%rip), %rcx",
    "    testq %rcx, %rcx",
    "    jz 2f",
    "    jmpq *%rcx",
    "2:",
    "    syscall",
    "    ret",
    ".cfi_endproc",
    ".size millpond_gate_call, . - millpond_gate_call",
    ".popsection",
    open = sym OPEN,
    options(att_syntax)
);

unsafe extern "C-unwind" {
    fn millpond_gate_call(number: i64, args: &[usize; 6]) -> isize;
}

/// Makes system call `number` at the gate, if it is open.
///
/// # Safety
/// The conditions are those of the system call.
#[inline]
pub unsafe fn call(number: i64, args: &[usize; 6]) -> isize {
    // SAFETY: the caller guarantees this.
    unsafe { millpond_gate_call(number, args) }
}

/// The unwinder's description of all instructions of the gate, in the form of the common part of `.eh_frame`: the
/// frame's address is the stack pointer plus 8, and the return address lies directly below it.
pub const FRAME: [u8; 24] = [
    20, 0, 0, 0, // The length after this field.
    0, 0, 0, 0, // This is the common part.
    1, b'z', b'R', 0, // The version, and the augmentation.
    1, 0x78, 16, // Units of code (1) and data (-8), and the register of the return address.
    1, 0, // One more byte: addresses are absolute.
    0x0c, 7, 8, // DW_CFA_def_cfa: register 7 (the stack pointer) plus 8.
    0x90, 1, // DW_CFA_offset: register 16 lies one unit below.
    0, 0,
];
