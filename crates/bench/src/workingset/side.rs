//! The owner of the memory.

use crate::part::Contender;
use serde::Serialize;
use std::fmt;

/// A side.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
#[value(rename_all = "snake_case")]
pub enum Side {
    /// A region under a manager
    Millpond,
    /// Anonymous memory in a memory cgroup, swapped to zram
    Kernel,
}

impl Contender for Side {
    fn is_kernel(self) -> bool {
        self == Self::Kernel
    }
}

/// The name that the side has in arguments.
impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Millpond => "millpond",
            Self::Kernel => "kernel",
        })
    }
}
