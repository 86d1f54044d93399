//! The driver: passes events to the core, carries out the core's commands, and returns the results.
//!
//! A fault takes this path: [`fault`] asks the core under the lock; `carry_out.rs` works unlocked, on the MMU and the
//! store; the completion is reported under the lock again, and every thread that waited for it is woken. Everything
//! else that moves memory (`reclaim.rs`, [`operate`]) is the same loop, started by another event.
//!
//! Nothing in this crate may allocate, touch managed memory, or wait for anything except the core lock, a command in
//! flight on another thread, and the store: a fault may come from anywhere, including the program's allocator.

mod adopt;
mod ahead;
mod carry_out;
mod closed_gate;
mod driver;
pub mod error;
mod excess;
pub mod fault;
pub mod file;
pub mod fork;
pub mod free;
mod give_back;
mod governor;
mod group;
pub mod housekeeping;
mod lazy_batch;
mod lazy_free;
pub mod memory;
pub mod operate;
pub mod others;
mod panics;
pub mod prefetch;
pub mod pressure;
#[cfg(feature = "provoke")]
pub mod provoke;
pub mod publish;
pub mod read_ahead;
mod recent;
mod reclaim;
mod recompress;
pub mod record;
pub mod regions;
pub mod remap;
mod reuse;
#[cfg(feature = "shuttle")]
pub mod sabotage;
pub mod shrink;
pub mod signals;
pub mod snapshot;
mod spurious_fault;
pub mod stall;
pub mod state;
pub mod stats;
mod watchdog;
mod within;
pub mod write_back;

pub use driver::Driver;
pub use fault::FaultError;
pub use lazy_free::Contents;
pub use state::config::{Background, Charge, OnStoreFull, Parts};
