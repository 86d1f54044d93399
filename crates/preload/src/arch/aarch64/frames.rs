//! Signal frames on a processor for which we cannot yet move them: they stay on the stack that the kernel chose.

use crate::guard::signals::handlers::{Chosen, choose};
use core::ffi::{c_int, c_void};

type Handler = unsafe extern "C-unwind" fn(c_int, *mut libc::siginfo_t, *mut c_void);

/// Returns the address of the handler that the kernel gets in place of the program's.
pub fn entry() -> usize {
    enter as *const () as usize
}

/// Calls the handler that the program wants.
unsafe extern "C-unwind" fn enter(
    signal: c_int,
    info: *mut libc::siginfo_t,
    context: *mut libc::ucontext_t,
) {
    // SAFETY: the kernel passes a siginfo and the interrupted context.
    let Chosen { handler, .. } = unsafe { choose(signal, info, context) };
    // SAFETY: the address is that of a handler: the program's, one of ours, or `nothing`.
    unsafe {
        let handler: Handler = core::mem::transmute(handler);
        handler(signal, info, context.cast());
    }
}

/// A handler that does nothing.
pub extern "C" fn nothing(_: c_int, _: *mut libc::siginfo_t, _: *mut c_void) {}
