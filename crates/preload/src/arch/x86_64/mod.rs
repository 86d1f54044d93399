//! x86-64.

mod contexts;
pub mod frames;
pub mod gate;
mod stubs;
mod threads;
mod variadic;
pub mod waits;

pub use contexts::FUNCTIONS;
pub(crate) use stubs::*;
pub use threads::{Unwound, on_given, this_thread, thread_pointer, tls_table};

pub const HAS_GATE: bool = true;
pub const DUP2: &[i64] = &[libc::SYS_dup2];
pub const FORK: Option<i64> = Some(libc::SYS_fork);
/// Calls that other processors lack and that do the same when they are made again ([`park`](crate::park)).
pub const REPEATED: &[i64] = &[
    libc::SYS_poll,
    libc::SYS_select,
    libc::SYS_epoll_wait,
    libc::SYS_open,
];
/// The numbers of the calls that make children. [`by_number`] itself must know which children are served: one that
/// shares the memory, or starts on its own stack, would return into a function of ours that is not there.
pub const CHILDREN: &[i64] = &[libc::SYS_fork, libc::SYS_clone, libc::SYS_clone3];
/// The flag of `mmap` for addresses that fit in 32 bits.
pub const MAP_32BIT: Option<i32> = Some(libc::MAP_32BIT);
