//! Zeroes and copies memory of the arena where pages may be missing.
//!
//! A thread that faults between a routine's first load or store and its `_fault` continues at its `_skip`
//! ([`lines`]), and the routine returns false.

use crate::arch::Line;

core::arch::global_asm!(
    ".pushsection .text.millpond_zero, \"ax\", @progbits",
    ".hidden millpond_zero, millpond_zero_fault, millpond_zero_skip",
    ".globl millpond_zero, millpond_zero_fault, millpond_zero_skip",
    ".type millpond_zero, @function",
    ".balign 64",
    "millpond_zero:",
    "    pxor %xmm0, %xmm0",
    "    addq %rdi, %rsi",
    // From here to `millpond_zero_fault` a thread that faults continues at `millpond_zero_skip`. The stores bypass
    // the caches, as in [`zero`].
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

core::arch::global_asm!(
    ".pushsection .text.millpond_peek, \"ax\", @progbits",
    ".hidden millpond_peek, millpond_peek_copy, millpond_peek_fault, millpond_peek_skip",
    ".globl millpond_peek, millpond_peek_copy, millpond_peek_fault, millpond_peek_skip",
    ".type millpond_peek, @function",
    ".balign 64",
    "millpond_peek:",
    "    movq %rdx, %rcx",
    // A thread that faults here continues at `millpond_peek_skip`.
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
    fn millpond_zero(at: *mut u8, len: usize) -> bool;
    safe fn millpond_zero_fault();
    safe fn millpond_zero_skip();
    fn millpond_peek(to: *mut u8, from: *const u8, len: usize) -> bool;
    safe fn millpond_peek_copy();
    safe fn millpond_peek_fault();
    safe fn millpond_peek_skip();
}

/// # Safety
/// The conditions are those of `Common::zero_if_mapped`. Also, `at` is aligned to a page,
/// and `len` is a multiple of pages and not 0.
pub(crate) unsafe fn zero_if_mapped(at: *mut u8, len: usize) -> bool {
    // SAFETY: the code above stores to `len` bytes from `at` and only changes registers that a C function may change.
    unsafe { millpond_zero(at, len) }
}

/// # Safety
/// The conditions are those of `Common::copy_nofault`.
pub(crate) unsafe fn copy_nofault(from: *const u8, to: *mut u8, len: usize) -> bool {
    // SAFETY: the code above copies `len` bytes and only changes registers that a C function may change.
    unsafe { millpond_peek(to, from, len) }
}

/// Returns the instructions of the two routines that may fault.
pub(crate) fn lines() -> [Line; 2] {
    let line = |first: *const (), fault: *const (), skip: *const ()| Line {
        instructions: first as usize..fault as usize,
        end: skip as usize,
    };
    [
        line(
            millpond_zero as *const (),
            millpond_zero_fault as *const (),
            millpond_zero_skip as *const (),
        ),
        line(
            millpond_peek_copy as *const (),
            millpond_peek_fault as *const (),
            millpond_peek_skip as *const (),
        ),
    ]
}

/// # Safety
/// `at` is page-aligned, `len` is a multiple of the page size, the range is mapped writable, and no reference to it
/// is in use.
pub(crate) unsafe fn zero(at: *mut u8, len: usize) {
    use core::arch::x86_64::{__m128i, _mm_setzero_si128, _mm_sfence, _mm_stream_si128};
    // SAFETY: the stores stay within the range, which is aligned; the fence orders them before the store that tells
    // other threads that the memory is free.
    unsafe {
        let zero = _mm_setzero_si128();
        let mut to = at.cast::<__m128i>();
        let end = at.add(len).cast::<__m128i>();
        while to < end {
            _mm_stream_si128(to, zero);
            _mm_stream_si128(to.add(1), zero);
            _mm_stream_si128(to.add(2), zero);
            _mm_stream_si128(to.add(3), zero);
            to = to.add(4);
        }
        _mm_sfence();
    }
}
