//! `execl` and its relatives, whose arguments are in registers and on the stack.
//!
//! The routines here store the registers below the arguments on the stack, so that they form the list, and continue
//! in the functions that take a list. In `execle` the list is followed by the environment.

use crate::guard::children::exec::{Texts, execv, execve, execvp};
use core::ffi::{c_char, c_int};

/// `execle` with its arguments as a list, whose null is followed by the environment.
unsafe extern "C" fn execle_with(path: *const c_char, argv: Texts) -> c_int {
    let mut at = argv;
    // SAFETY: the caller guarantees a list that ends with a null, followed by the environment.
    unsafe {
        while !at.read().is_null() {
            at = at.add(1);
        }
        execve(path, argv, at.add(1).read().cast())
    }
}

/// Continues in `$with` with a list of the arguments after the path. The registers go below the arguments on the
/// stack, in the slot of the return address and under it.
macro_rules! listed {
    ($with:path) => {
        core::arch::naked_asm!(
            "pop rax",
            "push r9",
            "push r8",
            "push rcx",
            "push rdx",
            "push rsi",
            "mov rsi, rsp",
            "push rax",
            "call {with}",
            "pop r11",
            "add rsp, 40",
            "push r11",
            "ret",
            with = sym $with,
        )
    };
}

exports! {
    #[unsafe(naked)]
    [execve: Held]
    unsafe extern "C" fn execl(_path: *const c_char) -> c_int {
        listed!(execv)
    }

    #[unsafe(naked)]
    [execve: Held]
    unsafe extern "C" fn execlp(_path: *const c_char) -> c_int {
        listed!(execvp)
    }

    #[unsafe(naked)]
    [execve: Held]
    unsafe extern "C" fn execle(_path: *const c_char) -> c_int {
        listed!(execle_with)
    }
}
