//! `execvp` and `execvpe`: running a program that is searched for by name.
//!
//! The C library's functions make their calls by instructions of their own, which the filter stops if the lists lie
//! in the space. In the child of a debugger's `vfork` a signal is worse than slow: the child is traced, stops at it
//! and waits for its parent, which waits for the `vfork`. So we search here, and make the calls at the gate.
//!
//! The search follows the C library's: a name with a slash is not searched for, and a file that is not a program is
//! passed to the shell as a script.

use super::environment;
use super::exec::{Texts, execve};
use crate::raw;
use core::ffi::{CStr, c_char, c_int};
use rustix::io::Errno;

/// The maximum length of a name and of a path.
const MOST_NAME: usize = 255;
const MOST_PATH: usize = 4096;
/// The maximum number of arguments of a script that is passed to the shell.
const MOST_ARGUMENTS: usize = 1024;
const SHELL: &CStr = c"/bin/sh";
/// Where to search for programs if no variable says so.
const USUAL: &[u8] = b"/bin:/usr/bin";

/// Searches for a program and becomes it. Returns only if that fails, with `errno` set.
///
/// # Safety
/// The conditions are those of `execvpe`.
pub unsafe fn execvpe(file: *const c_char, argv: Texts, envp: Texts) -> c_int {
    // SAFETY: the caller promises a C string.
    let name = unsafe { CStr::from_ptr(file) }.to_bytes();
    if name.is_empty() {
        return refuse(Errno::NOENT);
    }
    if name.contains(&b'/') {
        // SAFETY: the caller guarantees what this call needs.
        return unsafe { program_or_script(file, argv, envp) };
    }
    if name.len() > MOST_NAME {
        return refuse(Errno::NAMETOOLONG);
    }
    // SAFETY: as for the C library's function: a program is broken if another thread changes the environment now.
    let listed = unsafe { environment::variable(b"PATH") };
    let mut is_closed = false;
    for directory in listed.unwrap_or(USUAL).split(|&byte| byte == b':') {
        let mut path = [0u8; MOST_PATH + MOST_NAME + 2];
        if directory.len() >= MOST_PATH {
            continue;
        }
        let mut end = directory.len();
        path[..end].copy_from_slice(directory);
        if end > 0 {
            path[end] = b'/';
            end += 1;
        }
        path[end..end + name.len()].copy_from_slice(name);
        // SAFETY: the caller guarantees the lists; the path ends with a zero.
        unsafe { program_or_script(path.as_ptr().cast(), argv, envp) };
        match Errno::from_raw_os_error(errno()) {
            Errno::ACCESS => is_closed = true,
            Errno::NOENT | Errno::STALE | Errno::NOTDIR | Errno::NODEV | Errno::TIMEDOUT => {}
            _ => return -1,
        }
    }
    if is_closed {
        return refuse(Errno::ACCESS);
    }
    -1
}

/// Becomes a program, or makes the shell run a file that is not one.
unsafe fn program_or_script(path: *const c_char, argv: Texts, envp: Texts) -> c_int {
    // SAFETY: the caller guarantees what this call needs.
    unsafe { execve(path, argv, envp) };
    if errno() != libc::ENOEXEC {
        return -1;
    }
    let mut list = [core::ptr::null::<c_char>(); MOST_ARGUMENTS + 3];
    (list[0], list[1]) = (SHELL.as_ptr(), path);
    let mut count = 0;
    // SAFETY: the caller promises a list that ends with a null.
    while unsafe { !argv.add(count).read().is_null() } {
        if count > MOST_ARGUMENTS {
            return refuse(Errno::TOOBIG);
        }
        if count > 0 {
            // SAFETY: as above.
            list[count + 1] = unsafe { argv.add(count).read() };
        }
        count += 1;
    }
    // SAFETY: the list ends with a null, since there is one more place than arguments.
    unsafe { execve(SHELL.as_ptr(), list.as_ptr(), envp) }
}

fn errno() -> i32 {
    // SAFETY: this is the calling thread's errno.
    unsafe { *libc::__errno_location() }
}

fn refuse(error: Errno) -> c_int {
    raw::set_errno(error);
    -1
}
