//! Freeing in bulk, step by step, as the driver does it with memory that no thread can touch any more.
//!
//! The core unhooks a range into a batch; then mapped pages, frames and slots are freed in any order, and the core is
//! told. In between other actors do what they like: unhooked memory no longer belongs to a page of any region, but
//! still counts as memory.
//!
//! A discard of memory that is still in use also gathers. Its runs and slots are freed one by one in any order,
//! concurrently with commands and under the same rules. When the last of them has been freed, the core is told, and
//! then the waiting actors try again.

use std::collections::BTreeMap;
use std::fmt;

use millpond_core::gather::{Gather, Gathered};
use millpond_core::{Command, Event, FolioId, LeafPages, PageCount, PageIndex, PageRange, Reply};

use crate::actor::{DropStage, Ear};
use crate::profile::Sabotage;
use crate::report::{Check, Coverage, Entry, breach};
use crate::schedule::Pending;
use crate::world::World;

/// Pages of entries in a batch: few, so that batches fill.
const PAGES: usize = 1;

/// Spare frames that are given back.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Spare {
    /// Frames that no one needs.
    Unwanted,
    /// Frames that copies have left behind.
    Copied,
    /// This many pages, for a caller that wants them in one piece.
    Scattered(PageCount),
}

/// A batch, and the range that it was gathered from.
pub struct Batch {
    gather: Gather,
    pages: u64,
    range: PageRange,
}

/// The batches gathered by discards, by number. The schedule has their parts.
#[derive(Debug, Default)]
pub struct Batches {
    begun: u64,
    under_way: BTreeMap<u64, Gather>,
}

impl fmt::Debug for Batch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} mapped pages of {}", self.pages, self.range)
    }
}

impl World {
    /// Chooses how to empty a range that no thread can touch any more.
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
    /// The batch holds something that does not exist.
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
                Gathered::Run(run) => breach!(at run.start, "{run} is in use by somebody"),
            }
        }
        Ok(DropStage::Gathered { rest })
    }

    /// Tells the core that a batch was given back.
    ///
    /// # Errors
    /// A rule is broken.
    pub(crate) fn gathered(&mut self, i: usize, rest: Option<PageRange>) -> Check<DropStage> {
        if let Some(batch) = self.batches.remove(&i)
            && let Some(at) = self.core.gathered(&batch.gather)
        {
            breach!(at at.start, "somebody waits at {at}, which nobody could touch");
        }
        self.check_state()?;
        Ok(match rest {
            Some(rest) => DropStage::Gather { rest },
            None => DropStage::Settle,
        })
    }

    /// Gives spare frames back, some or all of them.
    ///
    /// # Errors
    /// A frame holds nothing.
    pub(crate) fn give_spare_back(&mut self, what: Spare) -> Check {
        let most = PageCount(1 << self.rng.below(12));
        let mut gather = Gather::with_pages(if self.rng.chance(500) { PAGES } else { 0 });
        loop {
            match what {
                Spare::Unwanted => self.core.gather_spare(most, &mut gather),
                Spare::Copied => self.core.gather_copied(&mut gather),
                Spare::Scattered(missing) => self.core.gather_scattered(missing, &mut gather),
            }
            self.check_state()?;
            for item in gather.items() {
                let Gathered::Frame(frame) = item else {
                    breach!("{item:?} is spare");
                };
                self.mmu.free_frame(frame)?;
            }
            if let Some(at) = self.core.gathered(&gather) {
                breach!(at at.start, "somebody waits at {at} for spare frames");
            }
            self.check_state()?;
            if gather.is_empty() {
                if let Spare::Scattered(missing) = what {
                    breach!("{missing:?} pages are said to be there in pieces, and none are");
                }
                return Ok(());
            }
            let name = match what {
                Spare::Unwanted => "spare frames gathered",
                Spare::Copied => "left behind by copies, gathered",
                Spare::Scattered(_) => "in pieces, gathered",
            };
            Coverage::count(&mut self.coverage.answers, name);
            if let Spare::Scattered(_) = what {
                return Ok(());
            }
            gather.clear();
        }
    }

    /// Puts the batch gathered by a discard under way, part by part.
    pub(crate) fn take_batch(&mut self, owner: usize) -> Check {
        if self.commands.batch().is_empty() {
            return Ok(());
        }
        let pages = if self.rng.chance(500) { PAGES } else { 0 };
        let gather = std::mem::replace(self.commands.batch(), Gather::with_pages(pages));
        self.discarded.begun += 1;
        let batch = self.discarded.begun;
        if gather.zap().is_some() {
            breach!("a discard has unhooked what somebody may touch: {gather:?}");
        }
        for item in gather.items() {
            let (command, name) = match item {
                Gathered::Slot(slot) => (Command::Release { slot }, "discard gathers a slot"),
                Gathered::Frame(frame) => {
                    breach!("a discard gathers {frame}, which could be spare");
                }
                Gathered::Run(at) => {
                    self.expect_in_region_or_base(at)?;
                    // The command needs no real folio: folios are the core's business.
                    let folio = FolioId(u32::MAX);
                    (Command::Zap { folio, at }, "discard gathers a run")
                }
            };
            Coverage::count(&mut self.coverage.answers, name);
            self.log.push(self.step, Entry::Asked(command));
            let not_before = self.step + self.delay();
            self.schedule.add(Pending {
                leaf: LeafPages::NONE,
                command,
                parts: Vec::new(),
                lenders: Vec::new(),
                owner,
                answer: None,
                not_before,
                batch: Some(batch),
            })?;
        }
        self.discarded.under_way.insert(batch, gather);
        self.actors[owner].outstanding += 1;
        Ok(())
    }

    /// Sabotage: drops a run that is longer than it should be.
    pub(crate) fn overrun(&mut self, command: Command) -> Check {
        if let (Some(Sabotage::Overrun), Command::Zap { at, .. }) = (self.options.sabotage, command)
        {
            let behind = PageRange::new(at.end(), PageCount(1));
            let in_use = self
                .regions
                .iter()
                .any(|region| region.range.covers(behind));
            if in_use && self.mmu.is_mapped(behind.start) && !self.mmu.is_pinned(behind.start) {
                self.mmu.zap(behind)?;
            }
        }
        Ok(())
    }

    /// Tells the core that all parts of a batch had their effect.
    pub(crate) fn tell_batch(&mut self, batch: u64) -> Check {
        let parts = self.schedule.remove_batch(batch);
        let Some(gather) = self.discarded.under_way.remove(&batch) else {
            breach!("batch {batch} was given back twice");
        };
        let awaited = self.core.gathered(&gather);
        if let Some(at) = awaited {
            Coverage::count(&mut self.coverage.answers, "a run was waited for");
            if !self.swallows_wake(at) {
                self.wake(at, Ear::Wakes);
            }
        }
        for part in &parts {
            if let Command::Zap { at, .. } = part.command
                && !self.swallows_wake(at)
            {
                self.wake(at, Ear::Completions);
            }
        }
        if let Some(part) = parts.first() {
            self.actors[part.owner].outstanding -= 1;
        }
        self.wake_owners();
        self.check_state()
    }

    /// Whether `page` was unhooked and is being given back.
    pub(crate) fn is_unhooked(&self, page: PageIndex) -> bool {
        self.batches
            .values()
            .any(|batch| batch.range.contains(page))
    }
}
