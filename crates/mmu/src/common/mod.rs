//! What all real memory has in common, whatever watches it: the arena, the frame pool, the tables of both, and the
//! descriptors for examining them.
//!
//! [`Install`] and [`Capture`] declare what is left for each kind of memory to do, and contain the common steps
//! around that.

mod blank;
mod capture;
mod copy_nofault;
mod discard;
mod dump;
mod hand_over;
mod install;
mod open;
mod place;
mod present;
mod reach;
pub(crate) mod skip;
mod zero;
mod zeros;

use millpond_core::{Frame, PAGE_SHIFT, PageCount, PageIndex, PageRange};
use millpond_sync::{Rank, Ranked};
use rustix::fd::{AsRawFd, BorrowedFd};

use crate::bounce::Bounce;
use crate::config::MemoryConfig;
use crate::delivery::{Attached, Delivery};
use crate::error::MmuError;
use crate::mask::Mask;
use crate::orphans::Known;
use crate::pool::Pool;
use crate::report;
use crate::reservation::{Purpose, Reservation};
use crate::staging::Staging;
use crate::sys::FdCell;
use open::{open_pagemap, open_pidfd};
use reach::Reach;
use zeros::Zeros;

pub(crate) use blank::{is_blank, words_seen};
pub(crate) use capture::Capture;
pub(crate) use hand_over::{halfway, watched};
pub(crate) use install::{Install, refusal};

/// The part of a memory that does not depend on what watches it.
pub(crate) struct Common {
    pub(crate) arena: Reservation,
    pub(crate) reach: Reach,
    pub(crate) pool: Pool,
    pub(crate) zeros: Zeros,
    pub(crate) bounce: Bounce,
    pagemap: FdCell,
    pidfd: FdCell,
    /// Records where the arena is, and is dropped with it: a child should not touch that place.
    #[expect(dead_code, reason = "it is there to be dropped")]
    known: Known,
    pub(crate) delivery: Delivery,
    pub(crate) mask: Mask,
    /// The delivery of faults, while attached.
    pub(crate) attached: Ranked<Option<Attached>>,
}

impl Common {
    /// Reserves the arena of this configuration: empty and inaccessible.
    pub(crate) fn reserve_arena(config: &MemoryConfig) -> Result<Reservation, MmuError> {
        let len = config.arena.bytes() as usize;
        match config.reserved {
            Some(base) => Ok(Reservation::lent(base, len)),
            None => Reservation::at_one_of("arena", len, config.bases, Purpose::Watched),
        }
    }

    /// Reserves everything else around the arena. Nothing is watched yet.
    pub(crate) fn new(config: &MemoryConfig, arena: Reservation) -> Result<Self, MmuError> {
        let pagemap = open_pagemap()?;
        let common = Self {
            reach: Reach::new(config.arena),
            known: Known::new(arena.base(), arena.len()),
            arena,
            pool: Pool::new(&config.pool)?,
            zeros: Zeros::new()?,
            bounce: Bounce::new()?,
            pagemap: FdCell::new(Some(pagemap)),
            pidfd: FdCell::new(open_pidfd(config.mask)),
            delivery: config.delivery,
            mask: config.mask,
            attached: Ranked::new(Rank::Delivery, None),
        };
        common.leave_out_of_dumps();
        Ok(common)
    }

    /// Returns the page that contains the address, or `None` for an address outside the arena.
    pub(crate) fn page_of(&self, addr: usize) -> Option<PageIndex> {
        let offset = addr.checked_sub(self.arena.base())?;
        (offset < self.arena.len()).then_some(PageIndex((offset >> PAGE_SHIFT) as u32))
    }

    /// Returns the address of a page.
    ///
    /// # Panics
    /// When the page is outside the arena (its end is allowed).
    pub(crate) fn at(&self, page: PageIndex) -> usize {
        let offset = (page.0 as usize) << PAGE_SHIFT;
        assert!(
            offset <= self.arena.len(),
            "page {page} is beyond the arena's {} bytes",
            self.arena.len()
        );
        self.arena.base() + offset
    }

    /// Returns all pages of the arena.
    pub(crate) fn pages(&self) -> PageRange {
        let pages = PageCount((self.arena.len() >> PAGE_SHIFT) as u32);
        PageRange::new(PageIndex(0), pages)
    }

    /// Returns the address and length of a range.
    ///
    /// # Errors
    /// [`MmuError::OutsideArena`].
    pub(crate) fn span(&self, range: PageRange) -> Result<(usize, usize), MmuError> {
        let arena = self.pages().len;
        match range.start.0.checked_add(range.len.0) {
            Some(end) if end <= arena.0 => Ok((self.at(range.start), range.len.bytes() as usize)),
            _ => Err(MmuError::OutsideArena { range, arena }),
        }
    }

    /// Returns the address and length of a folio's range, which must have the frame's order.
    pub(crate) fn folio(&self, at: PageRange, frame: Frame) -> (usize, usize) {
        assert_eq!(
            at.len,
            frame.order().pages(),
            "range {at} and frame {frame} differ in length"
        );
        (self.at(at.start), at.len.bytes() as usize)
    }

    /// Implements [`Mmu::read_frame`](millpond_core::Mmu::read_frame).
    pub(crate) fn see_frame(&self, frame: Frame, see: &mut dyn FnMut(&[u8])) {
        let lease = self.pool.lease(frame);
        // SAFETY: the caller guarantees that the frame is populated.
        see(unsafe { lease.bytes() });
    }

    /// Records whether the program may use the pages of an open range, after it has changed their protection.
    pub(crate) fn note_access(&self, range: PageRange, usable: bool) -> Result<(), MmuError> {
        self.span(range)?;
        self.reach.set(range, usable);
        Ok(())
    }

    /// Records that a range was opened or closed.
    pub(crate) fn note_open(&self, range: PageRange, is_open: bool) {
        let (start, len) = (self.at(range.start), range.len.bytes() as usize);
        self.choose_dump(start, len, is_open);
        self.reach.set(range, is_open);
    }

    /// Sets whether children inherit arena, pool, buffers and the slots for huge pages.
    pub(crate) fn inherit(&self, inherit: bool, staging: Option<&Staging>) {
        let ours = [&self.arena, self.pool.memory(), self.bounce.memory()];
        for memory in ours.into_iter().chain(staging.map(Staging::memory)) {
            if let Err(errno) = memory.inherit(inherit)
                && errno != rustix::io::Errno::NOMEM
            {
                report::line(format_args!(
                    "what a child inherits of {:#x}+{:#x} could not be set ({errno})",
                    memory.base(),
                    memory.len()
                ));
            }
        }
    }

    /// In a new child, forgets what its parent's threads were doing.
    pub(crate) fn forget_others_in_child(&self) {
        crate::held::forget_others_in_child();
        self.pool.forget_leases();
        self.bounce.forget_buffers();
    }

    /// Opens a new child's own descriptors.
    pub(crate) fn open_again_in_child(&self) -> Result<(), MmuError> {
        self.pagemap.replace(Some(open_pagemap()?));
        self.pidfd.replace(open_pidfd(self.mask));
        Ok(())
    }

    /// Returns the descriptors needed to examine this memory.
    pub(crate) fn descriptors(&self) -> impl Iterator<Item = i32> {
        let cells = [&self.pagemap, &self.pidfd];
        let open = cells.into_iter().filter_map(FdCell::get);
        open.map(|fd| fd.as_raw_fd())
    }

    pub(crate) fn pagemap(&self) -> BorrowedFd<'_> {
        self.pagemap
            .get()
            .expect("the page map lives as long as the memory")
    }
}
