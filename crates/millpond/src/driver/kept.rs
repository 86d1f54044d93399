//! Kept in place: what is given up and will be wanted again soon does not leave.
//!
//! A program that frees a buffer and makes another one wants, each time, as much memory as it has just given back. The
//! kernel takes the pages, and gives others that it has to clear: 1.7 µs a page. The pool spares the kernel, but not
//! two moves and a fault for each folio. So, as far as demand goes (the core's mark, `core/src/ops/free.rs`), memory
//! that its owner gives up is zeroed where it is, as a lazy free does, and touching it again is a plain access.
//!
//! - *A discarded range* stays with its region. It may be used again unseen, so what is given back later is looked at
//!   first.
//! - *A region that is freed in the background* stays whole at the addresses that it was moved to, and the next region
//!   of the same length and order is that one. Who asks for one while it is being cleared waits for that: bringing as
//!   much in anew would take seven times as long.
//!
//! All of it is lazily freed for the core, so it is the first to go when memory is short. The book here knows the
//! ranges, an upper bound of what is in them. The wrong guess costs clearing once, and a look at the bytes when the
//! tick gives them back.
//!
//! *The core's count* of what is in the book comes after the book has changed, as nothing is held while the core is
//! asked. So two who tell it may come in the wrong order, and one who asks for room may hear of room that another has
//! just taken. A number that goes up with each change decides: the core never hears of an older book than it knows. And
//! room is counted from the book itself, under its lock, against what it may hold altogether. A count that stayed too
//! high would let nothing be kept any more, one too low would keep more than demand asks for.
//!
//! The book's lock has no rank: nothing is taken under it, and it is not held while memory is touched or the core
//! asked.

use super::Driver;
use super::free::Job;
use super::snapshot::Named;
use crate::signals::SignalsBlocked;
use millpond_core::limits::CLEAR_PAGES;
use millpond_core::{
    Core, Event, FreeMode, LEAF_PAGES, OrderPolicy, PageCount, PageRange, Refusal, RegionId,
};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// Ranges in the book; what comes when it is full goes through the pool.
const RANGES: usize = 64;
/// Regions in the book.
const WHOLE: usize = 8;
/// What is looked at and given back in one piece, between two of which a fork can come.
const PIECE: PageCount = PageCount(4 * LEAF_PAGES);

/// How far a region is on its way to its next owner.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Progress {
    Queued,
    Clearing,
    Ready,
}

struct Whole {
    region: Named,
    order: OrderPolicy,
    progress: Progress,
}

struct Book {
    /// Oldest first; apart from each other.
    ranges: Vec<(RegionId, PageRange)>,
    /// Oldest first.
    whole: Vec<Whole>,
    /// Goes up with each change.
    edition: u64,
}

impl Book {
    /// To be called by whoever changes it.
    fn changed(&mut self) {
        self.edition += 1;
    }

    fn pages(&self) -> PageCount {
        let ranges = self.ranges.iter().map(|(_, range)| range.len.0);
        let whole = self.whole.iter().map(|whole| whole.region.1.len.0);
        PageCount(ranges.chain(whole).sum())
    }

