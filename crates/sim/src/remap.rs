//! Remaps and resizes, step by step, as the driver does them.
//!
//! An actor that moves pages has exclusive use of source and destination: ongoing operations there end first, and no
//! new ones start. The contents of the destination are discarded. Then the gate closes, completions are reported until
//! no command is under way, ongoing purges end, and the pages move in core and memory. If the core needs a page back
//! first, the gate opens for that, and is closed again. For the oracle a remap moves what is known about each page,
//! with its volatile ranges, and leaves zeros. Along the way, requests that must be refused are made, and must change
//! nothing.

use millpond_core::{
    Event, LEAF_PAGES, PageCount, PageIndex, PageRange, PageState, Refusal, RegionId, Reply,
};

use crate::actor::{Actor, Blocked, Op};
use crate::mmu::{Slot, overlap};
use crate::profile::ARENA_PAGES;
use crate::report::{Check, Coverage, Entry, breach};
use crate::resize::ResizeStage;
use crate::world::{SimRegion, World};

/// The cases of remaps and resizes that must be covered.
pub const SEEN: [&str; 29] = [
    "to another region",
    "within a region",
    "whole leaves",
    "single entries",
    "onto what was discarded",
    "of what is mapped",
    "of what is in limbo",
    "of what is in the store",
    "of what is lazily freed",
    "of a loss",
    "of volatile pages",
    "of purged pages",
    "a page comes back first",
    "waits for purges",
    "beside a batch that is given back",
    "beside a merge",
    "whole, with a base",
    "refused: ranges",
    "refused: outside",
    "refused: in use",
    "refused: a part with a base",
    "refused: onto a base",
    "refused: busy",
    "refused: pinned",
    "refused: volatile in part",
    "grown in place",
    "grown elsewhere",
    "shrunk",
    "refused: what is hidden",
];

/// The length in pages beyond which no region grows.
const MAX_PAGES: u32 = 4500;

/// Pages that move from one region to another, or within one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Remap {
    /// The region where the pages are.
    pub source: RegionId,
    /// The pages that move.
    pub from: PageRange,
    /// The region where the pages go.
    pub target: RegionId,
    /// The addresses where the pages go.
    pub to: PageRange,
    /// The target was made for this move, and the source ends afterwards.
    pub grows: bool,
}

/// How far a remap has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RemapStage {
    /// Other operations still work there.
    Quiet,
    /// The destination is being discarded.
    Discard {
        /// The part that the core has not reported as done.
        rest: PageRange,
    },
    /// The last commands of the discard are under way.
    Discarded,
    /// Next: close the gate.
    Close,
    /// The gate is closed. Once nothing is under way, the pages move.
    Move,
}

impl World {
    /// Draws a remap of one of the regions `open`, or another length for it.
    pub(crate) fn draw_remap(&mut self, open: &[usize]) -> Op {
        let region = self.regions[self.rng.pick(open)];
        let op = match self.rng.below(100) {
            0..65 => self.draw_move(region, open),
            65..90 => {
                let most = MAX_PAGES.max(region.range.len.0 + 1);
                let pages = self.rng.between(region.range.len.0 + 1, most);
                self.resize_of(region, pages)
            }
            _ => {
                let pages = self.rng.between(1, region.range.len.0);
                self.resize_of(region, pages)
            }
        };
        self.set_closing(op, true);
        op
    }

