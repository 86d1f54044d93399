//! Millpond's side: a region under a manager in this process, whose faults the faulting thread resolves.

use crate::error::Failure;
use crate::lazyfree::memory::{Memory, Side};
use crate::millpond_side;
use millpond::{Contents, Manager, Region};
use std::ops::Range;

/// A region and its manager.
pub struct Managed {
    manager: Manager,
    region: Region,
    side: Side,
    purged: u64,
}

/// Builds a manager with folios of 64 KiB and a budget of `ram` bytes, which excludes the store just as a memory
/// cgroup excludes zram.
///
/// # Errors
/// When the manager cannot be built.
pub fn manager(ram: u64) -> Result<Manager, Failure> {
    Ok(millpond_side::settings(ram).build()?)
}

impl Managed {
    /// Creates a region of `bytes` bytes under its own manager, which never has to reclaim.
    ///
    /// # Errors
    /// When the manager or the region cannot be created.
    pub fn within_budget(side: Side, bytes: u64) -> Result<Self, Failure> {
        let manager = manager(2 * bytes + (64 << 20))?;
        Self::new(side, &manager, bytes)
    }

    /// Creates a region of `bytes` bytes under `manager`.
    ///
    /// # Errors
    /// When the region cannot be created.
    pub fn new(side: Side, manager: &Manager, bytes: u64) -> Result<Self, Failure> {
        Ok(Self {
            manager: manager.clone(),
            region: manager.region(usize::try_from(bytes)?)?,
            side,
            purged: 0,
        })
    }
}

impl Memory for Managed {
    fn bytes(&mut self) -> &mut [u8] {
        self.region.as_mut_slice()
    }

    fn free(&mut self, range: Range<usize>) -> Result<(), Failure> {
        match self.side {
            Side::LazyFree => self.region.lazy_free(range)?,
            // SAFETY: `&mut self`: no reference to the bytes is alive.
            Side::LazyFreeShared => unsafe { self.region.lazy_free_shared(range)? },
            // SAFETY: `&mut self`: no reference to the bytes is alive.
            Side::Volatile => unsafe { self.region.mark_volatile(range)? },
            Side::Discard => self.region.discard(range)?,
            _ => {}
        }
        Ok(())
    }

    fn free_vectored(&mut self, ranges: &[Range<usize>]) -> Option<Result<(), Failure>> {
        let freed = match self.side {
            Side::LazyFree => self.region.lazy_free_vectored(ranges),
            // SAFETY: `&mut self`: no reference to the bytes is alive.
            Side::LazyFreeShared => unsafe { self.region.lazy_free_shared_vectored(ranges) },
            _ => return None,
        };
        Some(freed.map_err(Failure::from))
    }

    fn reuse(&mut self, range: Range<usize>) -> Result<(), Failure> {
        if self.side == Side::Volatile && self.region.mark_nonvolatile(range)? == Contents::Purged {
            self.purged += 1;
        }
        Ok(())
    }

    fn faults(&self) -> u64 {
        self.manager.stats().vm.pgfault
    }

    fn purged(&self) -> u64 {
        self.purged
    }
}
