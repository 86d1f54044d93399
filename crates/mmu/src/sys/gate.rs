//! The gate: the one instruction by which system calls are made.
//!
//! A process whose calls are filtered by their addresses (`millpond-guard`) still changes its own arena: it protects,
//! drops and moves pages there. The filter lets everything pass that comes from one instruction. That instruction is
//! the gate. Without a filter there is no gate, and a call is made where it is needed.

use core::arch::asm;
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use rustix::io::Errno;

/// The address of the gate's code: `syscall` and a return. It is 0 where there is none.
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
#[cfg(target_arch = "x86_64")]
#[inline]
pub unsafe fn syscall(number: usize, args: [usize; 6]) -> isize {
    let gate = GATE.load(Relaxed);
    if gate == 0 {
        // SAFETY: the caller guarantees it.
        return unsafe { unguarded(number, args) };
    }
    let answer: isize;
    // SAFETY: the kernel keeps all registers but rax, rcx and r11, and the gate changes no others; the caller
    // guarantees what the call does to memory.
    unsafe {
        asm!(
            "call r11",
            inlateout("rax") number as isize => answer,
            in("rdi") args[0],
            in("rsi") args[1],
            in("rdx") args[2],
            in("r10") args[3],
            in("r8") args[4],
            in("r9") args[5],
            inlateout("r11") gate => _,
            lateout("rcx") _,
        );
    }
    answer
}

/// Makes system call `number` by an instruction of its own, which a filter looks at.
///
/// # Safety
/// The conditions are those of the system call.
#[cfg(target_arch = "x86_64")]
#[inline]
pub unsafe fn unguarded(number: usize, args: [usize; 6]) -> isize {
    let answer: isize;
    // SAFETY: the kernel keeps all registers but rax, rcx and r11; the caller guarantees what the call does to memory.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") number as isize => answer,
            in("rdi") args[0],
            in("rsi") args[1],
            in("rdx") args[2],
            in("r10") args[3],
            in("r8") args[4],
            in("r9") args[5],
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
    answer
}

/// Makes system call `number`. There is no filter for this architecture, and so no gate.
///
/// # Safety
/// The conditions are those of the system call.
#[cfg(not(target_arch = "x86_64"))]
pub unsafe fn syscall(number: usize, args: [usize; 6]) -> isize {
    // SAFETY: the caller guarantees it.
    unsafe { unguarded(number, args) }
}

/// Makes system call `number`.
///
/// # Safety
/// The conditions are those of the system call.
#[cfg(target_arch = "aarch64")]
pub unsafe fn unguarded(number: usize, args: [usize; 6]) -> isize {
    let answer: isize;
    // SAFETY: the kernel keeps all registers but x0; the caller guarantees what the call does to memory.
    unsafe {
        asm!(
            "svc 0",
            in("x8") number,
            inlateout("x0") args[0] as isize => answer,
            in("x1") args[1],
            in("x2") args[2],
            in("x3") args[3],
            in("x4") args[4],
            in("x5") args[5],
            options(nostack),
        );
    }
    answer
}

/// Nothing is called on other architectures.
///
/// # Safety
/// There are no conditions.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
pub unsafe fn unguarded(_: usize, _: [usize; 6]) -> isize {
    -(linux_raw_sys::errno::ENOSYS as isize)
}
