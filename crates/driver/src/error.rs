//! Errors: which calls the driver refuses, and why.

use millpond_core::limits::MIN_GROUP_MAX;
use rustix::io::Errno;
use thiserror::Error;

/// Smallest max of a group, in bytes.
pub const MIN_GROUP_MAX_BYTES: u64 = MIN_GROUP_MAX as u64 * 4096;

/// Why a region could not change its group.
#[derive(Debug, Error, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum MoveError {
    /// The group was removed.
    #[error("the group was removed: what it had is its parent's")]
    Removed,
    /// The group belongs to another manager.
    #[error("the group belongs to another manager: use one of the region's manager")]
    OtherManager,
    /// Another thread moves the region.
    #[error("another thread moves the region to a group: wait for it")]
    Busy,
}

/// Why a group could not be made, changed or removed. Nothing has changed.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum GroupError {
    /// Another group there has that name.
    #[error("there is a group {name:?} already: remove it first, or choose another name")]
    NameTaken {
        /// The name.
        name: String,
    },
    /// The name is empty, or looks like a path.
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
        /// The requested min, in bytes.
        min: u64,
        /// The requested low, in bytes.
        low: u64,
        /// The requested high, in bytes.
        high: Option<u64>,
        /// The requested max, in bytes.
        max: Option<u64>,
    },
    /// The max is too small to work in.
    #[error(
        "a max of {max} bytes is below the minimum of {MIN_GROUP_MAX_BYTES} bytes (4 MiB): give more"
    )]
    MaxTooSmall {
        /// The requested max, in bytes.
        max: u64,
    },
    /// The group would lie below too many others.
    #[error(
        "groups are at most {most} above each other, the root among them: make it below a higher one"
    )]
    TooDeep {
        /// The largest possible depth.
        most: usize,
    },
    /// The maximum number of groups exists already.
    #[error("there are {most} groups, the root among them, and cannot be more: remove some")]
    TooMany {
        /// The largest possible number of groups.
        most: usize,
    },
    /// There are groups below this one.
    #[error("there are groups below it: remove them first")]
    InUse,
    /// The group is the root.
    #[error("the root group has the manager's budget and lives as long: use Manager::set_ram")]
    Root,
    /// The group was removed.
    #[error("the group was removed: what it had is its parent's")]
    Removed,
    /// The group belongs to another manager.
    #[error("the group belongs to another manager: use one of this manager's")]
    OtherManager,
    /// The thread that calls shrinkers could not be started.
    #[error("cannot start the thread that calls shrinkers: {reason}")]
    Thread {
        /// The text of the system's error.
        reason: String,
    },
}

/// Why a child process cannot continue with managed memory.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ForkError {
    /// Memory could not be set up in the child.
    #[error("cannot manage memory in the child process: {0}")]
    Memory(#[from] millpond_mmu::MmuError),
    /// The store could not be set up in the child.
    #[error("cannot open a store for the child process ({}){}", Errno::from_raw_os_error(*.0), child_way_out(*.0))]
    Store(i32),
    /// The child touched a page between fork and set-up that was not in memory: it would have read zeros.
    #[error(
        "the child process touched absent memory at {address:#x} before it could be served: its contents would be wrong"
    )]
    Torn {
        /// Address of the page.
        address: usize,
    },
    /// A thread could not be started.
    #[error("cannot start the reclaim thread in the child process: {0}")]
    Thread(std::io::Error),
}

/// What the user can do if the child of a fork gets no store, by the number of the error.
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