    fn draw_move(&mut self, source: SimRegion, open: &[usize]) -> Op {
        let has_no_base = |r: &usize| self.regions[*r].base.is_none();
        let better: Vec<usize> = open.iter().copied().filter(has_no_base).collect();
        let any = better.is_empty() || self.rng.chance(100);
        let target = self.regions[self.rng.pick(if any { open } else { &better })];
        let len = source.range.len.0.min(target.range.len.0);
        // Both sides have the same remainder modulo a leaf, and lie completely inside their regions.
        let longest = if self.rng.chance(300) {
            len
        } else {
            len.min(64)
        };
        let mut pages = self.rng.between(1, longest);
        let mut offset = self.rng.below(source.range.len.0 - pages + 1);
        if self.rng.chance(300) && source.range.len.0 >= LEAF_PAGES && len >= LEAF_PAGES {
            pages = len / LEAF_PAGES * LEAF_PAGES;
            offset = 0;
        }
        let rest = offset % LEAF_PAGES;
        if rest + pages > target.range.len.0 {
            offset -= rest;
        }
        let rest = offset % LEAF_PAGES;
        let leaves = (target.range.len.0 - rest - pages) / LEAF_PAGES;
        let there = rest + LEAF_PAGES * self.rng.below(leaves + 1);
        let at = |region: SimRegion, offset| {
            PageRange::new(region.range.start.plus(offset), PageCount(pages))
        };
        Op::Remap {
            remap: Remap {
                source: source.id,
                from: at(source, offset),
                target: target.id,
                to: at(target, there),
                grows: false,
            },
            stage: RemapStage::Quiet,
        }
    }

    /// Sets whether the regions of a remap or resize are closing, so that no operation begins in them.
    pub(crate) fn set_closing(&mut self, op: Op, closing: bool) {
        let concerned = |id: RegionId| match op {
            Op::Remap { remap, .. } => id == remap.source || id == remap.target,
            Op::Resize { resize, .. } => id == resize.region,
            _ => false,
        };
        for region in &mut self.regions {
            if concerned(region.id) {
                region.closing = closing;
            }
        }
    }

    /// Whether an actor waits for the users of regions to move or resize.
    pub(crate) fn waits_to_remap(&self, actor: &Actor) -> bool {
        let used = |id| self.region(id).is_ok_and(|region| region.users > 0);
        match actor.op {
            Some(Op::Remap {
                remap,
                stage: RemapStage::Quiet,
            }) => used(remap.source) || used(remap.target),
            Some(Op::Resize {
                resize,
                stage: ResizeStage::Quiet,
            }) => used(resize.region),
            _ => false,
        }
    }

    pub(crate) fn region(&self, id: RegionId) -> Check<SimRegion> {
        match self.regions.iter().find(|region| region.id == id) {
            Some(region) => Ok(*region),
            None => breach!("{id:?} is to be moved or resized, which is no region"),
        }
    }

    pub(crate) fn end_remap(&mut self, i: usize) {
        if let Some(op) = self.actors[i].op {
            self.set_closing(op, false);
        }
        self.finish(i);
    }

    /// Takes one step of a remap.
    ///
    /// # Errors
    /// A rule is broken.
    pub(crate) fn step_remap(&mut self, i: usize, remap: Remap, stage: RemapStage) -> Check {
        let (source, target) = (self.region(remap.source)?, self.region(remap.target)?);
        let stage = match stage {
            RemapStage::Quiet => {
                let pinned = self.core.first_pinned(remap.from).is_some();
                let hasty = pinned && target.id != source.id && self.rng.chance(700);
                if target.users > 0 || source.users > 0 && !hasty {
                    self.actors[i].blocked = Blocked::Until(self.step + 20);
                    return Ok(());
                }
                if self.is_hopeless(i, remap)? {
                    self.end_remap(i);
                    return Ok(());
                }
                self.oracle.discard_begins(i, remap.to);
                RemapStage::Discard { rest: remap.to }
            }
            RemapStage::Discard { rest } => match self.ask(i, Event::Discard { range: rest })? {
                None => RemapStage::Discard { rest },
                Some(Reply::Done) => {
                    self.settle(i);
                    RemapStage::Discarded
                }
                Some(Reply::More { from }) => {
                    self.settle(i);
                    let rest = self.rest_of(rest, from)?;
                    RemapStage::Discard { rest }
                }
                Some(other) => breach!("a discard of {rest} is answered with {other:?}"),
            },
            RemapStage::Discarded => {
                self.oracle.discard_ends(i, true)?;
                self.actors[i].rounds = 0;
                RemapStage::Close
            }
            RemapStage::Close => {
                if self.actors[i].lost.is_some() {
                    self.give_up_growing(i, remap)?;
                    self.end_remap(i);
                    return Ok(());
                }
                self.expect_busy_for_remap(i, remap)?;
                self.gate = Some(i);
                RemapStage::Move
            }
            RemapStage::Move => {
                self.gate = None;
                if self.purging > 0 {
                    self.count_remap("waits for purges");
                    self.actors[i].blocked = Blocked::Until(self.step + 5);
                    RemapStage::Close
                } else if self.core.first_pinned(remap.from).is_none()
                    && (source.users > 0 || self.book.straddler(remap.from).is_some())
                {
                    // The pin that would have prevented the remap is gone by now, and other actors have worked here.
                    self.end_remap(i);
                    return Ok(());
                } else {
                    match self.move_pages(i, remap)? {
                        Some(stage) => stage,
                        None => return Ok(()),
                    }
                }
            }
        };
        self.actors[i].op = Some(Op::Remap { remap, stage });
        Ok(())
    }

