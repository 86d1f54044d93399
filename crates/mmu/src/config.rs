//! The configuration of a [`RealMemory`](crate::RealMemory).

use std::time::Duration;

use millpond_core::{LEAF_PAGES, PageCount, PoolLayout};

use crate::delivery::Delivery;
use crate::error::MmuError;
use crate::mask::Mask;

/// How pages are captured on their way out.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum TakeOutMethod {
    /// [`Move`](Self::Move) where the kernel has it (Linux 6.8), else [`Copy`](Self::Copy).
    #[default]
    Auto,
    /// `UFFDIO_MOVE`: the page itself moves out atomically, and the kernel refuses a page that a device is writing
    /// to.
    Move,
    /// The page is write-protected, copied and discarded. This costs a copy and a second shootdown, and cannot detect
    /// that a device is writing to the page: with this method, keep the buffers of `O_DIRECT` reads pinned.
    Copy,
}

/// The minimum time for 512 small pages. A huge page that takes twice as long gains nothing.
pub const HUGE_WITHIN: Duration = Duration::from_micros(800);

/// The configuration of a [`RealMemory`](crate::RealMemory).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MemoryConfig {
    /// Pages of address space for managed memory: a positive multiple of 512.
    pub arena: PageCount,
    /// Candidate addresses for the arena's start (multiples of 1 GiB). The first one where nothing is mapped is
    /// taken; if there is none, the kernel chooses.
    pub bases: &'static [usize],
    /// The first address of an arena that the process has already ([`DormantMemory`](crate::DormantMemory)). It is not
    /// watched before [`RealMemory::take_over`](crate::RealMemory::take_over), and needs userfaultfd.
    pub reserved: Option<usize>,
    /// Number of frames of each order in the frame pool.
    pub pool: PoolLayout,
    /// How faults are delivered.
    pub delivery: Delivery,
    /// How pages are taken out.
    pub take_out: TakeOutMethod,
    /// The longest time that the kernel may take for a new huge page. After a slower one, small pages are used for a
    /// while: see [`HUGE_WITHIN`].
    pub huge_within: Duration,
    /// Capabilities to do without.
    pub mask: Mask,
}

impl MemoryConfig {
    /// # Errors
    /// [`MmuError::BadArena`] when the arena's length is bad.
    pub(crate) fn check(&self) -> Result<(), MmuError> {
        let pages = self.arena.0;
        let is_good = pages > 0
            && pages.is_multiple_of(LEAF_PAGES)
            && pages <= millpond_core::limits::MAX_ARENA_PAGES;
        is_good
            .then_some(())
            .ok_or(MmuError::BadArena { pages: self.arena })
    }
}
