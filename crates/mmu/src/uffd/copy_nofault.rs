//! Copying memory that may not be there, without waiting for it.
//!
//! A thread that must not wait for a store wants to know whether the memory that it needs is there. Asking first is
//! of no use: the memory may be gone a moment later. So the thread copies, and is sent on where a page is missing
//! ([`skip`](super::skip)). That needs neither a lock nor a system call, and the bytes that it got were there.
//!
//! The bytes are read and written as by any other thread of the program. A page that is being taken out meanwhile is
//! copied before that, or is missing. A page that may not be written (shared with a snapshot, or lazily freed) is
//! missing for a write.

use super::Uffd;

impl Uffd {
    /// Copies `len` bytes from `from` to `to`, of which one or both lie in the arena. The answer is false when a page
    /// is missing, or when that cannot be found out here; a part may be copied then.
    ///
    /// # Safety
    /// The conditions are those of [`std::ptr::copy_nonoverlapping`], but that memory of the arena may be absent.
    #[must_use]
    pub unsafe fn copy_nofault(&self, from: *const u8, to: *mut u8, len: usize) -> bool {
        // SAFETY: the caller guarantees it; with in-thread delivery the SIGBUS handler is in place, or there is no
        // fault yet.
        self.can_skip() && (len == 0 || unsafe { sys::copy_nofault(from, to, len) })
    }
}

#[cfg(target_arch = "x86_64")]
mod sys {
    use super::super::skip::Line;

    core::arch::global_asm!(
        ".pushsection .text.millpond_peek, \"ax\", @progbits",
        ".hidden millpond_peek, millpond_peek_copy, millpond_peek_fault, millpond_peek_skip",
        ".globl millpond_peek, millpond_peek_copy, millpond_peek_fault, millpond_peek_skip",
        ".type millpond_peek, @function",
        ".balign 64",
        "millpond_peek:",
        "    movq %rdx, %rcx",
        // A thread that faults here goes on at `millpond_peek_skip`.
        "millpond_peek_copy:",
        "    rep movsb",
        "millpond_peek_fault:",
        "    movl $1, %eax",
        "    ret",
        "millpond_peek_skip:",
        "    xorl %eax, %eax",
        "    ret",
        ".size millpond_peek, . - millpond_peek",
        ".popsection",
        options(att_syntax)
    );

    unsafe extern "C" {
        fn millpond_peek(to: *mut u8, from: *const u8, len: usize) -> bool;
        safe fn millpond_peek_copy();
        safe fn millpond_peek_fault();
        safe fn millpond_peek_skip();
    }

    /// # Safety
    /// The conditions are those of [`Uffd::copy_nofault`](super::Uffd::copy_nofault).
    pub(super) unsafe fn copy_nofault(from: *const u8, to: *mut u8, len: usize) -> bool {
        // SAFETY: the code above copies `len` bytes and touches only registers that a C function may change.
        unsafe { millpond_peek(to, from, len) }
    }

    pub(in super::super) fn line() -> Line {
        Line {
            stores: millpond_peek_copy as *const () as usize
                ..millpond_peek_fault as *const () as usize,
            end: millpond_peek_skip as *const () as usize,
        }
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod sys {
    /// # Safety
    /// There are no conditions; the function is never called.
    pub(super) unsafe fn copy_nofault(_from: *const u8, _to: *mut u8, _len: usize) -> bool {
        false
    }
}

#[cfg(target_arch = "x86_64")]
pub(super) use sys::line;
