//! `prctl`: three of its options are handled here, and all others by the C library.
//!
//! The number of the function's arguments depends on the option. So for an option that we do not handle we jump to
//! the C library's function, with registers and stack as the program left them.
//!
//! | option | treatment | file |
//! | --- | --- | --- |
//! | `PR_SET_MEMORY_MERGE` | refused | `ksm` |
//! | `PR_SET_SECCOMP` | passed on, and recorded | `filters` |
//! | `PR_SET_SYSCALL_USER_DISPATCH` | refused under direct delivery: SIGSYS is ours, and so are calls in handlers | here |

use crate::{arch, dlopen, engage, filters, guard, ksm};
use core::ffi::c_int;
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use rustix::io::Errno;

/// The option that turns each system call into a SIGSYS, except for those made from one range of code.
const PR_SET_SYSCALL_USER_DISPATCH: c_int = 59;

/// The address of the C library's function, written before any other code of this library runs.
static REAL: AtomicUsize = AtomicUsize::new(0);

/// Looks up the real function.
///
/// # Errors
/// A line for the user.
pub fn find() -> Result<(), String> {
    REAL.store(dlopen::next(c"prctl")?, Relaxed);
    Ok(())
}

/// Makes the system call `prctl`.
pub fn kernel(args: [usize; 5]) -> Result<usize, Errno> {
    let [a, b, c, d, e] = args;
    // SAFETY: the program asked for it, or it is our own call that stops pages from being merged.
    unsafe { guard::call::held(libc::SYS_prctl, [a, b, c, d, e, 0]) }
}

exports! {
    #[unsafe(naked)]
    [prctl: Held]
    unsafe extern "C" fn prctl(_option: c_int) -> c_int {
        arch::by_option!(
            [
                ksm::PR_SET_MEMORY_MERGE,
                libc::PR_SET_SECCOMP,
                PR_SET_SYSCALL_USER_DISPATCH
            ],
            REAL,
            serve
        )
    }
}

extern "C" fn serve(option: c_int, b: usize, c: usize, d: usize, e: usize) -> c_int {
    by_number([option as usize, b, c, d, e])
}

/// Returns whether a call asks for a signal at each system call where we cannot allow that, and prints a line if so.
fn dispatches([option, on, ..]: [usize; 5]) -> bool {
    let asks = option as c_int == PR_SET_SYSCALL_USER_DISPATCH && on != 0 && guard::is_on();
    if asks {
        millpond_mmu::report::line(format_args!(
            "syscall user dispatch is refused (EINVAL) where faults are served in the thread that faults; \
             use --delivery handler"
        ));
    }
    asks
}

/// Handles `prctl` for a call by its number.
pub fn by_number(args: [usize; 5]) -> c_int {
    if matches!(
        args[0] as c_int,
        libc::PR_SET_SECCOMP | PR_SET_SYSCALL_USER_DISPATCH
    ) {
        engage::before_lasting();
    }
    let result = match ksm::refuses(args) || dispatches(args) {
        true => Err(Errno::INVAL),
        false => kernel(args),
    };
    if args[0] as i32 == libc::PR_SET_SECCOMP && result.is_ok() {
        filters::set();
    }
    crate::c_answer(result) as c_int
}
