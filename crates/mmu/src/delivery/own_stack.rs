//! Leaving an alternate stack: a handler continues on the thread's own stack.
//!
//! A SIGSEGV handler must run on an alternate stack, if the thread has one: a stack that has overflowed has no room
//! for a signal. But alternate stacks are commonly 8 KiB, made for printing a message, and resolving a fault can mean
//! decompressing. The thread that touched a closed page has its own stack with enough room. So the handler starts on
//! the alternate stack, and work that needs room is done below the interrupted frame. All signals are blocked
//! meanwhile, so that no other handler enters the alternate stack, where the first one's frame still is.

use crate::interrupted::stack_pointer;
use core::ffi::c_void;

/// Bytes below a frame that a function may use without adjusting the stack pointer.
const RED_ZONE: usize = 128;
/// The stack size that we pass to `psm`, which uses none of it itself.
const ROOM: usize = 64 << 10;

/// Runs `work` on the interrupted stack if `wanted` is set and that is a different one.
pub(super) fn run_if<R>(wanted: bool, context: *mut c_void, work: impl FnOnce() -> R) -> R {
    let here = psm::stack_pointer() as usize;
    // SAFETY: the kernel passes the interrupted context to the handler, which nobody changes meanwhile.
    let (alternate, interrupted) = unsafe {
        let context = &*context.cast::<libc::ucontext_t>();
        let stack = context.uc_stack;
        let start = stack.ss_sp as usize;
        (start..start + stack.ss_size, stack_pointer(context))
    };
    if !wanted || !alternate.contains(&here) || alternate.contains(&interrupted) {
        return work();
    }
    let top = (interrupted - RED_ZONE) & !15;
    // SAFETY: below the red zone of the interrupted frame the thread's stack is free, and the thread does not
    // continue before this returns. A panic in `work` ends the process, at the latest at the end of the handler.
    unsafe { psm::on_stack((top - ROOM) as *mut u8, ROOM, work) }
}
