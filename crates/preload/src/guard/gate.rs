//! The gate: a page of code with the one instruction that the filter lets everything pass from.
//!
//! It lies at a place of its own above the space, the same in all processes: the filter names its address, and is
//! inherited. Where something else lies there, there is no direct delivery. (Directly below the space, clisp has its
//! heap: up to 0x2000_0000_0000.)

use crate::raw;
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use millpond_mmu::gate;

/// The page's length.
pub const LEN: usize = 4096;
/// The page's address.
pub const START: usize = super::END;
/// The code: `syscall; ret`.
const CODE: [u8; 3] = [0x0f, 0x05, 0xc3];
/// The address that a call at the gate returns to, which is what a filter sees.
pub const RETURN: usize = START + 2;

/// The address of the gate's code for [`call`]. It is 0 until the gate is open.
static OPEN: AtomicUsize = AtomicUsize::new(0);

/// Maps the page, and makes all of this library's calls go through it.
///
/// # Errors
/// A line that says what the kernel refuses.
pub fn open() -> Result<(), String> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
    let prot = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: the kernel replaces no mapping.
    let made = unsafe { raw::mmap(START, LEN, prot, flags, -1, 0) };
    if made != Ok(START) {
        return Err(format!("the page at {START:#x} is taken"));
    }
    // SAFETY: the page was mapped just now, and is nobody else's.
    unsafe { core::ptr::copy_nonoverlapping(CODE.as_ptr(), START as *mut u8, CODE.len()) };
    // SAFETY: nothing relies on the page's protection.
    unsafe { raw::mprotect(START, LEN, libc::PROT_READ | libc::PROT_EXEC, None) }
        .map_err(|error| format!("the kernel makes no memory executable ({error})"))?;
    // SAFETY: the code is there, and stays as long as the process.
    unsafe { gate::set(START) };
    OPEN.store(START, Relaxed);
    Ok(())
}

/// Makes system call `number` at the gate, as [`raw::syscall`] does, but so that the thread may be cancelled in it: the
/// compiler takes this for a function that unwinds, and the unwinder finds its way through it. The answer is the
/// kernel's.
///
/// # Safety
/// The conditions are those of the system call.
#[inline]
pub unsafe fn call(number: i64, args: &[usize; 6]) -> isize {
    // SAFETY: the caller guarantees it.
    unsafe { sys::millpond_gate_call(number, args) }
}

#[cfg(target_arch = "x86_64")]
mod sys {
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
        open = sym super::OPEN,
        options(att_syntax)
    );

    unsafe extern "C-unwind" {
        pub(super) fn millpond_gate_call(number: i64, args: &[usize; 6]) -> isize;
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod sys {
    /// There is no filter for other architectures, and so no gate.
    ///
    /// # Safety
    /// The conditions are those of the system call.
    pub(super) unsafe extern "C-unwind" fn millpond_gate_call(
        number: i64,
        args: &[usize; 6],
    ) -> isize {
        // SAFETY: the caller guarantees it.
        unsafe { millpond_mmu::gate::syscall(number as usize, *args) }
    }
}
