//! Errors: [`RangeError`] if a range of bytes or a page of it does not allow a call, and a type for each operation that
//! can fail for more reasons. Each message names the value and a remedy.

use millpond_core::limits::MIN_LIMIT_PAGES;
use millpond_driver::error::MoveError;
use thiserror::Error;

/// Smallest budget, in bytes.
pub const MIN_RAM: u64 = MIN_LIMIT_PAGES as u64 * 4096;

/// Why a manager could not be built.
///
/// ```
/// use millpond::{BuildError, Manager};
/// let error = Manager::builder().ram(1 << 20).build().unwrap_err();
/// assert!(matches!(error, BuildError::BudgetTooSmall { ram: 0x10_0000 }));
/// assert!(error.to_string().contains("minimum of 16777216 bytes (16 MiB): give more"));
/// ```
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum BuildError {
    /// No budget was given.
    #[error("no RAM budget was given: call .ram(bytes)")]
    NoBudget,
    /// The budget is too small to work with.
    #[error("a budget of {ram} bytes is below the minimum of {MIN_RAM} bytes (16 MiB): give more")]
    BudgetTooSmall {
        /// Bytes that were asked for.
        ram: u64,
    },
    /// The budget is larger than page numbers reach.
    #[error("a budget of {ram} bytes is above the maximum of 16 TiB: give less")]
    BudgetTooLarge {
        /// Bytes that were asked for.
        ram: u64,
    },
    /// The address space asked for cannot be used.
    #[error(
        "an address space of {bytes} bytes cannot be used: it must be between 2 MiB and just below 16 TiB"
    )]
    BadAddressSpace {
        /// Bytes that were asked for.
        bytes: u64,
    },
    /// The tables for this much address space are larger than the machine.
    #[error(
        "an address space of {bytes} bytes needs tables of {tables} bytes, more than this machine's {machine}: \
         ask for a smaller .address_space(bytes)"
    )]
    TablesTooLarge {
        /// Bytes that were asked for.
        bytes: u64,
        /// Bytes of address space that the tables would take. Only the used parts take memory.
        tables: u64,
        /// RAM of the machine.
        machine: u64,
    },
    /// More memory nodes than there can be, or none.
    #[error("{nodes} memory nodes cannot be had: ask for 1 to {most}", most = millpond_core::limits::MAX_NODES)]
    BadNodes {
        /// Number of nodes that was asked for.
        nodes: u8,
    },
    /// Real memory could not be set up.
    #[error("cannot manage memory here: {0}")]
    Memory(#[from] millpond_mmu::MmuError),
    /// The store could not be opened.
    #[error("cannot open the store: {0}")]
    Store(#[from] StoreError),
    /// Memory that is in use could not be taken into management.
    #[error("memory that is in use cannot be managed ({0:?})")]
    Adopt(millpond_core::Refusal),
    /// A thread could not be started.
    #[error("cannot start the reclaim thread: {0}")]
    Thread(std::io::Error),
    /// There is no place for the counters that `millpond stat` shows.
    #[error("cannot publish the manager's counters: {0}; build it without .publish(name)")]
    Publish(millpond_board::BoardError),
}

/// Why a store could not be opened.
///
/// ```
/// use millpond::{BuildError, Manager, StoreKind};
/// let store = StoreKind::Auto { directory: Some("/nowhere".into()) };
/// let error = Manager::builder().ram(16 << 20).store(store).build().unwrap_err();
/// assert!(matches!(&error, BuildError::Store(store) if store.to_string().contains("/nowhere")));
/// ```
#[derive(Debug, Error)]
#[error(transparent)]
pub struct StoreError(Unopened);

/// Which of the stores could not be opened.
#[derive(Debug, Error)]
#[error(transparent)]
enum Unopened {
    Local(millpond_store::OpenError),
    #[cfg(feature = "remote")]
    Remote(millpond_remote::RemoteOpenError),
}

impl From<millpond_store::OpenError> for StoreError {
    fn from(error: millpond_store::OpenError) -> Self {
        Self(Unopened::Local(error))
    }
}

#[cfg(feature = "remote")]
impl From<millpond_remote::RemoteOpenError> for StoreError {
    fn from(error: millpond_remote::RemoteOpenError) -> Self {
        Self(Unopened::Remote(error))
    }
}

/// Why a region could not be made.
///
/// ```
/// # let manager = millpond::Manager::builder().ram(16 << 20).build()?;
/// let error = manager.region(0).unwrap_err();
/// assert_eq!(error, millpond::RegionError::Empty);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Error, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum RegionError {
    /// A region of no bytes.
    #[error("a region of 0 bytes was asked for: give at least one byte")]
    Empty,
    /// More bytes than page numbers can name, or a length in elements that overflows.
    #[error(
        "a region of {count} elements of {size} bytes is beyond the 16 TiB that a manager can name"
    )]
    TooLong {
        /// Elements asked for.
        count: usize,
        /// Bytes in each.
        size: usize,
    },
    /// No free addresses.
    #[error(
        "the manager's address space of {space} bytes has no free run of {bytes} bytes: \
         drop regions, or build the manager with a larger .address_space(bytes)"
    )]
    NoAddressSpace {
        /// Bytes that were asked for.
        bytes: u64,
        /// Length of the whole address space, in bytes.
        space: u64,
    },
    /// The group refuses the region.
    #[error("the region cannot be the group's: {0}")]
    Group(#[from] MoveError),
    /// The system refused to make the range accessible.
    #[error("cannot open {bytes} bytes for access: {reason}")]
    Memory {
        /// Bytes that were asked for.
        bytes: u64,
        /// The text of the system's error.
        reason: String,
    },
}

