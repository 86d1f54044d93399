//! [`ProtectedMemory`]: an arena that is watched through protections, and its pool, as the core and the driver see
//! them. Operations of more than a few lines have files of their own.
//!
//! The pool is ordinary memory: the first write to a hole gives it pages.

use std::sync::Arc;

use millpond_core::{
    CopyFrom, FilledAndInstalled, Frame, InstallError, LeafPages, LoadError, Mmu, PAGE_SIZE,
    PageCount, PageIndex, PageRange, Placed, TakeOutError,
};

use super::{Protection, Wish};
use crate::common::{Capture, Common, Install, is_blank, words_seen};
use crate::config::{MemoryConfig, TakeOutMethod};
use crate::delivery::{Delivery, Watch};
use crate::error::MmuError;
use crate::memory::Memory;
use crate::reservation::HUGE;
use crate::sys::advise::Span;
use crate::way_out;

/// Memory that is watched through protections, because there is no userfaultfd. The crate's documentation has an
/// overview.
pub struct ProtectedMemory {
    pub(super) common: Common,
    pub(super) protection: Arc<Protection>,
}

impl ProtectedMemory {
    /// Reserves the arena and the frame pool after userfaultfd was `refused`.
    ///
    /// # Errors
    /// The `refused` error if the configuration needs userfaultfd or closed memory cannot be written; or the error of
    /// a failed reservation.
    pub(crate) fn new(config: &MemoryConfig, refused: MmuError) -> Result<Self, MmuError> {
        let arena = Common::reserve_arena(config)?;
        let MmuError::NoUserfaultfd { errno, .. } = refused else {
            return Err(refused);
        };
        if config.delivery == Delivery::Handler || config.take_out == TakeOutMethod::Move {
            return Err(refused);
        }
        let protection = Protection::new(arena.base(), arena.len(), !config.mask.guards);
        let protection = protection.map_err(|_| MmuError::NoUserfaultfd {
            errno,
            way_out: way_out::of_refused_userfaultfd(),
        })?;
        Ok(Self {
            common: Common::new(config, arena)?,
            protection: Arc::new(protection),
        })
    }

    /// The protections of the arena's pages.
    pub(crate) fn protection(&self) -> &Protection {
        &self.protection
    }

    /// What watches this memory.
    pub(crate) fn watch(&self) -> Watch {
        Watch::Protections(Arc::clone(&self.protection))
    }

    /// The descriptors that operations on this memory need.
    pub(crate) fn descriptors(&self) -> Vec<i32> {
        let own = self.protection.descriptors();
        own.chain(self.common.descriptors()).collect()
    }

    /// Implements [`RealMemory::present_pages_of_sparse`](crate::RealMemory::present_pages_of_sparse).
    pub(crate) fn present_pages_of_sparse(
        &self,
        range: PageRange,
        visit: &mut dyn FnMut(PageRange),
    ) {
        let unmarked = &mut |run| self.protection.unmarked(run, visit);
        self.common.present_pages_of_sparse(range, unmarked);
    }

    /// Implements [`RealMemory::protect_pages`](crate::RealMemory::protect_pages).
    pub(crate) fn protect_pages(&self, range: PageRange, prot: i32) -> Result<(), MmuError> {
        self.common.span(range)?;
        let changed = self.protection.wish_for(range, Wish::of(prot));
        changed.map_err(|errno| MmuError::Protect { range, errno })?;
        self.common.reach.set(range, prot != libc::PROT_NONE);
        Ok(())
    }

    fn protect(&self, range: PageRange, wish: Wish) -> Result<(), MmuError> {
        self.common.span(range)?;
        let changed = self.protection.wish_for(range, wish);
        changed.map_err(|errno| MmuError::Protect { range, errno })?;
        self.common.note_open(range, wish != Wish::NONE);
        Ok(())
    }
}

