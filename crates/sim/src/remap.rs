//! Remap and resize, step by step, as the driver does them.
//!
//! Whoever moves memory has its region to itself, as for a snapshot, and the gate is closed while core and memory move what
//! they hold. A folio in limbo that straddles an end has to come back first; then the gate is closed again. Purges under
//! way are waited for: they know pages by their addresses. A region that is moved whole goes on at its new place, longer or
//! not, with what it inherits; a part of one goes to a region of its own, unless something is inherited, which is refused.

use millpond_core::{Access, Event, LEAF_PAGES, PageCount, PageRange, Refusal, Reply};

use crate::actor::{Blocked, Fault, Op};
use crate::profile::ARENA_PAGES;
use crate::report::{Check, Coverage, Entry, breach};
use crate::snapshot::Named;
use crate::world::{SimRegion, World};

/// How far a move has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RemapStage {
    /// Others still work in the region.
    Quiet,
    /// What is to be done is to be chosen.
    Choose,
    /// `from` moves to `to` in a new region, once the gate is closed and nothing is under way.
    Move {
        /// The new region.
        new: Named,
        /// The source.
        from: PageRange,
        /// The destination.
        to: PageRange,
    },
    /// What is behind the new end is being discarded.
    Cut {
        /// What the core has not said to have done; nothing when the last commands are under way.
        rest: Option<PageRange>,
        /// The new length.
        pages: PageCount,
        /// The region inherited something when that began.
        heir: bool,
    },
}

impl World {
    /// One step of a move or a resize of the region of `range`.
    ///
    /// # Errors
    /// A rule is broken.
    pub(crate) fn step_remap(&mut self, i: usize, range: PageRange, stage: RemapStage) -> Check {
        let Some(place) = self.regions.iter().position(|r| r.range == range) else {
            breach!("actor {i} moves {range}, which is no region");
        };
        let next = match stage {
            RemapStage::Quiet
                if self.regions[place].users > 0 && !self.is_pin_in_the_way(range) =>
            {
                self.actors[i].blocked = Blocked::Until(self.step + 20);
                Some(RemapStage::Quiet)
            }
            RemapStage::Quiet => Some(RemapStage::Choose),
            RemapStage::Choose => self.choose_remap(i, place)?,
            RemapStage::Move { .. } if self.gate.is_none() => {
                if self.purging > 0 {
                    self.actors[i].blocked = Blocked::Until(self.step + 5);
                } else {
                    self.gate = Some(i);
                }
                Some(stage)
            }
            RemapStage::Move { new, from, to } => {
                self.gate = None;
                self.remap(i, place, new, from, to)?
            }
            RemapStage::Cut { rest, pages, heir } => self.step_cut(i, place, rest, pages, heir)?,
        };
        match next {
            Some(stage) => {
                // A region that was moved is found at its new place.
                if self.regions.get(place).is_some_and(|r| r.range == range) {
                    self.actors[i].op = Some(Op::Remap { range, stage });
                }
            }
            None => {
                self.regions[place].closing = false;
                self.finish(i);
            }
        }
        Ok(())
    }

    /// Now and then a pin does not make it wait, but refuses it.
    fn is_pin_in_the_way(&mut self, range: PageRange) -> bool {
        self.core.first_pinned(range).is_some() && self.rng.chance(200)
    }

    fn choose_remap(&mut self, i: usize, place: usize) -> Check<Option<RemapStage>> {
        let SimRegion {
            id, range, users, ..
        } = self.regions[place];
        let kind = if users > 0 { 2 } else { self.rng.below(6) };
        match kind {
            0 => self.grow(i, place),
            1 => {
                let pages = PageCount(self.rng.between(1, range.len.0));
                let rest = range.tail(range.start.plus(pages.0));
                let volatile = self
                    .volatile
                    .iter()
                    .any(|v| v.range.end() > rest.start && range.covers(v.range));
                if rest.is_empty() || volatile || self.core.first_pinned(rest).is_some() {
                    return Ok(None);
                }
                self.oracle.discard_begins(i, rest);
                Ok(Some(RemapStage::Cut {
                    rest: Some(rest),
                    pages,
                    heir: self.regions[place].base.is_some(),
                }))
            }
            kind => {
                // Whole, or a part at a place that lies alike in its leaf.
                let from = match kind {
                    2 => range,
                    _ => self.part_of(range),
                };
                let front = from.start.0 % LEAF_PAGES;
                let pages = PageCount(front + from.len.0 + self.rng.pick(&[0, 1, 700]));
                let Some(order) = self.core.order_of(id) else {
                    breach!("{id:?} has no orders");
                };
                match self.send(i, Event::CreateRegion { pages, order })? {
                    Reply::Region { region, range } => {
                        let to = PageRange::new(range.start.plus(front), from.len);
                        Ok(Some(RemapStage::Move {
                            new: (region, range),
                            from,
                            to,
                        }))
                    }
                    Reply::Refused(Refusal::NoAddressSpace) => Ok(None),
                    other => breach!("a region to move to is answered with {other:?}"),
                }
            }
        }
    }

