//! Volatile ranges: memory that its owner can do without while the mark is set.
//!
//! The owner of a cache marks a range when it has finished with it, and unmarks it before the next use. The answer
//! tells whether the contents survived. In between nothing is watched: no page is touched, protected or listed, so
//! marking and unmarking are two operations on this book and cost the same for a page and for a gigabyte. (A lazy free
//! has to detect writes by itself, see `ops/lazy_free.rs`; here the owner announces its writes.)
//!
//! Under pressure the oldest range is *purged* as a whole: all or nothing for each range, so that the owner never finds
//! half of an object. The book only selects the range; [`Event::Purge`](crate::Event::Purge) purges it.
//!
//! The book has its own lock and is not part of [`Core`](crate::Core): marking must not wait for faults. A reclaiming
//! thread only tries that lock, and must not allocate or free: taking the oldest range unlinks a record in place.

use crate::addr::{PageIndex, PageRange};
use std::collections::BTreeMap;

/// Why a range cannot be marked or unmarked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum VolatileRefusal {
    /// A part of the range is already volatile, from this page on.
    Overlaps {
        /// The first such page.
        page: PageIndex,
    },
    /// The range was not marked as one range.
    NotVolatile,
}

const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct Record {
    range: PageRange,
    purged: bool,
    /// The neighbours by age among the ranges that were not purged. In a free record `younger` is the next free record.
    older: u32,
    younger: u32,
}

/// The volatile ranges of one arena.
///
/// ```
/// use millpond_core::{PageCount, PageIndex, PageRange, tables::volatile::VolatileBook};
///
/// let mut book = VolatileBook::new();
/// let range = PageRange::new(PageIndex(8), PageCount(4));
/// book.mark(range)?;
/// assert_eq!(book.take_oldest(), Some(range)); // memory is short: the caller drops it
/// assert!(book.unmark(range)?, "purged");
/// # Ok::<(), millpond_core::tables::volatile::VolatileRefusal>(())
/// ```
#[derive(Debug, Default)]
pub struct VolatileBook {
    records: Vec<Record>,
    by_start: BTreeMap<u32, u32>,
    first_free: Option<u32>,
    oldest: Option<u32>,
    youngest: Option<u32>,
    pages: u64,
}

impl VolatileBook {
    /// An empty book.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            records: Vec::new(),
            by_start: BTreeMap::new(),
            first_free: None,
            oldest: None,
            youngest: None,
            pages: 0,
        }
    }

    /// Pages of all ranges that are volatile and not purged, whether they are in memory or not.
    #[must_use]
    pub fn pages(&self) -> u64 {
        self.pages
    }

    /// Marks `range` as volatile from now on, as the youngest volatile range.
    ///
    /// # Errors
    /// A part of the range is already volatile.
    pub fn mark(&mut self, range: PageRange) -> Result<(), VolatileRefusal> {
        if let Some(page) = self.overlap(range) {
            return Err(VolatileRefusal::Overlaps { page });
        }
        let record = Record {
            range,
            purged: false,
            older: NONE,
            younger: NONE,
        };
        let index = match self.first_free {
            Some(index) => {
                self.first_free = some(self.records[index as usize].younger);
                self.records[index as usize] = record;
                index
            }
            None => {
                self.records.push(record);
                self.records.len() as u32 - 1
            }
        };
        self.by_start.insert(range.start.0, index);
        self.link_youngest(index);
        Ok(())
    }

    /// Unmarks `range`. Returns true if the range was purged in the meantime.
    ///
    /// # Errors
    /// The range was not marked, or not as one range.
    pub fn unmark(&mut self, range: PageRange) -> Result<bool, VolatileRefusal> {
        let index = self.by_start.get(&range.start.0).copied();
        let Some(index) = index.filter(|&i| self.records[i as usize].range == range) else {
            return Err(VolatileRefusal::NotVolatile);
        };
        Ok(self.remove(index))
    }

    /// Forgets every range that begins in `range`: the region is dropped. Returns true if one of them was purged, so
    /// that its purge may still be in progress.
    pub fn forget(&mut self, range: PageRange) -> bool {
        let mut purged = false;
        while let Some((_, &index)) = self.by_start.range(range.start.0..range.end().0).next() {
            purged |= self.remove(index);
        }
        purged
    }

    /// The first page of a range that is only partly in `range`.
    #[must_use]
    pub fn straddler(&self, range: PageRange) -> Option<PageIndex> {
        let near = self.by_start.range(..range.end().0).next_back();
        let before = self.by_start.range(..range.start.0).next_back();
        let straddles = |&(_, &index): &(&u32, &u32)| {
            let marked = self.records[index as usize].range;
            marked.end() > range.start && marked.start < range.end() && !range.covers(marked)
        };
        let found = before
            .filter(straddles)
            .or_else(|| near.filter(straddles))?;
        Some(PageIndex(*found.0))
    }

    /// Moves the marks of the ranges in `from` to the page `to` on. They keep their ages, and whether they were purged.
    /// A range that begins at the destination is forgotten, like its contents: of two ranges with the same start, the
    /// owner could unmark only one.
    pub fn relocate(&mut self, from: PageRange, to: PageIndex) {
        self.forget(PageRange::new(to, from.len));
        let inside: Vec<_> = self
            .by_start
            .range(from.start.0..from.end().0)
            .map(|(&start, &index)| (start, index))
            .collect();
        for (start, index) in inside {
            self.by_start.remove(&start);
            let moved = to.plus(start - from.start.0);
            self.records[index as usize].range.start = moved;
            self.by_start.insert(moved.0, index);
        }
    }

    /// Takes the range that has been volatile for longest. It counts as purged from now on: the caller drops its
    /// contents. The call neither allocates nor frees.
    pub fn take_oldest(&mut self) -> Option<PageRange> {
        let index = self.oldest?;
        self.unlink(index);
        let record = &mut self.records[index as usize];
        record.purged = true;
        Some(record.range)
    }

    fn overlap(&self, range: PageRange) -> Option<PageIndex> {
        let starts_inside = self.by_start.range(range.start.0..range.end().0).next();
        let before = self.by_start.range(..range.start.0).next_back();
        let reaches_in =
            before.filter(|&(_, &i)| self.records[i as usize].range.end() > range.start);
        match (reaches_in, starts_inside) {
            (Some(_), _) => Some(range.start),
            (None, Some((&start, _))) => Some(PageIndex(start)),
            (None, None) => None,
        }
    }

    fn remove(&mut self, index: u32) -> bool {
        let record = self.records[index as usize];
        if !record.purged {
            self.unlink(index);
        }
        self.by_start.remove(&record.range.start.0);
        self.records[index as usize].younger = self.first_free.unwrap_or(NONE);
        self.first_free = Some(index);
        record.purged
    }

    fn link_youngest(&mut self, index: u32) {
        self.records[index as usize].older = self.youngest.unwrap_or(NONE);
        match self.youngest {
            Some(old) => self.records[old as usize].younger = index,
            None => self.oldest = Some(index),
        }
        self.youngest = Some(index);
        self.pages += u64::from(self.records[index as usize].range.len.0);
    }

    fn unlink(&mut self, index: u32) {
        let Record {
            older,
            younger,
            range,
            ..
        } = self.records[index as usize];
        match some(older) {
            Some(older) => self.records[older as usize].younger = younger,
            None => self.oldest = some(younger),
        }
        match some(younger) {
            Some(younger) => self.records[younger as usize].older = older,
            None => self.youngest = some(older),
        }
        self.pages -= u64::from(range.len.0);
    }
}

