//! `system`, `popen` and `wordexp`: the C library starts a shell, with the program's command and environment.
//!
//! Each creates its child as `posix_spawn` does, with internal functions of the C library. The command is a string in
//! a list that the C library builds on its stack, so it is held; the environment is [settled](environment). `popen`
//! and `wordexp` allocate memory that the child reads, and do so [apart](super::apart).

use super::apart::Apart;
use super::environment;
use crate::engage;
use crate::guard::holds::Holds;
use crate::guard::is_on;
use crate::park::Busy;
use crate::stack_switch::on_safe_stack;
use core::ffi::{c_char, c_int, c_void};
use rustix::io::Errno;

type System = unsafe extern "C-unwind" fn(*const c_char) -> c_int;
type Popen = unsafe extern "C-unwind" fn(*const c_char, *const c_char) -> *mut libc::FILE;
type Wordexp = unsafe extern "C-unwind" fn(*const c_char, *mut c_void, c_int) -> c_int;

/// `WRDE_NOSPACE`.
const NO_SPACE: c_int = 1;

/// Holds what a shell needs. Returns `None` if too much is held.
fn hold(command: *const c_char) -> Option<Holds> {
    let mut holds = Holds::new();
    environment::settle(&mut holds);
    holds.text(command);
    holds.are_complete().then_some(holds)
}

exports! {
    real SYSTEM: System = c"system";
    real POPEN: Popen = c"popen";
    real WORDEXP: Wordexp = c"wordexp";

    [clone3: Child]
    unsafe extern "C-unwind" fn system(command: *const c_char) -> c_int {
        let Some(real) = SYSTEM.get() else {
            return crate::c_answer(Err(Errno::NOSYS)) as c_int;
        };
        // It waits for the command with signals blocked, and reads the program's memory before.
        engage::before_command();
        if !is_on() {
            // SAFETY: the caller guarantees this.
            return unsafe { real(command) };
        }
        let Some(_holds) = hold(command) else {
            return crate::c_answer(Err(Errno::NOMEM)) as c_int;
        };
        // SAFETY: the caller guarantees this.
        on_safe_stack(move || unsafe { real(command) })
    }

    [clone3: Child]
    unsafe extern "C-unwind" fn popen(
        command: *const c_char,
        mode: *const c_char,
    ) -> *mut libc::FILE {
        let Some(real) = POPEN.get() else {
            crate::raw::set_errno(Errno::NOSYS);
            return core::ptr::null_mut();
        };
        if !is_on() {
            let _busy = Busy::begin();
            // SAFETY: the caller guarantees this.
            return unsafe { real(command, mode) };
        }
        let Some(_holds) = hold(command) else {
            crate::raw::set_errno(Errno::NOMEM);
            return core::ptr::null_mut();
        };
        let _apart = Apart::begin();
        // SAFETY: the caller guarantees this.
        on_safe_stack(move || unsafe { real(command, mode) })
    }

    [clone3: Child]
    unsafe extern "C-unwind" fn wordexp(
        words: *const c_char,
        result: *mut c_void,
        flags: c_int,
    ) -> c_int {
        let Some(real) = WORDEXP.get() else {
            return NO_SPACE;
        };
        engage::before_command();
        if !is_on() {
            // SAFETY: the caller guarantees this.
            return unsafe { real(words, result, flags) };
        }
        let Some(_holds) = hold(words) else {
            return NO_SPACE;
        };
        let _apart = Apart::begin();
        // SAFETY: the caller guarantees this.
        on_safe_stack(move || unsafe { real(words, result, flags) })
    }
}
