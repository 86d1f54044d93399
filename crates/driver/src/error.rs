//! What the driver refuses, and why.

use millpond_core::limits::MIN_GROUP_MAX;
use rustix::io::Errno;
use thiserror::Error;

/// Smallest max of a group, in bytes.
pub const MIN_GROUP_MAX_BYTES: u64 = MIN_GROUP_MAX as u64 * 4096;

/// Why a page could not be brought into memory.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum PopulateError {
    /// The store could not give it back: it is damaged, or the medium failed. Discard the page to use it again.
    #[error(
        "the page at offset {offset} is lost: the store could not give it back; discard it to use it again"
    )]
    Lost {
        /// Where, in the region.
        offset: usize,
    },
    /// No folio record was left.
    #[error("no folio records left: build the manager with a larger .address_space(bytes)")]
    OutOfRecords,
}

/// Why a region is still its group's.
#[derive(Debug, Error, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum MoveError {
    /// The group was removed.
    #[error("the group was removed: what it had is its parent's")]
    Removed,
    /// It belongs to another manager.
    #[error("the group belongs to another manager: use one of the region's manager")]
    OtherManager,
    /// Another thread moves the region.
    #[error("another thread moves the region to a group: wait for it")]
    Busy,
}

/// Why a group was not made, changed or removed. All is as it was.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum GroupError {
    /// Another group there has that name.
    #[error("there is a group {name:?} already: remove it first, or choose another name")]
    NameTaken {
        /// The name.
        name: String,
    },
    /// A name without letters, or one that looks like a path.
    #[error("{name:?} is no name for a group: it must not be empty or hold a slash")]
    BadName {
        /// The name.
        name: String,
    },
    /// The limits contradict each other.
    #[error(
        "min {min} and low {low} must not be above high {high:?}, and that not above max {max:?} (bytes): \
         lower the former or raise the latter"
    )]
    Limits {
        /// What was asked for.
        min: u64,
        /// What was asked for.
        low: u64,
        /// What was asked for.
        high: Option<u64>,
        /// What was asked for.
        max: Option<u64>,
    },
    /// Too little to work in.
    #[error(
        "a max of {max} bytes is below the minimum of {MIN_GROUP_MAX_BYTES} bytes (4 MiB): give more"
    )]
    MaxTooSmall {
        /// What was asked for, in bytes.
        max: u64,
    },
    /// It would lie below too many others.
    #[error(
        "groups are at most {most} above each other, the root among them: make it below a higher one"
    )]
    TooDeep {
        /// How many there can be.
        most: usize,
    },
    /// There are as many as there can be.
    #[error("there are {most} groups, the root among them, and cannot be more: remove some")]
    TooMany {
        /// How many there can be.
        most: usize,
    },
    /// There are groups below it.
    #[error("there are groups below it: remove them first")]
    InUse,
    /// It is the root.
    #[error("the root group has the manager's budget and lives as long: use Manager::set_ram")]
    Root,
    /// It was removed.
    #[error("the group was removed: what it had is its parent's")]
    Removed,
    /// It belongs to another manager.
    #[error("the group belongs to another manager: use one of this manager's")]
    OtherManager,
    /// The thread that calls shrinkers could not be started.
    #[error("cannot start the thread that calls shrinkers: {reason}")]
    Thread {
        /// What the system said.
        reason: String,
    },
}

/// Why a child process cannot go on with managed memory.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ForkError {
    /// Memory could not be set up in the child.
    #[error("cannot manage memory in the child process: {0}")]
    Memory(#[from] millpond_mmu::MmuError),
    /// The store could not be set up in the child.
    #[error("cannot open a store for the child process ({}){}", Errno::from_raw_os_error(*.0), child_way_out(*.0))]
    Store(i32),
    /// A page was touched between fork and set-up that was not in memory: it would read as zeros.
    #[error(
        "the child process touched absent memory at {address:#x} before it could be served: its contents would be wrong"
    )]
    Torn {
        /// Where.
        address: usize,
    },
    /// A thread could not be started.
    #[error("cannot start the reclaim thread in the child process: {0}")]
    Thread(std::io::Error),
}

/// What to do when the child of a fork gets no store, by the number of the error.
fn child_way_out(error: i32) -> &'static str {
    match Errno::from_raw_os_error(error) {
        Errno::MFILE | Errno::NFILE => {
            ": raise `ulimit -n`, or close what the program does not need before it forks"
        }
        Errno::NOMEM => {
            ": Millpond reserves more addresses than it uses; raise `ulimit -v` and `ulimit -d`"
        }
        _ => "",
    }
}
