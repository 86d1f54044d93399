//! Addresses and sizes, each with its own type, so that nobody mixes up pages and bytes.
//!
//! The core knows no virtual addresses. It identifies pages by their number in the manager's *arena* (the one range
//! that is reserved for all managed memory) and frames by their place in the *frame pool*. The MMU backend turns either
//! into an address.

use core::fmt;
use std::num::NonZeroU32;

/// `log2` of [`PAGE_SIZE`].
pub const PAGE_SHIFT: u32 = 12;
/// Bytes in a page. Millpond supports machines with 4 KiB base pages.
pub const PAGE_SIZE: usize = 1 << PAGE_SHIFT;
/// Highest order of a folio: 2^9 pages, 2 MiB, one leaf.
pub const MAX_ORDER: u8 = 9;
/// Pages under one leaf table.
pub const LEAF_PAGES: u32 = 1 << MAX_ORDER;
/// Pages under one entry of the table above the leaf tables: 1 GiB.
pub const GIGABYTE_PAGES: u32 = LEAF_PAGES * LEAF_PAGES;

/// The number of a page in the arena; page 0 starts at the arena's first byte.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct PageIndex(pub u32);

/// A number of pages.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct PageCount(pub u32);

/// `log2` of a folio's length in pages, 0 to [`MAX_ORDER`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Order(u8);

/// A run of pages in the arena. It may be empty, and never wraps.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct PageRange {
    /// First page of the run.
    pub start: PageIndex,
    /// Length of the run.
    pub len: PageCount,
}

/// A place in the frame pool that can hold one folio of the order it was made for.
///
/// The pool has an area for each order; a frame is an order and a number in its area.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Frame(NonZeroU32);

impl PageIndex {
    /// The first page of the leaf after this page's leaf.
    pub(crate) fn next_leaf(self) -> Self {
        Self((self.leaf() + 1) * LEAF_PAGES)
    }

    /// The page `n` pages further on.
    ///
    /// # Panics
    /// When the sum leaves the 16 TiB that a page number can name.
    #[must_use]
    pub fn plus(self, n: u32) -> Self {
        Self(self.0.checked_add(n).expect("page number beyond 16 TiB"))
    }

    /// The leaf table that maps this page.
    #[must_use]
    pub fn leaf(self) -> u32 {
        self.0 / LEAF_PAGES
    }

    /// The first page of the naturally aligned block of `order` around this page.
    #[must_use]
    pub fn align_down(self, order: Order) -> Self {
        Self(self.0 & !(order.pages().0 - 1))
    }
}

impl PageCount {
    /// No pages.
    pub const ZERO: Self = Self(0);

    /// Length in bytes.
    #[must_use]
    pub fn bytes(self) -> u64 {
        u64::from(self.0) << PAGE_SHIFT
    }

    /// Pages needed for `bytes`, rounded up; `None` beyond 16 TiB.
    #[must_use]
    pub fn from_bytes_ceil(bytes: u64) -> Option<Self> {
        let pages = bytes.div_ceil(PAGE_SIZE as u64);
        u32::try_from(pages).ok().map(Self)
    }
}

impl Order {
    /// A single page.
    pub const ZERO: Self = Self(0);
    /// One whole leaf, 2 MiB.
    pub const MAX: Self = Self(MAX_ORDER);

    /// An order, or `None` above [`MAX_ORDER`].
    #[must_use]
    pub const fn new(order: u8) -> Option<Self> {
        if order <= MAX_ORDER {
            Some(Self(order))
        } else {
            None
        }
    }

    /// The exponent: `log2` of the pages.
    #[must_use]
    pub const fn get(self) -> u8 {
        self.0
    }

    /// Pages in a folio of this order.
    #[must_use]
    pub const fn pages(self) -> PageCount {
        PageCount(1 << self.0)
    }

    /// Bytes in a folio of this order.
    #[must_use]
    pub const fn bytes(self) -> usize {
        PAGE_SIZE << self.0
    }

