//! The real driver under a deterministic scheduler: one seed, one world and one schedule.
//!
//! `sim` tests the core: its simulated threads do what the driver's calls do, step by step. Here the driver itself
//! runs, over simulated memory and a simulated store, and [shuttle](https://docs.rs/shuttle) decides at each lock, each
//! atomic and each call of memory or store which thread continues. So an interleaving of two threads that real memory
//! shows once a week can be found in seconds, and reproduced by its seed.
//!
//! - `memory` and `store` are `sim`'s, behind the driver's traits. A call that breaks their contract is a failure.
//! - `kernel` is where threads sleep in worlds in which a handler serves faults.
//! - `world` is what a seed generates: a driver, a few regions, threads and their preferences.
//! - `program` has the threads of the program. They touch pages as a processor does, and call the driver as the facade
//!   does. A region is shared or borrowed by Rust's rules, with a lock of the program. Regions are on memory nodes and
//!   in groups, and change these. Pages move from one region to another, even while threads touch them.
//! - `adopt` has the memory that a process brings with it that engages: the driver learns of it before any thread runs.
//! - The store fails in some of the phases: it accepts nothing, or cannot return its contents. Refused pages stay in
//!   memory, and the pages that it loses are poisoned, but no others.
//! - `background` has the other threads: reclaim, and a fork that finds everything at rest. Prefetcher and freer are
//!   the driver's own.
//! - `judge` checks at the end whether each byte is what `sim`'s oracle expects, whether the core, the memory and the
//!   book of kept pages agree, and whether all memory is accounted for.
//!
//! Timeouts never elapse here. A thread that is never woken is a deadlock, which the scheduler reports.
//!
//! Without the feature `shuttle` the crate is empty, which is why the names above are not links.
#![cfg(feature = "shuttle")]

mod adopt;
pub mod background;
pub mod judge;
pub mod kernel;
pub mod memory;
pub mod pages;
pub mod program;
mod regions;
pub mod run;
pub mod store;
mod unwanted;
pub mod world;

pub use run::{Options, Scheduler, run, schedule};
