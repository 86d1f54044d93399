//! System calls: the number in x8, the arguments in x0 to x5, the result in x0.

use core::arch::asm;

/// Makes system call `number` with an instruction of its own.
///
/// # Safety
/// The conditions are those of the system call.
pub(crate) unsafe fn call(number: usize, args: [usize; 6]) -> isize {
    let answer: isize;
    // SAFETY: the kernel preserves all registers but x0; the caller guarantees what the call does to memory.
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

/// Makes system call `number`. There is no filter on this processor, and so no gate.
///
/// # Safety
/// The conditions are those of the system call.
pub(crate) unsafe fn call_at(_gate: usize, number: usize, args: [usize; 6]) -> isize {
    // SAFETY: the caller guarantees it.
    unsafe { call(number, args) }
}
