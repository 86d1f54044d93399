//! `ptrace` in the child of a debugger's `vfork`, which asks to be traced (`PTRACE_TRACEME`) before it becomes the
//! program to be debugged.
//!
//! A traced process stops at each signal until its parent resumes it. Under direct delivery a touch of absent memory
//! is a signal, and the parent waits for the end of the `vfork`: neither would ever continue. gdb's child touches a
//! good deal between the two calls. Nobody can tell the difference if tracing starts only at its `execve`, since its
//! parent cannot look earlier. So we record the request in a word of the thread, which both share, and pass it to the
//! kernel as the last step before an `execve` that finds its file.
//!
//! The child of a `fork` has a running parent, and is traced at once.

use crate::guard::is_on;
use crate::guard::signals::{is_borrowed, process, this};
use crate::raw;
use core::ffi::{c_int, c_long, c_void};
use core::sync::atomic::Ordering::Relaxed;
use rustix::io::Errno;

exports! {
    real PTRACE: unsafe extern "C" fn(c_int, ...) -> c_long = c"ptrace";

    /// The arguments are in registers, although their number may vary.
    [ptrace: Held]
    unsafe extern "C" fn ptrace(
        request: c_int,
        pid: libc::pid_t,
        addr: *mut c_void,
        data: *mut c_void,
    ) -> c_long = unsafe {
        if is_on() && request == libc::PTRACE_TRACEME as c_int && is_borrowed() {
            let asked = &this().asked_to_be_traced;
            asked.store(process() as usize, Relaxed);
            return 0;
        }
        PTRACE.must()(request, pid, addr, data)
    }
}

/// Starts tracing this process if it has asked for that. The call that follows, whose memory is held, turns it into
/// another program.
pub fn begin(number: i64, args: &[usize; 6]) {
    let asked = &this().asked_to_be_traced;
    // A child that ended before it became a program has left its process ID here.
    if asked.load(Relaxed) != process() as usize || !finds_its_file(number, args) {
        return;
    }
    asked.store(0, Relaxed);
    let request = [libc::PTRACE_TRACEME as usize, 0, 0, 0, 0, 0];
    // SAFETY: the call names no memory. A process that is already traced stays so, and there is nobody to notify.
    let _ = unsafe { raw::syscall(libc::SYS_ptrace, request) };
}

/// Returns whether the call may find a file to run. A search tries several missing files, and continues in between.
fn finds_its_file(number: i64, args: &[usize; 6]) -> bool {
    if number != libc::SYS_execve {
        return true;
    }
    let [path, is_executable] = [args[0], libc::X_OK as usize];
    let [here, as_effective] = [libc::AT_FDCWD as usize, libc::AT_EACCESS as usize];
    let question = [here, path, is_executable, as_effective, 0, 0];
    // SAFETY: the path is held for the call that follows, and the kernel reads it.
    let answer = unsafe { raw::syscall(libc::SYS_faccessat2, question) };
    // An older kernel or a filter may not know this call.
    !matches!(answer, Err(Errno::NOENT | Errno::NOTDIR | Errno::ACCESS))
}
