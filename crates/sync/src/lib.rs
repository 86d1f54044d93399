//! Locks with ranks, and the primitives by which Millpond's threads synchronize.
//!
//! A thread may take a lock only while every lock it holds has a lower [`Rank`]. docs/LOCKS.md has the matrix; builds
//! with debug assertions check it ([`witness`]).
//!
//! Mutexes, condition variables, atomics, threads, the futex word and the clock come from here so that they can be
//! replaced. With the feature `shuttle` all of them are [shuttle](https://docs.rs/shuttle)'s: then a scheduler decides
//! at each operation which thread continues, and a failure can be replayed from its seed. Time limits never elapse
//! there, so a lost wake-up is a deadlock, which the scheduler reports. The clock counts the scheduler's steps. Atomics
//! that only count for statistics still come from the standard library: they order nothing, and each would be one more
//! step. So do statics, which outlive an execution.

mod end;
mod gate;
mod own_thread;
mod own_threads;
mod per_process;
mod primitives;
mod rank;
mod ranked;
mod shared;
pub mod time;
pub mod witness;
mod word;

pub use end::end_by;
pub use gate::{Gate, Passage};
pub use once_cell::race::OnceBox;
pub use own_thread::OwnThread;
pub use own_threads::{OwnThreads, forget_inherited_threads, is_own_thread};
pub use per_process::{ForkOnce, PerProcess};
pub use primitives::{
    Barrier, Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard, atomic, hint,
    if_free, thread,
};
pub use rank::Rank;
pub use ranked::{Held, Ranked};
pub use shared::{HeldRw, RankedRw};
pub use witness::LocksOf;
pub use word::Word;

#[cfg(all(test, feature = "shuttle"))]
mod scheduled;
#[cfg(all(test, not(feature = "shuttle")))]
mod tests;