    /// Makes requests that must be refused before anything is discarded. Returns whether the remap itself is one.
    fn is_hopeless(&mut self, i: usize, remap: Remap) -> Check<bool> {
        let Remap { from, to, .. } = remap;
        let (source, target) = (self.region(remap.source)?, self.region(remap.target)?);
        if self.rng.chance(300) {
            self.ask_for_bad_ranges(i, from, to)?;
        }
        let behind = PageRange::new(to.start, PageCount(target.range.len.0 + 1));
        let far = PageRange::new(from.start, behind.len);
        let overlaps = overlap(far, behind);
        if behind.end().0 <= ARENA_PAGES && far.end().0 <= ARENA_PAGES && !overlaps {
            self.expect_refused(i, far, behind, Refusal::OutsideRegion, "refused: outside")?;
        }
        if overlap(from, to) {
            self.expect_refused(i, from, to, Refusal::BadRange, "refused: ranges")?;
            return Ok(true);
        }
        let moves_whole = from == source.range && to.start == target.range.start;
        if target.base.is_some() {
            self.expect_refused(i, from, to, Refusal::RegionInUse, "refused: onto a base")?;
            return Ok(true);
        }
        if source.base.is_some() && !moves_whole {
            let why = "refused: a part with a base";
            self.expect_refused(i, from, to, Refusal::RegionInUse, why)?;
            return Ok(true);
        }
        let holds = |page| self.core.page_state(page) != PageState::Empty;
        if to.pages().any(holds) {
            self.count_remap("onto what was discarded");
            self.expect_refused(i, from, to, Refusal::RegionInUse, "refused: in use")?;
        }
        let straddles =
            |v: &crate::volatile::Volatile| overlap(v.range, from) && !from.covers(v.range);
        let straddler = self.book.straddler(from).is_some();
        let known = self.volatile.iter().any(|v| !v.asked && straddles(v));
        if straddler != known {
            breach!(at from.start, "of {:?} one is partly in {from}: {straddler}, says the book", self.volatile);
        }
        if known {
            self.count_remap("refused: volatile in part");
        }
        // An owner whose contents are replaced does not ask whether they survived.
        let replaced = self.volatile.iter().any(|v| overlap(v.range, to));
        Ok(replaced || self.volatile.iter().any(straddles))
    }

    fn ask_for_bad_ranges(&mut self, i: usize, from: PageRange, to: PageRange) -> Check {
        let shorter = PageRange::new(to.start, PageCount(to.len.0 - 1));
        let unlike = PageRange::new(PageIndex(to.start.0 ^ 1), to.len);
        let outside = PageRange::new(PageIndex(ARENA_PAGES - 1), PageCount(from.len.0 + 1));
        for to in [shorter, unlike, outside, from] {
            self.expect_refused(i, from, to, Refusal::BadRange, "refused: ranges")?;
        }
        Ok(())
    }

