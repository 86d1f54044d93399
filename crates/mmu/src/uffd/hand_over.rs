//! Handing a range's pages over to another range by the tables that map them.
//!
//! `mremap` moves 2 MiB by moving one pointer, where source and destination lie alike in their 2 MiB. It does not do
//! so where userfaultfd is registered without its remap event, and that event waits for another thread each time. So
//! the source is taken out of userfaultfd while it moves: 1 GiB takes 0.3 ms, where entry by entry it takes 3.4. A
//! page that was touched there meanwhile would come from the kernel as zeros; the caller sees to it that none is.
//!
//! *While threads touch the source* that method is unsafe, and threads of a preloaded program may do so. An absent
//! page would become a page of zeros, which moves along and hides the contents that the store holds. These are the
//! ways to prevent it, for 1 GiB of resident 4 KiB pages:
//!
//! | way | ms |
//! | --- | --- |
//! | the source without access meanwhile (`mprotect` visits every entry, twice) | 70 to 80 |
//! | registered all the time, without the remap event | 4 |
//! | registered all the time, with the remap event | 0.3, and 0.01 to 0.04 where both lie alike in their gigabyte |
//!
//! The last way is taken ([`Uffd::hand_over_watched`]): handler delivery has a thread that reads the events, and one
//! hand-off to it is the cost. A touch comes before the move and finds the page, or is reported as a fault at the
//! source. The thread that reads must not wait for the thread that moves.
//!
//! `MREMAP_DONTUNMAP` leaves the source mapped and empty (Linux 5.7), so that no other mapping can be given its
//! addresses.

use millpond_core::{PAGE_SIZE, PageCount, PageRange};
use rustix::io::Errno;

use super::Uffd;
use crate::arch;
use crate::error::MmuError;
use crate::sys::{ioctl, remap};

impl Uffd {
    /// Whether [`Uffd::hand_over`] moves a pointer for each 2 MiB, as the kernel does on most processors. Where
    /// pages are taken out by copying, unregistering the range would visit each page of it, as it is watched for
    /// writes.
    #[must_use]
    pub fn hands_over_by_tables(&self) -> bool {
        self.can_move && arch::MOVES_TABLES
    }

    /// Moves the pages that are mapped in `from` to `to`: two open or reserved ranges of the same length that begin
    /// alike in their leaves. `from` is empty afterwards.
    ///
    /// `lead` pages before `from` and `trail` pages behind it go along and come back. For a range of a gigabyte that
    /// lies across two, this takes a few calls of microseconds; a pointer for each 2 MiB would take 0.3 ms.
    ///
    /// # Safety
    /// Nothing else is under way in either range, no thread of the program touches `from` meanwhile, and `to` is
    /// nobody's. All of this holds for the pages beside the ranges, too. No leaf of any of these ranges is taken out
    /// meanwhile.
    ///
    /// # Errors
    /// [`MmuError::OutsideArena`] or [`MmuError::HandOver`]. All pages are where they were then.
    pub unsafe fn hand_over(
        &self,
        from: PageRange,
        to: PageRange,
        (lead, trail): (PageCount, PageCount),
    ) -> Result<(), MmuError> {
        let (src, len) = self.span(from.widened(lead, trail))?;
        let (dst, other) = self.span(to.widened(lead, trail))?;
        assert_eq!(len, other, "{from} and {to} differ in length");
        // SAFETY: the caller guarantees more than is asked for.
        if let Some(moved) = unsafe { self.hand_over_closed(from, to) } {
            return moved;
        }
        let fail = |errno| MmuError::HandOver { range: from, errno };
        for start in [src, dst] {
            self.parts.join(&self.arena, start, len);
        }
        ioctl::unregister(self.fd(), src, len).map_err(fail)?;
        let (lead, trail) = (lead.bytes() as usize, trail.bytes() as usize);
        // SAFETY: both ranges are inside the arena; the caller guarantees the rest.
        let moved = unsafe { remap::move_tables(src, dst, len) }.and_then(|()| {
            let mut back = 0;
            for (at, part) in [(0, lead), (len - trail, trail)] {
                if part == 0 {
                    continue;
                }
                // SAFETY: the ranges and the guarantee are those of the move before, and these pages were moved the
                // other way then.
                if let Err(errno) = unsafe { remap::move_tables(dst + at, src + at, part) } {
                    // The pages that have come back already are in their place.
                    self.hand_back(src + back, dst + back, &[len - back], len - back);
                    return Err(errno);
                }
                back = lead;
            }
            Ok(())
        });
        let registered = self.register_arena(src, len);
        if let Err(errno) = moved {
            registered?;
            return Err(fail(errno));
        }
        self.watched(registered.and_then(|()| self.register_arena(dst, len)));
        Ok(())
    }

