//! Freeing in bulk, step by step, as the driver does it with what nobody can touch any more.
//!
//! The core unhooks a range into a batch; then mapped pages, frames and slots are given back in any order, and the core is
//! told. In between other actors do what they like: what was unhooked is no page of any region any more, but still memory.
//! Smaller drops may go by single discards as well, which the driver does where a range is still in use.

use std::fmt;

use millpond_core::gather::{Gather, Gathered};
use millpond_core::{Event, PageCount, PageIndex, PageRange, Reply};

use crate::actor::{DropStage, Ear};
use crate::profile::Sabotage;
use crate::report::{Check, Coverage, Entry, breach};
use crate::world::World;

/// Pages of entries in a batch: few, so that batches fill.
const PAGES: usize = 1;

/// A batch, and the range that it was gathered from.
pub struct Batch {
    gather: Gather,
    pages: u64,
    range: PageRange,
}

impl fmt::Debug for Batch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} mapped pages of {}", self.pages, self.range)
    }
}

impl World {
    /// How a range is emptied that nobody can touch any more.
    pub(crate) fn begin_emptying(&mut self, range: PageRange) -> DropStage {
        match self.rng.chance(300) {
            true => DropStage::Discard { rest: range },
            false => DropStage::Gather { rest: range },
        }
    }

    /// Unhooks a part of `range`.
    ///
    /// # Errors
    /// A rule is broken.
    pub(crate) fn gather(&mut self, i: usize, range: PageRange) -> Check<DropStage> {
        self.one_more_round(i, &Event::Discard { range })?;
        let mut gather = Gather::with_pages(if self.rng.chance(500) { PAGES } else { 0 });
        let before = self.core.stats().nr_unhooked;
        let reply = self.core.gather(range, &mut gather);
        let pages = self.core.stats().nr_unhooked - before;
        self.log
            .push(self.step, Entry::World("gathered, mapped", pages, range));
        let rest = match reply {
            Reply::Done => None,
            Reply::More { from } => {
                Coverage::count(&mut self.coverage.answers, "gathered in parts");
                Some(self.rest_of(range, from)?)
            }
            Reply::Wait { page } => {
                if !gather.is_empty() {
                    breach!(at page, "a gather of {range} gives something, and waits at {page}");
                }
                Coverage::count(&mut self.coverage.answers, "gather waits");
                self.wait_at(i, page, Ear::Wakes)?;
                return Ok(DropStage::Gather { rest: range });
            }
            other => breach!("a gather of {range} is answered with {other:?}"),
        };
        self.actors[i].rounds = 0;
        let passed = match rest {
            Some(rest) => PageRange::new(range.start, PageCount(rest.start.0 - range.start.0)),
            None => range,
        };
        for page in passed.pages() {
            self.marked[page.0 as usize] = false;
        }
        self.batches.insert(
            i,
            Batch {
                gather,
                pages,
                range: passed,
            },
        );
        self.check_state()?;
        Ok(DropStage::GiveBack { rest })
    }

    /// Gives a batch back to memory and store.
    ///
    /// # Errors
    /// It holds something that is not there.
    pub(crate) fn give_back(&mut self, i: usize, rest: Option<PageRange>) -> Check<DropStage> {
        let Some(batch) = self.batches.get(&i) else {
            breach!("actor {i} has gathered nothing");
        };
        let zapped = match batch.gather.zap() {
            Some(range) => self.mmu.zap_all(range)?,
            None => 0,
        };
        if zapped != batch.pages {
            breach!(at batch.range.start, "{zapped} pages of {} were mapped, {} unhooked", batch.range, batch.pages);
        }
        let mut forgets = self.options.sabotage == Some(Sabotage::KeepSlot);
        for item in batch.gather.items() {
            match item {
                Gathered::Slot(_) if forgets => forgets = false,
                Gathered::Slot(slot) => self.store.release(slot)?,
                Gathered::Frame(frame) => self.mmu.free_frame(frame)?,
            }
        }
        Ok(DropStage::Gathered { rest })
    }

    /// Tells the core that a batch was given back.
    ///
    /// # Errors
    /// A rule is broken.
    pub(crate) fn gathered(&mut self, i: usize, rest: Option<PageRange>) -> Check<DropStage> {
        if let Some(batch) = self.batches.remove(&i) {
            self.core.gathered(&batch.gather);
        }
        self.check_state()?;
        Ok(match rest {
            Some(rest) => DropStage::Gather { rest },
            None => DropStage::Settle,
        })
    }

    /// Gives back what is spare and not asked for, some or all of it.
    ///
    /// # Errors
    /// A frame holds nothing.
    pub(crate) fn give_spare_back(&mut self) -> Check {
        let most = PageCount(1 << self.rng.below(12));
        let mut gather = Gather::with_pages(if self.rng.chance(500) { PAGES } else { 0 });
        loop {
            self.core.gather_spare(most, &mut gather);
            self.check_state()?;
            for item in gather.items() {
                let Gathered::Frame(frame) = item else {
                    breach!("{item:?} is spare");
                };
                self.mmu.free_frame(frame)?;
            }
            self.core.gathered(&gather);
            self.check_state()?;
            if gather.is_empty() {
                return Ok(());
            }
            Coverage::count(&mut self.coverage.answers, "spare frames gathered");
            gather.clear();
        }
    }

    /// Whether `at` was unhooked and is being given back.
    pub(crate) fn is_unhooked(&self, page: PageIndex) -> bool {
        self.batches
            .values()
            .any(|batch| batch.range.contains(page))
    }
}
