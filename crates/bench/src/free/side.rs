//! The owner of the memory that is given back, and the way in which it is given back.

use crate::part::Contender;
use serde::Serialize;
use std::fmt;

/// A side.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
#[value(rename_all = "snake_case")]
pub enum Side {
    /// `Region::free_async`
    FreeAsync,
    /// The end of a region
    Drop,
    /// `Region::discard` of all of it
    Discard,
    /// `munmap` of 4 KiB pages
    Kernel,
    /// `munmap` of transparent huge pages
    KernelHuge,
}

impl Contender for Side {
    fn is_kernel(self) -> bool {
        matches!(self, Self::Kernel | Self::KernelHuge)
    }
}

/// The name that the side has in arguments.
impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::FreeAsync => "free_async",
            Self::Drop => "drop",
            Self::Discard => "discard",
            Self::Kernel => "kernel",
            Self::KernelHuge => "kernel_huge",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::ValueEnum;

    #[test]
    fn sides_are_written_as_they_are_read() {
        for side in Side::value_variants() {
            let text = side.to_string();
            assert_eq!(Side::from_str(&text, false), Ok(*side));
            assert_eq!(serde_json::json!(side), text);
            assert_eq!(side.is_kernel(), text.starts_with("kernel"));
        }
    }
}
