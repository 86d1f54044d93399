//! The free addresses, by place and by length.
//!
//! Small requests take the shortest gap that fits, so that they pack into the holes that others left and long gaps
//! stay long. Requests of 2 MiB and more begin on a 2 MiB boundary: the space keeps its tables by 2 MiB leaves, and
//! two big areas that share one make each other slower. Requests of 1 GiB and more begin on a 1 GiB boundary if one
//! is free: the kernel moves such an area by a pointer for each GiB.

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

    /// Makes `range`, of which nothing is free, free.
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

    /// Makes all of `range`, whether free or not, not free.
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

    /// Whether all of `range` is free.
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

    /// A place for `len` bytes (whole pages) at a multiple of `align` (a power of two, a page or more). If `len` is
    /// as long as 2 MiB or 1 GiB, the place is at a multiple of that as well, of 1 GiB if there is one.
    pub fn find(&self, len: usize, align: usize) -> Option<usize> {
        let align = align.max(if len >= LEAF { LEAF } else { PAGE });
        let highest = (len >= GIGABYTE).then(|| self.find_at(len, align.max(GIGABYTE), 0));
        highest.flatten().or_else(|| self.find_at(len, align, 0))
    }

    /// A place for `len` bytes (whole pages) that lies in its 2 MiB as `addr` does (from 1 GiB on in its 1 GiB), or
    /// anywhere if there is none. Pages move between two such places by their tables.
    pub fn find_like(&self, len: usize, addr: usize) -> Option<usize> {
        let highest = (len >= GIGABYTE).then(|| self.find_at(len, GIGABYTE, addr));
        highest
            .flatten()
            .or_else(|| self.find_at(len, LEAF, addr))
            .or_else(|| self.find_at(len, PAGE, 0))
    }

    /// A place for `len` bytes that leaves the same rest as `like` when divided by `align`.
    fn find_at(&self, len: usize, align: usize, like: usize) -> Option<usize> {
        let rest = like % align;
        let fits = |&(gap, start): &(usize, usize)| {
            let place = start.checked_sub(rest).map_or(Some(rest), |above| {
                above.checked_next_multiple_of(align)?.checked_add(rest)
            })?;
            (place.checked_add(len)? <= start + gap).then_some(place)
        };
        // A gap of this length has a fitting place wherever it begins; some shorter ones may have one too.
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

    /// Number of bytes that are free.
    #[cfg(test)]
    pub fn total(&self) -> usize {
        self.by_len.iter().map(|gap| gap.0).sum()
    }
}
