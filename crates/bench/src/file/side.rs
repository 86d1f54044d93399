//! The sides: who brings the pages of the file into memory.

use crate::part::Contender;
use serde::Serialize;
use std::fmt;

/// A side.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
#[value(rename_all = "snake_case")]
pub enum Side {
    /// A region over the file, under a manager
    Millpond,
    /// The file mapped by the kernel (`mmap`, as `np.memmap` does) in a memory cgroup of the budget
    Kernel,
    /// The same, and the kernel is told how the file will be read (`MADV_SEQUENTIAL`, `MADV_RANDOM`)
    KernelAdvised,
    /// The file read by the call past the page cache, several reads at a time: what the device gives
    Device,
}

impl Contender for Side {
    /// Whether Millpond is compared with this side.
    fn is_kernel(self) -> bool {
        self != Self::Millpond
    }
}

/// The name that the side has in arguments.
impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Millpond => "millpond",
            Self::Kernel => "kernel",
            Self::KernelAdvised => "kernel_advised",
            Self::Device => "device",
        })
    }
}
