//! The sides: ways of limiting a program's memory.

use crate::side::{Contender, sides};

sides! {
    /// A way of limiting a program's memory. The sides take turns in this order.
    pub enum Side {
        /// The program without a limit
        Unlimited,
        /// `millpond run`
        Millpond,
        /// A memory cgroup that swaps to a file
        KernelFile,
        /// A memory cgroup that swaps to zram; zram's memory comes on top of the limit
        KernelZram,
        /// A memory cgroup that swaps to zram; both together stay within the limit
        KernelEqual,
    }
}

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
