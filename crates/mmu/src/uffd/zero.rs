//! Zeroing memory that may not be there, without asking the core.
//!
//! The core knows whether a page is mapped, behind its lock. A thread of the program that takes that lock has to
//! block its signals first: two system calls, 0.65 µs, half of the cost of zeroing 64 KiB. So a range that is given
//! back is zeroed without asking. Where a page is missing, the fault must not bring in contents that are about to be
//! dropped: a thread that faults here is sent to the end that answers false ([`skip`](super::skip)).
//!
//! The stores are like those of any other thread of the program. A page that is being taken out meanwhile gets them
//! before, or they fault.

use super::Uffd;
use millpond_core::PageRange;

impl Uffd {
    /// Zeroes the pages of `at` if all of them are mapped. The answer is false when one is missing, or when that
    /// cannot be found out here; some may be zeroed then.
    ///
    /// # Safety
    /// `at` lies in the arena, is writable by the program where it is mapped, and no reference to its bytes is in use.
    #[must_use]
    pub unsafe fn zero_if_mapped(&self, at: PageRange) -> bool {
        // SAFETY: the caller guarantees it; with in-thread delivery the SIGBUS handler is in place, or there is no
        // fault yet.
        self.can_skip()
            && unsafe { zero_if_mapped(self.at(at.start) as *mut u8, at.len.bytes() as usize) }
    }
}

#[cfg(target_arch = "x86_64")]
mod sys {
    use super::super::skip::Line;

    core::arch::global_asm!(
        ".pushsection .text.millpond_zero, \"ax\", @progbits",
        ".hidden millpond_zero, millpond_zero_fault, millpond_zero_skip",
        ".globl millpond_zero, millpond_zero_fault, millpond_zero_skip",
        ".type millpond_zero, @function",
        ".balign 64",
        "millpond_zero:",
        "    pxor %xmm0, %xmm0",
        "    addq %rdi, %rsi",
        // From here to `millpond_zero_fault` a thread that faults goes on at `millpond_zero_skip`. The stores go past
        // the caches, as in `zero_in_place.rs`.
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

    /// # Safety
    /// The conditions are those of [`Uffd::zero_if_mapped`](super::Uffd::zero_if_mapped). Also, `at` is aligned to a
    /// page, and `len` is a multiple of pages and not 0.
    pub(super) unsafe fn zero_if_mapped(at: *mut u8, len: usize) -> bool {
        // SAFETY: the code above stores to `len` bytes from `at` and touches only registers that a C function may
        // change.
        unsafe { millpond_zero(at, len) }
    }

    pub(in super::super) fn line() -> Line {
        Line {
            stores: millpond_zero as *const () as usize..millpond_zero_fault as *const () as usize,
            end: millpond_zero_skip as *const () as usize,
        }
    }
}

/// On other processors the core is always asked first: zeroing without asking is a matter of speed.
#[cfg(not(target_arch = "x86_64"))]
mod sys {
    /// # Safety
    /// There are no conditions; the function is never called.
    pub(super) unsafe fn zero_if_mapped(_at: *mut u8, _len: usize) -> bool {
        false
    }
}

#[cfg(target_arch = "x86_64")]
pub(super) use sys::line;
use sys::zero_if_mapped;
