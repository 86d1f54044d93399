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
mod file;
mod file_error;
mod group;
mod heap;
mod lazy;
mod manager;
mod no_wait;
#[cfg(feature = "remote")]
mod object;
mod region;
mod region_builder;
mod relay;
mod remap;
mod shrinker;
mod snapshot;
pub mod space;
mod store_kind;
#[cfg(test)]
mod tests;
mod vec;

pub use builder::ManagerBuilder;
pub use error::{
    AdviseError, BuildError, CollectError, PinError, RangeError, RegionError, RemapError,
    SetRamError, SnapshotError, StoreError, VolatileError,
};
pub use file::{FileRegion, FileSource, Mode};
pub use file_error::{FileError, GrowFileError, MapFileError};
pub use group::{Group, GroupLimits, GroupStats};
pub use heap::{HeapStats, PondAlloc};
pub use manager::{Capabilities, Manager};
/// The error of a text that is parsed to an [`OrderPolicy`].
///
/// ```
/// let refused: millpond::BadOrderPolicy = "12".parse::<millpond::OrderPolicy>().unwrap_err();
/// assert!(refused.to_string().contains("give 0 (4 KiB) to 9 (2 MiB)"));
/// ```
pub use millpond_core::BadOrderPolicy;
/// The part of [`GroupStats`] that counts how often a limit was met.
///
/// ```
/// # let manager = millpond::Manager::builder().ram(16 << 20).build()?;
/// use millpond::{GroupLimits, Region};
/// let scans = manager.group(&manager.root(), "scans", GroupLimits::new().max(4 << 20))?;
/// let mut region = Region::builder().group(&scans).build(&manager, 8 << 20)?;
/// region.as_mut_slice().fill(7);
/// assert!(scans.stats()?.events.max > 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub use millpond_core::GroupEvents;
/// The size of folios, where it is fixed: for [`ManagerBuilder::order`] and [`RegionBuilder::order`].
///
/// ```
/// use millpond::Order;
/// assert_eq!(Order::new(4).map(|order| order.pages().0), Some(16)); // 64 KiB
/// assert_eq!(Order::new(10), None);
/// ```
pub use millpond_core::Order;
/// How folios get their size: for [`ManagerBuilder::order`] and [`RegionBuilder::order`].
///
/// ```
/// use millpond::{Order, OrderPolicy};
/// assert_eq!("adaptive".parse(), Ok(OrderPolicy::Adaptive { max: Order::MAX }));
/// assert_eq!("0".parse(), Ok(OrderPolicy::Fixed(Order::ZERO)));
/// ```
pub use millpond_core::OrderPolicy;
pub use millpond_core::PAGE_SIZE;
/// The part of [`Stats`] and [`GroupStats`] that has the names of Linux.
///
/// ```
/// # let manager = millpond::Manager::builder().ram(16 << 20).build()?;
/// let mut region = manager.region(64 << 20)?;
/// region.as_mut_slice().fill(7);
/// let vm = manager.stats().vm;
/// assert!(vm.pgfault > 0 && vm.pswpout > 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub use millpond_core::VmStat;
/// What [`Region::mark_nonvolatile`] answers.
///
/// ```
/// # let manager = millpond::Manager::builder().ram(16 << 20).build()?;
/// use millpond::Contents;
/// let mut cache = manager.region(1 << 20)?;
/// // SAFETY: nothing refers to the bytes until they are asked for again.
/// unsafe { cache.mark_volatile(0..1 << 20)? };
/// if cache.mark_nonvolatile(0..1 << 20)? == Contents::Purged {
///     cache.as_mut_slice().fill(7);
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub use millpond_driver::Contents;
/// What [`ManagerBuilder::on_store_full`] takes.
///
/// ```
/// use millpond::{Manager, OnStoreFull, StoreKind};
/// // The store holds nothing, so this is right for a program that would rather end than exceed its budget.
/// let builder = Manager::builder().ram(16 << 20).store(StoreKind::None);
/// let manager = builder.on_store_full(OnStoreFull::Abort).build()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub use millpond_driver::OnStoreFull;
/// The error of [`Space::after_fork_in_child`](space::Space::after_fork_in_child).
///
/// ```
/// // What `Space::after_fork_in_child` answers is text for the user, and then the child ends.
/// let error = millpond::ForkError::Torn { address: 0x1000 };
/// assert!(error.to_string().contains("absent memory at 0x1000"));
/// ```
pub use millpond_driver::error::ForkError;
/// The error of [`Manager::group`] and of calls on a [`Group`].
///
/// ```
/// # let manager = millpond::Manager::builder().ram(16 << 20).build()?;
/// use millpond::{GroupError, GroupLimits};
/// let error = manager.group(&manager.root(), "a/b", GroupLimits::new()).unwrap_err();
/// assert_eq!(error, GroupError::BadName { name: "a/b".into() });
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub use millpond_driver::error::GroupError;
/// The error of [`Region::move_to`].
///
/// ```
/// # let manager = millpond::Manager::builder().ram(16 << 20).build()?;
/// let other = millpond::Manager::builder().ram(16 << 20).build()?;
/// let region = manager.region(4096)?;
/// assert_eq!(region.move_to(&other.root()), Err(millpond::MoveError::OtherManager));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub use millpond_driver::error::MoveError;
/// What [`Group::pressure`] answers.
///
/// ```
/// # let manager = millpond::Manager::builder().ram(16 << 20).build()?;
/// manager.region(64 << 20)?.as_mut_slice().fill(7);
/// let pressure = manager.root().pressure();
/// assert!(pressure.some.total >= pressure.full.total);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub use millpond_driver::pressure::Pressure;
/// A part of [`Pressure`].
///
/// ```
/// # let manager = millpond::Manager::builder().ram(16 << 20).build()?;
/// let line = manager.root().pressure().some;
/// assert!(line.avg10 <= 100.0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub use millpond_driver::pressure::PressureLine;
pub use millpond_driver::publish;
/// The part of [`Stats`] about memory that is freed in the background.
///
/// ```
/// # let manager = millpond::Manager::builder().ram(16 << 20).build()?;
/// let mut region = manager.region(32 << 20)?;
/// region.as_mut_slice().fill(7);
/// region.free_async();
/// manager.quiesce();
/// let free: millpond::FreeStats = manager.stats().free;
/// println!("{free:?}");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub use millpond_driver::state::queue::FreeStats;
/// What [`Manager::set_free_tuning`] takes.
///
/// ```
/// # let manager = millpond::Manager::builder().ram(16 << 20).build()?;
/// // Everything is given back by the thread that frees.
/// manager.set_free_tuning(millpond::FreeTuning { workers: 0, ..Default::default() });
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub use millpond_driver::state::queue::FreeTuning;
/// What [`ShrinkerGuard::stats`] answers.
///
/// ```
/// # let manager = millpond::Manager::builder().ram(16 << 20).build()?;
/// let guard = manager.register_shrinker(&manager.root(), || 0, |_| 0)?;
/// assert_eq!(guard.stats(), millpond::ShrinkerStats::default());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub use millpond_driver::state::shrink::ShrinkerStats;
/// A part of [`Stats`].
///
/// ```
/// # let manager = millpond::Manager::builder().ram(16 << 20).build()?;
/// // The usual store has no place beyond the machine.
/// assert_eq!(manager.stats().beyond, millpond::BeyondStats::default());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub use millpond_driver::stats::BeyondStats;
/// The part of [`Stats`] that divides faults by the work that they had to do.
///
/// ```
/// # let manager = millpond::Manager::builder().ram(16 << 20).build()?;
/// manager.region(64 << 20)?.as_mut_slice().fill(7);
/// assert!(manager.stats().faults.first_touch.count > 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub use millpond_driver::stats::FaultLatencies;
/// A part of [`Stats`] and of [`FaultLatencies`].
///
/// ```
/// # let manager = millpond::Manager::builder().ram(16 << 20).build()?;
/// manager.region(64 << 20)?.as_mut_slice().fill(7);
/// let latency = manager.stats().latency;
/// assert!(latency.p50_ns <= latency.p99_ns && latency.p99_ns <= latency.max_ns);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub use millpond_driver::stats::LatencySummary;
/// A part of [`Stats`].
///
/// ```
/// # let manager = millpond::Manager::builder().ram(16 << 20).build()?;
/// // Nothing is made denser before compressed RAM is nearly full.
/// let millpond::RecompressStats { bytes, saved_bytes, .. } = manager.stats().recompress;
/// assert_eq!((bytes, saved_bytes), (0, 0));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub use millpond_driver::stats::RecompressStats;
/// What [`Manager::stats`] answers.
///
/// ```
/// # let manager = millpond::Manager::builder().ram(16 << 20).build()?;
/// let mut region = manager.region(64 << 20)?;
/// region.as_mut_slice().fill(7);
/// let stats = manager.stats();
/// assert!(stats.resident_bytes() <= stats.ram && stats.store.logical_bytes > 0);
/// assert!(stats.compression_ratio().is_none_or(|ratio| ratio > 1.0));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub use millpond_driver::stats::Stats;
/// Why a text is no [`Delivery`].
///
/// ```
/// let refused: millpond::BadDelivery = "by hand".parse::<millpond::Delivery>().unwrap_err();
/// assert!(refused.to_string().contains("choose in-thread or handler"));
/// ```
pub use millpond_mmu::BadDelivery;
/// Why a text is no [`Mask`].
///
/// ```
/// let refused: millpond::BadMask = "mvoe".parse::<millpond::Mask>().unwrap_err();
/// assert!(refused.to_string().starts_with("mvoe is no capability"));
/// ```
pub use millpond_mmu::BadMask;
/// What [`ManagerBuilder::delivery`] takes.
///
/// ```
/// use millpond::{Delivery, Manager};
/// // Memory may go to system calls, where the system allows a handler thread.
/// let builder = Manager::builder().ram(16 << 20);
/// let manager = builder.clone().delivery(Delivery::Handler).build().or_else(|_| builder.build())?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub use millpond_mmu::Delivery;
/// What [`ManagerBuilder::mask`] takes.
///
/// ```
/// use millpond::{Manager, Mask};
/// let mask = Mask::parse("move,scan").expect("these are names");
/// let manager = Manager::builder().ram(16 << 20).mask(mask).build()?;
/// assert!(!manager.capabilities().moves_pages);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub use millpond_mmu::Mask;
/// What [`ManagerBuilder::take_out`] takes.
///
/// ```
/// use millpond::{Manager, TakeOutMethod};
/// let manager = Manager::builder().ram(16 << 20).take_out(TakeOutMethod::Copy).build()?;
/// assert!(!manager.capabilities().moves_pages);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub use millpond_mmu::TakeOutMethod;
#[cfg(feature = "remote")]
pub use millpond_remote::{ObjectError, RemoteUrl, UrlError};
/// Why a text is no [`OnStoreFull`].
///
/// ```
/// let refused: millpond::BadWord = "wait".parse::<millpond::OnStoreFull>().unwrap_err();
/// assert!(refused.to_string().contains("choose exceed or abort"));
/// ```
pub use millpond_settings::BadWord;
pub use millpond_store::IO_OF_STORE;
#[cfg(feature = "remote")]
pub use object::MapObjectError;
pub use region::{Advice, PinGuard, Pinned, Region, RegionStats};
pub use region_builder::RegionBuilder;
pub use shrinker::ShrinkerGuard;
pub use snapshot::ReadOnlyRegion;
pub use store_kind::{StoreFile, StoreKind, half_of_free};
pub use vec::{IntoIter, Plain, PondVec, PondVecBuilder};

/// The Rust code of the README and of the guide, which is compiled and run with the documentation's examples.
#[cfg(doctest)]
mod pages {
    #[doc = include_str!("../../../README.md")]
    struct Readme;
    #[doc = include_str!("../README.md")]
    struct OfThePackage;
    #[doc = include_str!("../../../docs/guide/src/rust.md")]
    struct Rust;
    #[doc = include_str!("../../../docs/guide/src/allocators.md")]
    struct Allocators;
    #[doc = include_str!("../../../docs/guide/src/engines.md")]
    struct Engines;
}
