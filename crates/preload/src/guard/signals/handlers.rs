//! Our signal handlers, and how they call the program's.
//!
//! *SIGBUS.* The kernel chooses the stack: the thread's alternate one, which may be 8 KiB, or its own. The fault is
//! served on a stack of ours (`stack_switch.rs`), with all signals blocked; the thread never notices a fault that is
//! served.
//!
//! *SIGSYS.* The stopped call is made inside the handler, under the program's mask. It may block for hours, and other
//! handlers of the program may run meanwhile, on top of it. So this handler keeps little on the stack.
//!
//! *SIGSEGV.* The thread may have probed closed memory on the kernel's behalf (`millpond_mmu::touch`), and continues
//! elsewhere. All others are the program's, and so are all other signals: their frames go where the program wants
//! them ([`frames`](super::frames)), and its handler finds everything as it would without us.
//!
//! *The program's handler* for SIGBUS or SIGSYS is called on the stack where the signal arrived, under the mask that
//! its action asks for. If there is no handler, the kernel gets the default action again: a fault recurs when the
//! handler returns, and ends the process with the core that it would have had; a signal that was sent is sent again,
//! with all of its information.
//!
//! *Cancelled threads* are unwound through these handlers, which support that: they keep nothing that would have to
//! be given back.

use super::actions::{install_default, word};
use super::table::{Action, Record};
use super::{bit, masks, never_blocked, thread};
use crate::arch::frames;
use crate::guard::runtime;
use crate::guard::trap;
use crate::{park, raw, space, stack_switch};
use core::ffi::{c_int, c_void};
use core::sync::atomic::Ordering::Relaxed;

/// `SI_KERNEL` and all codes above 0 come from the kernel itself.
const SENT: c_int = 0;
/// `SYS_SECCOMP`: the code of a SIGSYS raised in place of a call.
const IN_PLACE_OF_CALL: c_int = 1;

/// The handler for SIGBUS.
pub unsafe extern "C-unwind" fn on_sigbus(
    signal: c_int,
    info: *mut libc::siginfo_t,
    context: *mut c_void,
) {
    let serves = &thread::this().serves;
    serves.store(1, Relaxed);
    // SAFETY: the kernel passes a valid siginfo and the interrupted context, with all signals blocked.
    let is_served =
        stack_switch::on_fault_stack(|| unsafe { millpond_mmu::serve_sigbus(info, context) });
    serves.store(0, Relaxed);
    if !is_served {
        // SAFETY: as above.
        unsafe { pass_on_under_mask(signal, info, context) };
    }
}

/// The handler for SIGSYS.
pub unsafe extern "C-unwind" fn on_sigsys(
    signal: c_int,
    info: *mut libc::siginfo_t,
    context: *mut c_void,
) {
    // SAFETY: the kernel passes a valid siginfo and the interrupted context.
    unsafe {
        if !park::serve(info, context) && !trap::serve(info, context) {
            pass_on_under_mask(signal, info, context);
        }
    }
}

/// How a signal is handled: the handler, and whether it runs on the stack where the signal arrived.
pub struct Chosen {
    pub handler: usize,
    #[allow(dead_code, reason = "on some processors all frames stay there")]
    pub stays: bool,
}

/// Chooses how to handle a signal other than SIGBUS and SIGSYS. The kernel has set the mask that the program's action
/// asks for.
///
/// # Safety
/// The arguments are those of a handler. The siginfo is complete for SIGSEGV.
pub unsafe fn choose(
    signal: c_int,
    info: *mut libc::siginfo_t,
    context: *mut libc::ucontext_t,
) -> Chosen {
    let nothing = Chosen {
        handler: frames::nothing as *const () as usize,
        stays: true,
    };
    // SAFETY: the caller passes a complete siginfo and the interrupted context.
    if signal == libc::SIGSEGV && unsafe { serve_sigsegv(info, context) } {
        return nothing;
    }
    let Some(action) = Record::of(signal).map(Record::take) else {
        return nothing;
    };
    let handler = action.handler;
    if handler != libc::SIG_DFL && handler != libc::SIG_IGN {
        let asks = action.flags & libc::SA_ONSTACK as usize != 0;
        // Go asks the kernel itself where the thread's alternate stack is, and takes ours for the program's.
        let has_one = thread::this().set_len.load(Relaxed) > 0 || runtime::is_anywhere();
        let stays = asks && has_one;
        return Chosen { handler, stays };
    }
    if signal == libc::SIGSEGV {
        // SAFETY: the caller passes a valid siginfo.
        unsafe { without_handler(signal, info, handler == libc::SIG_IGN) };
    } else if handler == libc::SIG_DFL {
        // The action was changed while the signal was arriving.
        send_again(signal);
    }
    nothing
}