    /// The next smaller order, `None` below zero.
    #[must_use]
    pub const fn smaller(self) -> Option<Self> {
        if self.0 == 0 {
            None
        } else {
            Some(Self(self.0 - 1))
        }
    }

    /// The orders up to `most`, smallest first.
    pub fn up_to(most: Self) -> impl DoubleEndedIterator<Item = Self> {
        (0..=most.0).map(Self)
    }

    /// All orders, smallest first.
    pub fn all() -> impl DoubleEndedIterator<Item = Self> {
        (0..=MAX_ORDER).map(Self)
    }
}

impl PageRange {
    /// Every possible page.
    pub const ALL: Self = Self::new(PageIndex(0), PageCount(u32::MAX));

    /// The run of `len` pages from `start`.
    #[must_use]
    pub const fn new(start: PageIndex, len: PageCount) -> Self {
        Self { start, len }
    }

    /// The naturally aligned block of `order` around `page`.
    #[must_use]
    pub fn block(page: PageIndex, order: Order) -> Self {
        Self::new(page.align_down(order), order.pages())
    }

    /// The largest naturally aligned block, of at most this order, that begins the range and lies in it.
    ///
    /// # Panics
    /// When the range is empty.
    ///
    /// ```
    /// use millpond_core::{Order, PageCount, PageIndex, PageRange};
    /// let range = PageRange::new(PageIndex(6), PageCount(100));
    /// assert_eq!(range.first_block(Order::MAX), PageRange::new(PageIndex(6), PageCount(2)));
    /// ```
    #[must_use]
    pub fn first_block(self, most: Order) -> Self {
        let blocks = Order::up_to(most).map(|order| Self::block(self.start, order));
        let fitting = blocks.rev().find(|&block| self.covers(block));
        fitting.expect("an empty range has no block")
    }

    /// The page after the last one.
    #[must_use]
    pub fn end(self) -> PageIndex {
        self.start.plus(self.len.0)
    }

    /// The first pages of all leaves that the range overlaps. The first may lie before the range.
    ///
    /// ```
    /// use millpond_core::{LEAF_PAGES, PageCount, PageIndex, PageRange};
    /// let range = PageRange::new(PageIndex(LEAF_PAGES - 1), PageCount(2));
    /// assert!(range.leaf_starts().eq([PageIndex(0), PageIndex(LEAF_PAGES)]));
    /// ```
    pub fn leaf_starts(self) -> impl Iterator<Item = PageIndex> {
        let leaves = self.start.leaf()..self.end().0.div_ceil(LEAF_PAGES);
        leaves.map(|leaf| PageIndex(leaf * LEAF_PAGES))
    }

