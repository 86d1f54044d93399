//! The book of what was given up and stays where it is for its next user (`kept.rs`).

use crate::state::named::Named;
use millpond_core::limits::CLEAR_PAGES;
use millpond_core::{Core, LEAF_PAGES, OrderPolicy, PageCount, PageRange, RegionId};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Ranges in the book; what comes when it is full goes through the pool.
pub(crate) const RANGES: usize = 64;

/// Regions in the book.
pub(crate) const WHOLE: usize = 8;

/// What is looked at and given back in one piece, between two of which a fork can come.
pub(crate) const PIECE: PageCount = PageCount(4 * LEAF_PAGES);

/// How far a region is on its way to its next owner.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Progress {
    Queued,
    Clearing,
    Ready,
}

pub(crate) struct Whole {
    pub(crate) region: Named,
    pub(crate) order: OrderPolicy,
    pub(crate) progress: Progress,
}

pub(crate) struct Book {
    /// Oldest first; apart from each other.
    pub(crate) ranges: Vec<(RegionId, PageRange)>,
    /// Oldest first.
    pub(crate) whole: Vec<Whole>,
    /// Goes up with each change.
    pub(crate) edition: u64,
}

impl Book {
    /// To be called by whoever changes it.
    pub(crate) fn changed(&mut self) {
        self.edition += 1;
    }

    pub(crate) fn pages(&self) -> PageCount {
        let ranges = self.ranges.iter().map(|(_, range)| range.len.0);
        let whole = self.whole.iter().map(|whole| whole.region.1.len.0);
        PageCount(ranges.chain(whole).sum())
    }

    /// Notes a range, joined with what it touches, if the book may hold as much, `most` altogether. How much of it was
    /// there; `None`, and nothing changes, when there is no line left in the book either.
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

    /// Notes a region, if the book may hold as much, `most` altogether.
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

/// What the core knows of the book, and of which edition. Changed under the core lock.
#[derive(Clone, Copy)]
pub(crate) struct Told {
    pub(crate) edition: u64,
    pub(crate) pages: PageCount,
}

impl Told {
    /// The core hears of `newer`, unless it knows one that is newer still.
    pub(crate) fn hear(&mut self, newer: Self) {
        if newer.edition > self.edition {
            *self = newer;
        }
    }
}

/// See the [module](self).
pub struct Kept {
    pub(crate) book: Mutex<Book>,
    /// Held for a copy, under the core lock.
    pub(crate) told: Mutex<Told>,
    /// A region is ready, or will not be.
    pub(crate) changed: Condvar,
}

impl Kept {
    pub fn new() -> Self {
        Self {
            // A discard allocates nothing.
            book: Mutex::new(Book {
                ranges: Vec::with_capacity(RANGES),
                whole: Vec::with_capacity(WHOLE),
                edition: 0,
            }),
            told: Mutex::new(Told {
                edition: 0,
                pages: PageCount::ZERO,
            }),
            changed: Condvar::new(),
        }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// By whoever holds the core lock.
    pub(crate) fn told(&self) -> MutexGuard<'_, Told> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Pages that the book may hold: the core's room is beside what it knows of.
    pub(crate) fn most(&self, core: &Core) -> PageCount {
        match core.room_to_keep() {
            // There may be too much already.
            PageCount::ZERO => PageCount::ZERO,
            room => PageCount(room.0 + self.told().pages.0),
        }
    }
}

/// Whether folios of such a region are zeroed where they are.
pub(crate) fn is_cleared_in_place(order: OrderPolicy) -> bool {
    matches!(order, OrderPolicy::Fixed(order) if order.pages().0 <= CLEAR_PAGES)
}

#[cfg(test)]
mod tests {
    use super::*;
    use millpond_core::{Order, PageIndex};

    fn range(start: u32, end: u32) -> PageRange {
        PageRange::new(PageIndex(start), PageCount(end - start))
    }

    #[test]
    fn ranges_of_a_region_join_and_what_was_there_is_told() {
        let mut book = Kept::new().book.into_inner().unwrap();
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
    fn a_full_book_takes_only_what_joins() {
        let mut book = Kept::new().book.into_inner().unwrap();
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

    /// Who told the core read the book, let go of it, and told; a second one that came between was undone by the first.
    /// The core counted pages in a book that was empty, or none in one that was full, until somebody changed it again.
    #[test]
    fn the_core_never_hears_of_an_older_book_than_it_knows() {
        let kept = Kept::new();
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

    /// Two that asked for room before either had told the core of what it took had the same room twice.
    #[test]
    fn the_same_room_is_not_had_twice() {
        let mut book = Kept::new().book.into_inner().unwrap();
        let (most, order) = (PageCount(16), OrderPolicy::Fixed(Order::ZERO));
        assert!(book.add(RegionId(1), range(0, 12), most).is_some());
        assert!(book.add(RegionId(2), range(32, 40), most).is_none());
        assert!(!book.add_whole((RegionId(3), range(64, 72)), order, most));
        assert!(book.add_whole((RegionId(3), range(64, 68)), order, most));
        assert_eq!(book.pages(), most);
    }
}
