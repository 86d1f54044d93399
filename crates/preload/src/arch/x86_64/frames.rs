//! The frames of the program's handlers, and the stacks that they lie on.
//!
//! The kernel writes a frame below the thread's stack pointer. If the stack of a coroutine or thread is in managed
//! memory, that page may be absent, and the process is killed. (The first signal on a new stack was enough.) So we
//! ask the kernel to write all frames on alternate stacks, which are ours. From there a frame is moved to where the
//! program wants it. If the action asks for an alternate stack and the program has set one, the frame stays.
//! Otherwise it is copied below the stack pointer of the interrupted code, by instructions that may fault, and the
//! thread continues from the copy: it enters the program's handler with the registers and the return address that the
//! kernel would have given it there.
//!
//! A frame also stays if the kernel did not switch stacks: the thread is already on its alternate stack, or has none.
//!
//! *The way back.* The kernel reads the frame when the handler returns. Before that, a few instructions in place of
//! the C library's bring in a copy in managed memory and hold it. The thread cannot release that hold, since it is
//! elsewhere by then; its next hold does, or its end.

use crate::guard::holds::pages;
use crate::guard::signals::handlers::{Chosen, choose};
use crate::guard::signals::{RAISED, this};
use crate::{raw, space};
use core::ffi::{c_int, c_void};
use core::sync::atomic::Ordering::Relaxed;
use millpond_mmu::interrupted::stack_pointer;
use millpond_mmu::{Held, touch};

/// The frame: the return address, the context (the part that the kernel writes), the siginfo.
const CONTEXT: usize = 8;
const INFO: usize = CONTEXT + 304;
const FRAME: usize = INFO + 128;
/// The bytes below the stack pointer that belong to the interrupted code.
const RED_ZONE: usize = 128;
/// The maximum length of a processor state that is copied.
const MOST: usize = 64 << 10;
/// The stack position of a hold that any later hold of the thread finds abandoned.
const LEFT: usize = 1;

// The entry calls `millpond_signal_place`, which returns the frame and the handler in two registers. The stack
// pointer is that of a function that has just been called, with the frame's return address on top.
core::arch::global_asm!(
    ".pushsection .text.millpond_signal_entry, \"ax\", @progbits",
    ".hidden millpond_signal_entry, millpond_signal_return",
    ".globl millpond_signal_entry, millpond_signal_return",
    ".type millpond_signal_entry, @function",
    "millpond_signal_entry:",
    "    .cfi_startproc",
    "    pushq %rbp",
    "    .cfi_def_cfa_offset 16",
    "    .cfi_offset %rbp, -16",
    "    movq %rsp, %rbp",
    "    .cfi_def_cfa_register %rbp",
    "    pushq %rdi",
    "    pushq %rsi",
    "    pushq %rdx",
    "    subq $8, %rsp",
    "    leaq 8(%rbp), %rcx",
    "    callq {place}",
    "    movq -8(%rbp), %rdi",
    "    movq -16(%rbp), %rsi",
    "    movq -24(%rbp), %r8",
    "    leaq 8(%rbp), %rcx",
    "    cmpq %rax, %rcx",
    "    je 2f",
    "    leaq {info}(%rax), %rsi",
    "    leaq {context}(%rax), %r8",
    "2:",
    "    movq (%rbp), %rbp",
    "    movq %rax, %rsp",
    "    .cfi_def_cfa %rsp, 8",
    "    .cfi_restore %rbp",
    "    movq %rdx, %r11",
    "    movq %r8, %rdx",
    "    xorl %eax, %eax",
    "    jmpq *%r11",
    "    .cfi_endproc",
    ".size millpond_signal_entry, . - millpond_signal_entry",
    ".type millpond_signal_return, @function",
    "millpond_signal_return:",
    "    movq %rsp, %rdi",
    "    callq {hold}",
    "    movq ${sigreturn}, %rax",
    "    syscall",
    ".size millpond_signal_return, . - millpond_signal_return",
    ".popsection",
    place = sym place,
    hold = sym hold,
    info = const INFO,
    context = const CONTEXT,
    sigreturn = const libc::SYS_rt_sigreturn,
    options(att_syntax)
);

unsafe extern "C" {
    safe fn millpond_signal_entry();
    safe fn millpond_signal_return();
}

