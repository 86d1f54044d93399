//! Making children: what is touched between the making of a child and its `execve` is there, and lies where the child
//! may name it.
//!
//! `fork` needs nothing: the child has our handlers, and memory that is right. Nor does `vfork` by itself: the child
//! runs on its parent's memory and signal mask, with a copy of its handlers, and what it brings in is brought in for
//! both. But the C library makes most children by itself, and blocks all signals in them and sets caught signals to
//! their defaults before `execve`. Such a child dies by its first touch of memory that is out, and by its first call
//! with an address of the space too: the filter raises SIGSYS, in or out. To hold its memory is therefore not enough:
//! what the child hands to the kernel must lie elsewhere.
//!
//! | what | is | by |
//! | --- | --- | --- |
//! | paths, lists, attributes and actions of `posix_spawn` | copied | [`spawn`] |
//! | the environment's list, which `system`, `popen` and `wordexp` pass on | laid out of the space | [`environment`] |
//! | what `popen` and `wordexp` allocate for the child | allocated out of the space | [`apart`] |
//! | the texts of `execve` and its relatives, which no filter sees | held | [`exec`], [`search`] |
//! | a stack in the space, of a child that shares the memory | replaced | [`lent_stack`] |
//! | the wish to be traced of a debugger's child | put off until it becomes its program | [`traced`] |
//! | affinity and stack of a new thread, which begins with all signals blocked | copied, replaced | [`attributes`] |
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

/// Looks the C library's functions up. The program must not run yet.
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
