//! Zeroing memory that may not be there, without asking anybody.
//!
//! Whether a page is mapped is known to the core, behind its lock; and a thread of the program that takes that lock has
//! to block its signals first: two system calls, 0.65 µs, half of what zeroing 64 KiB costs. So a range that is given
//! back is zeroed without asking. Where a page is missing, the fault must not bring in what is about to be dropped. The
//! kernel has the same difficulty with user memory under a lock, and its answer is the exception table: an instruction
//! that may fault has a place to go on at when it does. The table here has one line: the SIGBUS handler sends whoever
//! faults in [`zero_if_mapped`] to the end that answers false ([`skip`]).
//!
//! The stores are those of any other writer of the program. A page that is being taken out meanwhile gets them before,
//! or faults.
//!
//! With handler delivery no signal comes, and other processors have other registers: [`can_skip`] says no.

use super::Uffd;
use crate::delivery::Delivery;
use millpond_core::PageRange;

impl Uffd {
    /// Zeroes the pages of `at` if all of them are mapped. False when one is missing, or when that cannot be found out
    /// here; some may be zeroed then.
    ///
    /// # Safety
    /// `at` lies in the arena, is writable by the program where it is mapped, and no reference to its bytes is in use.
    #[must_use]
    pub unsafe fn zero_if_mapped(&self, at: PageRange) -> bool {
        // SAFETY: the caller's promise; with in-thread delivery the SIGBUS handler is in place, or there is no fault
        // yet.
        self.delivery() == Delivery::InThread
            && can_skip()
            && unsafe { zero_if_mapped(self.at(at.start) as *mut u8, at.len.bytes() as usize) }
    }
}

#[cfg(target_arch = "x86_64")]
mod sys {
    core::arch::global_asm!(
        ".pushsection .text.millpond_zero, \"ax\", @progbits",
        ".hidden millpond_zero, millpond_zero_fault, millpond_zero_skip",
        ".globl millpond_zero, millpond_zero_fault, millpond_zero_skip",
        ".type millpond_zero, @function",
        ".balign 64",
        "millpond_zero:",
        "    pxor %xmm0, %xmm0",
        "    addq %rdi, %rsi",
        // From here to `millpond_zero_fault` a fault goes on at `millpond_zero_skip`. Past the caches, as in
        // `blank.rs`.
        "2:  movntdq %xmm0, (%rdi)",
        "    movntdq %xmm0, 16(%rdi)",
        "    movntdq %xmm0, 32(%rdi)",
        "    movntdq %xmm0, 48(%rdi)",
        "    addq $64, %rdi",
        "    cmpq %rsi, %rdi",
        "    jb 2b",
        "millpond_zero_fault:",
        "    sfence",
        "    movl $1, %eax",
        "    ret",
        "millpond_zero_skip:",
        "    sfence",
        "    xorl %eax, %eax",
        "    ret",
        ".size millpond_zero, . - millpond_zero",
        ".popsection",
        options(att_syntax)
    );

    unsafe extern "C" {
        fn millpond_zero(at: *mut u8, len: usize) -> bool;
        safe fn millpond_zero_fault();
        safe fn millpond_zero_skip();
    }

    pub(super) const fn can_skip() -> bool {
        true
    }

    /// # Safety
    /// As [`Uffd::zero_if_mapped`](super::Uffd::zero_if_mapped); `at` is aligned to a page, `len` pages and not 0.
    pub(super) unsafe fn zero_if_mapped(at: *mut u8, len: usize) -> bool {
        // SAFETY: the code above stores to `len` bytes from `at` and touches only registers that a C function may
        // change.
        unsafe { millpond_zero(at, len) }
    }

    /// Where a thread that faulted in [`zero_if_mapped`] goes on; false when it faulted elsewhere.
    pub(crate) fn skip(context: &mut libc::ucontext_t) -> bool {
        let at = &mut context.uc_mcontext.gregs[libc::REG_RIP as usize];
        let stores = millpond_zero as *const () as i64..millpond_zero_fault as *const () as i64;
        let inside = stores.contains(at);
        if inside {
            *at = millpond_zero_skip as *const () as i64;
        }
        inside
    }
}

/// Other processors ask the core first: zeroing without doing so is a matter of speed.
#[cfg(not(target_arch = "x86_64"))]
mod sys {
    pub(super) const fn can_skip() -> bool {
        false
    }

    /// # Safety
    /// None; never called.
    pub(super) unsafe fn zero_if_mapped(_at: *mut u8, _len: usize) -> bool {
        false
    }

    pub(crate) fn skip(_context: &mut libc::ucontext_t) -> bool {
        false
    }
}

pub(crate) use sys::skip;
use sys::{can_skip, zero_if_mapped};
