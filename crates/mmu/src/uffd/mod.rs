//! [`Uffd`]: the arena, the frame pool and the userfaultfd that serves both. Where userfaultfd is refused, the arena is
//! watched by protections instead (`closed.rs`), with in-thread delivery only.
//!
//! The state of folios in the core, not locks here, decides which operations may run beside each other:
//!
//! | | same folio or frame | other folios |
//! | --- | --- | --- |
//! | install, copy, take_out, take_out_leaf (all of leaf and block), fill, read_frame, free_frames | never (in flight; frames are leased, a mistake panics) | freely |
//! | zero_in_place, is_blank | never beside an operation that maps or unmaps | freely |
//! | zap, poison | never beside install or take_out | freely |
//! | the program's reads, writes, system calls | any time: they see the old page, the new page, or fault | freely |
//! | open, close, remap_reserved | never beside an operation on the same pages | freely |
//! | hand_over | nothing else runs, and the program does not touch the source | nothing else runs |
//! | hand_over_watched | nothing else runs but the program and the thread that reads faults | nothing else runs but these |
//! | before_fork … after_fork | nothing else runs: the caller is quiet | nothing else runs |

mod capture_protected;
mod closed;
mod copy;
mod copy_nofault;
mod cost;
mod dump;
mod fork;
mod hand_over;
mod huge;
mod install;
mod install_run;
mod leaf;
#[cfg(test)]
mod one_leaf;
mod open;
mod parts;
mod place;
mod reach;
pub(crate) mod skip;
mod take_out;
mod transfer;
mod zap;
mod zero;
mod zero_in_place;
mod zeros;

use millpond_sync::{Rank, Ranked};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use linux_raw_sys::general::UFFD_FEATURE_MOVE;
use rustix::fd::{AsFd, AsRawFd, BorrowedFd};

use millpond_core::{
    CopyFrom, FilledAndInstalled, Frame, InstallError, LEAF_PAGES, LeafPages, LoadError, Mmu,
    PAGE_SHIFT, PAGE_SIZE, PageCount, PageIndex, PageRange, Placed, PoolLayout, TakeOutError,
};

use crate::bounce::Bounce;
use crate::delivery::handler::Served;
use crate::delivery::{Attached, Delivery};
use crate::error::MmuError;
use crate::held::Taking;
use crate::mask::Mask;
use crate::orphans::Known;
use crate::overcommit::is_counted_strictly;
use crate::pool::Pool;
use crate::protection::{Protection, Wish};
use crate::reservation::Reservation;
use crate::staging::Staging;
use crate::sys::{FdCell, descriptor, ioctl, pagemap};
use open::{
    Features, open_mem, open_pagemap, open_pidfd, open_uffd, supported_features,
    watch_by_protections,
};
use parts::Parts;
use zeros::Zeros;

/// A way to find which pages of `start..end` are there, run by run.
type Runs =
    fn(BorrowedFd<'_>, usize, usize, &mut dyn FnMut(usize, usize)) -> Result<(), rustix::io::Errno>;

/// The method by which pages are captured on their way out.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum TakeOutMethod {
    /// [`Move`](Self::Move) where the kernel has it (Linux 6.8), else [`Copy`](Self::Copy).
    #[default]
    Auto,
    /// `UFFDIO_MOVE`: the page itself leaves, atomically, and the kernel refuses a page that a device writes to.
    Move,
    /// The page is write-protected, copied and discarded. This costs a copy and a second shootdown, and cannot see
    /// that a device writes to the page: keep buffers of `O_DIRECT` reads pinned with this method.
    Copy,
}

/// The least time that 512 small pages take. A huge page that takes twice as long is no gain.
pub const HUGE_WITHIN: Duration = Duration::from_micros(800);

/// The configuration of a [`Uffd`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UffdConfig {
    /// Pages of address space for managed memory: a positive multiple of 512.
    pub arena: PageCount,
    /// Places where the arena may begin (multiples of 1 GiB). The first at which nothing is mapped is taken; if there
    /// is none, the kernel chooses.
    pub bases: &'static [usize],
    /// Number of frames of each order in the frame pool.
    pub pool: PoolLayout,
    /// How faults are delivered.
    pub delivery: Delivery,
    /// How pages are taken out.
    pub take_out: TakeOutMethod,
    /// Longest time that the kernel may take for a new huge page. After a slower one, small pages are used for a
    /// while: see [`HUGE_WITHIN`].
    pub huge_within: Duration,
    /// Capabilities to do without.
    pub mask: Mask,
}

