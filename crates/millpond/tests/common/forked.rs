//! Children of this process that do one thing, and may never end.

use std::time::{Duration, Instant};

/// Forks. The child does `work` and ends with its answer as its status.
pub fn forked(work: impl FnOnce() -> i32) -> libc::pid_t {
    // SAFETY: the child does what this test is about, and leaves by `_exit`.
    match unsafe { libc::fork() } {
        -1 => panic!("fork: {}", std::io::Error::last_os_error()),
        // SAFETY: the call ends the process.
        0 => unsafe { libc::_exit(work()) },
        child => child,
    }
}

/// The exit status of a child, or minus the number of the signal that ended it. One that takes longer than `most` is
/// killed, and has none.
pub fn status(child: libc::pid_t, most: Duration) -> Option<i32> {
    let (began, mut status) = (Instant::now(), 0);
    // SAFETY: it is a child of this process, and the status has a variable.
    while unsafe { libc::waitpid(child, &raw mut status, libc::WNOHANG) } == 0 {
        if began.elapsed() > most {
            // SAFETY: the child was not waited for yet, so the number is its own.
            unsafe {
                libc::kill(child, libc::SIGKILL);
                libc::waitpid(child, &raw mut status, 0);
            }
            return None;
        }
        std::thread::sleep(Duration::from_micros(50));
    }
    Some(if libc::WIFEXITED(status) {
        libc::WEXITSTATUS(status)
    } else {
        -libc::WTERMSIG(status)
    })
}