/// Returns the address of the handler that the kernel gets in place of the program's.
pub fn entry() -> usize {
    millpond_signal_entry as *const () as usize
}

/// Where a handler is to start.
#[repr(C)]
struct Placed {
    frame: usize,
    handler: usize,
}

/// Chooses how to handle a signal, and on which stack.
unsafe extern "C-unwind" fn place(
    signal: c_int,
    info: *mut libc::siginfo_t,
    context: *mut libc::ucontext_t,
    frame: usize,
) -> Placed {
    // SAFETY: the kernel passes a siginfo and the interrupted context.
    let Chosen { handler, stays } = unsafe { choose(signal, info, context) };
    let is_known = info as usize == frame + INFO && context as usize == frame + CONTEXT;
    if stays || !is_known {
        return Placed { frame, handler };
    }
    // SAFETY: the context is the kernel's and lies in the frame.
    let moved = unsafe { moved(&*context, frame) };
    Placed {
        frame: moved.unwrap_or(frame),
        handler,
    }
}

/// Returns the range of the processor state that belongs to a context.
///
/// # Safety
/// The kernel has written the context, or it is a copy of one that the kernel wrote.
unsafe fn state(context: &libc::ucontext_t) -> Option<(usize, usize)> {
    /// The offset of the kernel's own words in the state, and the number that they start with if the state is long.
    const WORDS: usize = 464;
    const LONG: u32 = 0x4650_5853;
    let at = context.uc_mcontext.fpregs as usize;
    if at == 0 {
        return None;
    }
    // SAFETY: a state has at least 512 bytes, and the first two of the kernel's words say whether it has more.
    let [mark, len] = unsafe { ((at + WORDS) as *const [u32; 2]).read_unaligned() };
    Some((at, if mark == LONG { len as usize } else { 512 }))
}

/// Copies a frame below the stack pointer of the code that it has interrupted. Returns the copy's address, or `None`
/// if the frame stays.
unsafe fn moved(context: &libc::ucontext_t, frame: usize) -> Option<usize> {
    let interrupted = stack_pointer(context);
    let words = this();
    let (stack, len) = (words.stack.load(Relaxed), words.stack_len.load(Relaxed));
    let is_on = |at: usize| at.wrapping_sub(stack) <= len;
    if stack == 0 || !is_on(frame) || is_on(interrupted) {
        return None;
    }
    // SAFETY: the context is the kernel's.
    let (from, state_len) = unsafe { state(context) }.filter(|&(_, len)| len <= MOST)?;
    let to = (interrupted - RED_ZONE - state_len) & !63;
    let copy = ((to - FRAME) & !15) - 8;
    // SAFETY: nothing on the stack below the red zone is in use, and the two copies do not overlap. If the stack has
    // no room, this faults, just as the kernel would have refused to write there.
    unsafe {
        core::ptr::copy_nonoverlapping(from as *const u8, to as *mut u8, state_len);
        core::ptr::copy_nonoverlapping(frame as *const u8, copy as *mut u8, FRAME);
        let context = (copy + CONTEXT) as *mut libc::ucontext_t;
        (&raw mut (*context).uc_mcontext.fpregs).write(to as *mut _);
        if space::contains(copy) || space::contains(to) {
            (copy as *mut usize).write(millpond_signal_return as *const () as usize);
        }
    }
    Some(copy)
}

/// Brings in a frame that the kernel is about to read, and holds it.
unsafe extern "C" fn hold(context: *const libc::ucontext_t) {
    let mask = !RAISED;
    let args = [
        libc::SIG_SETMASK as usize,
        &raw const mask as usize,
        0,
        8,
        0,
        0,
    ];
    // SAFETY: the kernel reads a set that lives here. The mask is replaced once the handler has returned.
    let _ = unsafe { raw::syscall(libc::SYS_rt_sigprocmask, args) };
    let start = context as usize - CONTEXT;
    // SAFETY: the context is a copy of the kernel's.
    let end = unsafe { state(&*context) }.map_or(start + FRAME, |(at, len)| at + len);
    let pages = pages(start, end - start);
    if let Some(held) = Held::first(pages.start, pages.end, LEFT) {
        core::mem::forget(held);
    }
    let _ = touch(start, end);
}

/// A handler that does nothing.
pub extern "C" fn nothing(_: c_int, _: *mut libc::siginfo_t, _: *mut c_void) {}