/// Why a call for a range of bytes did nothing: the range, or a page of it. Calls that can fail for more reasons wrap
/// it.
///
/// ```
/// # let manager = millpond::Manager::builder().ram(16 << 20).build()?;
/// let mut region = manager.region(8192)?;
/// let error = region.discard(1..4096).unwrap_err();
/// assert_eq!(error, millpond::RangeError::Unaligned { start: 1, end: 4096 });
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Error, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum RangeError {
    /// The range is empty, reversed, or leaves the region.
    #[error("the range {start}..{end} is empty or not within the region's {len} bytes")]
    Bad {
        /// Offset of the first byte.
        start: usize,
        /// Offset behind the last byte.
        end: usize,
        /// Length of the region in bytes.
        len: usize,
    },
    /// The range does not begin and end at pages.
    #[error("the range {start}..{end} does not begin and end at multiples of 4096")]
    Unaligned {
        /// Offset of the first byte.
        start: usize,
        /// Offset behind the last byte.
        end: usize,
    },
    /// A page is pinned.
    #[error("the page at offset {offset} is pinned: drop its guard first")]
    Pinned {
        /// Offset of the page in the region, in bytes.
        offset: usize,
    },
    /// The store could not give a page back: it is damaged, or the medium failed. The page is one of the range, or
    /// shares a folio with an end of it; a part of the range may have been discarded or freed.
    #[error(
        "the page at offset {offset} is lost: the store could not give it back; discard it to use it again"
    )]
    Lost {
        /// Offset of the page in the region, in bytes.
        offset: usize,
    },
    /// No folio record was left, to bring a page in or to split a folio with; a part of the range may have been
    /// discarded or freed.
    #[error("no folio records left: build the manager with a larger .address_space(bytes)")]
    OutOfRecords,
}

/// Why a range could not be marked or unmarked as volatile.
///
/// ```
/// # let manager = millpond::Manager::builder().ram(16 << 20).build()?;
/// let cache = manager.region(8192)?;
/// let error = cache.mark_nonvolatile(0..8192).unwrap_err();
/// assert_eq!(error, millpond::VolatileError::NotVolatile { start: 0, end: 8192 });
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Error, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum VolatileError {
    /// The range, or a page of it, does not allow the call.
    #[error(transparent)]
    Range(#[from] RangeError),
    /// A part of the range is volatile already.
    #[error("the range is volatile already at offset {offset}: mark it nonvolatile first")]
    Overlaps {
        /// Offset of the page in the region, in bytes.
        offset: usize,
    },
    /// The range was not marked as one range.
    #[error(
        "the range {start}..{end} was not marked as volatile: unmark the same range that was marked"
    )]
    NotVolatile {
        /// Offset of the first byte.
        start: usize,
        /// Offset behind the last byte.
        end: usize,
    },
}

/// Why nothing was moved, or why a region kept its length. Nothing has changed.
///
/// ```
/// # let manager = millpond::Manager::builder().ram(16 << 20).build()?;
/// use millpond::{RangeError, RemapError};
/// let mut region = manager.region(8192)?;
/// let error = region.grow(4096).unwrap_err();
/// assert_eq!(error, RemapError::Range(RangeError::Bad { start: 8192, end: 4096, len: 8192 }));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Error, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum RemapError {
    /// The range, or a page of it, does not allow the call.
    #[error(transparent)]
    Range(#[from] RangeError),
    /// Source and destination belong to different managers.
    #[error("source and destination belong to different managers: move within one")]
    OtherManager,
    /// A volatile range is only partly in the source.
    #[error(
        "the volatile range at offset {offset} is only partly in the source: mark it nonvolatile first"
    )]
    Volatile {
        /// Offset of the page in the region, in bytes.
        offset: usize,
    },
    /// The length is too large, or there is no free run of addresses.
    #[error(
        "the manager's address space has no free run of {bytes} bytes: \
         drop regions, or build the manager with a larger .address_space(bytes)"
    )]
    NoAddressSpace {
        /// Bytes that were asked for.
        bytes: u64,
    },
    /// The system refused the call.
    #[error("the pages cannot be moved: {reason}")]
    Memory {
        /// The text of the system's error.
        reason: String,
    },
}

