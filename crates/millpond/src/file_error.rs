//! Errors of regions over files: a file that cannot be mapped, and pages that cannot be read.

use crate::error::{AdviseError, PinError, RangeError, RegionError};
use millpond_store::DataFileError;
use rustix::io::Errno;
use thiserror::Error;

/// Why a file was not mapped.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum MapFileError {
    /// The file cannot be opened or used.
    #[error(transparent)]
    File(#[from] DataFileError),
    /// The system does not tell the file's length.
    #[error("the file's length is not known: {0}")]
    Length(Errno),
    /// The file cannot be extended to the range.
    #[error(
        "the file cannot be made {end} bytes long ({errno}): map a range that it has, or make room for it"
    )]
    Grow {
        /// The required length, in bytes.
        end: u64,
        /// The system's answer.
        errno: Errno,
    },
    /// There is no table for the checksums of the data read, which reveal the pages that were written to.
    #[error(
        "no memory for the table of what is read ({0}): raise `ulimit -v`, or map a shorter range"
    )]
    Table(Errno),
    /// The range has no bytes.
    #[error("the range {start}..{end} of the file has no bytes: give at least one")]
    Empty {
        /// Offset of the first byte in the file.
        start: u64,
        /// Offset behind the last byte.
        end: u64,
    },
    /// The file is too short.
    #[error("the range {start}..{end} leaves the file of {len} bytes: end it at {len} or before")]
    Beyond {
        /// Offset of the first byte in the file.
        start: u64,
        /// Offset behind the last byte.
        end: u64,
        /// Length of the file in bytes.
        len: u64,
    },
    /// The manager has no region for it.
    #[error(transparent)]
    Region(#[from] RegionError),
}

/// Why a call for a range of a file's region was not fully carried out.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum FileError {
    /// The range does not allow the call.
    #[error(transparent)]
    Range(#[from] RangeError),
    /// The range cannot be pinned.
    #[error(transparent)]
    Pin(#[from] PinError),
    /// Advice was not taken.
    #[error(transparent)]
    Advise(#[from] AdviseError),
    /// The file has become shorter.
    #[error(
        "the file ends before offset {offset} of the region: it has become shorter since it was mapped"
    )]
    Ended {
        /// Offset of the page in the region, in bytes.
        offset: usize,
    },
    /// The object has changed. Pages in memory belong to the version that was mapped; no other version is mixed with
    /// it.
    #[error(
        "the object has changed since it was mapped, so its page at offset {offset} cannot be had: map it again"
    )]
    Changed {
        /// Offset of the page in the region, in bytes.
        offset: usize,
    },
    /// The file could not be read.
    #[error(
        "the page at offset {offset} cannot be read from the file ({errno}): a later call tries again"
    )]
    Read {
        /// Offset of the page in the region, in bytes.
        offset: usize,
        /// The system's answer.
        errno: Errno,
    },
    /// The file could not be written.
    #[error(
        "the page at offset {offset} cannot be written to the file ({errno}): it stays in memory; make room, and sync again"
    )]
    Write {
        /// Offset of the page, or of the first of a few pages, in the region, in bytes.
        offset: usize,
        /// The system's answer.
        errno: Errno,
    },
    /// The device may not have the written data.
    #[error("the device may not have what was written to the file ({0}): sync again")]
    Sync(Errno),
}

/// Why a file's region was not made longer. The region is unchanged.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum GrowFileError {
    /// Changes to the region do not go to the file.
    #[error("only a shared region can be made longer: map the file with Mode::Shared")]
    NotShared,
    /// Changes to the region could not be synced.
    #[error(transparent)]
    Sync(#[from] FileError),
    /// The file could not be made longer, or could not be mapped to that length.
    #[error(transparent)]
    Map(#[from] MapFileError),
}
