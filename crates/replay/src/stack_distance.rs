//! LRU for all sizes at once.
//!
//! A cache of *n* pages under LRU holds the *n* most recently used pages. So an access hits if and only if fewer than
//! *n* different other pages were used since the last access to the same page. Its *stack distance* is the number of
//! pages that a cache needs for a hit (Mattson and others, 1970). One pass that counts accesses by distance yields the
//! misses of every size.
//!
//! A tree over time counts the pages that were used since (Bennett and Kruskal, 1975): a one at the last access of each
//! page, and a Fenwick tree of the sums. The length of time only needs to match the number of pages: when it has run
//! out, the ones are compacted, in order, and the rest of the time starts again. So memory depends on the footprint,
//! not on the trace, and an access costs two logarithms of twice the footprint.

use crate::trace::Trace;

/// Accesses by stack distance.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StackDistances {
    /// Number of accesses that need a cache of one page more than the index.
    hits: Vec<u64>,
    accesses: u64,
}

impl StackDistances {
    /// The stack distances of a trace.
    #[must_use]
    pub fn of(trace: &Trace) -> Self {
        let footprint = trace.footprint() as usize;
        let mut stack = Stack::new(footprint);
        let mut hits = vec![0; footprint];
        for &id in trace.ids() {
            if let Some(distance) = stack.use_again(id) {
                hits[distance as usize] += 1;
            }
        }
        Self {
            hits,
            accesses: trace.len() as u64,
        }
    }

    /// Number of misses of a cache of `pages` pages, first touches included.
    #[must_use]
    pub fn misses(&self, pages: u32) -> u64 {
        let held = self.hits.len().min(pages as usize);
        self.accesses - self.hits[..held].iter().sum::<u64>()
    }
}

const NEVER: u32 = 0;

/// A stack of pages in the order in which they were put on it.
#[derive(Clone, Debug)]
struct Stack {
    /// Time of each page's last use, from 1 on.
    last: Vec<u32>,
    /// The page whose last use was at each time; [`NOBODY`] if it has been used again since.
    page_at: Vec<u32>,
    /// Sums of the ones, in Fenwick's order: index 0 is not used.
    sums: Vec<u32>,
    now: u32,
    pages: u32,
}

const NOBODY: u32 = u32::MAX;

impl Stack {
    /// Makes an empty stack, for pages below `footprint`.
    fn new(footprint: usize) -> Self {
        let times = 2 * footprint + 64;
        Self {
            last: vec![NEVER; footprint],
            page_at: vec![NOBODY; times],
            sums: vec![0; times],
            now: 0,
            pages: 0,
        }
    }

    /// Puts a page on top. Returns the number of pages that were above it, if it was on the stack.
    fn use_again(&mut self, page: u32) -> Option<u32> {
        let before = self.last[page as usize];
        if before != NEVER && before == self.now {
            return Some(0);
        }
        let above = self.remove(page);
        self.push(page);
        above
    }

    /// Takes a page off. Returns the number of pages that were above it, if it was on the stack.
    fn remove(&mut self, page: u32) -> Option<u32> {
        let before = std::mem::replace(&mut self.last[page as usize], NEVER);
        if before == NEVER {
            return None;
        }
        let above = self.pages - self.up_to(before);
        self.add(before, false);
        self.page_at[before as usize] = NOBODY;
        self.pages -= 1;
        Some(above)
    }

    /// Puts a page on top that is not on the stack.
    fn push(&mut self, page: u32) {
        debug_assert_eq!(self.last[page as usize], NEVER, "{page} is there");
        if self.now as usize + 1 == self.sums.len() {
            self.close_up();
        }
        self.pages += 1;
        self.now += 1;
        self.add(self.now, true);
        self.page_at[self.now as usize] = page;
        self.last[page as usize] = self.now;
    }

    /// Number of ones at times up to `time`.
    fn up_to(&self, mut time: u32) -> u32 {
        let mut sum = 0;
        while time > 0 {
            sum += self.sums[time as usize];
            time &= time - 1;
        }
        sum
    }

    fn add(&mut self, mut time: u32, one: bool) {
        while (time as usize) < self.sums.len() {
            let sum = &mut self.sums[time as usize];
            *sum = if one { *sum + 1 } else { *sum - 1 };
            time += time & time.wrapping_neg();
        }
    }

    /// Compacts the ones at the beginning of time.
    fn close_up(&mut self) {
        let mut to = 0;
        for time in 1..=self.now as usize {
            let page = std::mem::replace(&mut self.page_at[time], NOBODY);
            if page != NOBODY {
                to += 1;
                self.page_at[to] = page;
                self.last[page as usize] = to as u32;
            }
        }
        self.now = to as u32;
        // Each node holds the number of ones at the times up to its own, as many times as its lowest bit says.
        for time in 1..self.sums.len() {
            let span = time & time.wrapping_neg();
            let from = time - span;
            self.sums[time] = to.min(time).saturating_sub(from) as u32;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lru::LruCache;
    use proptest::prelude::*;
    use std::num::NonZeroUsize;

    fn lru_misses(trace: &Trace, size: usize) -> u64 {
        let mut cache = LruCache::new(NonZeroUsize::new(size).unwrap());
        let miss = |&&id: &&u32| cache.put(id, ()).is_none();
        trace.ids().iter().filter(miss).count() as u64
    }

    proptest! {
        #[test]
        fn agrees_with_an_lru_cache_of_every_size(
            pages in prop::collection::vec(0u64..40, 1..1500)
        ) {
            let trace = Trace::of_pages(pages);
            let distances = StackDistances::of(&trace);
            for size in 1..45 {
                prop_assert_eq!(distances.misses(size), lru_misses(&trace, size as usize));
            }
        }
    }

    #[test]
    fn an_empty_cache_misses_every_access() {
        let trace = Trace::of_pages([1, 1, 2]);
        assert_eq!(StackDistances::of(&trace).misses(0), 3);
    }
}
