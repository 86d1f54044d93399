//! Volatile ranges, step by step, as the driver handles them.
//!
//! Marks are kept in the book, outside the core. A thread that needs memory and finds nothing lazily freed takes the
//! oldest range out of the book and purges it before anything else is reclaimed. A thread that takes a mark back asks
//! the book. If the range was purged, the thread first waits until no purge is under way (an earlier purge of the range
//! could still drop new writes to it) and then discards the pages that the purge has skipped. A thread that drops a
//! region also waits for purges, or they could drop writes to the next region at its addresses.

use millpond_core::tables::volatile::VolatileRefusal;
use millpond_core::{Event, GroupId, PageCount, PageRange, Reclaimer, Refusal, Reply};

use crate::actor::{Blocked, Op, PurgeStage, UnmarkStage};
use crate::mmu::overlap;
use crate::profile::Sabotage;
use crate::report::{Check, Coverage, Entry, breach};
use crate::world::World;

/// The least number of pages that a thread in need of memory requests.
const DIRECT_BATCH: u32 = 128;

/// A volatile range, as its owner knows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Volatile {
    /// The pages of the range.
    pub range: PageRange,
    /// The owner is about to take the mark back.
    pub leaving: bool,
    /// The range is no longer in the book.
    pub asked: bool,
    /// The range was purged.
    pub purged: bool,
}

impl World {
    /// Marks a range.
    ///
    /// # Errors
    /// A rule is broken.
    pub(crate) fn step_mark(&mut self, i: usize, range: PageRange) -> Check {
        let mut others = self.volatile.iter().filter(|v| overlap(v.range, range));
        // The owners of a range agree about it: no owner marks a range that another is still taking back.
        let (none, unasked) = (others.clone().count() == 0, others.all(|v| !v.asked));
        if self.core.first_pinned(range).is_some() || !unasked {
            self.finish(i);
            return Ok(());
        }
        match self.book.mark(range) {
            Ok(()) if none => {
                self.volatile.push(Volatile {
                    range,
                    leaving: false,
                    asked: false,
                    purged: false,
                });
                self.oracle.volatile_begins(range);
                self.note("marked volatile", 0, range);
            }
            Err(VolatileRefusal::Overlaps { page }) if !none && range.contains(page) => {
                Coverage::count(&mut self.coverage.answers, "mark refused");
            }
            other => breach!(
                "{range} is to be volatile beside {:?}: {other:?}",
                self.volatile
            ),
        }
        self.finish(i);
        Ok(())
    }

    /// Takes one step of taking a mark back.
    ///
    /// # Errors
    /// A rule is broken.
    pub(crate) fn step_unmark(&mut self, i: usize, range: PageRange, stage: UnmarkStage) -> Check {
        let stage = match stage {
            UnmarkStage::Ask => {
                let known = *self.volatile_of(range)?;
                let answer = self.book.unmark(range);
                self.note("unmarked", u64::from(answer == Ok(true)), range);
                if answer != Ok(known.purged) {
                    breach!("{range} is unmarked with {answer:?}, must be {known:?}");
                }
                if !known.purged {
                    Coverage::count(&mut self.coverage.answers, "survived");
                    return self.unmarked(i, range, true);
                }
                self.volatile_of(range)?.asked = true;
                UnmarkStage::Purging
            }
            UnmarkStage::Purging if self.must_wait_for_purges(i) => UnmarkStage::Purging,
            UnmarkStage::Purging => {
                self.oracle.discard_begins(i, range);
                UnmarkStage::Discard { rest: range }
            }
            UnmarkStage::Discard { rest } => match self.ask(i, Event::Discard { range: rest })? {
                None => UnmarkStage::Discard { rest },
                Some(Reply::Done) => {
                    self.settle(i);
                    UnmarkStage::Settle
                }
                Some(Reply::More { from }) => {
                    self.settle(i);
                    let rest = self.rest_of(rest, from)?;
                    UnmarkStage::Discard { rest }
                }
                Some(Reply::Refused(Refusal::Pinned { page })) => {
                    self.expect_pinned(page, rest)?;
                    self.oracle.discard_ends(i, false)?;
                    Coverage::count(&mut self.coverage.answers, "purged, but pinned");
                    return self.unmarked(i, range, false);
                }
                Some(other) => breach!("a discard of {rest} is answered with {other:?}"),
            },
            UnmarkStage::Settle => {
                self.oracle.discard_ends(i, true)?;
                Coverage::count(&mut self.coverage.answers, "purged");
                return self.unmarked(i, range, false);
            }
        };
        self.actors[i].op = Some(Op::Unmark { range, stage });
        Ok(())
    }

    /// Whether a purge is under way that may have taken the actor's range out of the book. The actor then waits.
    pub(crate) fn must_wait_for_purges(&mut self, i: usize) -> bool {
        let hasty = self.options.sabotage == Some(Sabotage::HastyOwner);
        let must = self.purging > 0 && !hasty;
        if must {
            self.actors[i].blocked = Blocked::Until(self.step + 5);
        }
        must
    }

