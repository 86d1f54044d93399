//! Deterministic simulation of the Millpond core: one seed, one history.
//!
//! The real core runs between a simulated memory, a simulated store and simulated threads. A seeded scheduler decides
//! which of them moves next, so every interleaving that the driver's contract allows can happen, and running a seed
//! again repeats it. Three judges watch: the contract of each command ([`mmu`], [`store`], [`schedule`]), the expected
//! contents of every page ([`oracle`]), and the whole state with the budget (`judge`). At the end everything must come
//! to rest ([`run`]).
//!
//! ```
//! let run = millpond_sim::run(1, millpond_sim::Options { events: 500, ..Default::default() });
//! assert_eq!(run.failure, None);
//! ```
#![forbid(unsafe_code)]

pub mod actor;
mod acts;
mod adopt;
mod bases;
mod choose;
pub mod disk;
pub mod durable;
mod effects;
mod fault;
pub mod file;
mod foreign;
mod free;
mod gather;
pub mod groups;
mod judge;
pub mod mmu;
pub mod names;
mod operator;
pub mod oracle;
pub mod profile;
pub mod remap;
pub mod report;
pub mod resize;
pub mod rng;
mod run;
pub mod schedule;
pub mod seeds;
mod several;
pub mod snapshot;
pub mod store;
mod sync;
mod volatile;
pub mod world;

pub use profile::{Options, Sabotage};
pub use run::{Run, run};
pub use several::run_each;
