//! Hands a range's pages over to another range by moving the page tables that map them.
//!
//! `mremap` moves 2 MiB by moving one pointer, if source and destination have the same offset within their 2 MiB. It
//! does not do so where userfaultfd is registered without its remap event, and that event waits for another thread
//! each time. So the source is taken out of userfaultfd while it moves: 1 GiB takes 0.3 ms, and 3.4 if moved entry by
//! entry. A page touched there meanwhile would come from the kernel as zeros; the caller ensures that none is.
//!
//! *While threads touch the source* that method is unsafe, and threads of a preloaded program may do so. An absent
//! page would become a page of zeros, which moves along and hides the contents that the store has. There are three
//! ways to prevent that, for 1 GiB of resident 4 KiB pages:
//!
//! | way | ms |
//! | --- | --- |
//! | the source is inaccessible meanwhile (`mprotect` visits every entry, twice) | 70 to 80 |
//! | always registered, without the remap event | 4 |
//! | always registered, with the remap event | 0.3, and 0.01 to 0.04 if both have the same offset within their gigabyte |
//!
//! We take the last way ([`Memory::hand_over_watched`]): handler delivery has a thread that reads the events, so the
//! cost is one hand-off to it. A touch either comes before the move and finds the page, or is reported as a fault at
//! the source. The thread that reads must not wait for the thread that moves.
//!
//! `MREMAP_DONTUNMAP` leaves the source mapped and empty (Linux 5.7), so that no other mapping can get its addresses.

use millpond_core::{PageCount, PageRange};
use rustix::io::Errno;

use super::UffdMemory;
use crate::arch;
use crate::common::{halfway, watched};
use crate::error::MmuError;
use crate::memory::Memory;
use crate::sys::ioctl;

impl UffdMemory {
    /// Implements [`RealMemory::hands_over_by_tables`](crate::RealMemory::hands_over_by_tables). If pages are taken
    /// out by copying, the range is watched for writes, so unregistering it would visit each of its pages.
    pub(crate) fn hands_over_by_tables(&self) -> bool {
        self.can_move && arch::MOVES_TABLES
    }

    /// Implements [`Memory::hand_over`]. `lead` pages before `from` and `trail` pages after it go along and come
    /// back. For a range of a gigabyte that straddles two, this takes a few calls of microseconds; one pointer for
    /// each 2 MiB would take 0.3 ms.
    ///
    /// # Safety
    /// The conditions are those of [`Memory::hand_over`]. No leaf of any of these ranges is taken out meanwhile.
    ///
    /// # Errors
    /// [`MmuError::OutsideArena`] or [`MmuError::HandOver`]. In either case all pages are where they were.
    pub(super) unsafe fn hand_over(
        &self,
        from: PageRange,
        to: PageRange,
        (lead, trail): (PageCount, PageCount),
    ) -> Result<(), MmuError> {
        let (src, len) = self.common.span(from.widened(lead, trail))?;
        let (dst, other) = self.common.span(to.widened(lead, trail))?;
        assert_eq!(len, other, "{from} and {to} differ in length");
        let fail = |errno| MmuError::HandOver { range: from, errno };
        for start in [src, dst] {
            self.parts.join(&self.common.arena, start, len);
        }
        ioctl::unregister(self.fd(), src, len).map_err(fail)?;
        let back = (lead.bytes() as usize, trail.bytes() as usize);
        // SAFETY: both ranges are inside the arena; the caller guarantees the rest.
        let moved = unsafe { self.move_and_return(src, dst, len, back) };
        let registered = self.register_arena(src, len);
        if let Err(errno) = moved {
            registered?;
            let whole = to.widened(lead, trail);
            watched(self.renew(whole).and_then(|()| self.open(whole)));
            return Err(fail(errno));
        }
        watched(registered.and_then(|()| self.register_arena(dst, len)));
        Ok(())
    }

    /// Moves the tables of a range of which `lead` bytes at the beginning and `trail` bytes at the end come back.
    ///
    /// # Safety
    /// The conditions are those of [`Memory::hand_over`], for ranges inside the arena.
    unsafe fn move_and_return(
        &self,
        src: usize,
        dst: usize,
        len: usize,
        (lead, trail): (usize, usize),
    ) -> Result<(), Errno> {
        // SAFETY: the caller guarantees it.
        unsafe { self.common.move_range(src, dst, len) }?;
        let mut back = 0;
        for (at, part) in [(0, lead), (len - trail, trail)] {
            if part == 0 {
                continue;
            }
            // SAFETY: the ranges and the guarantee are those of the move before, and these pages were moved the other
            // way then.
            if let Err(errno) = unsafe { self.common.move_range(dst + at, src + at, part) } {
                // SAFETY: as above; the pages that have come back already are in their place.
                unsafe { self.common.move_range(dst + back, src + back, len - back) }
                    .unwrap_or_else(|errno| halfway(errno));
                return Err(errno);
            }
            back = lead;
        }
        Ok(())
    }

    /// Implements [`RealMemory::can_hand_over_watched`](crate::RealMemory::can_hand_over_watched), which needs a
    /// thread that reads events, and Linux 4.11 or later.
    pub(crate) fn can_hand_over_watched(&self) -> bool {
        self.features.remap
    }

    /// Implements [`Memory::hand_over_watched`]. Protections move along. Afterwards `from` is empty, with its
    /// protection if `keep` is set and inaccessible if not.
    ///
    /// The thread that reads faults must not wait for the caller.
    ///
    /// # Safety
    /// The conditions are those of [`Memory::hand_over_watched`].
    ///
    /// # Errors
    /// [`MmuError::OutsideArena`] or [`MmuError::HandOver`] (also if `from` consists of too many mappings). In either
    /// case all pages are where they were.
    pub(super) unsafe fn hand_over_watched(
        &self,
        from: PageRange,
        to: PageRange,
        keep: bool,
    ) -> Result<(), MmuError> {
        let ((src, len), (dst, other)) = (self.common.span(from)?, self.common.span(to)?);
        assert_eq!(len, other, "{from} and {to} differ in length");
        assert!(self.features.remap, "nobody is told of moves");
        let fail = |errno| MmuError::HandOver { range: from, errno };
        if self.common.has_many_mappings(src, len) {
            return Err(fail(Errno::TOOBIG));
        }
        // SAFETY: both ranges are inside the arena; the caller guarantees the rest.
        if let Err(errno) = unsafe { self.common.move_range(src, dst, len) } {
            watched(self.renew(to));
            return Err(fail(errno));
        }
        self.common.reach.carry(from, to);
        if !keep {
            watched(self.renew(from));
            // A thread that waits there gets SIGSEGV.
            let _ = ioctl::wake(self.fd(), src, len);
        }
        Ok(())
    }
}