    /// Whether the run has no page.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.len.0 == 0
    }

    /// Whether `page` lies in the run.
    #[must_use]
    pub fn contains(self, page: PageIndex) -> bool {
        page >= self.start && page < self.end()
    }

    /// Whether all of `other` lies in the run.
    #[must_use]
    pub fn covers(self, other: Self) -> bool {
        other.start >= self.start && other.end() <= self.end()
    }

    /// The run with `lead` more pages before it and `trail` more behind it.
    ///
    /// # Panics
    /// When there are not that many pages before the run.
    #[must_use]
    pub fn widened(self, lead: PageCount, trail: PageCount) -> Self {
        let start = self.start.0.checked_sub(lead.0);
        let start = start.expect("as many pages before it");
        Self::new(PageIndex(start), PageCount(lead.0 + self.len.0 + trail.0))
    }

    /// The run from `from` to the end of this one.
    ///
    /// # Panics
    /// When `from` is beyond the end.
    #[must_use]
    pub fn tail(self, from: PageIndex) -> Self {
        Self::new(from, PageCount(self.end().0 - from.0))
    }

    /// The pieces of the run that remain without `parts`, which are sorted and do not overlap.
    ///
    /// ```
    /// use millpond_core::{PageCount, PageIndex, PageRange};
    /// let run = |start, len| PageRange::new(PageIndex(start), PageCount(len));
    /// let parts = [run(8, 3), run(14, 2), run(19, 9)];
    /// assert!(run(10, 10).without(&parts).eq([run(11, 3), run(16, 3)]));
    /// ```
    pub fn without(self, parts: &[Self]) -> impl Iterator<Item = Self> {
        let starts = [self.start]
            .into_iter()
            .chain(parts.iter().map(|part| part.end()));
        let ends = parts.iter().map(|part| part.start).chain([self.end()]);
        starts.zip(ends).filter_map(move |(start, end)| {
            let (start, end) = (start.max(self.start), end.min(self.end()));
            let len = end.0.checked_sub(start.0)?;
            (len > 0).then_some(Self::new(start, PageCount(len)))
        })
    }

    /// The pages that both runs have.
    #[must_use]
    pub fn common(self, other: Self) -> Self {
        let (start, end) = (self.start.max(other.start), self.end().min(other.end()));
        Self::new(start, PageCount(end.0.saturating_sub(start.0)))
    }

    /// The shortest run with all pages of both.
    #[must_use]
    pub fn hull(self, other: Self) -> Self {
        let (start, end) = (self.start.min(other.start), self.end().max(other.end()));
        Self::new(start, PageCount(end.0 - start.0))
    }

    /// For a run that is only partly in `range`: the end of the range that the run straddles, or the first end if it
    /// straddles both.
    pub(crate) fn edge_of(self, range: Self) -> PageIndex {
        if self.start < range.start {
            range.start
        } else {
            range.end()
        }
    }

    /// The pages of the run, in order.
    pub fn pages(self) -> impl DoubleEndedIterator<Item = PageIndex> {
        (self.start.0..self.end().0).map(PageIndex)
    }
}

impl Frame {
    const INDEX_BITS: u32 = 28;

    /// Frame number `index` of the pool's area for `order`.
    ///
    /// # Panics
    /// When `index` does not fit in 28 bits.
    #[must_use]
    pub fn new(order: Order, index: u32) -> Self {
        assert!(
            index < 1 << Self::INDEX_BITS,
            "frame number {index} beyond 2^28"
        );
        let number = u32::from(order.0) << Self::INDEX_BITS | index;
        Self(NonZeroU32::new(number + 1).expect("one more than a number"))
    }

    /// Order and number of the frame, packed. The field holds this plus one, so that `Option<Frame>` takes no more
    /// space.
    fn number(self) -> u32 {
        self.0.get() - 1
    }

    /// The order of the folios that the frame holds.
    #[must_use]
    pub fn order(self) -> Order {
        Order((self.number() >> Self::INDEX_BITS) as u8)
    }

    /// The frame's number in the area of its order.
    #[must_use]
    pub fn index(self) -> u32 {
        self.number() & ((1 << Self::INDEX_BITS) - 1)
    }
}

impl fmt::Display for PageIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "p{:#x}", self.0)
    }
}

impl fmt::Display for PageRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{}+{}]", self.start, self.len.0)
    }
}

impl fmt::Display for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "f{}:{}", self.order().0, self.index())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_keeps_its_order_and_number() {
        for order in Order::all() {
            let frame = Frame::new(order, 12_345);
            assert_eq!((frame.order(), frame.index()), (order, 12_345));
        }
    }

    #[test]
    fn a_block_is_aligned_and_holds_its_page() {
        let block = PageRange::block(PageIndex(0x1237), Order::new(4).unwrap());
        assert_eq!(block, PageRange::new(PageIndex(0x1230), PageCount(16)));
        assert!(block.contains(PageIndex(0x1237)));
    }

    #[test]
    fn bytes_round_up_to_pages() {
        assert_eq!(PageCount::from_bytes_ceil(1), Some(PageCount(1)));
        assert_eq!(PageCount::from_bytes_ceil(u64::MAX), None);
    }
}