/// The implementation of [`Mmu`] with real memory. The crate's documentation has an overview.
pub struct Uffd {
    arena: Reservation,
    parts: Parts,
    reach: reach::Reach,
    pool: Pool,
    zeros: Zeros,
    bounce: Bounce,
    /// The place where huge pages are made; `None` without `UFFDIO_MOVE`, which they need.
    staging: Option<Staging>,
    /// The userfaultfd. There is none where pages are watched by protections.
    uffd: FdCell,
    protection: Option<Arc<Protection>>,
    pagemap: FdCell,
    /// `/proc/self/mem`, for pages that the program may not read.
    mem: FdCell,
    pidfd: FdCell,
    /// `/dev/userfaultfd`, kept for children that may not open it any more. A child that is served by SIGBUS needs no
    /// rights.
    device: FdCell,
    /// A note of where the arena is, dropped with it: a child should not touch that place.
    #[expect(dead_code, reason = "it is there to be dropped")]
    known: Known,
    delivery: Delivery,
    mask: Mask,
    can_move: bool,
    features: Features,
    costs: cost::Costs,
    surprised: AtomicBool,
    attached: Ranked<Option<Attached>>,
}

impl Uffd {
    /// Reserves the arena and the frame pool and registers both. Afterwards no page of either is mapped, no region is
    /// open and nothing is delivered yet.
    ///
    /// # Errors
    /// The length is bad, userfaultfd is refused, a feature is missing, or there is no address space. Nothing is left
    /// behind.
    pub fn new(config: UffdConfig) -> Result<Self, MmuError> {
        let pages = config.arena.0;
        if pages == 0
            || !pages.is_multiple_of(LEAF_PAGES)
            || pages > millpond_core::limits::MAX_ARENA_PAGES
        {
            return Err(MmuError::BadArena {
                pages: config.arena,
            });
        }
        crate::held::decline_huge_pages();
        let device = FdCell::new(match config.delivery {
            Delivery::Handler => descriptor::open_device().ok(),
            Delivery::InThread | Delivery::Direct => None,
        });
        let mut offered = supported_features(config.delivery, device.get(), config.mask);
        // A filter may refuse the call, which every user may make, where the device is open to this one.
        if config.delivery == Delivery::Direct
            && !config.mask.uffd
            && matches!(offered, Err(MmuError::NoUserfaultfd { .. }))
            && let Ok(opened) = descriptor::open_device()
        {
            device.replace(Some(opened));
            offered = supported_features(config.delivery, device.get(), config.mask);
        }
        let has_move = matches!(offered, Ok(has) if has & u64::from(UFFD_FEATURE_MOVE) != 0);
        if config.take_out == TakeOutMethod::Move && offered.is_ok() && !has_move {
            let way_out = "use Linux 6.8 or later, or the method Auto or Copy";
            return Err(MmuError::MissingFeature {
                feature: "UFFDIO_MOVE",
                way_out,
            });
        }
        if config.mask.scan {
            pagemap::do_without_scan();
        }
        let can_move = has_move && config.take_out != TakeOutMethod::Copy;
        let bytes = config.arena.bytes() as usize;
        let arena = || Reservation::at_one_of("arena", bytes, config.bases);
        let (arena, uffd, features, protection) = match offered {
            Ok(_) => {
                let (uffd, features) =
                    open_uffd(config.delivery, device.get(), can_move, config.mask)?;
                (arena()?, Some(uffd), features, None)
            }
            Err(refused) => {
                let arena = arena()?;
                let protection = watch_by_protections(&config, &arena, refused)?;
                (arena, None, Features::default(), Some(protection))
            }
        };
        let pagemap = open_pagemap()?;
        let uffd = Self {
            parts: Parts::new(&arena),
            reach: reach::Reach::new(config.arena),
            known: Known::new(arena.base(), arena.len()),
            arena,
            pool: Pool::new(&config.pool)?,
            zeros: Zeros::new()?,
            bounce: Bounce::new()?,
            // Slots for huge pages are 32 MiB that may be written, whether they are used or not.
            staging: if can_move && !is_counted_strictly() {
                Staging::new(config.huge_within, pagemap.as_fd())?
            } else {
                None
            },
            uffd: FdCell::new(uffd),
            protection,
            pagemap: FdCell::new(Some(pagemap)),
            mem: FdCell::new(open_mem()),
            pidfd: FdCell::new(open_pidfd(config.mask)),
            device,
            delivery: config.delivery,
            mask: config.mask,
            can_move,
            features,
            costs: cost::Costs::new(),
            surprised: AtomicBool::new(false),
            attached: Ranked::new(Rank::Delivery, None),
        };
        uffd.leave_out_of_dumps();
        uffd.register_pool()?;
        uffd.register_arena(uffd.arena.base(), uffd.arena.len())?;
        Ok(uffd)
    }

