//! `execl` and its relatives, whose arguments lie in registers and on the stack.
//!
//! The routines here put the registers below the stack's part, where they form the list, and go on with the functions
//! that take a list. A list in the middle of `execle` is followed by the environment.

use crate::guard::children::exec::{Texts, execv, execve, execvp};
use core::ffi::{c_char, c_int};

/// `execle` with its arguments as a list, behind whose null the environment is named.
unsafe extern "C" fn execle_with(path: *const c_char, argv: Texts) -> c_int {
    let mut at = argv;
    // SAFETY: the caller guarantees a list that ends with a null, and the environment behind it.
    unsafe {
        while !at.read().is_null() {
            at = at.add(1);
        }
        execve(path, argv, at.add(1).read().cast())
    }
}

/// Goes on in `$with` with a list of the arguments behind the path. The registers go below the arguments on the stack,
/// in the place of the return address and under it.
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
