//! System calls: the number in rax, the arguments in rdi, rsi, rdx, r10, r8 and r9, the result in rax.

use core::arch::asm;

/// Makes system call `number` with an instruction of its own.
///
/// # Safety
/// The conditions are those of the system call.
#[inline]
pub(crate) unsafe fn call(number: usize, args: [usize; 6]) -> isize {
    let answer: isize;
    // SAFETY: the kernel preserves all registers but rax, rcx and r11; the caller guarantees what the call does to
    // memory.
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

/// Makes system call `number` through the code at `gate`: `syscall` and a return.
///
/// # Safety
/// That code is there. The other conditions are those of the system call.
#[inline]
pub(crate) unsafe fn call_at(gate: usize, number: usize, args: [usize; 6]) -> isize {
    let answer: isize;
    // SAFETY: the kernel preserves all registers but rax, rcx and r11, and the gate changes no others; the caller
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
