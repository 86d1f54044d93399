//! The owner of the moved memory, and the alignment of its old and new places.

use crate::side::{Contender, by_text};
use std::fmt;
use std::str::FromStr;

/// A case of the parts that move memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Case {
    /// Millpond's memory, all of it mapped, from an offset in a region. Millpond chooses the new place.
    Ours {
        /// The offset at which the range begins.
        offset: u32,
    },
    /// Millpond's memory, from the region's first byte, half of it in the store.
    HalfStored,
    /// The kernel's memory in 4 KiB pages. Both places are aligned to 2 MiB, at different offsets in their gigabytes.
    Kernel,
    /// The kernel's memory in 4 KiB pages. Both places begin 4 KiB after a multiple of 2 MiB.
    KernelAlike,
    /// The kernel's memory in 4 KiB pages. Both places are aligned to a gigabyte.
    KernelGigabyte,
    /// The kernel's memory in 4 KiB pages. The second place's offset within 2 MiB is 4 KiB larger than the first's.
    KernelMisaligned,
}

/// All cases that `move` measures.
pub const ALL: [Case; 10] = [
    Case::Ours { offset: 0 },
    Case::Ours { offset: 4096 },
    Case::Ours {
        offset: (1 << 20) + (12 << 10),
    },
    // The next two ranges begin in the middle of a gigabyte, and at its end.
    Case::Ours {
        offset: (512 << 20) + 4096,
    },
    Case::Ours {
        offset: (1 << 30) - 4096,
    },
    Case::HalfStored,
    Case::Kernel,
    Case::KernelAlike,
    Case::KernelGigabyte,
    Case::KernelMisaligned,
];

impl Contender for Case {
    fn is_kernel(self) -> bool {
        !matches!(self, Self::Ours { .. } | Self::HalfStored)
    }
}

const OURS: &str = "from_";

impl FromStr for Case {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "half_stored" => Ok(Self::HalfStored),
            "kernel" => Ok(Self::Kernel),
            "kernel_from_4096" => Ok(Self::KernelAlike),
            "kernel_gigabyte" => Ok(Self::KernelGigabyte),
            "kernel_misaligned" => Ok(Self::KernelMisaligned),
            _ => text
                .strip_prefix(OURS)
                .and_then(|offset| offset.parse().ok())
                .map(|offset| Self::Ours { offset })
                .ok_or_else(|| format!("`{text}` is no case")),
        }
    }
}

/// The case's name in JSON.
impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ours { offset } => f.pad(&format!("{OURS}{offset}")),
            Self::HalfStored => f.pad("half_stored"),
            Self::Kernel => f.pad("kernel"),
            Self::KernelAlike => f.pad("kernel_from_4096"),
            Self::KernelGigabyte => f.pad("kernel_gigabyte"),
            Self::KernelMisaligned => f.pad("kernel_misaligned"),
        }
    }
}

by_text!(Case);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cases_round_trip_through_text() {
        for case in ALL {
            let text = case.to_string();
            assert_eq!(text.parse(), Ok(case));
            assert_eq!(case.is_kernel(), text.starts_with("kernel"));
        }
        assert!("from_x".parse::<Case>().is_err());
    }
}
