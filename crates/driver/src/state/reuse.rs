//! The book of memory that was given up and stays in place for its next user (`reuse.rs`).

#[cfg(feature = "shuttle")]
use crate::sabotage::{self, Sabotage};
use crate::state::named::Named;
use millpond_core::limits::ZERO_IN_PLACE_PAGES;
use millpond_core::{Core, LEAF_PAGES, OrderPolicy, PageCount, PageRange, RegionId};
use millpond_sync::{Condvar, Held, Rank, Ranked};

/// Most ranges in the book. When it is full, further memory goes through the pool.
pub(crate) const RANGES: usize = 64;

/// Most regions in the book.
pub(crate) const WHOLE: usize = 8;

/// Pages that are checked and given back in one piece. A fork can come between two pieces.
pub(crate) const PIECE: PageCount = PageCount(4 * LEAF_PAGES);

/// The progress of a region on its way to its next owner.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Progress {
    Queued,
    Preparing,
    Ready,
}

pub(crate) struct Whole {
    pub(crate) region: Named,
    pub(crate) order: OrderPolicy,
    pub(crate) progress: Progress,
}

pub(crate) struct Book {
    /// Ranges of regions, which do not touch each other, the oldest first.
    pub(crate) ranges: Vec<(RegionId, PageRange)>,
    /// Regions that are kept whole, the oldest first.
    pub(crate) whole: Vec<Whole>,
    /// Number that increases with each change.
    pub(crate) edition: u64,
}

impl Book {
    /// Counts a change. Every function that changes the book calls this.
    pub(crate) fn changed(&mut self) {
        self.edition += 1;
    }

    pub(crate) fn pages(&self) -> PageCount {
        let ranges = self.ranges.iter().map(|(_, range)| range.len.0);
        let whole = self.whole.iter().map(|whole| whole.region.1.len.0);
        PageCount(ranges.chain(whole).sum())
    }

    /// Adds a range, joined with the ranges that it touches, if the book may hold that much, `most` in total. Returns
    /// how much of the range was already there. Returns `None`, without any change, if it does not fit or the book has
    /// no free line.
    pub(crate) fn add(
        &mut self,
        region: RegionId,
        range: PageRange,
        most: PageCount,
    ) -> Option<PageCount> {
        let (mut joined, mut again) = (range, 0);
        let apart = |other: PageRange| other.end() < range.start || range.end() < other.start;
        let stay = |&(id, other): &(RegionId, PageRange)| id != region || apart(other);
        if self.ranges.iter().filter(|entry| stay(entry)).count() == RANGES {
            return None;
        }
        for &(_, other) in self.ranges.iter().filter(|entry| !stay(entry)) {
            let shared = (other.start.max(range.start), other.end().min(range.end()));
            again += shared.1.0.saturating_sub(shared.0.0);
            let (start, end) = (joined.start.min(other.start), joined.end().max(other.end()));
            joined = PageRange::new(start, PageCount(end.0 - start.0));
        }
        let fresh = range.len.0 - again;
        if fresh > 0 && self.pages().0 + fresh > most.0 {
            return None;
        }
        self.changed();
        self.ranges.retain(stay);
        self.ranges.push((region, joined));
        Some(PageCount(again))
    }

    /// Adds a region, if the book may hold that much, `most` in total.
    pub(crate) fn add_whole(&mut self, region: Named, order: OrderPolicy, most: PageCount) -> bool {
        let fits = self.pages().0 + region.1.len.0 <= most.0 && self.whole.len() < WHOLE;
        if fits {
            self.changed();
            self.whole.push(Whole {
                region,
                order,
                progress: Progress::Queued,
            });
        }
        fits
    }

    pub(crate) fn take_whole_at(&mut self, at: usize) -> Whole {
        self.changed();
        self.whole.remove(at)
    }

    pub(crate) fn take_range_at(&mut self, at: usize) -> PageRange {
        self.changed();
        self.ranges.remove(at).1
    }

    pub(crate) fn told(&self) -> Told {
        Told {
            edition: self.edition,
            pages: self.pages(),
        }
    }
}

/// The core's knowledge of the book, and the edition to which it belongs. Changed under the core lock.
#[derive(Clone, Copy)]
pub(crate) struct Told {
    pub(crate) edition: u64,
    pub(crate) pages: PageCount,
}

impl Told {
    /// Replaces the knowledge by `newer`, unless the present knowledge is of an even newer edition.
    pub(crate) fn hear(&mut self, newer: Self) {
        #[cfg(feature = "shuttle")]
        if sabotage::is_out(Sabotage::ToldOutOfOrder) {
            *self = newer;
        }
        if newer.edition > self.edition {
            *self = newer;
        }
    }
}

/// The book and what the core knows about it. See the [module](self).
pub struct Reuse {
    pub(crate) book: Ranked<Book>,
    /// The core's knowledge of the book; its lock is held for a copy, under the core lock.
    pub(crate) told: Ranked<Told>,
    /// Notified when a region is ready, or will not be.
    pub(crate) changed: Condvar,
}

