//! The real driver under a scheduler that can be repeated: one seed, one world and one schedule.
//!
//! `sim` tests the core: its simulated threads do what the driver's calls do, step by step. Here the driver itself
//! runs, over simulated memory and a simulated store, and [shuttle](https://docs.rs/shuttle) decides at each lock, each
//! atomic and each call of memory or store which thread goes on. So an order of two threads that real memory shows once
//! in a week can be found in seconds, and again by its seed.
//!
//! - `memory` and `store` are `sim`'s, behind the driver's traits. A call that breaks their contract is a failure.
//! - `kernel` is where threads sleep that a handler serves, in a part of the worlds.
//! - `world` is what a seed makes: a driver, a few regions, threads and what these like to do.
//! - `program` has the threads of the program. They touch pages as a processor does, and call the driver as the
//!   facade does. A region is shared or borrowed as Rust has it: its lock is the program's. Regions are on memory nodes
//!   and in groups, and change these. Pages move from one region to another, also while threads touch them.
//! - The store fails in a part of the phases: it takes nothing, or cannot give back what it has. What it does not take
//!   stays in memory, and the pages that it loses are poisoned, no others.
//! - `background` has the threads beside them: reclaim, and a fork that finds everything at rest. Prefetcher and
//!   freer are the driver's own.
//! - `judge` looks at the end whether each byte is what `sim`'s oracle expects, whether the core, the memory and the
//!   book of kept pages agree, and whether all memory is still somewhere.
//!
//! Time limits never elapse here. A thread that nobody wakes is a deadlock, which the scheduler reports.
//!
//! Without the feature `shuttle` the crate is empty, which is why the names above are no links.
#![cfg(feature = "shuttle")]

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
