//! What a signal frame says about the thread that it interrupted: where it was, and what it was about to do.
//!
//! The kernel writes a thread's registers into the signal frame, in a different form on each architecture (`arch`).
//! All other code that reads them, for faults and for stopped system calls, goes through this module.

use crate::arch::frame;
use libc::ucontext_t;

/// What a thread was about to do when it faulted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// It was about to read.
    Read,
    /// It was about to write.
    Write,
    /// It was about to execute an instruction there.
    Run,
}

/// The interrupted thread's stack pointer.
#[must_use]
pub fn stack_pointer(context: &ucontext_t) -> usize {
    frame::stack_pointer(context)
}

/// The address of the interrupted thread's next instruction; after a fault, the one that faulted.
#[must_use]
pub fn instruction(context: &ucontext_t) -> usize {
    frame::instruction(context)
}

/// Makes the thread continue at `instruction` when the handler returns.
pub fn go_on_at(context: &mut ucontext_t, instruction: usize) {
    frame::go_on_at(context, instruction);
}

/// Returns what the thread was about to do, from the frame of a signal that a fault raised. Returns `None` if the
/// frame does not say: emulators omit it.
#[must_use]
pub fn access(context: &ucontext_t) -> Option<Access> {
    frame::access(context)
}

/// Returns the number and the arguments of the system call that a filter stopped (SIGSYS).
#[must_use]
pub fn stopped_call(context: &ucontext_t) -> (i64, [usize; 6]) {
    frame::stopped_call(context)
}

/// A system call that a signal has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ended {
    /// Its number, if the code in front of the call tells it.
    pub number: Option<usize>,
    /// Its arguments. Some processors have the answer where the first one was.
    pub arguments: [usize; 6],
}

/// Returns the system call that a signal has just ended with `EINTR`, or `None` if none was.
#[must_use]
pub fn ended_call(context: &ucontext_t) -> Option<Ended> {
    frame::ended_call(context)
}

/// Has the thread make a call again that a signal has ended ([`ended_call`]).
pub fn make_again(context: &mut ucontext_t, number: usize, first: usize) {
    frame::make_again(context, number, first);
}

/// Sets the return value of the stopped system call.
pub fn answer(context: &mut ucontext_t, answer: i64) {
    frame::answer(context, answer);
}
