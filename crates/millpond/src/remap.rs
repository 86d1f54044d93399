//! Moving memory by its tables, and regions that change their length.

use crate::error::{RangeError, RemapError};
use crate::region::Region;
use millpond_core::{
    GIGABYTE_PAGES, LEAF_PAGES, PAGE_SIZE, PageCount, PageIndex, PageRange, Refusal,
};
use millpond_driver::remap::{Beside, RemapRefusal};
use std::ops::Range;

impl Region {
    /// Makes the region `len` bytes long; the new bytes read as zeros. Nothing is copied: if the addresses after the
    /// region are taken, it moves as a whole by its tables, one pointer for each 2 MiB, and [`Region::as_ptr`] changes.
    ///
    /// # Errors
    /// `len` is shorter than the region, or there are no addresses, or the region has to move and a page is pinned. In
    /// these cases nothing has changed.
    ///
    /// ```
    /// # let manager = millpond::Manager::builder().ram(16 << 20).build()?;
    /// let mut region = manager.region(4096)?;
    /// region.as_mut_slice().fill(7);
    /// region.grow(64 << 20)?;
    /// assert_eq!((region.as_slice()[4095], region.as_slice()[4096]), (7, 0));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn grow(&mut self, len: usize) -> Result<(), RemapError> {
        let no_space = RemapError::NoAddressSpace { bytes: len as u64 };
        if len < self.len() {
            return Err(self.bad_range(self.len(), len));
        }
        let pages = PageCount::from_bytes_ceil(len as u64).ok_or(no_space)?;
        let pages = PageCount(pages.0 + self.front());
        let mut named = self.named();
        if pages > named.1.len {
            // The region may move.
            self.driver().forget_prefetches(named.1);
            self.driver().settle_kept(named.0);
            // SAFETY: `&mut self`: no other thread uses the bytes.
            named = unsafe { self.driver().grow(named, pages) }
                .map_err(|refusal| self.refused(refusal, len))?;
        }
        self.rename(named, len);
        Ok(())
    }

    /// Makes the region `len` bytes long. The bytes beyond are forgotten, and their addresses are given back if the
    /// region shares nothing with a snapshot.
    ///
    /// # Errors
    /// `len` is zero or longer than the region, a page beyond is pinned, or a volatile range is only partly beyond.
    pub fn shrink(&mut self, len: usize) -> Result<(), RemapError> {
        let (start, end) = (len, self.len());
        if len == 0 || len > end {
            return Err(self.bad_range(start, end));
        }
        let (id, range) = self.named();
        let pages = PageCount(len.div_ceil(PAGE_SIZE) as u32 + self.front());
        let mut named = (id, range);
        if pages < range.len {
            let rest = range.tail(range.start.plus(pages.0));
            self.is_volatile_in_part(rest)?;
            self.driver().forget_prefetches(rest);
            self.driver().settle_kept(id);
            self.driver()
                .discard(rest)
                .map_err(|refusal| self.range_error(refusal))?;
            self.driver().forget_volatile(rest);
            if self.driver().shrink(named, pages) {
                named.1 = PageRange::new(range.start, pages);
            }
        }
        // The rest of the last page must be zeros if it is ever seen again.
        let tail = len..len.next_multiple_of(PAGE_SIZE).min(end);
        self.as_mut_slice()[tail].fill(0);
        self.rename(named, len);
        Ok(())
    }

    /// Moves the bytes of `range` to `target`, from `offset` on. `range` reads as zeros afterwards, and the old
    /// contents of the destination are forgotten.
    ///
    /// If both places have the same offset within 2 MiB, whole leaves move by one pointer each, whatever they hold (in
    /// memory, in the store, lazily freed), and the pages before and after them by one entry each. A region begins at a
    /// multiple of 2 MiB unless [`Region::remap_anywhere`] made it, so it is enough to compare the offsets in the
    /// regions. Otherwise pages are copied.
    ///
    /// # Errors
    /// A range outside its region or not at multiples of 4096 (the source's end may be the region's), another manager's
    /// region, a pinned page, or a volatile range that is only partly in the source or at the destination. In these
    /// cases nothing has changed.
    ///
    /// ```
    /// # let manager = millpond::Manager::builder().ram(16 << 20).build()?;
    /// let (mut from, mut to) = (manager.region(8 << 20)?, manager.region(8 << 20)?);
    /// from.as_mut_slice()[5 << 20] = 7;
    /// from.remap(4 << 20..8 << 20, &mut to, 0)?;
    /// assert_eq!((from.as_slice()[5 << 20], to.as_slice()[1 << 20]), (0, 7));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn remap(
        &mut self,
        range: Range<usize>,
        target: &mut Self,
        offset: usize,
    ) -> Result<(), RemapError> {
        self.move_with(range, target, offset, Beside::default())
    }

    /// Moves as [`Region::remap`] does. The pages `beside` both places may be moved along temporarily.
    fn move_with(
        &mut self,
        range: Range<usize>,
        target: &mut Self,
        offset: usize,
        beside: Beside,
    ) -> Result<(), RemapError> {
        if !self.is_of_the_same_manager(target) {
            return Err(RemapError::OtherManager);
        }
        // Pages that are kept in place are known by their old place, so they are settled first.
        self.driver().settle_kept(self.named().0);
        let len = range.len();
        let inside = |region: &Self, start: usize| {
            let end = start
                .checked_add(len)
                .filter(|&end| len > 0 && end <= region.len());
            end.ok_or_else(|| region.bad_range(start, start.saturating_add(len)))
        };
        inside(self, range.start)?;
        inside(target, offset)?;
        self.whole_pages(&range)?;
        if !offset.is_multiple_of(PAGE_SIZE) {
            let (start, end) = (offset, offset + len);
            return Err(RangeError::Unaligned { start, end }.into());
        }
        let from = self.pages(&range);
        let into = offset..offset + len;
        let to = PageRange::new(target.pages(&into).start, from.len);
        if from.start.0 % LEAF_PAGES != to.start.0 % LEAF_PAGES {
            return self.move_by_copy(range, target, offset);
        }
        self.driver().forget_prefetches(from);
        self.driver().forget_prefetches(to);
        target.forget(to, &into)?;
        // SAFETY: `&mut self`: no other thread uses the bytes, nor those beside them, which only a new target asks for.
        match unsafe { self.driver().remap(from, to, beside) } {
            Ok(()) => Ok(()),
            // Pages that are shared with a snapshot are held by their offset in the region.
            Err(RemapRefusal::InUse) => self.move_by_copy(range, target, offset),
            Err(refusal) => Err(self.refused(refusal, len)),
        }
    }

    /// Moves the bytes of `range` to a new region, `len` bytes long, by the tables, whatever the offset of the range.
    ///
    /// # Errors
    /// As [`Region::remap`]; `len` is shorter than the range, or there are no addresses.
    pub fn remap_anywhere(&mut self, range: Range<usize>, len: usize) -> Result<Self, RemapError> {
        let (start, end) = (range.start, range.end);
        if start >= end || end > self.len() || len < end - start {
            return Err(self.bad_range(start, end));
        }
        // The destination can begin at the same place in its leaf, or in its gigabyte, as the source.
        let pages = self.pages(&range);
        let no_space = RemapError::NoAddressSpace { bytes: len as u64 };
        if pages.len.0 < GIGABYTE_PAGES {
            let front = pages.start.0 % LEAF_PAGES;
            let mut target = self.another(front, len).ok_or(no_space)?;
            self.move_with(range, &mut target, 0, Beside::default())?;
            return Ok(target);
        }
        // The gigabytes in which the range begins and ends go by one pointer each, with the pages beside the range
        // there, as far as both regions reach.
        let front = pages.start.0 % GIGABYTE_PAGES;
        let mut target = self.another(front, len).ok_or(no_space)?;
        let lead = PageCount(front);
        let trail = PageCount(pages.end().0.next_multiple_of(GIGABYTE_PAGES) - pages.end().0);
        self.extend_to(pages.end().plus(trail.0));
        let (ours, theirs) = (self.named().1, target.named().1);
        let there = PageRange::new(theirs.start.plus(front), pages.len);
        let reach = |lead: PageCount, trail: PageCount| {
            pages.start.0 >= lead.0
                && ours.covers(pages.widened(lead, trail))
                && theirs.covers(there.widened(lead, trail))
        };
        let whole = |part, reaches| if reaches { part } else { PageCount::ZERO };
        let beside = Beside {
            lead: whole(lead, reach(lead, PageCount::ZERO)),
            trail: whole(trail, reach(PageCount::ZERO, trail)),
        };
        self.move_with(range, &mut target, 0, beside)?;
        Ok(target)
    }

    /// Takes the addresses after the region, up to page `end`, if they are free. The region's length does not change.
    fn extend_to(&mut self, end: PageIndex) {
        let (id, range) = self.named();
        if range.end() < end && !self.driver().inherits(id) {
            let pages = PageCount(end.0 - range.start.0);
            if let Ok(Some(longer)) = self.driver().grow_in_place((id, range), pages) {
                self.rename(longer, self.len());
            }
        }
    }

    fn move_by_copy(
        &mut self,
        range: Range<usize>,
        target: &mut Self,
        offset: usize,
    ) -> Result<(), RemapError> {
        if let Some(page) = self.first_pinned(self.pages(&range)) {
            return Err(self.range_error(Refusal::Pinned { page }).into());
        }
        let into = &mut target.as_mut_slice()[offset..][..range.len()];
        into.copy_from_slice(&self.as_slice()[range.clone()]);
        let rounded = range.start..range.end.next_multiple_of(PAGE_SIZE).min(self.len());
        Ok(self.empty(rounded)?)
    }

    fn bad_range(&self, start: usize, end: usize) -> RemapError {
        let len = self.len();
        RangeError::Bad { start, end, len }.into()
    }

    /// Makes room for pages that are moved here.
    fn forget(&mut self, pages: PageRange, bytes: &Range<usize>) -> Result<(), RemapError> {
        if let Some(page) = self.first_pinned(pages) {
            return Err(self.range_error(Refusal::Pinned { page }).into());
        }
        self.is_volatile_in_part(pages)?;
        // Marks go with the contents that they were about: the pages that move here may bring marks of their own.
        self.driver().forget_volatile(pages);
        let whole = bytes.start..bytes.end.next_multiple_of(PAGE_SIZE).min(self.len());
        Ok(self.empty(whole)?)
    }

    /// Refuses a range that would be only partly volatile: its owner has to remove the mark first.
    fn is_volatile_in_part(&self, pages: PageRange) -> Result<(), RemapError> {
        match self.driver().volatile().straddler(pages) {
            None => Ok(()),
            Some(page) => Err(RemapError::Volatile {
                offset: self.offset(page),
            }),
        }
    }

    fn refused(&self, refusal: RemapRefusal, len: usize) -> RemapError {
        match refusal {
            RemapRefusal::Pinned(page) => self.range_error(Refusal::Pinned { page }).into(),
            RemapRefusal::Volatile(page) => RemapError::Volatile {
                offset: self.offset(page),
            },
            RemapRefusal::Lost(page) => self.range_error(Refusal::Poisoned { page }).into(),
            RemapRefusal::NoAddressSpace => RemapError::NoAddressSpace { bytes: len as u64 },
            RemapRefusal::OutOfRecords => RangeError::OutOfRecords.into(),
            RemapRefusal::Memory(error) => RemapError::Memory {
                reason: error.to_string(),
            },
            RemapRefusal::InUse => unreachable!("a new region holds nothing"),
        }
    }
}