    fn grow(&mut self, i: usize, place: usize) -> Check<Option<RemapStage>> {
        let SimRegion { id, range, .. } = self.regions[place];
        let pages = PageCount(range.len.0 + self.rng.between(1, 600));
        let region = Event::Resize { region: id, pages };
        match self.hold(i, region)? {
            Reply::Region { region, range: now } => {
                let right = now == PageRange::new(range.start, pages) && now.end().0 <= ARENA_PAGES;
                if region != id || !right {
                    breach!("{range} grows to {now}");
                }
                self.regions[place].range = now;
                self.count("grown in place");
            }
            Reply::Refused(Refusal::NoAddressSpace) => self.count("no room to grow"),
            other => breach!("growing {range} to {pages:?} is answered with {other:?}"),
        }
        self.give_out(i)?;
        Ok(None)
    }

    fn step_cut(
        &mut self,
        i: usize,
        place: usize,
        rest: Option<PageRange>,
        pages: PageCount,
        heir: bool,
    ) -> Check<Option<RemapStage>> {
        let SimRegion { id, range, .. } = self.regions[place];
        let cut = |rest| Some(RemapStage::Cut { rest, pages, heir });
        if let Some(rest) = rest {
            let next = match self.ask(i, Event::Discard { range: rest })? {
                None => return Ok(cut(Some(rest))),
                Some(Reply::Done) => None,
                Some(Reply::More { from }) => Some(self.rest_of(rest, from)?),
                Some(other) => breach!("a discard of {rest} is answered with {other:?}"),
            };
            self.settle(i);
            return Ok(cut(next));
        }
        self.oracle.discard_ends(i, true)?;
        match self.hold(i, Event::Resize { region: id, pages })? {
            Reply::Region { range: now, .. } if now == PageRange::new(range.start, pages) => {
                self.regions[place].range = now;
                self.count("shortened");
            }
            // Zeros that hide what a base has there, or had, are something, too.
            Reply::Refused(Refusal::RegionInUse) if heir => {
                self.count("not shortened");
            }
            other => breach!("shortening {range} to {pages:?} is answered with {other:?}"),
        }
        self.give_out(i)?;
        Ok(None)
    }

    /// Nothing is under way: `from` moves.
    fn remap(
        &mut self,
        i: usize,
        place: usize,
        new: Named,
        from: PageRange,
        to: PageRange,
    ) -> Check<Option<RemapStage>> {
        let stage = RemapStage::Move { new, from, to };
        let region = self.regions[place];
        let whole = from == region.range && to.start == new.1.start;
        let straddles = |v: &crate::volatile::Volatile| {
            crate::mmu::overlap(v.range, from) && !from.covers(v.range)
        };
        let refused = region.base.is_some() && !whole;
        if self.volatile.iter().any(straddles) || self.book.straddler(from).is_some() {
            return self.not_moved(i, new, "volatile in part, not moved");
        }
        if region.users > 0 && self.core.first_pinned(from).is_none() {
            return self.not_moved(i, new, "others are there, not moved");
        }
        let reply = self.hold(i, Event::Remap { from, to })?;
        match reply {
            Reply::Done if !refused => {}
            Reply::NeedsResident { page } if !refused => {
                self.count("moved after a fault");
                let access = Access::Read;
                self.actors[i].fault = Some(Fault { page, access });
                self.give_out(i)?;
                return Ok(Some(stage));
            }
            Reply::Refused(Refusal::RegionInUse) if refused => {
                self.give_out(i)?;
                return self.not_moved(i, new, "inherited in part, not moved");
            }
            Reply::Refused(Refusal::Pinned { page }) => {
                self.expect_pinned(page, from)?;
                self.give_out(i)?;
                return self.not_moved(i, new, "pinned, not moved");
            }
            other => breach!("a move of {from} to {to} is answered with {other:?}"),
        }
        self.mmu.hand_over(from, to)?;
        self.oracle.relocate(from, to)?;
        self.book.relocate(from, to.start);
        for volatile in self.volatile.iter_mut().filter(|v| from.covers(v.range)) {
            volatile.range.start = to.start.plus(volatile.range.start.0 - from.start.0);
        }
        self.log.push(
            self.step,
            Entry::World("moved from", u64::from(to.start.0), from),
        );
        self.log.push(
            self.step,
            Entry::World("moved to", u64::from(from.start.0), to),
        );
        let moved = SimRegion {
            id: new.0,
            range: new.1,
            users: 0,
            closing: false,
            base: region.base.filter(|_| whole),
            ..region
        };
        if !whole {
            self.regions.push(moved);
            self.moved(from, to);
            self.count("moved in part");
            self.give_out(i)?;
            return Ok(None);
        }
        if region.base.is_some() {
            self.count("moved with what it inherits");
        }
        self.count("moved whole");
        self.regions[place] = moved;
        self.moved(from, to);
        self.give_out(i)?;
        let reply = self.send(i, Event::DropRegion { region: region.id })?;
        if reply != Reply::Done {
            breach!("dropping {region:?}, which was moved, is answered with {reply:?}");
        }
        Ok(None)
    }

    fn not_moved(&mut self, i: usize, new: Named, why: &'static str) -> Check<Option<RemapStage>> {
        self.count(why);
        let reply = self.send(i, Event::DropRegion { region: new.0 })?;
        if reply != Reply::Done {
            breach!("dropping {new:?}, which was never used, is answered with {reply:?}");
        }
        Ok(None)
    }

    fn part_of(&mut self, range: PageRange) -> PageRange {
        let len = self.rng.between(1, range.len.0);
        let start = range.start.plus(self.rng.below(range.len.0 - len + 1));
        PageRange::new(start, PageCount(len))
    }

    fn count(&mut self, what: &'static str) {
        Coverage::count(&mut self.coverage.answers, what);
    }
}
