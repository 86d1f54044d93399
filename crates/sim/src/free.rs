//! Lazy free, step by step, as the driver does it.
//!
//! One call frees several ranges. As many of them as fit into the list of commands are requested under one lock, so
//! that their commands are carried out together; here that is one step. Ranges that do not fit, or have to wait, come
//! in later steps. When all commands are answered, the call is complete as far as contents are concerned, and the pages
//! beyond the cap are dropped before it returns.

use millpond_core::{Event, FreeMode, PageCount, PageRange, Refusal, Reply};

use crate::actor::{Ear, FreeStage, Op, Ranges};
use crate::gather::Spare;
use crate::report::{Check, Coverage, breach};
use crate::world::World;

impl World {
    /// Takes one step of a lazy free.
    ///
    /// # Errors
    /// A rule is broken.
    pub(crate) fn step_free(
        &mut self,
        i: usize,
        ranges: Ranges,
        mode: FreeMode,
        stage: FreeStage,
    ) -> Check {
        let stage = match stage {
            FreeStage::Begin => match self.begin_free(i, ranges, mode)? {
                Some((nth, rest)) => self.go_on_freeing(i, ranges, mode, nth, rest)?,
                None => {
                    self.finish(i);
                    return Ok(());
                }
            },
            FreeStage::Go { nth, rest } => self.go_on_freeing(i, ranges, mode, nth, rest)?,
            FreeStage::Settle { whole } => {
                match mode {
                    FreeMode::ReadsZeros => self.oracle.discard_ends(i, whole)?,
                    // The core was told of ranges that were not zeroed: that must not change a single byte.
                    FreeMode::AlreadyZeroed => {}
                    _ => self.oracle.free_ends(i, whole),
                }
                if !whole {
                    self.finish(i);
                    return Ok(());
                }
                FreeStage::Trim
            }
            FreeStage::Trim => return self.step_trim(i),
        };
        self.actors[i].op = Some(Op::Free {
            ranges,
            mode,
            stage,
        });
        Ok(())
    }

    /// Begins a lazy free: returns `None` if a pin anywhere causes the whole call to be refused, and otherwise where to
    /// begin.
    fn begin_free(
        &mut self,
        i: usize,
        ranges: Ranges,
        mode: FreeMode,
    ) -> Check<Option<(usize, PageRange)>> {
        let core = &self.core;
        // A thread that overwrites pinned memory may announce that.
        let asks = !matches!(mode, FreeMode::Stored | FreeMode::AlreadyZeroed);
        let pinned = ranges
            .iter()
            .filter(|_| asks)
            .find_map(|range| Some((core.first_pinned(range)?, range)));
        if let Some((page, range)) = pinned {
            self.expect_pinned(page, range)?;
            Coverage::count(&mut self.coverage.answers, "free refused");
            return Ok(None);
        }
        for range in ranges.iter() {
            let is_pinned = |page: &millpond_core::PageIndex| asks && self.mmu.is_pinned(*page);
            if let Some(page) = range.pages().find(is_pinned) {
                breach!(at page, "{page} is pinned, but nothing of {range} is said to be");
            }
            match mode {
                FreeMode::ReadsZeros => self.oracle.discard_begins(i, range),
                FreeMode::AlreadyZeroed => {
                    let pages = range.start.0 as usize..range.end().0 as usize;
                    self.zeroed[pages].fill(self.events);
                }
                _ => self.oracle.free_begins(i, range),
            }
        }
        Ok(ranges.get(0).map(|range| (0, range)))
    }

    /// Does the work of one critical section.
    fn go_on_freeing(
        &mut self,
        i: usize,
        ranges: Ranges,
        mode: FreeMode,
        nth: usize,
        rest: PageRange,
    ) -> Check<FreeStage> {
        let (mut nth, mut range) = (nth, rest);
        let reply = loop {
            let event = Event::LazyFree { range, mode };
            self.one_more_round(i, &event)?;
            let reply = self.hold(i, event)?;
            self.check_freed(range, mode, reply)?;
            match (reply, ranges.get(nth + 1)) {
                (Reply::Done, Some(next)) => (nth, range) = (nth + 1, next),
                _ => break reply,
            }
        };
        self.give_out(i)?;
        self.settle(i);
        let given = self.actors[i].outstanding > 0;
        let mut rest = range;
        match reply {
            Reply::Done => {
                self.actors[i].rounds = 0;
                return Ok(FreeStage::Settle { whole: true });
            }
            Reply::More { from } => rest = self.rest_of(range, from)?,
            Reply::Wait { .. } if given => {}
            Reply::Wait { page } => self.wait_at(i, page, Ear::Wakes)?,
            Reply::NeedsResident { page } => {
                self.actors[i].fault = Some(page);
            }
            Reply::Refused(Refusal::Pinned { page }) => {
                self.expect_pinned(page, range)?;
                return Ok(FreeStage::Settle { whole: false });
            }
            other => breach!("a lazy free ({mode:?}) of {range} is answered with {other:?}"),
        }
        Ok(FreeStage::Go { nth, rest })
    }

    /// Drops the next batch of what is beyond the cap.
    fn step_trim(&mut self, i: usize) -> Check {
        let over = self.core.lazyfree_over();
        if over == PageCount::ZERO {
            self.give_spare_back(Spare::Unwanted)?;
            self.finish(i);
            return Ok(());
        }
        self.one_more_round(i, &Event::TrimLazyFree)?;
        let reply = self.send(i, Event::TrimLazyFree)?;
        if reply != Reply::Done {
            breach!("a trim is answered with {reply:?}");
        }
        if self.actors[i].outstanding == 0 && self.core.lazyfree_over() == over {
            // Another actor is already dropping the rest.
            self.give_spare_back(Spare::Unwanted)?;
            self.finish(i);
        }
        self.settle(i);
        Ok(())
    }

    /// Sends the next batch of a recount.
    pub(crate) fn step_recount(&mut self, i: usize, left: PageCount) -> Check {
        let event = Event::RecountLazyFree { left };
        self.one_more_round(i, &event)?;
        let reply = self.send(i, event)?;
        let Reply::Seen { pages } = reply else {
            breach!("a recount is answered with {reply:?}");
        };
        let left = PageCount(left.0.saturating_sub(pages.0));
        if pages == PageCount::ZERO || left == PageCount::ZERO {
            self.finish(i);
        } else {
            self.actors[i].op = Some(Op::Recount { left });
        }
        self.settle(i);
        Ok(())
    }
}
