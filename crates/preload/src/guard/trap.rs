//! SIGSYS: a call that the filter stopped is made here, and the thread goes on behind it with the answer.
//!
//! The signal comes in place of the call, at its instruction; the registers are as the program left them. The call is
//! made inside of the handler, under the program's own signal mask: it may block, be interrupted, and be restarted by
//! the kernel like any other, since a restart repeats the instruction at the gate. A handler of the program that runs
//! meanwhile and never returns leaves this one behind; what the call held is given up later (`millpond_mmu::Held`).

use super::call::{self, Way};
use super::{cancel, signals};
use crate::syscall;
use core::ffi::c_void;
use millpond_guard::filter;
use millpond_mmu::interrupted;
use rustix::io::Errno;

/// `SYS_SECCOMP`: the code of a signal from a filter.
const FROM_FILTER: i32 = 1;

/// Serves a SIGSYS. The answer is false when the signal is not our filter's, but another one's or sent.
///
/// # Safety
/// The arguments are those of a handler with `SA_SIGINFO`.
pub unsafe extern "C-unwind" fn serve(info: *const libc::siginfo_t, context: *mut c_void) -> bool {
    // SAFETY: the kernel passes a valid siginfo.
    let (code, mark) = unsafe { ((*info).si_code, (*info).si_errno) };
    if code != FROM_FILTER || mark != i32::from(filter::MARK) {
        return false;
    }
    // SAFETY: the kernel passes the interrupted context, which nobody else refers to.
    let context = unsafe { &mut *context.cast::<libc::ucontext_t>() };
    let (number, args) = interrupted::stopped_call(context);
    // The C library's function may have made the thread one that can be ended at any instruction. Here it can only be
    // where the call waits.
    let cancellation = cancel::put_off();
    let way = match cancel::is_asynchronous(cancellation) {
        true => Way::Cancellable,
        false => Way::Plain,
    };
    // SAFETY: the program made this call.
    let answer = match unsafe { made(number, args, way, context) } {
        Ok(value) => value as i64,
        Err(error) => -i64::from(error.raw_os_error()),
    };
    cancel::put_back(cancellation);
    interrupted::answer(context, answer);
    true
}

/// Makes the call: by the code that serves it for the C library's functions too, or as it is with its memory held.
///
/// # Safety
/// The conditions are those of the system call.
unsafe fn made(
    number: i64,
    args: [usize; 6],
    way: Way,
    context: &mut libc::ucontext_t,
) -> Result<usize, Errno> {
    // SAFETY: the caller guarantees what these calls need.
    unsafe {
        if let Some(answer) = signals::by_number(number, args, Some(context)) {
            return answer;
        }
        match syscall::is_served(number) {
            true => kernels(|| syscall::serve_stopped(number, args)),
            false => call::held_as(number, args, way),
        }
    }
}

/// The answer of a function as the kernel would give it. `errno` stays as it was.
fn kernels(function: impl FnOnce() -> i64) -> Result<usize, Errno> {
    // SAFETY: this is the calling thread's errno.
    let errno = unsafe { &mut *libc::__errno_location() };
    let before = *errno;
    let answer = match function() {
        -1 => Err(Errno::from_raw_os_error(*errno)),
        value => Ok(value as usize),
    };
    *errno = before;
    answer
}
