//! `setcontext` and `swapcontext`: a context contains a signal mask.
//!
//! Coroutines are often created with all signals blocked, and the C library sets such a mask by its own instruction.
//! The next touch of an absent page would then end the process. So SIGBUS and SIGSYS are first removed from the
//! context's mask, and are blocked only in the program's eyes, as everywhere (`guard/signals/masks.rs`).
//!
//! The C library's functions save the registers and the stack of their caller, so our exports jump to them.

use crate::guard::has_signals;
use crate::guard::signals::actions::{set_word, word};
use crate::guard::signals::{never_blocked, this};
use core::ffi::c_int;
use core::sync::atomic::Ordering::Relaxed;
use libc::ucontext_t;

/// Adjusts a context so that a thread can safely continue in it, and returns the function to jump to.
unsafe extern "C" fn fit(context: *mut ucontext_t, swaps: bool) -> usize {
    if has_signals() && !context.is_null() {
        // The kernel's structure has a set of 64 signals there, followed by other fields.
        // SAFETY: the caller promises a context, which is its own.
        unsafe {
            let set = &mut (*context).uc_sigmask;
            let mask = word(set);
            this().masked.store(mask & never_blocked(), Relaxed);
            set_word(set, mask & !never_blocked());
        }
    }
    match swaps {
        true => SWAP.must() as *const () as usize,
        false => SET.must() as *const () as usize,
    }
}

exports! {
    real SET: unsafe extern "C" fn(*const ucontext_t) -> c_int = c"setcontext";
    real SWAP: unsafe extern "C" fn(*mut ucontext_t, *const ucontext_t) -> c_int = c"swapcontext";

    #[unsafe(naked)]
    [none: Thread]
    unsafe extern "C" fn setcontext(_to: *const ucontext_t) -> c_int {
        core::arch::naked_asm!(
            "push rdi",
            "xor esi, esi",
            "call {fit}",
            "pop rdi",
            "jmp rax",
            fit = sym fit,
        )
    }

    #[unsafe(naked)]
    [none: Thread]
    unsafe extern "C" fn swapcontext(_from: *mut ucontext_t, _to: *const ucontext_t) -> c_int {
        core::arch::naked_asm!(
            "push rdi",
            "push rsi",
            "sub rsp, 8",
            "mov rdi, rsi",
            "mov esi, 1",
            "call {fit}",
            "add rsp, 8",
            "pop rsi",
            "pop rdi",
            "jmp rax",
            fit = sym fit,
        )
    }
}
