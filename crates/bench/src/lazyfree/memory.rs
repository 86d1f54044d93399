//! Memory whose parts can be freed and reused: one interface to the kernel's and Millpond's mechanisms.
//!
//! The work of a benchmark is written once, against [`Memory`], so that all sides do exactly the same. A call through
//! the interface costs a few nanoseconds; the cheapest measured operation costs a thousand.

use crate::error::Failure;
use crate::side::Contender;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::ops::Range;

/// A way of freeing memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Side {
    /// Plain anonymous memory, nothing freed
    KernelKeep,
    /// `madvise(MADV_FREE)`
    KernelFree,
    /// `madvise(MADV_DONTNEED)`
    KernelDontneed,
    /// A region, nothing freed
    Keep,
    /// `Region::lazy_free`
    LazyFree,
    /// `Region::lazy_free_shared`
    LazyFreeShared,
    /// `Region::mark_volatile` and `mark_nonvolatile`
    Volatile,
    /// `Region::discard`
    Discard,
}

/// The contents that a page may have after it was freed and before it is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AfterFree {
    /// The page has its old contents.
    Old,
    /// The page has zeros.
    Zeros,
    /// The page has one of the two.
    Either,
}

impl Contender for Side {
    fn is_kernel(self) -> bool {
        matches!(
            self,
            Self::KernelKeep | Self::KernelFree | Self::KernelDontneed
        )
    }
}

impl Side {
    /// The contents that the side's freed pages may have.
    #[must_use]
    pub fn freed(self) -> AfterFree {
        match self {
            Self::KernelKeep | Self::Keep => AfterFree::Old,
            Self::KernelDontneed | Self::Discard => AfterFree::Zeros,
            Self::KernelFree | Self::LazyFree | Self::LazyFreeShared | Self::Volatile => {
                AfterFree::Either
            }
        }
    }
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::KernelKeep => "kernel, nothing freed",
            Self::KernelFree => "kernel MADV_FREE",
            Self::KernelDontneed => "kernel MADV_DONTNEED",
            Self::Keep => "millpond, nothing freed",
            Self::LazyFree => "millpond lazy_free",
            Self::LazyFreeShared => "millpond lazy_free_shared",
            Self::Volatile => "millpond volatile",
            Self::Discard => "millpond discard",
        })
    }
}

/// Contiguous memory, each part of which can be freed.
pub trait Memory: Send {
    /// All bytes of the memory.
    fn bytes(&mut self) -> &mut [u8];

    /// Frees `range`, in the side's way.
    ///
    /// # Errors
    /// The error of the side.
    fn free(&mut self, range: Range<usize>) -> Result<(), Failure>;

    /// Frees many ranges with as few calls as the side allows. Returns `None` when the side has no such call.
    ///
    /// # Errors
    /// The error of the side.
    fn free_vectored(&mut self, ranges: &[Range<usize>]) -> Option<Result<(), Failure>>;

    /// Prepares a freed range for a write, if the side requires that. Must be called before the write.
    ///
    /// # Errors
    /// The error of the side.
    fn reuse(&mut self, range: Range<usize>) -> Result<(), Failure>;

    /// Faults so far, as counted by the side that resolves them.
    fn faults(&self) -> u64;

    /// The number of ranges whose contents were lost when they were reused, on a side that reports it.
    fn purged(&self) -> u64;
}