    /// Checks that a remap is refused and changes nothing.
    fn expect_refused(
        &mut self,
        i: usize,
        from: PageRange,
        to: PageRange,
        why: Refusal,
        what: &'static str,
    ) -> Check {
        let before = (self.states(from), self.states(to));
        let reply = self.send(i, Event::Remap { from, to })?;
        if reply != Reply::Refused(why) {
            breach!(at from.start, "a remap of {from} to {to} is answered with {reply:?}, must be {why:?}");
        }
        if before != (self.states(from), self.states(to)) {
            breach!(at from.start, "a remap of {from} to {to} was refused, and changed something");
        }
        self.count_remap(what);
        Ok(())
    }

    fn states(&self, range: PageRange) -> Vec<PageState> {
        let inside = range.pages().take_while(|page| page.0 < ARENA_PAGES);
        inside.map(|page| self.core.page_state(page)).collect()
    }

    /// Checks that a remap is refused while a command is under way.
    fn expect_busy_for_remap(&mut self, i: usize, remap: Remap) -> Check {
        if !self.schedule.has_flights() || !self.rng.chance(200) {
            return Ok(());
        }
        self.expect_refused(i, remap.from, remap.to, Refusal::Busy, "refused: busy")
    }

    /// Moves the pages, with nothing under way. Returns how to continue if they did not move.
    fn move_pages(&mut self, i: usize, remap: Remap) -> Check<Option<RemapStage>> {
        let Remap { from, to, .. } = remap;
        if let Some(page) = self.core.first_pinned(from) {
            self.expect_pinned(page, from)?;
            self.expect_refused(i, from, to, Refusal::Pinned { page }, "refused: pinned")?;
            self.give_up_growing(i, remap)?;
            self.end_remap(i);
            return Ok(None);
        }
        let event = Event::Remap { from, to };
        self.one_more_round(i, &event)?;
        let before = self.states(from);
        let reply = self.hold(i, event)?;
        match reply {
            Reply::Done => {}
            Reply::NeedsResident { page } => {
                if before != self.states(from) {
                    breach!(at page, "a remap of {from} that needs {page} changed something");
                }
                self.count_remap("a page comes back first");
                self.actors[i].fault = Some(page);
                self.give_out(i)?;
                return Ok(Some(RemapStage::Close));
            }
            other => breach!(at from.start, "a remap of {from} to {to} is answered with {other:?}"),
        }
        self.mmu.hand_over(from, to)?;
        if self.states(to) != before {
            breach!(at to.start, "{to} is not what {from} was before it moved there");
        }
        self.count_moved(remap, &before)?;
        self.rename(remap)?;
        self.moved(from, to);
        for (page, onto) in from.pages().zip(to.pages()) {
            self.zeroed[onto.0 as usize] = self.zeroed[page.0 as usize];
            if self.core.page_state(page) != PageState::Empty || self.mmu.page(page) != Slot::Empty
            {
                breach!(at page, "{page} moved to {onto}, but is {:?}", self.mmu.page(page));
            }
        }
        self.give_out(i)?;
        self.check_all()?;
        if remap.grows {
            self.forget_source(i, remap)?;
        }
        self.end_remap(i);
        Ok(None)
    }

