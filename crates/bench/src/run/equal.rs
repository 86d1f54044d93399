//! Equal memory: searches the limit at which a program's group and its zram swap together use exactly the budget.
//!
//! zram's memory is in no group. Lowering the group's limit as zram grows does not work: the kernel refuses, or
//! reclaims while the program grows again, and group and zram had a third more than the budget for a whole run. So
//! the limit is fixed, and found by a few runs: each reports the peak of both together, and the next limit goes two
//! thirds of the way to where the budget would be met. A program that was killed has not reached its peak yet, so its
//! limit moves by half of that.

use serde::Serialize;

/// The allowed distance of the sum from the budget: one part in this many.
const NEAR: u64 = 33;
/// The maximum number of runs of a search.
const TRIES: usize = 8;
/// The lowest limit.
const LEAST: u64 = 8 << 20;

/// A limit, and the memory that the group and zram had together under it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Equal {
    /// The group's limit.
    pub limit_bytes: u64,
    /// The peak of the group and zram together in the run with this limit.
    pub together_bytes: u64,
}

/// A search for the limit.
#[derive(Debug)]
pub struct Search {
    budget: u64,
    limit: u64,
    tries: usize,
    best: Option<Equal>,
}

impl Search {
    /// Starts a search for this budget.
    #[must_use]
    pub fn new(budget: u64) -> Self {
        Self {
            budget,
            limit: (budget / 4 * 3).max(LEAST),
            tries: 0,
            best: None,
        }
    }

    /// The limit to try next; `None` when no limit is worth another run.
    #[must_use]
    pub fn next(&self) -> Option<u64> {
        let is_near = self
            .best
            .is_some_and(|best| self.miss(best) <= self.budget / NEAR);
        (!is_near && self.tries < TRIES).then_some(self.limit)
    }

    /// Records the result of the run with the limit: the peak of both together, and whether the program ended as it
    /// should.
    pub fn tell(&mut self, together_bytes: u64, has_finished: bool) {
        let tried = Equal {
            limit_bytes: self.limit,
            together_bytes,
        };
        if self
            .best
            .is_none_or(|best| self.miss(tried) < self.miss(best))
        {
            self.best = Some(tried);
        }
        self.tries += 1;
        let step = |difference: u64| match has_finished {
            true => difference / 3 * 2,
            false => difference / 2,
        };
        self.limit = match self.budget.checked_sub(together_bytes) {
            Some(left) => self.limit + step(left),
            None => self
                .limit
                .saturating_sub(step(together_bytes - self.budget)),
        }
        .max(LEAST);
    }

    /// The limit that came nearest to the budget.
    #[must_use]
    pub fn best(&self) -> Option<Equal> {
        self.best
    }

    fn miss(&self, tried: Equal) -> u64 {
        tried.together_bytes.abs_diff(self.budget)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    /// Searches for a simulated program of `size` that leaves what does not fit to zram, which keeps a `ratio`th of
    /// it.
    fn found(budget: u64, size: u64, ratio: u64) -> (Equal, usize) {
        let mut search = Search::new(budget);
        while let Some(limit) = search.next() {
            let inside = limit.min(size);
            search.tell(inside + (size - inside) / ratio, true);
        }
        (search.best().unwrap(), search.tries)
    }

    #[test]
    fn the_sum_is_near_the_budget_after_a_few_runs() {
        for (size, ratio) in [(300, 2), (300, 3), (300, 5), (200, 4)] {
            let budget = size * MIB / 2;
            let (equal, tries) = found(budget, size * MIB, ratio);
            let miss = equal.together_bytes.abs_diff(budget);
            assert!(miss * 100 <= budget * 3, "{size} {ratio}: {equal:?}");
            assert!(tries <= TRIES, "{tries}");
        }
    }

    /// Incompressible memory has the same sum at every limit.
    #[test]
    fn hopeless_search_ends_with_the_nearest_limit() {
        let (equal, tries) = found(100 * MIB, 400 * MIB, 1);
        assert_eq!((equal.together_bytes, tries), (400 * MIB, TRIES));
        assert!(equal.limit_bytes >= LEAST);
    }

    #[test]
    fn a_killed_program_is_given_a_higher_limit() {
        let mut search = Search::new(100 * MIB);
        search.tell(80 * MIB, false);
        assert_eq!(search.next(), Some(85 * MIB));
    }
}
