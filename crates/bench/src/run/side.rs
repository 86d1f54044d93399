//! The sides: the ways in which a program is kept within its memory.

use crate::side::{Contender, sides};

sides! {
    /// A way of keeping a program within its memory. The sides take their turns in this order.
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
