//! Memory that is kept in place: it was given up, will soon be needed again, and so does not leave.
//!
//! A program that frees a buffer and makes another one needs, each time, as much memory as it has just given back. The
//! kernel takes the pages, and gives others that it has to clear: 1.7 µs per page. The pool avoids the kernel, but not
//! two moves and a fault for each folio. So, as far as demand goes (the core's mark, `core/src/ops/free.rs`), memory
//! that its owner gives up is zeroed in place, as in a lazy free, and touching it again is a plain access.
//!
//! - *A discarded range* stays with its region. It may be used again unnoticed, so it is checked before it is given
//!   back later.
//! - *A region that is freed in the background* stays whole at the addresses to which it was moved, and is reused as
//!   the next region of the same length and order. A thread that asks for one while it is being prepared waits for
//!   that: bringing in as much memory again would take seven times as long.
//!
//! For the core all of this memory is lazily freed, so it is the first to go when memory is short. The driver's book
//! knows the ranges, and so an upper bound of the pages in them. A wrong guess costs zeroing once, and a check of the
//! bytes when the tick gives them back.
//!
//! *The core's count* of the pages in the book is set after the book has changed, as no lock is held while the core is
//! asked. So two threads may tell the core in the wrong order, and a thread that asks for room may be told of room that
//! another has just taken. An edition number that increases with each change decides: the core never accepts an older
//! edition than it knows. And room is computed from the book itself, under its lock, against the total number of pages
//! that it may hold. If the count stayed too high, nothing more would be kept, and if it stayed too low, more than
//! demand requires would be kept.
//!
//! No other lock is taken under the book's, and it is not held while memory is touched or the core asked.

use crate::driver::Driver;
use crate::memory::Memory;
use crate::signals::SignalsBlocked;
use crate::state::named::Named;
use crate::state::queue::FreedBy;
use crate::state::queue::Job;
use crate::state::reuse::{PIECE, Progress, Whole, is_zeroed_in_place};
use millpond_core::{Event, FreeMode, OrderPolicy, PageCount, PageRange, Refusal, RegionId};
use std::sync::Arc;

impl<M: Memory> Driver<M> {
    /// Discards a range by zeroing it in place, if demand is that high. Returns false if it has to be discarded in
    /// another way.
    ///
    /// # Safety
    /// No reference to bytes of the range is in use.
    ///
    /// # Errors
    /// As for a discard; in that case the range may be only partly discarded.
    pub unsafe fn discard_in_place(
        &self,
        region: RegionId,
        range: PageRange,
    ) -> Result<bool, Refusal> {
        let _quiet = SignalsBlocked::new();
        let most = {
            let _inside = self.gate.enter();
            let core = self.lock();
            match core.order_of(region) {
                // A discard refuses a pinned page before it changes anything.
                _ if core.first_pinned(range).is_some() => return Ok(false),
                Some(order) if is_zeroed_in_place(order) => self.reuse.most(&core),
                _ => return Ok(false),
            }
        };
        let Some(again) = self.reuse.lock().add(region, range, most) else {
            return Ok(false);
        };
        self.tell_kept(again);
        self.zero_in_place(range)?;
        Ok(true)
    }

    /// Frees the range lazily, in pieces, so that it reads as zeros.
    fn zero_in_place(&self, mut rest: PageRange) -> Result<(), Refusal> {
        while !rest.is_empty() {
            let piece = PageRange::new(rest.start, rest.len.min(PIECE));
            rest = rest.tail(piece.end());
            self.lazy_free(&[piece], FreeMode::ReadsZeros)?;
        }
        Ok(())
    }

    /// Tells the core how much is in the book, and how much of it was used again.
    fn tell_kept(&self, used_again: PageCount) {
        let newer = self.reuse.lock().told();
        let _inside = self.gate.enter();
        let mut core = self.lock();
        let told = {
            let mut told = self.reuse.told();
            told.hear(newer);
            *told
        };
        core.keep(told.pages, used_again);
    }

    /// Removes the ranges of a region that ends, or whose pages get other names: memory that is kept in it is no longer
    /// given back by its range.
    pub fn forget_kept(&self, region: RegionId) {
        let forgotten = {
            let mut book = self.reuse.lock();
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

    /// Gives back memory that is kept in a region which is about to move.
    pub fn settle_kept(&self, region: RegionId) {
        loop {
            let range = {
                let mut book = self.reuse.lock();
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

    /// At a tick: gives back the memory that demand does not require, the oldest first.
    pub fn give_kept_back(self: &Arc<Self>) {
        loop {
            let too_much = {
                let _inside = self.gate.enter();
                self.lock().kept_too_much()
            };
            if too_much == PageCount::ZERO {
                return;
            }
            let oldest = {
                let mut book = self.reuse.lock();
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

    /// Gives back the oldest region that waits for an owner. Returns false if there is none.
    pub fn end_oldest_whole(self: &Arc<Self>) -> bool {
        let region = {
            let mut book = self.reuse.lock();
            let ready = |whole: &Whole| whole.progress == Progress::Ready;
            let at = book.whole.iter().position(ready);
            at.map(|at| book.take_whole_at(at).region)
        };
        let Some(region) = region else { return false };
        self.tell_kept(PageCount::ZERO);
        self.queue(Job::Region(region));
        true
    }

    /// Keeps a freed region for the next one of its length, if demand is that high. A worker must then
    /// [prepare](Self::prepare_whole) it.
    pub fn keep_whole(&self, region: Named, order: Option<OrderPolicy>) -> bool {
        let Some(order) = order.filter(|&order| is_zeroed_in_place(order)) else {
            return false;
        };
        let most = {
            let _inside = self.gate.enter();
            let core = self.lock();
            self.reuse.most(&core)
        };
        let fits = self.reuse.lock().add_whole(region, order, most);
        if fits {
            self.tell_kept(PageCount::ZERO);
        }
        fits
    }

    /// Zeroes a region that is kept in place, so that it is ready for its next owner, unless another thread has taken
    /// it in the meantime.
    pub fn prepare_whole(self: &Arc<Self>, region: Named) {
        let is_this = |whole: &Whole| whole.region == region;
        {
            let mut book = self.reuse.lock();
            match book.whole.iter_mut().find(|whole| is_this(whole)) {
                Some(whole) if whole.progress == Progress::Queued => {
                    whole.progress = Progress::Preparing;
                }
                _ => return,
            }
        }
        let zeroed = self.zero_in_place(region.1).is_ok();
        {
            let mut book = self.reuse.lock();
            let at = book.whole.iter().position(is_this);
            let at = at.expect("nobody takes what is being prepared");
            if zeroed {
                book.whole[at].progress = Progress::Ready;
            } else {
                book.take_whole_at(at);
            }
        }
        self.reuse.changed.notify_all();
        if !zeroed {
            // The region was not prepared because a leaked guard has pinned a page.
            self.tell_kept(PageCount::ZERO);
            self.end_region(region, FreedBy::Worker);
        }
    }

    /// A kept region of zeros, of this length and order.
    pub fn take_whole(&self, pages: PageCount, order: OrderPolicy) -> Option<Named> {
        let _quiet = SignalsBlocked::new();
        let mut book = self.reuse.lock();
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
            best(Progress::Preparing)?;
            book = book.wait(&self.reuse.changed);
        };
        drop(book);
        self.tell_kept(pages);
        if progress == Progress::Queued && self.zero_in_place(region.1).is_err() {
            // A leaked guard has pinned a page: the addresses stay kept, as when a region ends with one.
            return None;
        }
        Some(region)
    }
}
