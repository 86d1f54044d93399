//! `unshare` and `setns` with a user namespace, which the kernel refuses to a process with several threads.
//!
//! Under Millpond a single-threaded program has several threads. Stopping ours temporarily would leave memory
//! unserved, and a program that creates a namespace for a child can use `clone`, which the kernel allows. So we keep
//! the refusal and print a line that says why, because EINVAL does not explain it.

use crate::{engage, raw};
use core::ffi::c_int;
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};
use rustix::io::Errno;

const WAY_OUT: &str = "millpond: the kernel gives no user namespace to a process with threads, as those of Millpond: \
                       start `millpond run` inside of it (`unshare -U millpond run ...`), or make it by clone\n";

fn answer(result: Result<usize, Errno>, is_about_users: bool) -> c_int {
    static SAID: AtomicBool = AtomicBool::new(false);
    let refused = result == Err(Errno::INVAL) && is_about_users;
    if refused && crate::space::get().is_some() && !SAID.swap(true, Relaxed) {
        raw::complain(WAY_OUT);
    }
    crate::c_result(result.map(drop))
}

exports! {
    [unshare: Numbers]
    extern "C" fn unshare(flags: c_int) -> c_int {
        engage::before_lasting();
        // SAFETY: the call takes a number, and changes what the calling thread shares with others.
        let result = unsafe { raw::syscall(libc::SYS_unshare, [flags as usize, 0, 0, 0, 0, 0]) };
        answer(result, flags & libc::CLONE_NEWUSER != 0)
    }

    [setns: Numbers]
    extern "C" fn setns(fd: c_int, kind: c_int) -> c_int {
        engage::before_lasting();
        let args = [fd as usize, kind as usize, 0, 0, 0, 0];
        // SAFETY: the call takes numbers, and changes which namespaces the calling thread is in.
        let result = unsafe { raw::syscall(libc::SYS_setns, args) };
        answer(result, kind & libc::CLONE_NEWUSER != 0)
    }
}
