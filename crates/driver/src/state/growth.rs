//! How often the background thread checks whether the process has grown (`within.rs`).

use millpond_core::PageCount;
use std::time::Duration;

/// Shortest time between two looks: while the process changes, and its budget is nearly used.
const SHORTEST: Duration = Duration::from_millis(4);
/// Longest time between two looks while the budget is nearly used. An idle process is checked this often, so its growth
/// may be noticed this late when it continues.
const LONGEST: Duration = Duration::from_millis(32);
/// Time for which a reclaim that has found nothing is not tried again. Faults try by themselves.
const AFTER_VAIN: Duration = Duration::from_secs(1);
/// The budget is nearly used if less than this part of the limit is left, as a divisor.
const NEARLY: u32 = 8;

/// The time between looks. Times are counted from when the thread began.
#[derive(Debug)]
pub struct Growth {
    gap: Duration,
    /// The process's size at the last look: managed pages, and others.
    seen: (u64, u64),
    rests_until: Duration,
}

impl Growth {
    pub fn new() -> Self {
        Self {
            gap: SHORTEST,
            seen: (0, 0),
            rests_until: Duration::ZERO,
        }
    }

    /// The time until the next look, which is shorter than `usual` if `available` is a small part of `limit`.
    pub fn gap(&self, available: PageCount, limit: PageCount, usual: Duration) -> Duration {
        match available.0 < limit.0 / NEARLY {
            true => self.gap.min(usual),
            false => usual,
        }
    }

    /// Notes the result of a look. While nothing changes, the looks become rarer.
    pub fn saw(&mut self, managed: u64, others: u64) {
        self.gap = match self.seen == (managed, others) {
            true => (self.gap * 2).min(LONGEST),
            false => SHORTEST,
        };
        self.seen = (managed, others);
    }

    /// Whether memory above the limit may be reclaimed at `now`.
    pub fn may_reclaim(&self, now: Duration) -> bool {
        now >= self.rests_until
    }

    /// Notes that a reclaim at `now` has left memory above the limit.
    pub fn was_vain(&mut self, now: Duration) {
        self.rests_until = now + AFTER_VAIN;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const USUAL: Duration = Duration::from_millis(100);
    const LIMIT: PageCount = PageCount(8000);

    #[test]
    fn a_process_that_changes_near_its_budget_is_looked_at_often() {
        let mut growth = Growth::new();
        assert_eq!(growth.gap(PageCount(1000), LIMIT, USUAL), USUAL);
        assert_eq!(growth.gap(PageCount(999), LIMIT, USUAL), SHORTEST);
        growth.saw(7500, 300);
        for _ in 0..10 {
            growth.saw(7500, 300);
        }
        assert_eq!(growth.gap(PageCount(0), LIMIT, USUAL), LONGEST);
        growth.saw(7500, 301);
        assert_eq!(growth.gap(PageCount(0), LIMIT, USUAL), SHORTEST);
    }

    #[test]
    fn reclaim_in_vain_is_not_repeated_at_every_look() {
        let mut growth = Growth::new();
        let now = Duration::from_millis(40);
        assert!(growth.may_reclaim(now));
        growth.was_vain(now);
        assert!(!growth.may_reclaim(now + AFTER_VAIN / 2));
        assert!(growth.may_reclaim(now + AFTER_VAIN));
    }
}