    /// The arena's first byte, aligned to 2 MiB.
    #[must_use]
    pub fn base(&self) -> *mut u8 {
        core::ptr::with_exposed_provenance_mut(self.arena.base())
    }

    /// The arena's length in bytes.
    #[must_use]
    #[expect(
        clippy::len_without_is_empty,
        reason = "an arena has at least one leaf"
    )]
    pub fn len(&self) -> usize {
        self.arena.len()
    }

    /// The page that holds the address, or `None` for an address outside the arena.
    #[must_use]
    pub fn page_of(&self, addr: usize) -> Option<PageIndex> {
        let offset = addr.checked_sub(self.arena.base())?;
        (offset < self.arena.len()).then_some(PageIndex((offset >> PAGE_SHIFT) as u32))
    }

    /// The address of the page's first byte.
    ///
    /// # Panics
    /// When the page is outside the arena (its end is allowed).
    #[must_use]
    pub fn addr_of(&self, page: PageIndex) -> *mut u8 {
        core::ptr::with_exposed_provenance_mut(self.at(page))
    }

    /// Lets the program read and write the range: a region begins.
    ///
    /// # Errors
    /// [`MmuError::OutsideArena`], [`MmuError::Protect`].
    pub fn open(&self, range: PageRange) -> Result<(), MmuError> {
        self.protect(range, true)
    }

    /// Takes all access from the range: a region ended. Its pages must have been zapped before, or they stay in
    /// memory unseen.
    ///
    /// # Errors
    /// [`MmuError::OutsideArena`], [`MmuError::Protect`].
    pub fn close(&self, range: PageRange) -> Result<(), MmuError> {
        self.protect(range, false)
    }

    /// Notes whether the program may use the pages of a range that is open, after it has changed their protection.
    ///
    /// # Errors
    /// [`MmuError::OutsideArena`].
    pub fn note_access(&self, range: PageRange, usable: bool) -> Result<(), MmuError> {
        self.span(range)?;
        self.reach.set(range, usable);
        Ok(())
    }

    /// The pages around `page` that the program may use, as far as a fault's window can reach. Closed pages are left
    /// out, but `page` itself is always part of the answer.
    #[must_use]
    pub fn usable_around(&self, page: PageIndex) -> PageRange {
        self.reach.around(page)
    }

    /// Ends the watch over a range that nobody touches any more: absent pages are not reported, and would read as
    /// zeros. Dropping the pages that are mapped there then keeps no other thread from mapping and unmapping memory:
    /// since Linux 6.17 the kernel locks just the one mapping for that, but all of the address space where
    /// userfaultfd is registered. [`Uffd::remap_reserved`] makes the range part of the arena again.
    ///
    /// Nothing happens where pages are taken out by copying, which they must be registered for, or are watched by
    /// protections ([`Uffd::cede`]).
    ///
    /// # Errors
    /// [`MmuError::OutsideArena`] or [`MmuError::HandOver`]. Nothing has changed then.
    pub fn unwatch(&self, range: PageRange) -> Result<(), MmuError> {
        let (start, len) = self.span(range)?;
        if !self.can_move {
            return Ok(());
        }
        ioctl::unregister(self.fd(), start, len)
            .map_err(|errno| MmuError::HandOver { range, errno })
    }

    /// Makes the range part of the arena again after foreign mappings replaced it there: empty, without access,
    /// registered. The foreign mappings are unmapped.
    ///
    /// # Errors
    /// [`MmuError::OutsideArena`], [`MmuError::Reserve`], [`MmuError::Register`].
    pub fn remap_reserved(&self, range: PageRange) -> Result<(), MmuError> {
        let (start, len) = self.span(range)?;
        let restore = || self.arena.restore(start, len);
        let restored = match &self.protection {
            Some(protection) => protection.renew(range, restore),
            None => restore(),
        };
        restored.map_err(|errno| MmuError::Reserve {
            what: "arena",
            bytes: len,
            errno,
        })?;
        self.choose_dump(start, len, false);
        self.reach.set(range, false);
        self.register_arena(start, len)
    }

    /// Calls `visit` for each run of pages in the range that are mapped now (or that the kernel has swapped out),
    /// lowest first. Neighbouring runs may come as several.
    pub fn present_pages(&self, range: PageRange, visit: &mut dyn FnMut(PageRange)) {
        self.look_for_pages(range, pagemap::runs, visit);
    }

    /// [`present_pages`](Self::present_pages) for a long range of which the program uses little. Where the kernel has
    /// no `PAGEMAP_SCAN` (Linux 6.7) it looks only at leaves of which the program may use something: no thread can have
    /// touched another.
    pub fn present_pages_of_sparse(&self, range: PageRange, visit: &mut dyn FnMut(PageRange)) {
        if pagemap::has_scan(self.pagemap()) {
            return self.present_pages(range, visit);
        }
        for leaves in self.reach.open_leaves(range) {
            self.look_for_pages(leaves, pagemap::runs_of_sparse, visit);
        }
    }

    fn look_for_pages(&self, range: PageRange, runs: Runs, visit: &mut dyn FnMut(PageRange)) {
        let (start, end) = (self.at(range.start), self.at(range.end()));
        let page = |addr: usize| (addr - self.arena.base()) >> PAGE_SHIFT;
        let mut run = |run: Range<usize>| {
            let len = PageCount(run.len() as u32);
            visit(PageRange::new(PageIndex(run.start as u32), len));
        };
        let result = runs(
            self.pagemap(),
            start,
            end,
            &mut |from, to| match &self.protection {
                Some(protection) => protection.unmarked(page(from)..page(to), &mut run),
                None => run(page(from)..page(to)),
            },
        );
        if let Err(errno) = result {
            crate::report::line(format_args!(
                "/proc/self/pagemap cannot be read ({errno}): nothing is counted"
            ));
        }
    }

    /// How many pages of the range are now mapped as parts of huge pages. The answer is 0 where the kernel does not
    /// tell (before Linux 6.7).
    #[must_use]
    pub fn huge_pages(&self, range: PageRange) -> PageCount {
        let bytes = pagemap::huge_bytes(self.pagemap(), self.at(range.start), self.at(range.end()));
        PageCount((bytes.unwrap_or(0) >> PAGE_SHIFT) as u32)
    }

    /// Whether pages are taken out by `UFFDIO_MOVE`.
    #[must_use]
    pub fn takes_out_by_move(&self) -> bool {
        self.can_move
    }

    /// The descriptors that operations on this memory need, for threads with a descriptor table of their own.
    #[must_use]
    pub fn descriptors(&self) -> Vec<i32> {
        let cells = [
            &self.uffd,
            &self.pagemap,
            &self.mem,
            &self.pidfd,
            &self.device,
        ];
        cells
            .iter()
            .filter_map(|cell| cell.get())
            .map(|fd| fd.as_raw_fd())
            .chain(
                self.protection
                    .iter()
                    .flat_map(|protection| protection.descriptors()),
            )
            .collect()
    }

    /// The facts about this memory that a handler thread needs.
    pub(crate) fn served(&self) -> Served {
        // SAFETY: the descriptor stays open until the handler is joined: the drop detaches first. It is exchanged
        // only in a new child, where the parent's handler does not run.
        let fd = unsafe { BorrowedFd::borrow_raw(self.fd().as_raw_fd()) };
        Served {
            fd,
            base: self.arena.base(),
            len: self.arena.len(),
            bell: self.pool.bell(),
            zeros: self.zeros.of(PAGE_SIZE),
            can_poison: self.features.poison,
        }
    }

    pub(crate) fn delivery(&self) -> Delivery {
        self.delivery
    }

    /// The protections by which the arena is watched, where there is no userfaultfd.
    pub(crate) fn protection(&self) -> Option<&Arc<Protection>> {
        self.protection.as_ref()
    }

    pub(crate) fn attached(&self) -> &Ranked<Option<Attached>> {
        &self.attached
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.uffd
            .get()
            .expect("the descriptor lives as long as the Uffd")
    }

    fn pagemap(&self) -> BorrowedFd<'_> {
        self.pagemap
            .get()
            .expect("the page map lives as long as the Uffd")
    }

    fn at(&self, page: PageIndex) -> usize {
        let offset = (page.0 as usize) << PAGE_SHIFT;
        assert!(
            offset <= self.arena.len(),
            "page {page} is beyond the arena's {} bytes",
            self.arena.len()
        );
        self.arena.base() + offset
    }

    fn span(&self, range: PageRange) -> Result<(usize, usize), MmuError> {
        let arena = PageCount((self.arena.len() >> PAGE_SHIFT) as u32);
        match range.start.0.checked_add(range.len.0) {
            Some(end) if end <= arena.0 => Ok((self.at(range.start), range.len.bytes() as usize)),
            _ => Err(MmuError::OutsideArena { range, arena }),
        }
    }

    /// Address and length of a folio's range, which must have the frame's order.
    fn folio(&self, at: PageRange, frame: Frame) -> (usize, usize) {
        assert_eq!(
            at.len,
            frame.order().pages(),
            "range {at} and frame {frame} differ in length"
        );
        (self.at(at.start), at.len.bytes() as usize)
    }

    fn protect(&self, range: PageRange, readable: bool) -> Result<(), MmuError> {
        let (start, len) = self.span(range)?;
        let wish = if readable {
            Wish::READ_WRITE
        } else {
            Wish::NONE
        };
        let changed = match &self.protection {
            Some(protection) => protection.wish_for(range, wish),
            None => self.arena.protect(start, len, readable),
        };
        changed.map_err(|errno| MmuError::Protect { range, errno })?;
        self.choose_dump(start, len, readable);
        self.reach.set(range, readable);
        Ok(())
    }
}