/// Why elements were not collected into a vector.
///
/// ```
/// use millpond::{CollectError, Manager, PondVec, RegionError};
/// let manager = Manager::builder().ram(16 << 20).address_space(64 << 20).build()?;
/// let collected = PondVec::builder().collect(&manager, std::iter::repeat_n(7_u8, 128 << 20));
/// assert!(matches!(collected, Err(CollectError::Region(RegionError::NoAddressSpace { .. }))));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Error, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum CollectError {
    /// The vector could not be made.
    #[error(transparent)]
    Region(#[from] RegionError),
    /// The vector could not grow.
    #[error(transparent)]
    Grow(#[from] RemapError),
}

/// Why the budget was not changed.
///
/// ```
/// # let manager = millpond::Manager::builder().ram(16 << 20).build()?;
/// let error = manager.set_ram(32 << 20).unwrap_err();
/// assert_eq!((error.bytes, error.most), (32 << 20, 16 << 20));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Error, Clone, Copy, PartialEq, Eq)]
#[error(
    "a budget of {bytes} bytes is not within {least} and the {most} that the manager was built with"
)]
pub struct SetRamError {
    /// The budget that was asked for, in bytes.
    pub bytes: u64,
    /// The smallest budget, in bytes.
    pub least: u64,
    /// The largest budget, in bytes: build the manager with more to have more.
    pub most: u64,
}

/// Why there is no snapshot. The region is unchanged.
///
/// ```
/// # let manager = millpond::Manager::builder().ram(16 << 20).build()?;
/// use millpond::SnapshotError;
/// let mut region = manager.region(8192)?;
/// let pinned = region.pin(4096..8192)?.leak();
/// assert_eq!(region.snapshot().unwrap_err(), SnapshotError::Pinned { offset: 4096 });
/// region.unpin(pinned);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Error, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum SnapshotError {
    /// A page is pinned.
    #[error("the page at offset {offset} is pinned: drop its guard first")]
    Pinned {
        /// Offset of the page in the region, in bytes.
        offset: usize,
    },
    /// Two free runs of the region's length are needed: for what is shared, and for the snapshot.
    #[error(
        "the manager's address space has no two free runs of {bytes} bytes: \
         drop regions, or build the manager with a larger .address_space(bytes)"
    )]
    NoAddressSpace {
        /// The region's length in bytes.
        bytes: u64,
    },
    /// The system refused the call.
    #[error("the region's pages cannot be shared: {reason}")]
    Memory {
        /// The text of the system's error.
        reason: String,
    },
}

/// Why advice was not taken.
///
/// ```
/// # let manager = millpond::Manager::builder().ram(16 << 20).build()?;
/// use millpond::{Advice, AdviseError, RangeError};
/// let region = manager.region(8192)?;
/// let error = region.advise(0..9000, Advice::Cold).unwrap_err();
/// assert_eq!(error, AdviseError::Range(RangeError::Bad { start: 0, end: 9000, len: 8192 }));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Error, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum AdviseError {
    /// The range, or a page of it, does not allow the call.
    #[error(transparent)]
    Range(#[from] RangeError),
    /// The thread that prefetches could not be started.
    #[error("cannot start the thread that prefetches: {reason}")]
    Thread {
        /// The text of the system's error.
        reason: String,
    },
}

/// Why a range could not be pinned.
///
/// ```
/// # let manager = millpond::Manager::builder().ram(16 << 20).build()?;
/// use millpond::PinError;
/// let region = manager.region(64 << 20)?;
/// let error = region.pin(0..64 << 20).unwrap_err();
/// assert_eq!(error, PinError::OverBudget { bytes: 64 << 20, ram: 16 << 20 });
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Error, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum PinError {
    /// The range, or a page of it, does not allow the call.
    #[error(transparent)]
    Range(#[from] RangeError),
    /// More would be pinned than the budget allows.
    #[error(
        "pinning {bytes} bytes would leave less than a quarter of the budget of {ram} bytes to everything else: \
         pin less, or raise the budget"
    )]
    OverBudget {
        /// Bytes that were asked for.
        bytes: u64,
        /// The budget, in bytes.
        ram: u64,
    },
    /// A page is pinned 255 times already.
    #[error("the page at offset {offset} is pinned 255 times already: drop some guards")]
    TooOften {
        /// Offset of the page in the region, in bytes.
        offset: usize,
    },
}
