//! The operations of [`RealMemory`], forwarded to the kind that it is.

use millpond_core::{
    CopyFrom, FilledAndInstalled, Frame, InstallError, LeafPages, LoadError, Mmu, PageCount,
    PageIndex, PageRange, Placed, TakeOutError,
};

use super::{RealMemory, each_kind};
use crate::error::MmuError;
use crate::memory::Memory;

impl Mmu for RealMemory {
    fn install_zero(&self, at: PageRange, frame: Option<Frame>) -> Result<Placed, InstallError> {
        each_kind!(self, kind => Mmu::install_zero(kind, at, frame))
    }

    fn install_zero_all(
        &self,
        work: &[(PageRange, Option<Frame>)],
        results: &mut [Result<Placed, InstallError>],
    ) {
        each_kind!(self, kind => Mmu::install_zero_all(kind, work, results));
    }

    fn fill(
        &self,
        frame: Frame,
        fresh: bool,
        fill: &mut dyn FnMut(&mut [u8]) -> Result<(), LoadError>,
    ) -> Result<(), LoadError> {
        each_kind!(self, kind => Mmu::fill(kind, frame, fresh, fill))
    }

    fn install(&self, frame: Frame, at: PageRange) -> Result<Placed, InstallError> {
        each_kind!(self, kind => Mmu::install(kind, frame, at))
    }

    fn fill_and_install(
        &self,
        frame: Frame,
        fresh: bool,
        at: PageRange,
        fill: &mut dyn FnMut(&mut [u8]) -> Result<(), LoadError>,
    ) -> FilledAndInstalled {
        each_kind!(self, kind => Mmu::fill_and_install(kind, frame, fresh, at, fill))
    }

    fn copy(
        &self,
        at: PageRange,
        from: CopyFrom,
        frame: Option<Frame>,
    ) -> Result<Placed, InstallError> {
        each_kind!(self, kind => Mmu::copy(kind, at, from, frame))
    }

    fn take_out(&self, at: PageRange, frame: Frame) -> Result<(), TakeOutError> {
        each_kind!(self, kind => Mmu::take_out(kind, at, frame))
    }

    fn take_out_all(&self, work: &[(PageRange, Frame)], results: &mut [Result<(), TakeOutError>]) {
        each_kind!(self, kind => Mmu::take_out_all(kind, work, results));
    }

    fn take_out_leaf(
        &self,
        at: PageRange,
        frame: Frame,
        pages: &LeafPages,
    ) -> Result<(), TakeOutError> {
        each_kind!(self, kind => Mmu::take_out_leaf(kind, at, frame, pages))
    }

    fn zero_in_place(&self, at: PageRange) {
        each_kind!(self, kind => Mmu::zero_in_place(kind, at));
    }

    fn is_blank(&self, at: PageRange, glance: bool) -> bool {
        each_kind!(self, kind => Mmu::is_blank(kind, at, glance))
    }

    fn read_frame(&self, frame: Frame, see: &mut dyn FnMut(&[u8])) {
        each_kind!(self, kind => Mmu::read_frame(kind, frame, see));
    }

    fn zap(&self, ranges: &[PageRange]) {
        each_kind!(self, kind => Mmu::zap(kind, ranges));
    }

    fn free_frames(&self, frames: &[Frame]) {
        each_kind!(self, kind => Mmu::free_frames(kind, frames));
    }

    fn wake(&self, at: PageRange) {
        each_kind!(self, kind => Mmu::wake(kind, at));
    }

    fn poison(&self, at: PageRange) {
        each_kind!(self, kind => Mmu::poison(kind, at));
    }
}

impl Memory for RealMemory {
    fn arena(&self) -> PageRange {
        each_kind!(self, kind => Memory::arena(kind))
    }

    fn address(&self, page: PageIndex) -> usize {
        each_kind!(self, kind => Memory::address(kind, page))
    }

    fn open(&self, range: PageRange) -> Result<(), MmuError> {
        each_kind!(self, kind => Memory::open(kind, range))
    }

    fn close(&self, range: PageRange) -> Result<(), MmuError> {
        each_kind!(self, kind => Memory::close(kind, range))
    }

    fn renew(&self, range: PageRange) -> Result<(), MmuError> {
        each_kind!(self, kind => Memory::renew(kind, range))
    }

    fn unwatch(&self, range: PageRange) -> Result<(), MmuError> {
        each_kind!(self, kind => Memory::unwatch(kind, range))
    }

    fn place(&self, range: PageRange, node: u32) -> Result<(), MmuError> {
        each_kind!(self, kind => Memory::place(kind, range, node))
    }

    fn usable_around(&self, page: PageIndex) -> PageRange {
        each_kind!(self, kind => Memory::usable_around(kind, page))
    }

    fn present_pages(&self, range: PageRange, visit: &mut dyn FnMut(PageRange)) {
        each_kind!(self, kind => Memory::present_pages(kind, range, visit));
    }

    unsafe fn zero_if_mapped(&self, at: PageRange) -> bool {
        // SAFETY: the caller guarantees what the called function requires.
        unsafe { each_kind!(self, kind => Memory::zero_if_mapped(kind, at)) }
    }

    fn pinned(&self, range: PageRange) {
        each_kind!(self, kind => Memory::pinned(kind, range));
    }

    fn unpinned(&self, range: PageRange) {
        each_kind!(self, kind => Memory::unpinned(kind, range));
    }

    unsafe fn hand_over(
        &self,
        from: PageRange,
        to: PageRange,
        beside: (PageCount, PageCount),
    ) -> Result<(), MmuError> {
        // SAFETY: the caller guarantees what the called function requires.
        unsafe { each_kind!(self, kind => Memory::hand_over(kind, from, to, beside)) }
    }

    unsafe fn hand_over_watched(
        &self,
        from: PageRange,
        to: PageRange,
        keep: bool,
    ) -> Result<(), MmuError> {
        // SAFETY: the caller guarantees what the called function requires.
        unsafe { each_kind!(self, kind => Memory::hand_over_watched(kind, from, to, keep)) }
    }

    fn is_in_one_piece(&self, bytes: &[u8]) -> bool {
        each_kind!(self, kind => Memory::is_in_one_piece(kind, bytes))
    }

    fn wants_huge_ready(&self) -> bool {
        each_kind!(self, kind => Memory::wants_huge_ready(kind))
    }

    fn make_huge_ready(&self) -> bool {
        each_kind!(self, kind => Memory::make_huge_ready(kind))
    }

    fn huge_ready(&self) -> PageCount {
        each_kind!(self, kind => Memory::huge_ready(kind))
    }

    fn drop_huge_ready(&self) {
        each_kind!(self, kind => Memory::drop_huge_ready(kind));
    }

    fn settle_huge_ready(&self) {
        each_kind!(self, kind => Memory::settle_huge_ready(kind));
    }
}
