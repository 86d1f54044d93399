//! One bit for each page of the arena, in memory that is only taken when it is written.

use core::ops::Range;
use core::sync::atomic::{AtomicU64, Ordering};

use crate::zeroed::zeroed;

/// Bits that only one thread changes at a time, under a lock. Other threads may read them meanwhile.
pub(super) struct Bits {
    words: Box<[AtomicU64]>,
    len: usize,
}

impl Bits {
    /// Makes bits that are all clear.
    pub(super) fn new(len: usize) -> Self {
        Self {
            // SAFETY: zeros are valid atomic integers, and an arena has at least one leaf.
            words: unsafe { zeroed(len.div_ceil(64)) },
            len,
        }
    }

    pub(super) fn has(&self, at: usize) -> bool {
        self.words[at / 64].load(Ordering::Acquire) >> (at % 64) & 1 == 1
    }

    /// Sets or clears a range.
    pub(super) fn fill(&self, range: Range<usize>, on: bool) {
        let mut at = range.start;
        while at < range.end {
            let next = ((at / 64 + 1) * 64).min(range.end);
            let mask = ones(next - at) << (at % 64);
            let word = &self.words[at / 64];
            let old = word.load(Ordering::Relaxed);
            let new = if on { old | mask } else { old & !mask };
            // An unchanged word is not written: it may be one that never took memory.
            if new != old {
                word.store(new, Ordering::Release);
            }
            at = next;
        }
    }

    /// Returns the first place of the range where the bit is `on`, or the range's end.
    pub(super) fn next(&self, range: Range<usize>, on: bool) -> usize {
        let mut at = range.start;
        while at < range.end {
            let word = self.words[at / 64].load(Ordering::Acquire);
            let found = (if on { word } else { !word }) >> (at % 64);
            if found != 0 {
                return (at + found.trailing_zeros() as usize).min(range.end);
            }
            at = (at / 64 + 1) * 64;
        }
        range.end
    }

    /// Whether all bits of the range are set.
    pub(super) fn has_all(&self, range: Range<usize>) -> bool {
        let end = range.end;
        self.next(range, false) == end
    }

    /// Returns the place after the last set bit of the range, or the range's start.
    pub(super) fn end_of_last(&self, range: Range<usize>) -> usize {
        let mut end = range.end;
        while end > range.start {
            let first = ((end - 1) / 64 * 64).max(range.start);
            let word = self.words[first / 64].load(Ordering::Acquire);
            let here = (word >> (first % 64)) & ones(end - first);
            if here != 0 {
                return first + 64 - here.leading_zeros() as usize;
            }
            end = first;
        }
        range.start
    }

    /// Returns the runs of set bits in the range.
    pub(super) fn runs(&self, range: Range<usize>) -> impl Iterator<Item = Range<usize>> + '_ {
        let mut at = range.start;
        core::iter::from_fn(move || {
            let start = self.next(at..range.end, true);
            at = self.next(start..range.end, false);
            (start < at).then_some(start..at)
        })
    }

    /// Returns the number of runs that begin in the range, or at its end.
    pub(super) fn starts(&self, range: Range<usize>) -> usize {
        let end = (range.end + 1).min(self.len);
        let mut before = range.start > 0 && self.has(range.start - 1);
        let (mut at, mut count) = (range.start, 0);
        while at < end {
            let next = ((at / 64 + 1) * 64).min(end);
            let here = (self.words[at / 64].load(Ordering::Relaxed) >> (at % 64)) & ones(next - at);
            count += (here & !(here << 1 | u64::from(before))).count_ones() as usize;
            before = here >> (next - at - 1) & 1 == 1;
            at = next;
        }
        count
    }
}

/// Returns a mask of the lowest `n` bits. `n` is 1 to 64.
fn ones(n: usize) -> u64 {
    u64::MAX >> (64 - n)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LEN: usize = 300;

    proptest! {
        /// Compares everything with an array.
        #[test]
        fn bits_agree_with_an_array(
            steps in proptest::collection::vec((0..LEN, 1..150usize, any::<bool>()), 1..20),
            looks in proptest::collection::vec((0..LEN, 0..LEN), 20),
        ) {
            let (bits, mut array) = (Bits::new(LEN), vec![false; LEN]);
            for (start, len, on) in steps {
                let range = start..(start + len).min(LEN);
                bits.fill(range.clone(), on);
                array[range].fill(on);
            }
            for (start, len) in looks {
                let range = start..(start + len).min(LEN);
                for on in [false, true] {
                    let next = range.clone().find(|&at| array[at] == on).unwrap_or(range.end);
                    prop_assert_eq!(bits.next(range.clone(), on), next);
                }
                prop_assert_eq!(bits.has_all(range.clone()), range.clone().all(|at| array[at]));
                let last = range.clone().rfind(|&at| array[at]).map_or(range.start, |at| at + 1);
                prop_assert_eq!(bits.end_of_last(range.clone()), last);
                let is_start = |at: &usize| array[*at] && (*at == 0 || !array[*at - 1]);
                let starts = (range.start..(range.end + 1).min(LEN)).filter(is_start).count();
                prop_assert_eq!(bits.starts(range.clone()), starts);
                let in_runs: Vec<_> = bits.runs(range.clone()).flatten().collect();
                let set: Vec<_> = range.filter(|&at| array[at]).collect();
                prop_assert_eq!(in_runs, set);
            }
        }
    }
}
