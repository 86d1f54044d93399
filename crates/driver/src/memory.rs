//! The memory that the driver manages: [`RealMemory`] in a program, a simulated one where threads are scheduled by a
//! test. The driver is generic over [`Memory`].
//!
//! What can only be said of real memory is in `impl Driver`, which is `impl Driver<RealMemory>`: the delivery of
//! faults, service threads with descriptors of their own, and the fork of the process (`fork.rs`, `housekeeping.rs`,
//! `free.rs`).

pub use millpond_mmu::{Memory, RealMemory};
