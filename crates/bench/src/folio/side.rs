//! The owner of the memory that a measured process touches.

use crate::order::BenchOrder;
use crate::side::{Contender, by_text};
use std::fmt;
use std::str::FromStr;

/// A side. In JSON an order means Millpond at this order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    /// Millpond's memory.
    Ours(BenchOrder),
    /// The kernel's memory, in pages of 4 KiB.
    Kernel,
    /// The kernel's memory, in transparent huge pages.
    KernelHuge,
}

impl Side {
    /// Millpond's side at a fixed order, which must be valid.
    #[must_use]
    pub fn fixed(order: u8) -> Self {
        let order = millpond::Order::new(order).expect("an order that exists");
        Self::Ours(BenchOrder(order.into()))
    }
}

impl Contender for Side {
    fn is_kernel(self) -> bool {
        !matches!(self, Self::Ours(_))
    }
}

impl FromStr for Side {
    type Err = millpond::BadOrderPolicy;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "kernel" => Ok(Self::Kernel),
            "kernel_huge" => Ok(Self::KernelHuge),
            order => order.parse().map(Self::Ours),
        }
    }
}

/// The side's name in JSON.
impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ours(order) => f.pad(&order.to_string()),
            Self::Kernel => f.pad("kernel"),
            Self::KernelHuge => f.pad("kernel_huge"),
        }
    }
}

by_text!(Side);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sides_round_trip_through_text() {
        for text in ["kernel", "kernel_huge", "0", "adaptive", "adaptive:4"] {
            let side: Side = text.parse().unwrap();
            assert_eq!(side.to_string(), text);
            assert_eq!(side.is_kernel(), text.starts_with("kernel"));
        }
        assert!("ours".parse::<Side>().is_err());
        assert_eq!(Side::fixed(9), "9".parse().unwrap());
    }
}