impl Drop for Uffd {
    fn drop(&mut self) {
        self.detach();
    }
}

impl Mmu for Uffd {
    fn install_zero(&self, at: PageRange, frame: Option<Frame>) -> Result<Placed, InstallError> {
        self.install_zero_pages(at, frame)
    }

    fn install_zero_all(
        &self,
        work: &[(PageRange, Option<Frame>)],
        results: &mut [Result<Placed, InstallError>],
    ) {
        self.install_zero_runs(work, results);
    }

    fn fill(
        &self,
        frame: Frame,
        fresh: bool,
        fill: &mut dyn FnMut(&mut [u8]) -> Result<(), LoadError>,
    ) -> Result<(), LoadError> {
        let mut lease = self.pool.lease(frame);
        if fresh {
            self.populate(lease.addr(), lease.len());
        }
        // SAFETY: the frame is populated, either just now or according to the caller.
        fill(unsafe { lease.bytes_mut() })
    }

    fn install(&self, frame: Frame, at: PageRange) -> Result<Placed, InstallError> {
        let lease = self.pool.lease(frame);
        self.install_frame(&lease, frame, at)
    }

    fn fill_and_install(
        &self,
        frame: Frame,
        fresh: bool,
        at: PageRange,
        fill: &mut dyn FnMut(&mut [u8]) -> Result<(), LoadError>,
    ) -> FilledAndInstalled {
        self.fill_and_install(frame, fresh, at, fill)
    }

