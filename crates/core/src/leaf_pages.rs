//! A set of the pages of a leaf, by their place in it.

use crate::addr::{LEAF_PAGES, PageIndex};

/// A set of some of the 512 pages of a leaf.
///
/// ```
/// use millpond_core::{LeafPages, PageIndex};
/// let mut pages = LeafPages::default();
/// pages.add(PageIndex(512 + 7));
/// assert!(pages.has(7) && !pages.has(8));
/// assert!(pages.iter().eq([7]));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LeafPages([u64; LEAF_PAGES as usize / 64]);

impl LeafPages {
    /// The set without pages.
    pub const NONE: Self = Self([0; LEAF_PAGES as usize / 64]);

    /// Adds `page` to the set. Of its number only the place in its leaf counts.
    pub fn add(&mut self, page: PageIndex) {
        let place = page.0 % LEAF_PAGES;
        self.0[place as usize / 64] |= 1 << (place % 64);
    }

    /// Removes `page` from the set.
    pub fn remove(&mut self, page: PageIndex) {
        let place = page.0 % LEAF_PAGES;
        self.0[place as usize / 64] &= !(1 << (place % 64));
    }

    /// Whether the page at this place of the leaf is in the set.
    #[must_use]
    pub fn has(&self, place: u32) -> bool {
        self.0[place as usize / 64] >> (place % 64) & 1 == 1
    }

    /// How many pages are in the set.
    #[must_use]
    pub fn len(&self) -> u32 {
        self.0.iter().map(|word| word.count_ones()).sum()
    }

    /// Whether the set has no pages.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The places of the pages in the leaf, in order.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        (0..LEAF_PAGES).filter(|&place| self.has(place))
    }
}
