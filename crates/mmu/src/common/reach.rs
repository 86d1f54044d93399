//! The pages that the program may use, which decide how far the window of a fault may reach.
//!
//! A fault brings in the pages around its own. If these are closed (given back, or currently inaccessible), they take
//! memory that is useless to the program, and `UFFDIO_COPY` ignores permissions. In a heap where every other 16 KiB
//! were closed, a third to a half of the pages in memory after a sequential pass were closed ones.
//!
//! The kernel is not asked, because that would take a call for each fault. The table here records what was opened,
//! closed and protected through us. A change that a program makes without telling us shows as more or less than it
//! may use, which only moves the end of a window. So no thread waits for another here: a fault reads the current
//! state.
//!
//! Most leaves are open or closed as a whole, and take one byte. The others have one bit for each page, in memory
//! that is only taken when it is written: a cache line for each such leaf.

use core::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use millpond_core::{LEAF_PAGES, Order, PageCount, PageIndex, PageRange};

use crate::zeroed::zeroed;

/// Number of words with the bits of a leaf.
const WORDS: usize = LEAF_PAGES as usize / 64;
/// The maximum number of leaves beyond its own that a window may reach, as long as they are entirely open. A stream
/// takes no more at a time.
const BEYOND: u32 = 3;

/// The byte of a leaf with no usable page, the initial state.
const CLOSED: u8 = 0;
/// The byte of a leaf whose pages are all usable.
const OPEN: u8 = 1;
/// The byte of a leaf whose bits say which pages are usable.
const MIXED: u8 = 2;

/// The pages of an arena that the program may use.
pub(crate) struct Reach {
    leaves: Box<[AtomicU8]>,
    bits: Box<[AtomicU64]>,
}

impl Reach {
    pub(super) fn new(arena: PageCount) -> Self {
        let leaves = arena.0.div_ceil(LEAF_PAGES) as usize;
        // SAFETY: zeros are valid atomic integers, and an arena has at least one leaf.
        unsafe {
            Self {
                leaves: zeroed(leaves),
                bits: zeroed(leaves * WORDS),
            }
        }
    }

    /// Records whether pages are usable from now on. Calls for the same leaf must not overlap, or what one call
    /// records about the other's pages may be lost.
    pub(crate) fn set(&self, range: PageRange, usable: bool) {
        let whole = if usable { OPEN } else { CLOSED };
        for start in range.leaf_starts() {
            let leaf = PageRange::block(start, Order::MAX);
            if range.covers(leaf) {
                self.leaf(start).store(whole, Ordering::Release);
            } else {
                self.set_some(leaf, leaf.common(range), usable);
            }
        }
    }

    /// Records whether a part of a leaf is usable.
    fn set_some(&self, leaf: PageRange, part: PageRange, usable: bool) {
        let (state, words) = (self.leaf(leaf.start), self.words(leaf.start));
        let before = state.load(Ordering::Relaxed);
        let whole = if usable { OPEN } else { CLOSED };
        if before == whole {
            return;
        }
        let (first, end) = (part.start.0 - leaf.start.0, part.end().0 - leaf.start.0);
        for (number, word) in words.iter().enumerate() {
            let old = match before {
                MIXED => word.load(Ordering::Relaxed),
                OPEN => u64::MAX,
                _ => 0,
            };
            let mask = below(end, number) & !below(first, number);
            let new = if usable { old | mask } else { old & !mask };
            word.store(new, Ordering::Relaxed);
        }
        let all = if usable { u64::MAX } else { 0 };
        let is_whole = words.iter().all(|word| word.load(Ordering::Relaxed) == all);
        let now = if is_whole { whole } else { MIXED };
        state.store(now, Ordering::Release);
    }

    /// Copies the state of `from` to `to`, which has the same offset within its leaves.
    pub(crate) fn carry(&self, from: PageRange, to: PageRange) {
        let mut at = from.start;
        while at < from.end() {
            let leaf = PageRange::block(at, Order::MAX);
            let usable = self.is_usable(at);
            let alike = |page: &PageIndex| self.is_usable(*page) == usable;
            let here = leaf.common(from).tail(at);
            let run = match self.leaf(at).load(Ordering::Acquire) {
                MIXED => here.pages().take_while(alike).count() as u32,
                _ => here.len.0,
            };
            let there = to.start.plus(at.0 - from.start.0);
            self.set(PageRange::new(there, PageCount(run)), usable);
            at = at.plus(run);
        }
    }

    /// Returns the usable pages around one page, as far as a window can reach.
    pub(crate) fn around(&self, page: PageIndex) -> PageRange {
        let start = PageRange::block(page, Order::MAX).start;
        match self.leaf(page).load(Ordering::Acquire) {
            OPEN => {
                let is_open = |n: &u32| {
                    let next = self.leaves.get((start.leaf() + n) as usize);
                    next.is_some_and(|leaf| leaf.load(Ordering::Relaxed) == OPEN)
                };
                let more = (1..=BEYOND).take_while(is_open).count() as u32;
                PageRange::new(start, PageCount((1 + more) * LEAF_PAGES))
            }
            MIXED => self.run_around(start, page.0 - start.0),
            _ => PageRange::new(page, PageCount(1)),
        }
    }