    fn copy(
        &self,
        at: PageRange,
        from: CopyFrom,
        frame: Option<Frame>,
    ) -> Result<Placed, InstallError> {
        self.install_copy(at, from, frame)
    }

    fn take_out(&self, at: PageRange, frame: Frame) -> Result<(), TakeOutError> {
        let lease = self.pool.lease(frame);
        let (src, len) = self.folio(at, frame);
        let taking = Taking::begin();
        match taking.is_held(src, len) {
            true => Err(TakeOutError::Busy),
            false => self.capture(src, lease.addr(), len),
        }
    }

    fn take_out_all(&self, work: &[(PageRange, Frame)], results: &mut [Result<(), TakeOutError>]) {
        self.capture_all(work, results);
    }

    fn take_out_leaf(
        &self,
        at: PageRange,
        frame: Frame,
        pages: &LeafPages,
    ) -> Result<(), TakeOutError> {
        self.capture_leaf(at, frame, pages)
    }

    fn zero_in_place(&self, at: PageRange) {
        self.zero_pages(at);
    }

    fn is_blank(&self, at: PageRange, glance: bool) -> bool {
        self.pages_are_blank(at, glance)
    }

    fn read_frame(&self, frame: Frame, see: &mut dyn FnMut(&[u8])) {
        let lease = self.pool.lease(frame);
        // SAFETY: the caller guarantees that the frame is populated.
        see(unsafe { lease.bytes() });
    }

    fn zap(&self, ranges: &[PageRange]) {
        self.zap_ranges(ranges);
    }

    fn free_frames(&self, frames: &[Frame]) {
        self.discard_frames(frames);
    }

    fn wake(&self, at: PageRange) {
        if !at.is_empty() && self.protection.is_none() {
            // Waking a range that is no longer registered fails, and no thread can wait there.
            let _ = ioctl::wake(self.fd(), self.at(at.start), at.len.bytes() as usize);
        }
    }

    fn poison(&self, at: PageRange) {
        self.poison_pages(at);
    }
}
