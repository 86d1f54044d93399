//! The free addresses, by place and by length.
//!
//! Small requests take the shortest gap that fits, so they pack into the holes left by others and long gaps stay
//! long. Requests of 2 MiB and more start on a 2 MiB boundary: the space keeps its tables in 2 MiB leaves, and two
//! big areas that share one slow each other down. Requests of 1 GiB and more start on a 1 GiB boundary if one is
//! free: the kernel moves such an area with one pointer per GiB.

use super::{GIGABYTE, LEAF, PAGE, Range};
use std::collections::{BTreeMap, BTreeSet};

/// The free ranges; neighbours are always joined.
#[derive(Default)]
pub struct Gaps {
    ends: BTreeMap<usize, usize>,
    by_len: BTreeSet<(usize, usize)>,
}

impl Gaps {
    fn add(&mut self, range: Range) {
        self.ends.insert(range.start, range.end);
        self.by_len.insert((range.end - range.start, range.start));
    }

    fn drop_gap(&mut self, range: Range) {
        self.ends.remove(&range.start);
        self.by_len.remove(&(range.end - range.start, range.start));
    }

    /// Makes `range`, no part of which is free yet, free.
    pub fn give(&mut self, range: Range) {
        let mut whole = range.clone();
        if let Some((&start, &end)) = self.ends.range(..range.start).next_back()
            && end == range.start
        {
            self.drop_gap(start..end);
            whole.start = start;
        }
        if let Some(&end) = self.ends.get(&range.end) {
            self.drop_gap(range.end..end);
            whole.end = end;
        }
        self.add(whole);
    }

    /// Makes all of `range` not free, whether it was free or not.
    pub fn take(&mut self, range: Range) {
        while let Some((start, end)) = self
            .last_before(range.end)
            .filter(|gap| gap.1 > range.start)
        {
            self.drop_gap(start..end);
            if end > range.end {
                self.add(range.end..end);
            }
            if start < range.start {
                self.add(start..range.start);
            }
        }
    }

    /// Returns whether all of `range` is free.
    pub fn holds(&self, range: &Range) -> bool {
        self.last_before(range.start + 1)
            .is_some_and(|gap| gap.1 >= range.end)
    }

    fn last_before(&self, addr: usize) -> Option<(usize, usize)> {
        self.ends
            .range(..addr)
            .next_back()
            .map(|(&start, &end)| (start, end))
    }

    /// Returns a place for `len` bytes (whole pages) at a multiple of `align` (a power of two, a page or more). If
    /// `len` is at least 2 MiB the place is also at a multiple of 2 MiB, and if it is at least 1 GiB at a multiple of
    /// 1 GiB if there is one.
    pub fn find(&self, len: usize, align: usize) -> Option<usize> {
        let align = align.max(if len >= LEAF { LEAF } else { PAGE });
        let highest = (len >= GIGABYTE).then(|| self.find_at(len, align.max(GIGABYTE), 0));
        highest.flatten().or_else(|| self.find_at(len, align, 0))
    }

    /// Returns a place for `len` bytes (whole pages) that has the same offset in its 2 MiB as `addr` (from 1 GiB on
    /// in its 1 GiB), or any place if there is none. Pages move between two such places by their page tables.
    pub fn find_like(&self, len: usize, addr: usize) -> Option<usize> {
        let highest = (len >= GIGABYTE).then(|| self.find_at(len, GIGABYTE, addr));
        highest
            .flatten()
            .or_else(|| self.find_at(len, LEAF, addr))
            .or_else(|| self.find_at(len, PAGE, 0))
    }

    /// Returns a place for `len` bytes that has the same remainder as `like` when divided by `align`.
    fn find_at(&self, len: usize, align: usize, like: usize) -> Option<usize> {
        let rest = like % align;
        let fits = |&(gap, start): &(usize, usize)| {
            let place = start.checked_sub(rest).map_or(Some(rest), |above| {
                above.checked_next_multiple_of(align)?.checked_add(rest)
            })?;
            (place.checked_add(len)? <= start + gap).then_some(place)
        };
        // A gap of this length has a fitting place wherever it starts; some shorter ones may have one too.
        let certain = len.checked_add(align - PAGE)?;
        let shorter = self
            .by_len
            .range((len, 0)..(certain, 0))
            .take(64)
            .find_map(fits);
        shorter
            .or_else(|| self.by_len.range((certain, 0)..).next().and_then(fits))
            .or_else(|| self.by_len.range((len, 0)..(certain, 0)).find_map(fits))
    }

    /// Returns the number of free bytes.
    #[cfg(test)]
    pub fn total(&self) -> usize {
        self.by_len.iter().map(|gap| gap.0).sum()
    }
}
