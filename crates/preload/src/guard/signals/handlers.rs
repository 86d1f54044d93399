//! Our handlers, and the way from them to the program's.
//!
//! *SIGBUS.* The kernel chooses the stack: the thread's alternate one, which may be 8 KiB, or its own. The fault is
//! served on a stack of ours (`stack_switch.rs`), with everything blocked; a thread whose fault is done never knows.
//!
//! *SIGSYS.* The call that was stopped is made inside of the handler, under the program's mask. It may block for hours,
//! and other handlers of the program may run meanwhile, on top of it. So this handler keeps little on the stack.
//!
//! *SIGSEGV.* Somebody may have looked at closed memory for the kernel (`millpond_mmu::touch`), and goes on elsewhere.
//! All others are the program's, and so are all other signals: their frames go where the program wants them
//! ([`frames`](super::frames)), and its handler finds everything as without us.
//!
//! *The program's handler* for SIGBUS or SIGSYS is called on the stack where the signal came, under the mask that its
//! action asks for. Without a handler the default action is the kernel's again: a fault repeats itself when the
//! handler returns, and ends the process with its core as it would have; a signal that was sent is sent once more,
//! with all that it said.
//!
//! *Cancelled threads* are unwound through these handlers, so they may be. They keep nothing that would have to be
//! given back.

use super::actions::{install_default, word};
use super::table::{Action, Record};
use super::{bit, never_blocked, thread};
use crate::arch::frames;
use crate::guard::runtime;
use crate::guard::trap;
use crate::{raw, space, stack_switch};
use core::ffi::{c_int, c_void};
use core::sync::atomic::Ordering::Relaxed;

/// `SI_KERNEL` and all codes above 0 are the kernel's own.
const SENT: c_int = 0;
/// `SYS_SECCOMP`: the code of a SIGSYS in place of a call.
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
        if !trap::serve(info, context) {
            pass_on_under_mask(signal, info, context);
        }
    }
}

/// What is done with a signal: a handler, and whether it runs on the stack where the signal came.
pub struct Chosen {
    pub handler: usize,
    #[allow(dead_code, reason = "on some processors all frames stay there")]
    pub stays: bool,
}

/// Chooses what is done with a signal other than SIGBUS and SIGSYS. The kernel has set the mask that the program's
/// action asks for.
///
/// # Safety
/// The arguments are those of a handler. The siginfo is whole for SIGSEGV.
pub unsafe fn choose(
    signal: c_int,
    info: *mut libc::siginfo_t,
    context: *mut libc::ucontext_t,
) -> Chosen {
    let nothing = Chosen {
        handler: frames::nothing as *const () as usize,
        stays: true,
    };
    // SAFETY: the caller passes a whole siginfo and the interrupted context.
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
        // The action was changed while the signal came.
        send_again(signal);
    }
    nothing
}

/// Serves a SIGSEGV of ours: a page that is closed because it is out, where there is no userfaultfd, or a look at
/// closed memory. The answer is false for the program's.
///
/// # Safety
/// The arguments are those of a handler.
unsafe fn serve_sigsegv(info: *mut libc::siginfo_t, context: *mut libc::ucontext_t) -> bool {
    if space::is_closed() {
        let serves = &thread::this().serves;
        // The mask is the one that the program's action asks for, and no handler may run here.
        let before = swap_mask(u64::MAX);
        serves.store(1, Relaxed);
        // SAFETY: the caller guarantees it, and all signals are blocked.
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

/// Sends the calling thread a signal once more.
fn send_again(signal: c_int) {
    // SAFETY: the calls ask, and send a signal whose action the program has chosen.
    unsafe {
        let process = raw::syscall(libc::SYS_getpid, [0; 6]).unwrap_or(0);
        let thread = raw::syscall(libc::SYS_gettid, [0; 6]).unwrap_or(0);
        let _ = raw::syscall(
            libc::SYS_tgkill,
            [process, thread, signal as usize, 0, 0, 0],
        );
    }
}

/// Gives a signal to the program, under the mask that the program's action asks for.
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
    // The kernel's structure has a set of 64 signals there, and other things behind it.
    // SAFETY: the set is a part of the context.
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

fn set_mask(mask: u64) {
    swap_mask(mask);
}

/// Sets the mask in the kernel, and answers the one before.
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

/// Does with a signal what the program's action says.
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
        // SAFETY: an action with SA_SIGINFO has a function of three arguments.
        unsafe { core::mem::transmute::<usize, OfThree>(handler)(signal, info, context) };
    } else {
        // SAFETY: an action without SA_SIGINFO that is no special value has a function of one argument.
        unsafe { core::mem::transmute::<usize, OfOne>(handler)(signal) };
    }
}

/// Does what the kernel does with a signal that has no handler.
unsafe fn without_handler(signal: c_int, info: *mut libc::siginfo_t, is_ignored: bool) {
    // SAFETY: the caller passes a valid siginfo.
    let code = unsafe { (*info).si_code };
    let (is_fault, comes_again) = match signal {
        libc::SIGSYS => (code == IN_PLACE_OF_CALL, false),
        // Memory that is found broken before a thread touches it is told like a signal that was sent.
        libc::SIGBUS if code == libc::BUS_MCEERR_AO => (false, false),
        _ => (code > SENT, code > SENT),
    };
    if is_ignored && !is_fault {
        return;
    }
    if !install_default(signal) && is_fault {
        // A filter of the program's forbids it, and the fault would come again for ever.
        raw::exit_group(128 + signal);
    }
    if !comes_again {
        // SAFETY: the calls ask, and send this thread a signal that says what the first one said.
        unsafe {
            let process = raw::syscall(libc::SYS_getpid, [0; 6]).unwrap_or(0);
            let thread = raw::syscall(libc::SYS_gettid, [0; 6]).unwrap_or(0);
            let args = [process, thread, signal as usize, info as usize, 0, 0];
            let _ = raw::syscall(libc::SYS_rt_tgsigqueueinfo, args);
        }
    }
}