impl Mmu for ProtectedMemory {
    fn install_zero(&self, at: PageRange, _frame: Option<Frame>) -> Result<Placed, InstallError> {
        self.install_zero(at)
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

    /// Frames are ordinary memory: no page-table entries can be exchanged with theirs.
    fn take_out_leaf(
        &self,
        _at: PageRange,
        _frame: Frame,
        _pages: &LeafPages,
    ) -> Result<(), TakeOutError> {
        Err(TakeOutError::Immovable)
    }

    /// The pages may still be closed, so they are written through `/proc/self/mem`.
    fn zero_in_place(&self, at: PageRange) {
        let zeros = Span {
            start: self.common.zeros.of(HUGE),
            len: HUGE,
        };
        let (start, len) = (self.common.at(at.start), at.len.bytes() as usize);
        self.protection.zero(start, len, zeros);
    }

    fn is_blank(&self, at: PageRange, glance: bool) -> bool {
        let mut copy = [0; PAGE_SIZE / size_of::<u64>()];
        let seen = &mut copy[..words_seen(glance)];
        at.pages().all(|page| {
            let at = self.common.at(page);
            let span = Span {
                start: seen.as_mut_ptr() as usize,
                len: size_of_val(seen),
            };
            // SAFETY: the buffer belongs to this function, which does not look at it meanwhile.
            let is_copied = unsafe { self.protection.read(at, &[span]) == span.len };
            let words = if is_copied {
                seen.as_ptr()
            } else {
                at as *const u64
            };
            // SAFETY: the page is mapped and stays so, or its words are in the copy.
            unsafe { is_blank(words, seen.len()) }
        })
    }

    fn read_frame(&self, frame: Frame, see: &mut dyn FnMut(&[u8])) {
        self.common.see_frame(frame, see);
    }

    fn zap(&self, ranges: &[PageRange]) {
        let spans = self.common.spans(ranges);
        self.protection.leave(spans.clone());
        self.common.discard_spans(spans);
    }

    fn free_frames(&self, frames: &[Frame]) {
        self.common.discard_frames(frames);
    }

    /// Waiting threads wait in the sink.
    fn wake(&self, _at: PageRange) {}

    /// Each touch reaches the sink, which reports that the page is lost.
    fn poison(&self, _at: PageRange) {}
}

impl Memory for ProtectedMemory {
    fn arena(&self) -> PageRange {
        self.common.pages()
    }

    fn address(&self, page: PageIndex) -> usize {
        self.common.at(page)
    }

    fn open(&self, range: PageRange) -> Result<(), MmuError> {
        self.protect(range, Wish::READ_WRITE)
    }

    fn close(&self, range: PageRange) -> Result<(), MmuError> {
        self.protect(range, Wish::NONE)
    }

    fn renew(&self, range: PageRange) -> Result<(), MmuError> {
        let (start, len) = self.common.span(range)?;
        let restore = || self.common.arena.restore(start, len);
        let renewed = self.protection.renew(range, restore);
        renewed.map_err(|errno| MmuError::Reserve {
            what: "arena",
            bytes: len,
            errno,
        })?;
        self.common.note_open(range, false);
        Ok(())
    }

    fn unwatch(&self, range: PageRange) -> Result<(), MmuError> {
        self.common.span(range).map(drop)
    }

    fn place(&self, range: PageRange, node: u32) -> Result<(), MmuError> {
        self.common.place(range, node)
    }

    fn usable_around(&self, page: PageIndex) -> PageRange {
        self.common.reach.around(page)
    }

    fn present_pages(&self, range: PageRange, visit: &mut dyn FnMut(PageRange)) {
        let unmarked = &mut |run| self.protection.unmarked(run, visit);
        self.common.present_pages(range, unmarked);
    }

    unsafe fn zero_if_mapped(&self, at: PageRange) -> bool {
        // SAFETY: the caller guarantees what the called function requires.
        unsafe { self.common.zero_if_mapped(at) }
    }

    fn pinned(&self, range: PageRange) {
        self.protection.pin(range);
    }

    fn unpinned(&self, range: PageRange) {
        self.protection.unpin(range);
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
}
