//! SIGSYS: makes a call that the filter stopped, and lets the thread continue after it with the answer.
//!
//! The signal arrives in place of the call, at its instruction, with the registers as the program left them. The call
//! is made inside the handler, under the program's own signal mask: it may block, be interrupted, and be restarted by
//! the kernel like any other, since a restart repeats the instruction at the gate. If a handler of the program runs
//! meanwhile and never returns, this one is abandoned; the call's holds are released later (`millpond_mmu::Held`).

use super::call::{self, Way};
use super::{cancel, signals};
use crate::syscall;
use core::ffi::c_void;
use millpond_guard::filter;
use millpond_mmu::interrupted;
use rustix::io::Errno;

/// `SYS_SECCOMP`: the code of a signal from a filter.
const FROM_FILTER: i32 = 1;

/// Serves a SIGSYS. Returns false if the signal was not raised by our filter but by another, or was sent.
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
    // The C library's function may have made the thread cancellable at any instruction. Here it may be cancelled only
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

/// Makes the call, either with the code that also serves it for the C library's functions, or directly with its
/// memory held.
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

/// Returns a function's result as the kernel would. `errno` is preserved.
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
