//! How a process ends: normally, by `_exit`, or because the library cannot go on.
//!
//! `_exit` runs no exit handlers, and most children of a fork end with it. We replace it so that their last counters
//! are seen. The child of a `vfork`, which borrows our memory, must not write anything; the report recognises its own
//! process.

use crate::{filters, raw, report};
use core::ffi::c_int;
use millpond_board::State;

/// The exit status when the manager cannot be built, the same as that of `env` and `nice`.
const CANNOT_START: i32 = 125;
/// The exit status when a child cannot go on after a fork (`EX_OSERR`).
pub const CANNOT_FORK: i32 = 71;

/// Ends the process with a line that says why.
pub fn fail(text: &str) -> ! {
    fail_with(text, CANNOT_START)
}

/// Ends the process with a line that says why and with this status.
#[cold]
pub fn fail_with(text: &str, status: i32) -> ! {
    raw::complain(text);
    raw::complain("\n");
    report::publish(State::Failed);
    raw::exit_group(status)
}

/// Ends the process if the manager gets no memory for its tables at startup. Rust would abort as if there were a bug,
/// although the cause is a limit set by the user. This function allocates nothing.
#[cold]
pub fn fail_without_memory(bytes: usize) -> ! {
    millpond_mmu::report::line(format_args!(
        "no memory for {bytes} bytes of the manager's own tables: raise `ulimit -d` and `ulimit -v`, or set \
         vm.overcommit_memory to 0 or 1"
    ));
    report::publish(State::Failed);
    // A process that already has a space when it starts one is the child of a fork.
    let is_child = crate::space::get().is_some();
    raw::exit_group(if is_child { CANNOT_FORK } else { CANNOT_START })
}

extern "C" fn at_exit() {
    if filters::are_set() {
        return;
    }
    report::recount();
    report::publish(State::Exited);
}

/// Registers a handler that publishes the last counters at `exit` and `quick_exit`.
pub fn register() {
    // SAFETY: the function stays in memory as long as the process.
    unsafe { libc::atexit(at_exit) };
}

exports! {
    [exit_group: Numbers]
    extern "C" fn _exit(status: c_int) -> ! {
        if !filters::are_set() {
            report::publish(State::Exited);
        }
        raw::exit_group(status)
    }

    #[allow(non_snake_case, reason = "C's name")]
    [exit_group: Numbers]
    extern "C" fn _Exit(status: c_int) -> ! {
        _exit(status)
    }
}
