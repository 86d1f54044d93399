//! The frames of the program's handlers, and the stacks that they lie on.
//!
//! The kernel writes a frame where the thread stands: below its stack pointer. With a coroutine's or a thread's stack
//! in managed memory that page may be out, and the process is killed (the first signal on a new stack did it). So the
//! kernel is asked to write all frames on alternate stacks, which are ours. From there a frame goes on to where the
//! program wants it. If its action asks for an alternate stack and it has set one, the frame stays. If not, it is
//! copied below the stack pointer of the interrupted code, by instructions that may fault, and the thread goes on
//! from the copy: it enters the program's handler with the registers and the return address that the kernel would
//! have given it there.
//!
//! A frame stays, too, where the kernel did not switch stacks: the thread is on its alternate stack already, or has
//! none.
//!
//! *The way back.* The kernel reads the frame when the handler returns. A copy in managed memory is brought in and held
//! before that, by a few instructions in place of the C library's. The hold cannot be given back by a thread that is
//! elsewhere then; the thread's next hold does it, or its end.

use crate::guard::holds::pages;
use crate::guard::signals::handlers::{Chosen, choose};
use crate::guard::signals::{RAISED, this};
use crate::{raw, space};
use core::ffi::{c_int, c_void};
use core::sync::atomic::Ordering::Relaxed;
use millpond_mmu::interrupted::stack_pointer;
use millpond_mmu::{Held, touch};

/// The frame: the return address, the context (as far as the kernel writes it), the siginfo.
const CONTEXT: usize = 8;
const INFO: usize = CONTEXT + 304;
const FRAME: usize = INFO + 128;
/// The bytes below the stack pointer that belong to the interrupted code.
const RED_ZONE: usize = 128;
/// The longest state of a processor that is copied.
const MOST: usize = 64 << 10;
/// The place on the stack of a hold that any later one of the thread finds left.
const LEFT: usize = 1;

// The entry calls `millpond_signal_place`, which answers by two registers: the frame and the handler. The stack
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

/// The address of the handler that the kernel gets in place of the program's.
pub fn entry() -> usize {
    millpond_signal_entry as *const () as usize
}

/// Where a handler is to begin.
#[repr(C)]
struct Placed {
    frame: usize,
    handler: usize,
}

/// Chooses what is to be done with a signal, and on which stack.
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
    // SAFETY: the context is the kernel's, and in the frame.
    let moved = unsafe { moved(&*context, frame) };
    Placed {
        frame: moved.unwrap_or(frame),
        handler,
    }
}

/// The range of the state of the processor that belongs to a context.
///
/// # Safety
/// The context is one that the kernel has written, or a copy.
unsafe fn state(context: &libc::ucontext_t) -> Option<(usize, usize)> {
    /// The place of the kernel's own words in the state, and the number that they begin with if the state is long.
    const WORDS: usize = 464;
    const LONG: u32 = 0x4650_5853;
    let at = context.uc_mcontext.fpregs as usize;
    if at == 0 {
        return None;
    }
    // SAFETY: a state has 512 bytes at least, and the first two of the kernel's words say whether it has more.
    let [mark, len] = unsafe { ((at + WORDS) as *const [u32; 2]).read_unaligned() };
    Some((at, if mark == LONG { len as usize } else { 512 }))
}

/// Copies a frame below the stack pointer of the code that it has interrupted. The answer is the copy's address, or
/// `None` where the frame stays.
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
    // SAFETY: below the red zone nothing on the stack is in use, and the two copies do not overlap. Where the stack
    // has no room, this faults, as the kernel would have refused to write there.
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

/// Brings a frame in that the kernel is about to read, and holds it.
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
    // SAFETY: the kernel reads a set that lives here. The mask is replaced when the handler has returned.
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
