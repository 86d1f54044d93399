//! Becoming another program: paths, arguments and environment are held while the kernel reads them.
//!
//! The filter sees the three addresses of `execve` and nothing of the strings that the lists name. A successful call
//! ends this process image and everything that it holds. In the child of a `vfork` its holds stay in the table, which
//! the parent continues to use: the parent's next call removes them, since it is higher in the same stack.
//!
//! `execl` and its relatives have their arguments in registers and on the stack (`arch`).

use super::{environment, search, traced};
use crate::guard::call::{self, Way};
use crate::guard::holds::Holds;
use crate::guard::is_on;
use core::ffi::{c_char, c_int};
use rustix::io::Errno;

pub type Texts = *const *const c_char;

fn hold(path: *const c_char, argv: Texts, envp: Texts) -> Option<Holds> {
    let mut holds = Holds::new();
    holds.text(path);
    holds.texts(argv);
    holds.texts(envp);
    holds.are_complete().then_some(holds)
}

/// Makes the call at the gate, with the strings held.
unsafe fn held(
    path: *const c_char,
    argv: Texts,
    envp: Texts,
    number: i64,
    args: [usize; 6],
) -> c_int {
    let Some(_holds) = hold(path, argv, envp) else {
        return crate::c_answer(Err(Errno::NOMEM)) as c_int;
    };
    traced::begin(number, &args);
    // SAFETY: the caller guarantees what this call needs.
    crate::c_answer(unsafe { call::make(number, &args, Way::Plain) }) as c_int
}

/// Serves a call by `syscall`, if it is one of these.
///
/// # Safety
/// The conditions are those of the system call.
pub unsafe fn by_number(number: i64, [a, b, c, d, e, _]: [usize; 6]) -> Option<i64> {
    // SAFETY: the caller guarantees what these calls need.
    let answer = unsafe {
        match number {
            libc::SYS_execve => execve(a as _, b as _, c as _),
            libc::SYS_execveat => execveat(a as c_int, b as _, c as _, d as _, e as c_int),
            _ => return None,
        }
    };
    Some(answer.into())
}

exports! {
    [execve: Held]
    unsafe extern "C" fn execve(path: *const c_char, argv: Texts, envp: Texts) -> c_int
        = EXECVE if !is_on(), else unsafe {
            let args = [path as usize, argv as usize, envp as usize, 0, 0, 0];
            held(path, argv, envp, libc::SYS_execve, args)
        }

    [execve: Held]
    unsafe extern "C" fn execv(path: *const c_char, argv: Texts) -> c_int = unsafe {
        execve(path, argv, environment::list())
    }

    [execve: Held]
    unsafe extern "C" fn execvpe(file: *const c_char, argv: Texts, envp: Texts) -> c_int
        = EXECVPE if !is_on(), else unsafe {
            search::execvpe(file, argv, envp)
        }

    [execve: Held]
    unsafe extern "C" fn execvp(file: *const c_char, argv: Texts) -> c_int = unsafe {
        execvpe(file, argv, environment::list())
    }

    [execveat: Held]
    unsafe extern "C" fn fexecve(fd: c_int, argv: Texts, envp: Texts) -> c_int
        = FEXECVE if !is_on() || fd < 0 || argv.is_null() || envp.is_null(), else unsafe {
            execveat(fd, c"".as_ptr(), argv, envp, libc::AT_EMPTY_PATH)
        }

    [execveat: Held]
    unsafe extern "C" fn execveat(
        fd: c_int,
        path: *const c_char,
        argv: Texts,
        envp: Texts,
        flags: c_int,
    ) -> c_int
        = EXECVEAT if !is_on(), else unsafe {
            let [fd, flags] = [fd as usize, flags as usize];
            let args = [fd, path as usize, argv as usize, envp as usize, flags, 0];
            held(path, argv, envp, libc::SYS_execveat, args)
        }
}