fn some(index: u32) -> Option<u32> {
    (index != NONE).then_some(index)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::addr::PageCount;
    use proptest::prelude::*;

    fn range(start: u32, len: u32) -> PageRange {
        PageRange::new(PageIndex(start), PageCount(len))
    }

    /// The owner of a destination had marked it and not unmarked it. Its record stayed among the oldest, without a
    /// start by which it could be found: under pressure the range that had moved there was purged after its own mark
    /// was removed.
    #[test]
    fn a_mark_at_the_destination_of_a_move_goes() {
        let mut book = VolatileBook::new();
        book.mark(range(512, 4)).unwrap();
        book.mark(range(0, 4)).unwrap();
        book.relocate(range(0, 4), PageIndex(512));
        assert_eq!(book.pages(), 4);
        assert_eq!(book.unmark(range(512, 4)), Ok(false));
        assert_eq!((book.pages(), book.take_oldest()), (0, None));
    }

    #[test]
    fn overlapping_and_unknown_ranges_are_refused() {
        let mut book = VolatileBook::new();
        book.mark(range(8, 4)).unwrap();
        for (start, len, page) in [(8, 4, 8), (0, 9, 8), (11, 9, 11), (9, 1, 9), (0, 64, 8)] {
            let refused = Err(VolatileRefusal::Overlaps {
                page: PageIndex(page),
            });
            assert_eq!(book.mark(range(start, len)), refused);
        }
        book.mark(range(12, 4)).unwrap();
        for (start, len) in [(8, 3), (9, 3), (8, 8), (0, 4)] {
            let refused = Err(VolatileRefusal::NotVolatile);
            assert_eq!(book.unmark(range(start, len)), refused);
        }
        assert_eq!(book.pages(), 8);
    }

    proptest! {
        /// The book is compared with a list of ranges, oldest first.
        #[test]
        fn agrees_with_a_list(ops in prop::collection::vec((0u8..4, 0u32..16), 1..300)) {
            let mut book = VolatileBook::new();
            let mut live: Vec<u32> = Vec::new();
            let mut purged: Vec<u32> = Vec::new();
            for (op, place) in ops {
                let at = range(place * 4, 4);
                let known = live.contains(&place) || purged.contains(&place);
                match op {
                    0 => {
                        prop_assert_eq!(book.mark(at).is_err(), known);
                        if !known { live.push(place); }
                    }
                    1 => {
                        let was_purged = purged.contains(&place);
                        let answer = if known { Ok(was_purged) } else { Err(VolatileRefusal::NotVolatile) };
                        prop_assert_eq!(book.unmark(at), answer);
                        live.retain(|&p| p != place);
                        purged.retain(|&p| p != place);
                    }
                    2 => {
                        let oldest = (!live.is_empty()).then(|| live.remove(0));
                        prop_assert_eq!(book.take_oldest(), oldest.map(|p| range(p * 4, 4)));
                        purged.extend(oldest);
                    }
                    _ => {
                        prop_assert_eq!(book.forget(at), purged.contains(&place));
                        live.retain(|&p| p != place);
                        purged.retain(|&p| p != place);
                    }
                }
                prop_assert_eq!(book.pages(), live.len() as u64 * 4);
            }
        }
    }
}