/// Serves a SIGSEGV of ours: a page that is closed because it is absent, if there is no userfaultfd, or a probe of
/// closed memory. Returns false for the program's.
///
/// # Safety
/// The arguments are those of a handler.
unsafe fn serve_sigsegv(info: *mut libc::siginfo_t, context: *mut libc::ucontext_t) -> bool {
    if space::is_closed() {
        let serves = &thread::this().serves;
        // The current mask is the one that the program's action asks for, but no handler may run here.
        let before = swap_mask(u64::MAX);
        serves.store(1, Relaxed);
        // SAFETY: the caller guarantees this, and all signals are blocked.
        let is_served = stack_switch::on_fault_stack(|| unsafe {
            millpond_mmu::serve_sigsegv(info, context.cast())
        });
        serves.store(0, Relaxed);
        swap_mask(before);
        if is_served {
            return true;
        }
    }
    // SAFETY: the caller passes the interrupted context, which nobody else refers to.
    millpond_mmu::give_up(unsafe { &mut *context })
}

/// Sends the calling thread a signal again.
fn send_again(signal: c_int) {
    // SAFETY: the calls are queries, and the last sends a signal whose action the program has chosen.
    unsafe {
        let process = raw::syscall(libc::SYS_getpid, [0; 6]).unwrap_or(0);
        let thread = raw::syscall(libc::SYS_gettid, [0; 6]).unwrap_or(0);
        let _ = raw::syscall(
            libc::SYS_tgkill,
            [process, thread, signal as usize, 0, 0, 0],
        );
    }
}

/// Delivers a signal to the program, under the mask that the program's action asks for.
///
/// # Safety
/// The arguments are those of a handler with `SA_SIGINFO`.
unsafe extern "C-unwind" fn pass_on_under_mask(
    signal: c_int,
    info: *mut libc::siginfo_t,
    context: *mut c_void,
) {
    let Some(action) = Record::of(signal).map(Record::take) else {
        return;
    };
    // The kernel's structure has a set of 64 signals there, followed by other fields.
    // SAFETY: the set is part of the context.
    let interrupted = unsafe { word(&raw const (*context.cast::<libc::ucontext_t>()).uc_sigmask) };
    let own = match action.flags & libc::SA_NODEFER as usize {
        0 => bit(signal),
        _ => 0,
    };
    let mask = (interrupted | action.mask as u64 | own) & !never_blocked();
    set_mask(mask);
    // SAFETY: the caller guarantees what this call needs.
    unsafe { pass_on(&action, signal, info, context) };
}

/// Blocks all signals until the handler that calls this returns, but those of the C library.
pub fn block_all() {
    set_mask(!masks::OF_C_LIBRARY);
}

fn set_mask(mask: u64) {
    swap_mask(mask);
}

/// Sets the mask in the kernel, and returns the previous one.
fn swap_mask(mask: u64) -> u64 {
    let mut before = 0u64;
    let args = [
        libc::SIG_SETMASK as usize,
        &raw const mask as usize,
        &raw mut before as usize,
        size_of::<u64>(),
        0,
        0,
    ];
    // SAFETY: the kernel reads one set and writes another, which live here.
    let _ = unsafe { raw::syscall(libc::SYS_rt_sigprocmask, args) };
    before
}

/// Handles a signal as the program's action specifies.
///
/// # Safety
/// The arguments are those of a handler with `SA_SIGINFO`.
unsafe extern "C-unwind" fn pass_on(
    action: &Action,
    signal: c_int,
    info: *mut libc::siginfo_t,
    context: *mut c_void,
) {
    type OfThree = unsafe extern "C-unwind" fn(c_int, *mut libc::siginfo_t, *mut c_void);
    type OfOne = unsafe extern "C-unwind" fn(c_int);
    let handler = action.handler;
    if handler == libc::SIG_DFL || handler == libc::SIG_IGN {
        // SAFETY: the caller passes a valid siginfo.
        unsafe { without_handler(signal, info, handler == libc::SIG_IGN) };
    } else if action.flags & libc::SA_SIGINFO as usize != 0 {
        // SAFETY: an action with SA_SIGINFO has a function with three arguments.
        unsafe { core::mem::transmute::<usize, OfThree>(handler)(signal, info, context) };
    } else {
        // SAFETY: an action without SA_SIGINFO that is no special value has a function with one argument.
        unsafe { core::mem::transmute::<usize, OfOne>(handler)(signal) };
    }
}

/// Does what the kernel does with a signal that has no handler.
unsafe fn without_handler(signal: c_int, info: *mut libc::siginfo_t, is_ignored: bool) {
    // SAFETY: the caller passes a valid siginfo.
    let code = unsafe { (*info).si_code };
    let (is_fault, comes_again) = match signal {
        libc::SIGSYS => (code == IN_PLACE_OF_CALL, false),
        // Memory found broken before a thread touches it is reported like a signal that was sent.
        libc::SIGBUS if code == libc::BUS_MCEERR_AO => (false, false),
        _ => (code > SENT, code > SENT),
    };
    if is_ignored && !is_fault {
        return;
    }
    if !install_default(signal) && is_fault {
        // A filter of the program forbids it, and the fault would recur forever.
        raw::exit_group(128 + signal);
    }
    if !comes_again {
        // SAFETY: the calls are queries, and the last sends this thread a signal with the same information as the
        // first.
        unsafe {
            let process = raw::syscall(libc::SYS_getpid, [0; 6]).unwrap_or(0);
            let thread = raw::syscall(libc::SYS_gettid, [0; 6]).unwrap_or(0);
            let args = [process, thread, signal as usize, info as usize, 0, 0];
            let _ = raw::syscall(libc::SYS_rt_tgsigqueueinfo, args);
        }
    }
}
