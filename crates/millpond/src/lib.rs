//! Linux memory management for one process: plain pointers over more data than RAM, under one hard budget.
//!
//! A [`Manager`] has a RAM budget and a store. Its [`Region`]s are ordinary memory to the program; what does not
//! fit in the budget flows to the store and comes back when it is touched.
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
//! The decisions are made by [`millpond_core`]; this crate carries them out (see `driver`) on real
//! memory ([`millpond_mmu`]) and a store ([`millpond_store`]).

#![warn(missing_docs)]

mod builder;
mod child;
mod driver;
mod error;
mod group;
mod lazy;
mod manager;
mod no_wait;
pub mod publish;
mod region;
mod region_builder;
mod remap;
mod signals;
mod snapshot;
pub mod space;
mod stats;
mod vec;

pub use builder::{ManagerBuilder, OnStoreFull, StoreKind};
pub use driver::Contents;
pub use driver::free::{FreeStats, FreeTuning};
pub use driver::shrink::{ShrinkerGuard, ShrinkerStats};
pub use error::{
    AdviseError, BuildError, DiscardError, ForkError, GroupError, LazyFreeError, MoveError,
    PinError, PopulateError, RegionError, RemapError, SetRamError, SnapshotError, StoreError,
    VolatileError,
};
pub use group::{Group, GroupLimits, GroupStats, Pressure, PressureLine};
pub use manager::{Capabilities, Manager};
pub use millpond_core::{BadOrderPolicy, GroupEvents, Order, OrderPolicy, PAGE_SIZE, VmStat};
pub use millpond_mmu::{Delivery, TakeOutMethod};
pub use region::{Advice, PinGuard, Pinned, Region, RegionStats};
pub use region_builder::RegionBuilder;
pub use snapshot::ReadOnlyRegion;
pub use stats::{FaultLatencies, LatencySummary, Stats};
pub use vec::{Plain, PondVec};
