//! Creating children: all memory touched between a child's creation and its `execve` is present, and lies where the
//! child may name it.
//!
//! `fork` needs nothing: the child has our handlers and correct memory. Nor does `vfork` by itself: the child runs on
//! its parent's memory and signal mask, with a copy of its handlers, and whatever it brings in is brought in for
//! both. But the C library creates most children itself, and before `execve` it blocks all signals in them and resets
//! caught signals to their defaults. Such a child dies when it first touches absent memory, and also when it first
//! makes a call with an address of the space: the filter raises SIGSYS whether or not the memory is present. So it is
//! not enough to hold its memory: whatever the child passes to the kernel must lie elsewhere.
//!
//! | what | is | by |
//! | --- | --- | --- |
//! | paths, lists, attributes and actions of `posix_spawn` | copied | [`spawn`] |
//! | the environment's list, which `system`, `popen` and `wordexp` pass on | placed outside the space | [`environment`] |
//! | what `popen` and `wordexp` allocate for the child | allocated outside the space | [`apart`] |
//! | the strings of `execve` and its relatives, which no filter sees | held | [`exec`], [`search`] |
//! | a stack in the space, of a child that shares the memory | replaced | [`lent_stack`] |
//! | the request of a debugger's child to be traced | deferred until it becomes its program | [`traced`] |
//! | affinity and stack of a new thread, which starts with all signals blocked | copied, replaced | [`attributes`] |
//!
//! `daemon` and `forkpty` fork, and touch nothing before the child is served.

pub mod apart;
pub mod attributes;
mod environment;
pub mod exec;
pub mod lent_stack;
mod search;
mod shell;
mod spawn;
pub mod traced;

use super::real;

/// Looks up the C library's functions. The program must not be running yet.
pub fn find() {
    for functions in [
        exec::FUNCTIONS,
        shell::FUNCTIONS,
        spawn::FUNCTIONS,
        traced::FUNCTIONS,
    ] {
        real::find(functions);
    }
}
