//! The account of leaves that were evicted so that a stream gets them in one piece (`ops/evict_leaf.rs`).

use crate::addr::{LEAF_PAGES, PageIndex};
use crate::limits::LEAVING_LEAVES;
use crate::policy::order::{Step, Way};
use arrayvec::ArrayVec;

/// Pages that a stream must have brought in before a leaf is evicted for it.
pub(crate) const STREAM: u16 = LEAF_PAGES as u16 / 2;
/// If there are more recent strays than this, the memory is in use.
pub(crate) const STRAYS: u8 = 8;
/// Most strays that are remembered.
pub(crate) const STRAYS_MOST: u8 = 64;
/// After this many failures in a row the time to the next attempt stops growing.
pub(crate) const FAILURES_MOST: u8 = 6;

/// Leaves that are being evicted for streams, and the success so far.
#[derive(Debug, Default)]
pub(crate) struct LeafEvictions {
    /// The places where streams wait, and the directions of the streams.
    pub(crate) asked: ArrayVec<(PageIndex, Way), LEAVING_LEAVES>,
    pub(crate) strays: u8,
    /// Failures in a row.
    pub(crate) failures: u8,
    /// Number of leaves that are not evicted before the next attempt.
    pub(crate) pause: u8,
}

impl LeafEvictions {
    pub(crate) fn way(&self, page: PageIndex) -> Option<Way> {
        let mut asked = self.asked.iter();
        asked.find(|(at, _)| *at == page).map(|&(_, way)| way)
    }

    /// Whether a leaf may be evicted.
    pub(crate) fn is_due(&mut self) -> bool {
        if self.strays > STRAYS {
            return false;
        }
        let paused = self.pause > 0;
        self.pause = self.pause.saturating_sub(1);
        !paused
    }

    /// Notes that a stream waits at `page`. A stream that has not come back by the time that some others have asked is
    /// forgotten.
    pub(crate) fn asks(&mut self, page: PageIndex, way: Way) {
        if self.asked.is_full() {
            self.asked.remove(0);
        }
        self.asked.push((page, way));
    }

    /// Notes that a fault has brought `page` in, by this `step`. `whole` says that its whole leaf came in, and `again`
    /// that the page was in memory before.
    pub(crate) fn came_in(&mut self, page: PageIndex, step: Step, whole: bool, again: bool) {
        if step.way == Way::Unknown {
            self.strays = (self.strays + u8::from(again)).min(STRAYS_MOST);
        } else if step.enters && step.run >= STREAM {
            self.strays /= 2;
        }
        if self.way(page).is_none() {
            return;
        }
        self.asked.retain(|(at, _)| *at != page);
        match whole {
            true => self.failures = 0,
            false => {
                self.pause = 1 << self.failures;
                self.failures = (self.failures + 1).min(FAILURES_MOST);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::addr::Order;

    const AT: PageIndex = PageIndex(7 * LEAF_PAGES);

    fn step(way: Way, window: Order) -> Step {
        let run = STREAM;
        Step {
            window,
            way,
            run,
            enters: true,
        }
    }

    #[test]
    fn stray_refaults_pause_leaf_evictions_until_streams_advance() {
        let mut evictions = LeafEvictions::default();
        let stray = step(Way::Unknown, Order::ZERO);
        for _ in 0..=STRAYS {
            assert!(evictions.is_due());
            evictions.came_in(AT, stray, false, true);
        }
        assert!(!evictions.is_due());
        // First touches prove nothing about memory in use.
        let mut new = LeafEvictions::default();
        (0..100).for_each(|_| new.came_in(AT, stray, false, false));
        assert!(new.is_due());
        (0..200).for_each(|_| evictions.came_in(AT, stray, false, true));
        let steps = (0..10).take_while(|_| {
            evictions.came_in(AT, step(Way::Up, Order::MAX), true, true);
            !evictions.is_due()
        });
        assert_eq!(steps.count(), 2);
    }

    #[test]
    fn failures_lengthen_the_wait_for_a_retry_and_a_success_resets_it() {
        let mut evictions = LeafEvictions::default();
        let stream = step(Way::Up, Order::MAX);
        let mut passed = Vec::new();
        for whole in [false, false, false, true, false] {
            passed.push((0..).take_while(|_| !evictions.is_due()).count());
            evictions.asks(AT, Way::Up);
            evictions.came_in(AT, stream, whole, true);
        }
        assert_eq!(passed, [0, 1, 2, 4, 0]);
        for _ in 0..20 {
            evictions.asks(AT, Way::Up);
            evictions.came_in(AT, stream, false, true);
        }
        assert_eq!((0..).take_while(|_| !evictions.is_due()).count(), 64);
    }

    #[test]
    fn streams_that_never_return_are_forgotten() {
        let mut evictions = LeafEvictions::default();
        for n in 0..100 {
            evictions.asks(PageIndex(n * LEAF_PAGES), Way::Down);
        }
        assert_eq!(evictions.way(PageIndex(0)), None);
        assert_eq!(evictions.way(PageIndex(99 * LEAF_PAGES)), Some(Way::Down));
    }
}