    /// Returns the run of usable pages around number `at` of a leaf, which itself counts as usable.
    fn run_around(&self, leaf: PageIndex, at: u32) -> PageRange {
        let words = self.words(leaf);
        let open = |n: usize| words[n].load(Ordering::Relaxed);
        let number = (at / 64) as usize;
        let bit = at % 64;
        // Upwards, the bits from the page on are shifted down to the lowest place, followed by closed ones.
        let mut above = ((open(number) | 1 << bit) >> bit).trailing_ones();
        let mut next = number + 1;
        while (at + above).is_multiple_of(64) && next < WORDS {
            above += open(next).trailing_ones();
            if open(next) != u64::MAX {
                break;
            }
            next += 1;
        }
        let mut below = ((open(number) | 1 << bit) << (63 - bit)).leading_ones() - 1;
        let mut before = number;
        while (at - below).is_multiple_of(64) && before > 0 {
            before -= 1;
            below += open(before).leading_ones();
            if open(before) != u64::MAX {
                break;
            }
        }
        PageRange::new(leaf.plus(at - below), PageCount(below + above))
    }

    /// Returns the runs of leaves in `range` that contain usable pages, each clipped to the range.
    pub(crate) fn open_leaves(&self, range: PageRange) -> impl Iterator<Item = PageRange> {
        let is_open = |start: &PageIndex| self.leaf(*start).load(Ordering::Acquire) != CLOSED;
        let mut starts = range.leaf_starts();
        std::iter::from_fn(move || {
            let first = starts.find(is_open)?;
            let rest = starts.by_ref().take_while(is_open).count() as u32;
            let run = PageRange::new(first, PageCount((1 + rest) * LEAF_PAGES));
            Some(run.common(range))
        })
    }

    fn is_usable(&self, page: PageIndex) -> bool {
        match self.leaf(page).load(Ordering::Acquire) {
            MIXED => {
                let at = page.0 % LEAF_PAGES;
                let word = &self.words(page)[(at / 64) as usize];
                word.load(Ordering::Relaxed) >> (at % 64) & 1 == 1
            }
            whole => whole == OPEN,
        }
    }

    fn leaf(&self, page: PageIndex) -> &AtomicU8 {
        &self.leaves[page.leaf() as usize]
    }

    fn words(&self, page: PageIndex) -> &[AtomicU64] {
        let first = page.leaf() as usize * WORDS;
        &self.bits[first..first + WORDS]
    }
}

/// Returns a mask of the bits of word `number` that lie below bit `end` of its leaf.
fn below(end: u32, number: usize) -> u64 {
    match end.saturating_sub(number as u32 * 64) {
        some @ 0..64 => (1 << some) - 1,
        _ => u64::MAX,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LEAVES: u32 = 6;
    const PAGES: u32 = LEAVES * LEAF_PAGES;

    fn run(start: u32, len: u32) -> PageRange {
        PageRange::new(PageIndex(start), PageCount(len))
    }

    /// Returns what an array with a word for each page would return.
    fn expected(open: &[bool], page: u32) -> PageRange {
        let leaf = page - page % LEAF_PAGES;
        let whole = |leaf: u32| {
            let pages = open.get(leaf as usize..(leaf + LEAF_PAGES) as usize);
            pages.is_some_and(|pages| pages.iter().all(|&open| open))
        };
        if whole(leaf) {
            let more = (1..=BEYOND).take_while(|n| whole(leaf + n * LEAF_PAGES));
            return run(leaf, (1 + more.count() as u32) * LEAF_PAGES);
        }
        let is_open = |page: &u32| open[*page as usize];
        let above = (page + 1..leaf + LEAF_PAGES).take_while(is_open).count() as u32;
        let below = (leaf..page).rev().take_while(is_open).count() as u32;
        run(page - below, below + 1 + above)
    }

    proptest! {
        /// Compares any sequence of openings, closings and moves with an array.
        #[test]
        fn windows_agree_with_an_array(
            steps in proptest::collection::vec((0..PAGES, 1..2 * LEAF_PAGES, 0..5u8), 1..40),
            pages in proptest::collection::vec(0..PAGES, 20),
        ) {
            let (reach, mut open) = (Reach::new(PageCount(PAGES)), vec![false; PAGES as usize]);
            for (start, len, what) in steps {
                let len = len.min(PAGES - start);
                if what == 4 {
                    // A move between places with the same offset: one leaf further.
                    let len = len.min((PAGES - start).saturating_sub(LEAF_PAGES)).min(LEAF_PAGES);
                    if len > 0 {
                        let (from, to) = (start as usize, (start + LEAF_PAGES) as usize);
                        reach.carry(run(start, len), run(start + LEAF_PAGES, len));
                        open.copy_within(from..from + len as usize, to);
                    }
                    continue;
                }
                reach.set(run(start, len), what % 2 == 0);
                open[start as usize..(start + len) as usize].fill(what % 2 == 0);
            }
            for page in pages {
                prop_assert_eq!(reach.around(PageIndex(page)), expected(&open, page));
            }
            // Runs of leaves are separate, contain every usable page, and no leaf without one.
            let all = run(3, PAGES - 3);
            let mut seen = vec![false; PAGES as usize];
            let mut last = PageIndex(0);
            for leaves in reach.open_leaves(all) {
                prop_assert!(last.0 == 0 || leaves.start > last);
                last = leaves.end();
                seen[leaves.start.0 as usize..last.0 as usize].fill(true);
                for leaf in leaves.leaf_starts() {
                    let pages = PageRange::block(leaf, Order::MAX).pages();
                    prop_assert!(pages.into_iter().any(|page| open[page.0 as usize]));
                }
            }
            prop_assert!((3..PAGES as usize).all(|page| seen[page] || !open[page]));
        }
    }
}
