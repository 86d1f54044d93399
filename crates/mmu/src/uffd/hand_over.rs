//! Handing a range's pages over to another range by the tables that map them.
//!
//! `mremap` moves 2 MiB by moving one pointer, where source and destination lie alike in their 2 MiB; but not where
//! userfaultfd is registered without its remap event, which waits for another thread each time. So the source is taken
//! out of userfaultfd for as long as that lasts: 1 GiB in 0.3 ms, where entry by entry it takes 3.4. A page that were
//! touched there meanwhile would come from the kernel as zeros; whoever calls this sees to it that none is.
//!
//! *While threads touch the source* that does not do: a preloaded program may. What was absent would become a page of
//! zeros, which moves along and hides what the store holds. Ways to prevent it, for 1 GiB of resident 4 KiB pages:
//!
//! | way | ms |
//! | --- | --- |
//! | the source without access meanwhile (`mprotect` visits every entry, twice) | 70 to 80 |
//! | registered all the time, without the remap event | 4 |
//! | registered all the time, with it | 0.3, and 0.01 to 0.04 where both lie alike in their gigabyte |
//!
//! The last is taken ([`Uffd::hand_over_watched`]): handler delivery has a thread that reads, and one hand-off is what
//! it costs. A touch comes before the move and finds the page, or is reported as a fault at the source. That thread
//! must not wait for whoever moves.
//!
//! `MREMAP_DONTUNMAP` leaves the source mapped and empty (Linux 5.7), so that nobody else can be given its addresses.

use millpond_core::{PAGE_SIZE, PageCount, PageRange};
use rustix::io::Errno;

use super::Uffd;
use crate::error::MmuError;
use crate::sys::{ioctl, remap};

impl Uffd {
    /// Whether [`Uffd::hand_over`] moves a pointer for each 2 MiB: the kernel does on these machines, and unregistering
    /// a range that is watched for writes would visit each page of it.
    #[must_use]
    pub fn hands_over_by_tables(&self) -> bool {
        self.can_move && cfg!(any(target_arch = "x86_64", target_arch = "aarch64"))
    }

    /// Moves what is mapped in `from` to `to`, two open or reserved ranges of the same length that begin alike in their
    /// leaves. `from` is empty afterwards.
    ///
    /// `lead` pages before `from` and `trail` pages behind it go along and come back: for a range of a gigabyte that
    /// lies across two, that is a few calls of microseconds instead of a pointer for each 2 MiB, 0.3 ms.
    ///
    /// # Safety
    /// Nothing else is under way in either range, no thread of the program touches `from` meanwhile, and `to` is
    /// nobody's; the same for the pages beside them. No leaf of any range is taken out meanwhile.
    ///
    /// # Errors
    /// [`MmuError::OutsideArena`], [`MmuError::HandOver`]: all is where it was.
    pub unsafe fn hand_over(
        &self,
        from: PageRange,
        to: PageRange,
        (lead, trail): (PageCount, PageCount),
    ) -> Result<(), MmuError> {
        let (src, len) = self.span(from.widened(lead, trail))?;
        let (dst, other) = self.span(to.widened(lead, trail))?;
        assert_eq!(len, other, "{from} and {to} differ in length");
        let fail = |errno| MmuError::HandOver { range: from, errno };
        for start in [src, dst] {
            self.parts.join(&self.arena, start, len);
        }
        ioctl::unregister(self.fd(), src, len).map_err(fail)?;
        let (lead, trail) = (lead.bytes() as usize, trail.bytes() as usize);
        // SAFETY: both ranges are inside the arena; the caller's word for the rest.
        let moved = unsafe { remap::move_tables(src, dst, len) }.and_then(|()| {
            let mut back = 0;
            for (at, part) in [(0, lead), (len - trail, trail)] {
                if part == 0 {
                    continue;
                }
                // SAFETY: as above; these were moved the other way a moment ago.
                if let Err(errno) = unsafe { remap::move_tables(dst + at, src + at, part) } {
                    // What has come back already is in its place.
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

    /// Whether [`hand_over_watched`](Self::hand_over_watched) works here: with handler delivery, and a kernel of Linux
    /// 4.11 or later.
    #[must_use]
    pub fn can_hand_over_watched(&self) -> bool {
        self.features.remap
    }

    /// As [`hand_over`](Self::hand_over), while threads of the program may touch both ranges; protections move along.
    /// Afterwards `from` is as before and empty, or, unless it is to be kept, without access.
    ///
    /// The thread that reads faults must not wait for the caller.
    ///
    /// # Safety
    /// Nothing else is under way in either range, and `to` is nobody's.
    ///
    /// # Errors
    /// [`MmuError::OutsideArena`], [`MmuError::HandOver`] (also when `from` consists of too many mappings): all is
    /// where it was.
    pub unsafe fn hand_over_watched(
        &self,
        from: PageRange,
        to: PageRange,
        keep: bool,
    ) -> Result<(), MmuError> {
        let ((src, len), (dst, other)) = (self.span(from)?, self.span(to)?);
        assert_eq!(len, other, "{from} and {to} differ in length");
        assert!(self.features.remap, "nobody is told of moves");
        let fail = |errno| MmuError::HandOver { range: from, errno };
        let mappings = self.mappings(src, len).ok_or(fail(Errno::TOOBIG))?;
        let mut done = 0;
        for &piece in mappings.iter().take_while(|&&piece| piece > 0) {
            // SAFETY: both ranges are inside the arena; the caller's word for the rest.
            if let Err(errno) = unsafe { remap::move_tables(src + done, dst + done, piece) } {
                self.hand_back(src, dst, &mappings, done);
                self.watched(self.remap_reserved(to));
                return Err(fail(errno));
            }
            done += piece;
        }
        self.reach.carry(from, to);
        if !keep {
            self.watched(self.remap_reserved(from));
            // Whoever waits there gets SIGSEGV.
            let _ = ioctl::wake(self.fd(), src, len);
        }
        Ok(())
    }

    /// The lengths of the mappings that a part of the arena consists of, up to the first 0; `None` when they are too
    /// many.
    fn mappings(&self, start: usize, len: usize) -> Option<[usize; MAX_MAPPINGS]> {
        let mut lengths = [0; MAX_MAPPINGS];
        let mut seats = lengths.iter_mut();
        let arena_end = self.arena.base() + self.arena.len();
        let mut at = start;
        while at < start + len {
            // Nothing of ours is behind the arena's last page, so that one is looked at by itself.
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
            // SAFETY: these were moved the other way a moment ago.
            if let Err(errno) = unsafe { remap::move_tables(dst + at, src + at, *piece) } {
                crate::report::stop(format_args!(
                    "memory was moved by half and cannot be moved back ({errno}): stopped, to lose nothing silently"
                ));
            }
            at += piece;
        }
    }

    /// Addresses that nobody watches read as zeros: that must not be found out later.
    pub(super) fn watched(&self, result: Result<(), MmuError>) {
        result.unwrap_or_else(|error| {
            crate::report::stop(format_args!(
                "memory cannot be watched any more ({error}): stopped, to lose nothing silently"
            ))
        });
    }
}

/// Mappings that are moved one by one. An area gets one more each time that it is moved and then grows where it is; a
/// copy makes one of them again.
const MAX_MAPPINGS: usize = 64;
