//! Linux memory management for one process: plain pointers over more data than RAM, under one hard budget.
//!
//! A [`Manager`] has a RAM budget and a store. Its [`Region`]s are ordinary memory to the program. Pages that do not
//! fit in the budget flow to the store and come back when they are touched.
//!
//! ```
//! use millpond::{Manager, StoreKind};
//!
//! let manager = Manager::builder().ram(16 << 20).store(StoreKind::compressed_ram()).build()?;
//! let mut region = manager.region(64 << 20)?; // four times the budget
//! for (i, byte) in region.as_mut_slice().iter_mut().step_by(4096).enumerate() {
//!     *byte = i as u8;
//! }
//! assert!(region.as_slice().iter().step_by(4096).enumerate().all(|(i, &byte)| byte == i as u8));
//! assert!(manager.stats().vm.pswpout > 0);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [`millpond_core`] makes the decisions. This crate carries them out ([`millpond_driver`]) on real memory
//! ([`millpond_mmu`]) and a store ([`millpond_store`]).

#![warn(missing_docs)]

mod builder;
mod child;
mod default_manager;
mod error;
mod group;
mod heap;
mod lazy;
mod manager;
mod no_wait;
mod region;
mod region_builder;
mod remap;
mod shrinker;
mod snapshot;
pub mod space;
#[cfg(test)]
mod tests;
mod vec;

pub use builder::{ManagerBuilder, StoreKind};
pub use error::{
    AdviseError, BuildError, CollectError, PinError, RangeError, RegionError, RemapError,
    SetRamError, SnapshotError, StoreError, VolatileError,
};
pub use group::{Group, GroupLimits, GroupStats};
pub use heap::{HeapStats, PondAlloc};
pub use manager::{Capabilities, Manager};
pub use millpond_core::{BadOrderPolicy, GroupEvents, Order, OrderPolicy, PAGE_SIZE, VmStat};
pub use millpond_driver::error::{ForkError, GroupError, MoveError};
pub use millpond_driver::pressure::{Pressure, PressureLine};
pub use millpond_driver::state::queue::{FreeStats, FreeTuning};
pub use millpond_driver::state::shrink::ShrinkerStats;
pub use millpond_driver::stats::{FaultLatencies, LatencySummary, Stats};
pub use millpond_driver::{Contents, OnStoreFull, publish};
pub use millpond_mmu::{Delivery, Mask, TakeOutMethod};
pub use millpond_store::IO_OF_STORE;
pub use region::{Advice, PinGuard, Pinned, Region, RegionStats};
pub use region_builder::RegionBuilder;
pub use shrinker::ShrinkerGuard;
pub use snapshot::ReadOnlyRegion;
pub use vec::{IntoIter, Plain, PondVec, PondVecBuilder};

/// The Rust of the README and of the guide, which is compiled and run with the documentation's examples.
#[cfg(doctest)]
mod pages {
    #[doc = include_str!("../../../README.md")]
    struct Readme;
    #[doc = include_str!("../../../docs/guide/src/rust.md")]
    struct Rust;
    #[doc = include_str!("../../../docs/guide/src/allocators.md")]
    struct Allocators;
    #[doc = include_str!("../../../docs/guide/src/engines.md")]
    struct Engines;
}
