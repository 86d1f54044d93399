//! Installs the filter, unless it was inherited.
//!
//! A process that was filtered before an `execve` stays filtered, by the same program: its addresses are the same in
//! every process. Another filter would cost each call its time again, for each generation. So the filter answers one
//! unassigned call number, whose argument lies in the space, with an error that no kernel has. From that a process
//! knows that it is filtered.
//!
//! An unprivileged filter needs `no_new_privs`: from then on set-user-ID programs gain no rights.

use super::{END, START, gate};
use crate::raw;
use millpond_guard::filter;
use rustix::io::Errno;

/// Makes the kernel stop calls whose memory lies in the space, in all threads.
///
/// # Errors
/// A line that says what the kernel refuses.
pub fn filter() -> Result<(), String> {
    if is_there() {
        return Ok(());
    }
    install()?;
    match is_there() {
        true => Ok(()),
        false => Err("the seccomp filter stops nothing".into()),
    }
}

/// Builds the filter and passes it to the kernel. The filter takes 120 KiB of stack, whose page faults a process with
/// an inherited filter should not pay for, so this is a separate function.
#[inline(never)]
fn install() -> Result<(), String> {
    let program = filter::program(START as u64, END as u64, gate::RETURN as u64)
        .map_err(|error| error.to_string())?;
    // `struct sock_fprog`.
    #[repr(C)]
    struct Named {
        len: u16,
        at: *const filter::Instruction,
    }
    let named = Named {
        len: program.len() as u16,
        at: program.as_ptr(),
    };
    call(libc::SYS_prctl, [libc::PR_SET_NO_NEW_PRIVS as usize, 1, 0])
        .map_err(|error| format!("the kernel refuses no_new_privs ({error})"))?;
    let mode = libc::SECCOMP_SET_MODE_FILTER as usize;
    let flags = libc::SECCOMP_FILTER_FLAG_TSYNC as usize;
    call(libc::SYS_seccomp, [mode, flags, &raw const named as usize])
        .map(drop)
        .map_err(|error| format!("the kernel refuses a seccomp filter ({error})"))
}

/// Returns whether the kernel takes filters that trap calls.
pub fn is_possible() -> bool {
    const ACTION_IS_AVAILABLE: usize = 2;
    let action = libc::SECCOMP_RET_TRAP;
    let args = [ACTION_IS_AVAILABLE, 0, &raw const action as usize];
    call(libc::SYS_seccomp, args).is_ok()
}

/// Returns whether this process is filtered.
pub fn is_there() -> bool {
    // This call is not made at the gate, where it would pass.
    // SAFETY: no kernel has a call of this number.
    let answer = unsafe { raw::unguarded(filter::PROBE as i64, [START, 0, 0, 0, 0, 0]) };
    answer == Err(Errno::from_raw_os_error(i32::from(filter::PROBED)))
}

fn call(number: i64, args: [usize; 3]) -> Result<usize, Errno> {
    // SAFETY: the calls change what the process may do, and no memory.
    unsafe { raw::syscall(number, [args[0], args[1], args[2], 0, 0, 0]) }
}