    fn unmarked(&mut self, i: usize, range: PageRange, survived: bool) -> Check {
        self.oracle.volatile_ends(range, survived)?;
        self.volatile.retain(|v| v.range != range);
        // The owner of a cache uses what is left of it, or rebuilds it.
        self.actors[i].op = Some(Op::Access {
            range,
            next: range.start,
            stride: self.rng.pick(&[0, 1]),
            left: self.rng.below(range.len.0.min(30)),
            writes: self.profile.writes,
        });
        self.actors[i].rounds = 0;
        Ok(())
    }

    fn volatile_of(&mut self, range: PageRange) -> Check<&mut Volatile> {
        match self.volatile.iter_mut().find(|v| v.range == range) {
            Some(volatile) => Ok(volatile),
            None => breach!(at range.start, "{range} is taken back, but was not volatile"),
        }
    }

    /// Forgets the volatile ranges of a dropped region, since no owner will ask for them. Returns whether one of them
    /// was purged.
    ///
    /// # Errors
    /// The book does not know of a range that was purged.
    pub(crate) fn forget_volatile(&mut self, region: PageRange) -> Check<bool> {
        let inside = |v: &Volatile| region.covers(v.range);
        let gone: Vec<_> = self.volatile.iter().copied().filter(inside).collect();
        self.volatile.retain(|v| !inside(v));
        let purged = self.book.forget(region);
        if purged != gone.iter().any(|v| v.purged) {
            breach!("of {gone:?} one was purged: {purged}, says the book");
        }
        for volatile in gone {
            self.oracle.volatile_ends(volatile.range, false)?;
        }
        Ok(purged)
    }

    /// Makes a thread that waits for memory take the next step towards it.
    ///
    /// # Errors
    /// A rule is broken.
    pub(crate) fn reclaim_directly(&mut self, i: usize, pages: PageCount) -> Check {
        let leaf = std::mem::take(&mut self.actors[i].leaf);
        if self.actors[i].reclaim_in != GroupId::ROOT || leaf {
            return self.reclaim(i, pages, Reclaimer::Direct);
        }
        let enough = self.core.available().0 >= pages.0.max(DIRECT_BATCH);
        if self.actors[i].purged && enough {
            self.actors[i].purged = false;
            return Ok(());
        }
        if !enough && self.begin_purge(i)? {
            self.actors[i].reclaim = Some(pages);
            return Ok(());
        }
        self.actors[i].purged = false;
        self.reclaim(i, pages, Reclaimer::Direct)
    }

    /// Begins to purge the oldest volatile range, when it is time for that. Returns false when there is none, or the
    /// book is in use.
    ///
    /// # Errors
    /// A rule is broken.
    pub(crate) fn begin_purge(&mut self, i: usize) -> Check<bool> {
        if self.core.lazyfree_pages() > PageCount::ZERO {
            return Ok(false);
        }
        if !self.calm && !self.volatile.is_empty() && self.rng.chance(100) {
            Coverage::count(&mut self.coverage.injected, "book in use");
            return Ok(false);
        }
        let range = self.book.take_oldest();
        let mut known = self.volatile.iter_mut().filter(|v| !v.asked && !v.purged);
        let oldest = known.next();
        if range != oldest.as_ref().map(|v| v.range) {
            breach!("{range:?} is the oldest volatile range, must be {oldest:?}");
        }
        let (Some(range), Some(oldest)) = (range, oldest) else {
            return Ok(false);
        };
        oldest.purged = true;
        self.note("purge", 0, range);
        self.purging += 1;
        self.actors[i].purge = Some(PurgeStage::Drop { rest: range });
        Ok(true)
    }

    /// Takes one step of a purge.
    ///
    /// # Errors
    /// A rule is broken.
    pub(crate) fn step_purge(&mut self, i: usize, stage: PurgeStage) -> Check {
        let PurgeStage::Drop { rest } = stage else {
            self.purging -= 1;
            self.actors[i].purge = None;
            self.actors[i].purged = true;
            return Ok(());
        };
        // A thread may be descheduled just here, for a long time.
        if !self.calm && self.rng.chance(300) {
            self.actors[i].blocked = Blocked::Until(self.step + u64::from(self.rng.below(1000)));
            return Ok(());
        }
        let reply = self.send(i, Event::Purge { range: rest })?;
        self.check_purged(rest, reply)?;
        self.actors[i].purge = Some(match reply {
            Reply::Done => PurgeStage::Settle,
            Reply::More { from } => PurgeStage::Drop {
                rest: self.rest_of(rest, from)?,
            },
            other => breach!("a purge of {rest} is answered with {other:?}"),
        });
        self.settle(i);
        Ok(())
    }

    fn note(&mut self, what: &'static str, value: u64, range: PageRange) {
        self.log.push(self.step, Entry::World(what, value, range));
    }
}
