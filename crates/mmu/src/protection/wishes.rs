//! What the program may do with each page: the protection that a page gets when it is there.
//!
//! The kernel's own protection of a page says whether its bytes are there, so the protection that the program asked
//! for is kept here. Most leaves are uniform, and take one byte; the others have one byte for each page, in memory
//! that is only taken when it is written.

use core::ops::Range;
use core::sync::atomic::{AtomicU8, Ordering};

use crate::zeroed::zeroed;

/// Pages in a leaf.
pub(super) const LEAF: usize = millpond_core::LEAF_PAGES as usize;
/// The byte of a leaf whose pages differ.
const MIXED: u8 = u8::MAX;

/// What the program may do with a page, as the bits of `mprotect`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Wish(u8);

impl Wish {
    /// The page is closed, as it is initially.
    pub(crate) const NONE: Self = Self(0);
    pub(crate) const READ: u8 = libc::PROT_READ as u8;
    pub(crate) const WRITE: u8 = libc::PROT_WRITE as u8;
    pub(crate) const EXEC: u8 = libc::PROT_EXEC as u8;
    pub(crate) const READ_WRITE: Self = Self(Self::READ | Self::WRITE);
    /// Somebody else's mapping lies here, or soon may.
    pub(crate) const FOREIGN: Self = Self(1 << 7);

    /// Converts bits of `mprotect` to a wish.
    pub(crate) fn of(prot: i32) -> Self {
        Self(prot as u8 & (Self::READ | Self::WRITE | Self::EXEC))
    }

    /// Returns the bits of `mprotect`: none for a page that is closed or foreign.
    pub(crate) fn prot(self) -> u8 {
        self.0 & (Self::READ | Self::WRITE | Self::EXEC)
    }

    pub(crate) fn has(self, bit: u8) -> bool {
        self.0 & bit != 0
    }
}

/// The wishes for all pages of an arena. Only one thread changes them at a time, under a lock; others may read
/// meanwhile.
pub(super) struct Wishes {
    leaves: Box<[AtomicU8]>,
    pages: Box<[AtomicU8]>,
}

impl Wishes {
    /// Makes the wishes for `pages` pages, all of them closed.
    pub(super) fn new(pages: usize) -> Self {
        let leaves = pages.div_ceil(LEAF);
        // SAFETY: zeros are valid atomic integers, and an arena has at least one leaf.
        unsafe {
            Self {
                leaves: zeroed(leaves),
                pages: zeroed(leaves * LEAF),
            }
        }
    }

    pub(super) fn of(&self, page: usize) -> Wish {
        match self.leaves[page / LEAF].load(Ordering::Acquire) {
            MIXED => Wish(self.pages[page].load(Ordering::Relaxed)),
            whole => Wish(whole),
        }
    }

    pub(super) fn set(&self, range: Range<usize>, wish: Wish) {
        let mut at = range.start;
        while at < range.end {
            let leaf = at / LEAF * LEAF;
            let end = (leaf + LEAF).min(range.end);
            self.set_in_leaf(leaf, at..end, wish);
            at = end;
        }
    }

    fn set_in_leaf(&self, leaf: usize, part: Range<usize>, Wish(wish): Wish) {
        let state = &self.leaves[leaf / LEAF];
        let before = state.load(Ordering::Relaxed);
        if before == wish {
            return;
        }
        let pages = &self.pages[leaf..leaf + LEAF];
        if part.len() < LEAF {
            if before != MIXED {
                pages
                    .iter()
                    .for_each(|page| page.store(before, Ordering::Relaxed));
            }
            for page in &self.pages[part] {
                page.store(wish, Ordering::Relaxed);
            }
            if pages
                .iter()
                .any(|page| page.load(Ordering::Relaxed) != wish)
            {
                return state.store(MIXED, Ordering::Release);
            }
        }
        state.store(wish, Ordering::Release);
    }

    /// Returns the end of the run of pages, from the range's start, that have the same wish.
    pub(super) fn alike(&self, range: Range<usize>) -> usize {
        let wish = self.of(range.start);
        let mut at = range.start;
        while at < range.end {
            let end = ((at / LEAF + 1) * LEAF).min(range.end);
            match self.leaves[at / LEAF].load(Ordering::Relaxed) {
                MIXED => {
                    let other = (at..end).find(|&page| self.of(page) != wish);
                    if let Some(other) = other {
                        return other;
                    }
                }
                whole if Wish(whole) != wish => return at,
                _ => {}
            }
            at = end;
        }
        range.end
    }

    /// Returns the runs of pages with the same wish.
    pub(super) fn runs(
        &self,
        range: Range<usize>,
    ) -> impl Iterator<Item = (Range<usize>, Wish)> + '_ {
        let mut at = range.start;
        core::iter::from_fn(move || {
            let start = at;
            (start < range.end).then(|| {
                at = self.alike(start..range.end);
                (start..at, self.of(start))
            })
        })
    }

    /// Whether a page of the range is foreign.
    pub(super) fn has_foreign(&self, range: Range<usize>) -> bool {
        self.runs(range).any(|(_, wish)| wish == Wish::FOREIGN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LEN: usize = 3 * LEAF;

    proptest! {
        /// Compares everything with an array.
        #[test]
        fn wishes_agree_with_an_array(
            steps in proptest::collection::vec((0..LEN, 1..LEN, 0..4u8), 1..12),
            looks in proptest::collection::vec((0..LEN, 1..LEN), 8),
        ) {
            let (wishes, mut array) = (Wishes::new(LEN), vec![Wish::NONE; LEN]);
            for (start, len, what) in steps {
                let wish = [Wish::NONE, Wish(Wish::READ), Wish::READ_WRITE, Wish::FOREIGN][usize::from(what)];
                let range = start..(start + len).min(LEN);
                wishes.set(range.clone(), wish);
                array[range].fill(wish);
            }
            for (start, len) in looks {
                let range = start..(start + len).min(LEN);
                let mut seen = Vec::new();
                for (run, wish) in wishes.runs(range.clone()) {
                    seen.extend(run.map(|_| wish));
                }
                prop_assert_eq!(&seen[..], &array[range.clone()]);
                prop_assert_eq!(wishes.has_foreign(range), seen.contains(&Wish::FOREIGN));
            }
        }
    }
}