    /// After the move, transfers everything that is known about the pages and their regions.
    fn rename(&mut self, remap: Remap) -> Check {
        let Remap { from, to, .. } = remap;
        let there = |page: PageIndex| to.start.plus(page.0 - from.start.0);
        self.log.push(self.step, Entry::Remap(from, to));
        self.book.relocate(from, to.start);
        self.oracle.relocate(from, to)?;
        for volatile in self.volatile.iter_mut().filter(|v| from.covers(v.range)) {
            volatile.range.start = there(volatile.range.start);
        }
        if !self.hot.is_empty() && from.covers(self.hot) {
            self.hot.start = there(self.hot.start);
        }
        let source = self.region(remap.source)?;
        for region in &mut self.regions {
            if region.id != remap.target {
                continue;
            }
            region.largest = region.largest.max(source.largest);
            if from == source.range && to.start == region.range.start {
                (region.order, region.adaptive) = (source.order, source.adaptive);
                region.base = source.base;
            }
        }
        let target = self.region(remap.target)?;
        if from == source.range && to.start == target.range.start {
            let left = self.regions.iter_mut().find(|r| r.id == remap.source);
            left.expect("it is a region").base = None;
        }
        Ok(())
    }

    fn count_moved(&mut self, remap: Remap, states: &[PageState]) -> Check {
        let Remap { from, to, .. } = remap;
        let has = |state| states.contains(&state);
        let first_leaf = from.start.0.next_multiple_of(LEAF_PAGES);
        let whole = first_leaf + LEAF_PAGES <= from.end().0;
        let volatile = |purged| {
            let mut inside = self.volatile.iter().filter(|v| from.covers(v.range));
            inside.any(|v| v.purged == purged)
        };
        let merges =
            |actor: &Actor| matches!(actor.op, Some(Op::End(crate::bases::End::Merge { .. })));
        let lazy = has(PageState::LazyFree { mapped: true });
        let counts = [
            (remap.source == remap.target, "within a region"),
            (
                remap.source != remap.target && !remap.grows,
                "to another region",
            ),
            (whole, "whole leaves"),
            (!whole || first_leaf != from.start.0, "single entries"),
            (has(PageState::Resident), "of what is mapped"),
            (has(PageState::Limbo), "of what is in limbo"),
            (has(PageState::Swapped), "of what is in the store"),
            (
                lazy || has(PageState::LazyFree { mapped: false }),
                "of what is lazily freed",
            ),
            (has(PageState::Poisoned), "of a loss"),
            (volatile(false), "of volatile pages"),
            (volatile(true), "of purged pages"),
            (
                !self.batches.is_empty(),
                "beside a batch that is given back",
            ),
            (self.actors.iter().any(merges), "beside a merge"),
            (
                self.region(remap.source)?.base.is_some(),
                "whole, with a base",
            ),
            (remap.grows, "grown elsewhere"),
        ];
        for (_, what) in counts.iter().filter(|(seen, _)| *seen) {
            self.count_remap(what);
        }
        if to.start.0 % LEAF_PAGES != from.start.0 % LEAF_PAGES {
            breach!(at to.start, "{from} moved to {to}, which does not lie alike");
        }
        Ok(())
    }

    /// Frees the addresses of the region that was left behind by growth elsewhere.
    fn forget_source(&mut self, i: usize, remap: Remap) -> Check {
        let region = remap.source;
        let reply = self.send(i, Event::DropRegion { region })?;
        if reply != Reply::Done {
            breach!(
                "dropping {region:?}, which has moved to {}, is answered with {reply:?}",
                remap.to
            );
        }
        self.regions.retain(|other| other.id != region);
        Ok(())
    }

    /// Gives up growing a region: the longer region belongs to no actor.
    fn give_up_growing(&mut self, i: usize, remap: Remap) -> Check {
        if !remap.grows {
            return Ok(());
        }
        let region = remap.target;
        let reply = self.send(i, Event::DropRegion { region })?;
        if reply != Reply::Done {
            breach!("dropping {region:?}, which was never used, is answered with {reply:?}");
        }
        self.regions.retain(|other| other.id != region);
        Ok(())
    }

    pub(crate) fn count_remap(&mut self, what: &'static str) {
        Coverage::count(&mut self.coverage.remaps, what);
    }
}