    /// Notes a range, joined with what it touches, if the book may hold as much, `most` altogether. How much of it was
    /// there; `None`, and nothing changes, when there is no line left in the book either.
    fn add(&mut self, region: RegionId, range: PageRange, most: PageCount) -> Option<PageCount> {
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
    fn add_whole(&mut self, region: Named, order: OrderPolicy, most: PageCount) -> bool {
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

    fn take_whole_at(&mut self, at: usize) -> Whole {
        self.changed();
        self.whole.remove(at)
    }

    fn take_range_at(&mut self, at: usize) -> PageRange {
        self.changed();
        self.ranges.remove(at).1
    }

    fn told(&self) -> Told {
        Told {
            edition: self.edition,
            pages: self.pages(),
        }
    }
}

/// What the core knows of the book, and of which edition. Changed under the core lock.
#[derive(Clone, Copy)]
struct Told {
    edition: u64,
    pages: PageCount,
}

impl Told {
    /// The core hears of `newer`, unless it knows one that is newer still.
    fn hear(&mut self, newer: Self) {
        if newer.edition > self.edition {
            *self = newer;
        }
    }
}

/// See the [module](self).
pub(super) struct Kept {
    book: Mutex<Book>,
    /// Held for a copy, under the core lock.
    told: Mutex<Told>,
    /// A region is ready, or will not be.
    changed: Condvar,
}

impl Kept {
    pub(super) fn new() -> Self {
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

    fn lock(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// By whoever holds the core lock.
    fn told(&self) -> MutexGuard<'_, Told> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Pages that the book may hold: the core's room is beside what it knows of.
    fn most(&self, core: &Core) -> PageCount {
        match core.room_to_keep() {
            // There may be too much already.
            PageCount::ZERO => PageCount::ZERO,
            room => PageCount(room.0 + self.told().pages.0),
        }
    }
}

/// Whether folios of such a region are zeroed where they are.
fn is_cleared_in_place(order: OrderPolicy) -> bool {
    matches!(order, OrderPolicy::Fixed(order) if order.pages().0 <= CLEAR_PAGES)
}

impl Driver {
    /// Discards a range by zeroing it where it is, if demand asks for as much. False when it has to be discarded
    /// otherwise.
    ///
    /// # Safety
    /// No reference to bytes of the range is in use.
    ///
    /// # Errors
    /// As for a discard; only a part may be done then.
    pub(crate) unsafe fn discard_in_place(
        &self,
        region: RegionId,
        range: PageRange,
    ) -> Result<bool, Refusal> {
        let _quiet = SignalsBlocked::new();
        let most = {
            let _inside = self.gate.enter();
            let core = self.lock();
            match core.order_of(region) {
                // A discard refuses before it changes anything.
                _ if core.first_pinned(range).is_some() => return Ok(false),
                Some(order) if is_cleared_in_place(order) => self.kept.most(&core),
                _ => return Ok(false),
            }
        };
        let Some(again) = self.kept.lock().add(region, range, most) else {
            return Ok(false);
        };
        self.tell_kept(again);
        self.clear_in_place(range)?;
        Ok(true)
    }

    /// Frees lazily, with zeros promised.
    fn clear_in_place(&self, mut rest: PageRange) -> Result<(), Refusal> {
        while !rest.is_empty() {
            let piece = PageRange::new(rest.start, rest.len.min(PIECE));
            rest = rest.tail(piece.end());
            self.lazy_free(&[piece], FreeMode::Zeroed)?;
        }
        Ok(())
    }

    /// The core hears how much is in the book, and how much of it was used again.
    fn tell_kept(&self, used_again: PageCount) {
        let newer = self.kept.lock().told();
        let _inside = self.gate.enter();
        let mut core = self.lock();
        let told = {
            let mut told = self.kept.told();
            told.hear(newer);
            *told
        };
        core.keep(told.pages, used_again);
    }

    /// The region ends, or its pages get other names: what is kept in it is not given back by its range any more.
    pub(super) fn forget_kept(&self, region: RegionId) {
        let forgotten = {
            let mut book = self.kept.lock();
            let before = book.ranges.len();
            book.ranges.retain(|&(id, _)| id != region);
            let forgotten = book.ranges.len() < before;
            if forgotten {
                book.changed();
            }
            forgotten
        };
        if forgotten {
            self.tell_kept(PageCount::ZERO);
        }
    }

    /// Gives back what is kept in a region, which is about to move.
    pub(crate) fn settle_kept(&self, region: RegionId) {
        loop {
            let range = {
                let mut book = self.kept.lock();
                let at = book.ranges.iter().position(|&(id, _)| id == region);
                at.map(|at| book.take_range_at(at))
            };
            match range {
                Some(range) => self.give_freed_back(range),
                None => return,
            }
            self.tell_kept(PageCount::ZERO);
        }
    }

    fn give_freed_back(&self, mut range: PageRange) {
        while !range.is_empty() {
            let piece = PageRange::new(range.start, range.len.min(PIECE));
            range = range.tail(piece.end());
            if self
                .operate(piece, |range| Event::GiveFreedBack { range })
                .is_err()
            {
                unreachable!("what is freed is never refused to be dropped");
            }
        }
    }

    /// At a tick: gives back what demand does not ask for, the oldest first.
    pub(super) fn give_kept_back(self: &Arc<Self>) {
        loop {
            let too_much = {
                let _inside = self.gate.enter();
                self.lock().kept_too_much()
            };
            if too_much == PageCount::ZERO {
                return;
            }
            let oldest = {
                let mut book = self.kept.lock();
                (!book.ranges.is_empty()).then(|| book.take_range_at(0))
            };
            match oldest {
                Some(range) => self.give_freed_back(range),
                None if !self.end_oldest_whole() => return,
                None => {}
            }
            self.tell_kept(PageCount::ZERO);
        }
    }

    /// Gives the oldest region back that waits for an owner. False when there is none.
    pub(crate) fn end_oldest_whole(self: &Arc<Self>) -> bool {
        let region = {
            let mut book = self.kept.lock();
            let ready = |whole: &Whole| whole.progress == Progress::Ready;
            let at = book.whole.iter().position(ready);
            at.map(|at| book.take_whole_at(at).region)
        };
        let Some(region) = region else { return false };
        self.tell_kept(PageCount::ZERO);
        self.queue(Job::Region(region));
        true
    }

    /// Keeps a region that was freed for the next one of its length, if demand asks for as much. A worker is to
    /// [clear](Self::clear_whole) it then.
    pub(super) fn keep_whole(&self, region: Named, order: Option<OrderPolicy>) -> bool {
        let Some(order) = order.filter(|&order| is_cleared_in_place(order)) else {
            return false;
        };
        let most = {
            let _inside = self.gate.enter();
            let core = self.lock();
            self.kept.most(&core)
        };
        let fits = self.kept.lock().add_whole(region, order, most);
        if fits {
            self.tell_kept(PageCount::ZERO);
        }
        fits
    }

    /// Clears a region that is kept, unless somebody has taken it meanwhile.
    pub(super) fn clear_whole(self: &Arc<Self>, region: Named) {
        let is_this = |whole: &Whole| whole.region == region;
        {
            let mut book = self.kept.lock();
            match book.whole.iter_mut().find(|whole| is_this(whole)) {
                Some(whole) if whole.progress == Progress::Queued => {
                    whole.progress = Progress::Clearing;
                }
                _ => return,
            }
        }
        let cleared = self.clear_in_place(region.1).is_ok();
        {
            let mut book = self.kept.lock();
            let at = book.whole.iter().position(is_this);
            let at = at.expect("nobody takes what is being cleared");
            if cleared {
                book.whole[at].progress = Progress::Ready;
            } else {
                book.take_whole_at(at);
            }
        }
        self.kept.changed.notify_all();
        if !cleared {
            // A leaked guard has pinned a page.
            self.tell_kept(PageCount::ZERO);
            self.end_region(region, super::free::Freed::ByWorker);
        }
    }

    /// A region of zeros that was kept, of that length and order.
    pub(crate) fn take_whole(&self, pages: PageCount, order: OrderPolicy) -> Option<Named> {
        let _quiet = SignalsBlocked::new();
        let mut book = self.kept.lock();
        let (region, progress) = loop {
            let suits = |whole: &Whole| whole.region.1.len == pages && whole.order == order;
            let best = |progress| {
                let suits = |whole: &Whole| suits(whole) && whole.progress == progress;
                book.whole.iter().position(suits)
            };
            let at = best(Progress::Ready).or_else(|| best(Progress::Queued));
            if let Some(at) = at {
                let whole = book.take_whole_at(at);
                break (whole.region, whole.progress);
            }
            best(Progress::Clearing)?;
            book = (self.kept.changed.wait(book)).unwrap_or_else(PoisonError::into_inner);
        };
        drop(book);
        self.tell_kept(pages);
        if progress == Progress::Queued && self.clear_in_place(region.1).is_err() {
            // A leaked guard has pinned a page: the addresses stay kept, as when a region ends with one.
            return None;
        }
        Some(region)
    }
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
