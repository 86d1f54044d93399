//! Shrinkers: how much of a cache outside this memory manager is given up when memory is short.
//!
//! A cache reports how many objects it could give up, and is asked to scan a share of them that corresponds to the
//! share of its group's memory that reclaim has scanned. At priority p a 2^p-th of the lists was scanned, so the cache
//! scans a 2^p-th of its objects, times four, divided by the cost of recreating one (`seeks`; two is usual, so the
//! cache scans twice the share). This is Linux's `do_shrink_slab`. Small remainders are not worth a call. They are
//! deferred until there are enough of them, and count less the lower the pressure is then. A cache never owes more than
//! twice what it has.

/// Objects that one call asks a cache to scan.
pub const SHRINK_BATCH: u64 = 128;
/// Lowest pressure: a 4096th of the lists was scanned.
const DEF_PRIORITY: u32 = 12;
/// The cost of recreating an object, if nothing is known about it.
pub const DEFAULT_SEEKS: u64 = 2;

/// The priority at which reclaim has scanned `scanned` of `pages` pages. `None` if it has not scanned any.
///
/// ```
/// use millpond_core::policy::shrink::priority;
/// assert_eq!(priority(0, 4096), None);
/// assert_eq!(priority(1, 4096), Some(12));
/// assert_eq!(priority(1024, 4096), Some(2));
/// assert_eq!(priority(9999, 4096), Some(0));
/// ```
#[must_use]
pub fn priority(scanned: u64, pages: u64) -> Option<u32> {
    let share = pages.max(1).checked_div(scanned)?;
    Some(share.max(1).ilog2().min(DEF_PRIORITY))
}

/// The number of objects that a cache still has to scan from earlier rounds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Owed {
    deferred: u64,
}

/// One round: how many objects are still to be scanned, and how many were.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Round {
    freeable: u64,
    due: u64,
    total: u64,
    scanned: u64,
}

impl Owed {
    /// Begins a round for a cache that could give up `freeable` objects.
    pub fn begin(&mut self, freeable: u64, priority: u32, seeks: u64) -> Round {
        let delta = match seeks {
            0 => freeable / 2,
            seeks => (freeable >> priority) * 4 / seeks,
        };
        let deferred = std::mem::take(&mut self.deferred);
        Round {
            freeable,
            due: deferred + delta,
            total: ((deferred >> priority) + delta).min(2 * freeable),
            scanned: 0,
        }
    }

    /// Ends a round: objects that were due and not scanned are deferred.
    pub fn end(&mut self, round: Round) {
        let left = round.due.saturating_sub(round.scanned);
        self.deferred = left.min(2 * round.freeable);
    }
}

impl Round {
    /// How many objects the next call should scan; `None` if a call is not worthwhile.
    #[must_use]
    pub fn next(&self) -> Option<u64> {
        let enough = self.total >= SHRINK_BATCH || self.total >= self.freeable;
        (enough && self.total > 0).then_some(self.total.min(SHRINK_BATCH))
    }

    /// Notes that a call has scanned `objects` objects.
    pub fn looked_at(&mut self, objects: u64) {
        self.total -= objects;
        self.scanned += objects;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round(owed: &mut Owed, freeable: u64, priority: u32) -> u64 {
        let mut round = owed.begin(freeable, priority, DEFAULT_SEEKS);
        let mut calls = 0;
        while let Some(n) = round.next() {
            round.looked_at(n);
            calls += n;
        }
        owed.end(round);
        calls
    }

    #[test]
    fn a_cache_gives_twice_the_share_that_reclaim_looked_at() {
        let mut owed = Owed::default();
        assert_eq!(round(&mut owed, 1 << 20, 4), 1 << 17);
        assert_eq!(owed, Owed::default());
    }

    #[test]
    fn remainders_are_put_off_until_there_are_enough() {
        let mut owed = Owed::default();
        // 32 objects are due each time. At this priority deferred objects count a 64th, so the fourth round does not
        // reach all 128.
        let given: Vec<_> = (0..4).map(|_| round(&mut owed, 1024, 6)).collect();
        assert_eq!((given, owed.deferred), (vec![0; 4], 128));
        // Under full pressure all that is owed is due.
        assert_eq!(round(&mut owed, 1024, 0), 1024 * 2);
    }

    #[test]
    fn a_small_cache_is_emptied_under_full_pressure() {
        let mut owed = Owed::default();
        assert_eq!(round(&mut owed, 10, 0), 20);
        assert_eq!(round(&mut owed, 0, 0), 0);
    }

    #[test]
    fn a_cache_never_owes_more_than_twice_its_size() {
        let mut owed = Owed { deferred: 1 << 40 };
        let never = owed.begin(100, 12, DEFAULT_SEEKS);
        owed.end(never);
        assert_eq!(owed.deferred, 200);
    }
}
