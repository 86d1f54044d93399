//! Memory that a userfaultfd watches, as the core and the driver see it. Operations of more than a few lines have
//! files of their own.

use std::time::Instant;

use millpond_core::{
    CopyFrom, FilledAndInstalled, Frame, InstallError, LEAF_PAGES, LeafPages, LoadError, Mmu,
    Order, PageCount, PageIndex, PageRange, Placed, TakeOutError,
};

use super::UffdMemory;
use crate::common::{Capture, Install};
use crate::error::MmuError;
use crate::memory::Memory;
use crate::staging::Staging;
use crate::sys::{ioctl, poison};

impl Mmu for UffdMemory {
    fn install_zero(&self, at: PageRange, frame: Option<Frame>) -> Result<Placed, InstallError> {
        self.install_zero(at, frame)
    }

    fn install_zero_all(
        &self,
        work: &[(PageRange, Option<Frame>)],
        results: &mut [Result<Placed, InstallError>],
    ) {
        self.install_zero_all(work, results);
    }

    fn fill(
        &self,
        frame: Frame,
        fresh: bool,
        fill: &mut dyn FnMut(&mut [u8]) -> Result<(), LoadError>,
    ) -> Result<(), LoadError> {
        self.fill_frame(frame, fresh, fill)
    }

    fn install(&self, frame: Frame, at: PageRange) -> Result<Placed, InstallError> {
        self.install_frame(frame, at)
    }

    fn fill_and_install(
        &self,
        frame: Frame,
        fresh: bool,
        at: PageRange,
        fill: &mut dyn FnMut(&mut [u8]) -> Result<(), LoadError>,
    ) -> FilledAndInstalled {
        self.fill_at(frame, fresh, at, fill)
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
        self.capture_one(at, frame)
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
        self.common.see_frame(frame, see);
    }

    fn zap(&self, ranges: &[PageRange]) {
        self.common.discard_spans(self.common.spans(ranges));
    }

    fn free_frames(&self, frames: &[Frame]) {
        let since = Instant::now();
        let pages = self.common.discard_frames(frames);
        // A huge page is freed in 8 µs, which says nothing about the cost of small ones.
        if frames.iter().all(|frame| frame.order() < Order::MAX) {
            self.costs.freed(pages, since);
        }
    }

    fn wake(&self, at: PageRange) {
        if !at.is_empty() {
            // Waking a range that is no longer registered fails, but no thread can be waiting there.
            let start = self.common.at(at.start);
            let _ = ioctl::wake(self.fd(), start, at.len.bytes() as usize);
        }
    }

    /// Marks pages whose contents are lost, so that a touch raises SIGBUS instead of silently reading zeros. With
    /// in-thread delivery nothing is marked: each touch reaches the sink, which reports that the page is lost, and
    /// the signal is passed on to the program. With a handler thread the kernel must raise the signal, through a mark
    /// in the page table (Linux 6.6).
    fn poison(&self, at: PageRange) {
        if self.features.poison && !at.is_empty() {
            poison::mark(
                self.fd(),
                self.common.at(at.start),
                self.common.at(at.end()),
            );
        }
    }
}

impl Memory for UffdMemory {
    fn arena(&self) -> PageRange {
        self.common.pages()
    }

    fn address(&self, page: PageIndex) -> usize {
        self.common.at(page)
    }

    fn open(&self, range: PageRange) -> Result<(), MmuError> {
        self.protect(range, true)
    }

    fn close(&self, range: PageRange) -> Result<(), MmuError> {
        self.protect(range, false)
    }

    fn renew(&self, range: PageRange) -> Result<(), MmuError> {
        let (start, len) = self.common.span(range)?;
        let restored = self.common.arena.restore(start, len);
        restored.map_err(|errno| MmuError::Reserve {
            what: "arena",
            bytes: len,
            errno,
        })?;
        self.common.note_open(range, false);
        self.register_arena(start, len)
    }

    /// Since Linux 6.17 the kernel locks only the one mapping when pages are dropped, but the whole address space
    /// where userfaultfd is registered. So the range is unregistered: absent pages are not reported, and would read
    /// as zeros. If pages are taken out by copying, which requires the registration, nothing happens.
    fn unwatch(&self, range: PageRange) -> Result<(), MmuError> {
        let (start, len) = self.common.span(range)?;
        if !self.can_move {
            return Ok(());
        }
        ioctl::unregister(self.fd(), start, len)
            .map_err(|errno| MmuError::HandOver { range, errno })
    }

    fn place(&self, range: PageRange, node: u32) -> Result<(), MmuError> {
        self.common.place(range, node)
    }

    fn usable_around(&self, page: PageIndex) -> PageRange {
        self.common.reach.around(page)
    }

    fn present_pages(&self, range: PageRange, visit: &mut dyn FnMut(PageRange)) {
        self.common.present_pages(range, visit);
    }

    unsafe fn zero_if_mapped(&self, at: PageRange) -> bool {
        // SAFETY: the caller guarantees what the called function requires.
        unsafe { self.common.zero_if_mapped(at) }
    }

    unsafe fn hand_over(
        &self,
        from: PageRange,
        to: PageRange,
        beside: (PageCount, PageCount),
    ) -> Result<(), MmuError> {
        // SAFETY: the caller guarantees what the called function requires.
        unsafe { self.hand_over(from, to, beside) }
    }

    unsafe fn hand_over_watched(
        &self,
        from: PageRange,
        to: PageRange,
        keep: bool,
    ) -> Result<(), MmuError> {
        // SAFETY: the caller guarantees what the called function requires.
        unsafe { self.hand_over_watched(from, to, keep) }
    }

    fn is_in_one_piece(&self, bytes: &[u8]) -> bool {
        self.common.is_huge_page(bytes)
    }

    fn wants_huge_ready(&self) -> bool {
        self.staging.as_ref().is_some_and(Staging::wants_ready)
    }

    fn make_huge_ready(&self) -> bool {
        self.staging.as_ref().is_some_and(Staging::make_ready)
    }

    fn huge_ready(&self) -> PageCount {
        let pages = self.staging.as_ref().map_or(0, Staging::ready);
        PageCount(pages * LEAF_PAGES)
    }

    fn drop_huge_ready(&self) {
        if let Some(staging) = &self.staging {
            staging.drop_ready();
        }
    }

    fn settle_huge_ready(&self) {
        if let Some(staging) = &self.staging {
            staging.end_period();
        }
    }
}

impl UffdMemory {
    fn protect(&self, range: PageRange, readable: bool) -> Result<(), MmuError> {
        let (start, len) = self.common.span(range)?;
        let changed = self.common.arena.protect(start, len, readable);
        changed.map_err(|errno| MmuError::Protect { range, errno })?;
        self.common.note_open(range, readable);
        Ok(())
    }
}