    /// Whether [`hand_over_watched`](Self::hand_over_watched) works here: it needs handler delivery, and Linux 4.11
    /// or later, or memory that is watched by protections.
    #[must_use]
    pub fn can_hand_over_watched(&self) -> bool {
        self.features.remap || self.is_watched_by_protections()
    }

    /// Moves pages as [`hand_over`](Self::hand_over) does, while threads of the program may touch both ranges.
    /// Protections move along. Afterwards `from` is empty, with its protection if `keep` is set and without access if
    /// not.
    ///
    /// The thread that reads faults must not wait for the caller.
    ///
    /// # Safety
    /// Nothing else is under way in either range, and `to` is nobody's.
    ///
    /// # Errors
    /// [`MmuError::OutsideArena`] or [`MmuError::HandOver`] (also when `from` consists of too many mappings). All
    /// pages are where they were then.
    pub unsafe fn hand_over_watched(
        &self,
        from: PageRange,
        to: PageRange,
        keep: bool,
    ) -> Result<(), MmuError> {
        let ((src, len), (dst, other)) = (self.span(from)?, self.span(to)?);
        assert_eq!(len, other, "{from} and {to} differ in length");
        // SAFETY: the caller guarantees it.
        if let Some(moved) = unsafe { self.hand_over_closed(from, to) } {
            return moved.map(|()| self.carry_closed(from, to, keep));
        }
        assert!(self.features.remap, "nobody is told of moves");
        let fail = |errno| MmuError::HandOver { range: from, errno };
        let mappings = self.mappings(src, len).ok_or(fail(Errno::TOOBIG))?;
        // SAFETY: both ranges are inside the arena; the caller guarantees the rest.
        if let Err(errno) = unsafe { self.move_mappings(src, dst, &mappings) } {
            self.watched(self.remap_reserved(to));
            return Err(fail(errno));
        }
        self.reach.carry(from, to);
        if !keep {
            self.watched(self.remap_reserved(from));
            // A thread that waits there gets SIGSEGV.
            let _ = ioctl::wake(self.fd(), src, len);
        }
        Ok(())
    }

    /// Moves the tables of mappings of these lengths, up to the first 0.
    ///
    /// # Safety
    /// Both ranges are inside the arena, and the conditions of [`hand_over_watched`](Self::hand_over_watched) hold.
    ///
    /// # Errors
    /// The kernel's answer. All pages are where they were then.
    pub(super) unsafe fn move_mappings(
        &self,
        src: usize,
        dst: usize,
        mappings: &[usize],
    ) -> Result<(), Errno> {
        let mut done = 0;
        for &piece in mappings.iter().take_while(|&&piece| piece > 0) {
            // SAFETY: the caller guarantees it.
            if let Err(errno) = unsafe { remap::move_tables(src + done, dst + done, piece) } {
                self.hand_back(src, dst, mappings, done);
                return Err(errno);
            }
            done += piece;
        }
        Ok(())
    }

    /// The lengths of the mappings that a part of the arena consists of, up to the first 0. The answer is `None` when
    /// there are too many.
    pub(super) fn mappings(&self, start: usize, len: usize) -> Option<[usize; MAX_MAPPINGS]> {
        let mut lengths = [0; MAX_MAPPINGS];
        let mut seats = lengths.iter_mut();
        let arena_end = self.arena.base() + self.arena.len();
        let mut at = start;
        while at < start + len {
            // No memory of ours is behind the arena's last page, so that page is looked at by itself.
            let left =
                (start + len - at).min(arena_end - PAGE_SIZE - at.min(arena_end - PAGE_SIZE));
            let piece = if left == 0 {
                PAGE_SIZE
            } else {
                remap::one_mapping(at, left)
            };
            *seats.next()? = piece;
            at += piece;
        }
        Some(lengths)
    }

    /// Moves the first `done` bytes back.
    fn hand_back(&self, src: usize, dst: usize, mappings: &[usize], done: usize) {
        let mut at = 0;
        for piece in mappings.iter().take_while(|&&piece| piece > 0) {
            if at == done {
                return;
            }
            // SAFETY: these pages were moved the other way a moment ago.
            if let Err(errno) = unsafe { remap::move_tables(dst + at, src + at, *piece) } {
                crate::report::stop(format_args!(
                    "memory was moved by half and cannot be moved back ({errno}): stopped, to lose nothing silently"
                ));
            }
            at += piece;
        }
    }

    /// Stops the process if a range could not be registered: addresses that nobody watches read as zeros, and that
    /// must not be found out later.
    pub(super) fn watched(&self, result: Result<(), MmuError>) {
        result.unwrap_or_else(|error| {
            crate::report::stop(format_args!(
                "memory cannot be watched any more ({error}): stopped, to lose nothing silently"
            ))
        });
    }
}

/// The most mappings that are moved one by one. An area gets one more each time that it is moved and then grows where
/// it is; a copy makes it one mapping again.
const MAX_MAPPINGS: usize = 64;
