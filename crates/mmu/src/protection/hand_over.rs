//! Hands a range's pages over by moving the page tables that map them. All the pages are closed first.

use rustix::io::Errno;

use millpond_core::{PageCount, PageRange};

use super::ProtectedMemory;
use crate::common::watched;
use crate::error::MmuError;
use crate::memory::Memory;

impl ProtectedMemory {
    /// Implements [`Memory::hand_over`].
    ///
    /// # Safety
    /// The conditions are those of [`Memory::hand_over`].
    pub(super) unsafe fn hand_over(
        &self,
        from: PageRange,
        to: PageRange,
        (lead, trail): (PageCount, PageCount),
    ) -> Result<(), MmuError> {
        let (_, len) = self.common.span(from.widened(lead, trail))?;
        let (_, other) = self.common.span(to.widened(lead, trail))?;
        assert_eq!(len, other, "{from} and {to} differ in length");
        // SAFETY: the caller guarantees more than is required.
        unsafe { self.move_closed(from, to) }
    }

    /// Implements [`Memory::hand_over_watched`].
    ///
    /// # Safety
    /// The conditions are those of [`Memory::hand_over_watched`].
    pub(super) unsafe fn hand_over_watched(
        &self,
        from: PageRange,
        to: PageRange,
        keep: bool,
    ) -> Result<(), MmuError> {
        let ((_, len), (_, other)) = (self.common.span(from)?, self.common.span(to)?);
        assert_eq!(len, other, "{from} and {to} differ in length");
        // SAFETY: the caller guarantees it.
        unsafe { self.move_closed(from, to) }?;
        self.common.reach.carry(from, to);
        if !keep {
            watched(self.renew(from));
        }
        Ok(())
    }

    /// Moves the pages of closed ranges. Because all of them are closed, threads may touch both ranges meanwhile:
    /// they wait for the lock, or in the sink.
    ///
    /// # Safety
    /// The conditions are those of [`Memory::hand_over_watched`].
    unsafe fn move_closed(&self, from: PageRange, to: PageRange) -> Result<(), MmuError> {
        let tables = || {
            let (src, dst) = (self.common.at(from.start), self.common.at(to.start));
            let len = from.len.bytes() as usize;
            if self.common.has_many_mappings(src, len) {
                return Err(Errno::TOOBIG);
            }
            // SAFETY: the caller guarantees it, and both ranges were closed before.
            unsafe { self.common.move_range(src, dst, len) }
        };
        let moved = self.protection.hand_over(from, to, tables);
        moved.map_err(|errno| MmuError::HandOver { range: from, errno })
    }
}