impl Reuse {
    pub fn new() -> Self {
        Self {
            // A discard allocates nothing, so all room is made here.
            book: Ranked::new(
                Rank::ReuseBook,
                Book {
                    ranges: Vec::with_capacity(RANGES),
                    whole: Vec::with_capacity(WHOLE),
                    edition: 0,
                },
            ),
            told: Ranked::new(
                Rank::ReuseTold,
                Told {
                    edition: 0,
                    pages: PageCount::ZERO,
                },
            ),
            changed: Condvar::new(),
        }
    }

    pub(crate) fn lock(&self) -> Held<'_, Book> {
        self.book.lock()
    }

    /// The core's knowledge of the book. The caller holds the core lock.
    pub(crate) fn told(&self) -> Held<'_, Told> {
        self.told.lock()
    }

    /// Pages that the book may hold: the core's room is added to the pages that the core knows about.
    pub(crate) fn most(&self, core: &Core) -> PageCount {
        match core.room_to_keep() {
            // There may be too much in the book already.
            PageCount::ZERO => PageCount::ZERO,
            room => PageCount(room.0 + self.told().pages.0),
        }
    }
}

/// Whether folios of a region with such orders are zeroed in place.
pub(crate) fn is_zeroed_in_place(order: OrderPolicy) -> bool {
    matches!(order, OrderPolicy::Fixed(order) if order.pages().0 <= ZERO_IN_PLACE_PAGES)
}

#[cfg(test)]
mod tests {
    use super::*;
    use millpond_core::{Order, PageIndex};

    fn range(start: u32, end: u32) -> PageRange {
        PageRange::new(PageIndex(start), PageCount(end - start))
    }

    #[test]
    fn ranges_of_a_region_join_and_overlaps_are_returned() {
        let mut book = Reuse::new().book.into_inner();
        let (one, two) = (RegionId(1), RegionId(2));
        let mut add = |id, range| book.add(id, range, PageCount(81));
        assert_eq!(add(one, range(0, 16)), Some(PageCount(0)));
        assert_eq!(add(one, range(32, 48)), Some(PageCount(0)));
        assert_eq!(add(two, range(48, 64)), Some(PageCount(0)));
        assert_eq!(add(two, range(56, 81)), Some(PageCount(8)));
        assert_eq!(
            add(two, range(100, 126)),
            None,
            "one page more would be too many"
        );
        assert_eq!(add(one, range(8, 32)), Some(PageCount(8)));
        assert_eq!(add(one, range(4, 8)), Some(PageCount(4)));
        assert_eq!(book.ranges, [(two, range(48, 81)), (one, range(0, 48))]);
        assert_eq!(book.pages(), PageCount(81));
    }

    #[test]
    fn a_full_book_accepts_only_ranges_that_join() {
        let mut book = Reuse::new().book.into_inner();
        for n in 0..RANGES as u32 {
            let piece = range(4 * n, 4 * n + 1);
            assert!(
                book.add(RegionId(1), piece, PageCount(RANGES as u32))
                    .is_some()
            );
        }
        assert_eq!(
            book.add(RegionId(1), range(1000, 1001), PageCount(99)),
            None
        );
        assert_eq!(
            book.add(RegionId(1), range(1, 4), PageCount(99)),
            Some(PageCount(0))
        );
        assert_eq!(book.ranges.len(), RANGES - 1);
    }

    /// In an early version a thread read the book, released it, and then told the core. If a second thread came
    /// between, the first one undid its report. Then the core counted pages in a book that was empty, or none in one
    /// that was full, until the book changed again.
    #[test]
    fn the_core_is_never_told_an_older_state_of_the_book() {
        let kept = Reuse::new();
        let changes: [fn(&mut Book); 2] = [
            |book| assert!(book.add(RegionId(1), range(0, 16), PageCount(16)).is_some()),
            |book| assert_eq!(book.take_range_at(0), range(0, 16)),
        ];
        let read = changes.map(|change| {
            let mut book = kept.lock();
            change(&mut book);
            book.told()
        });
        for order in [[0, 1], [1, 0]] {
            let mut told = *kept.told();
            for at in order {
                told.hear(read[at]);
            }
            assert_eq!(told.pages, PageCount::ZERO, "{order:?}");
        }
    }

    /// Two threads that asked for room before either had told the core about the room that it took once got the same
    /// room twice.
    #[test]
    fn the_same_room_is_not_given_out_twice() {
        let mut book = Reuse::new().book.into_inner();
        let (most, order) = (PageCount(16), OrderPolicy::Fixed(Order::ZERO));
        assert!(book.add(RegionId(1), range(0, 12), most).is_some());
        assert!(book.add(RegionId(2), range(32, 40), most).is_none());
        assert!(!book.add_whole((RegionId(3), range(64, 72)), order, most));
        assert!(book.add_whole((RegionId(3), range(64, 68)), order, most));
        assert_eq!(book.pages(), most);
    }
}
