//! The sides: the ways in which a program is kept within its memory.

use crate::part::Contender;
use serde::Serialize;
use std::fmt;

/// A side.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
#[value(rename_all = "snake_case")]
pub enum Side {
    /// The program without a limit
    Unlimited,
    /// `millpond run`
    Millpond,
    /// A memory cgroup that swaps to a file
    KernelFile,
    /// A memory cgroup that swaps to zram; zram's memory comes on top of the limit
    KernelZram,
    /// A memory cgroup that swaps to zram; both together have the limit's memory
    KernelEqual,
}

/// The sides in the order of their turns.
pub const SIDES: [Side; 5] = [
    Side::Unlimited,
    Side::Millpond,
    Side::KernelFile,
    Side::KernelZram,
    Side::KernelEqual,
];

impl Contender for Side {
    fn is_kernel(self) -> bool {
        matches!(
            self,
            Self::KernelFile | Self::KernelZram | Self::KernelEqual
        )
    }

    fn is_against(self, other: Self) -> bool {
        self == Self::Millpond && other.is_kernel()
    }
}

/// The name that the side has in arguments.
impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Unlimited => "unlimited",
            Self::Millpond => "millpond",
            Self::KernelFile => "kernel_file",
            Self::KernelZram => "kernel_zram",
            Self::KernelEqual => "kernel_equal",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::ValueEnum;

    #[test]
    fn sides_are_written_as_they_are_read() {
        assert_eq!(Side::value_variants(), SIDES);
        for side in SIDES {
            let text = side.to_string();
            assert_eq!(Side::from_str(&text, false), Ok(side));
            assert_eq!(serde_json::json!(side), text);
            assert_eq!(side.is_kernel(), text.starts_with("kernel"));
        }
    }
}
