//! The end of a region that has snapshots or is one, step by step, as the driver does it.
//!
//! A dropped region is detached first. That may leave a base without heirs: the base is detached, discarded and
//! dropped, which may leave the next one. A base with one remaining heir is merged into it, while other actors use that
//! heir, take snapshots of it or drop it. A merge that cannot continue (the store accepts nothing, the kernel holds
//! pages) is abandoned; the base then stays until its heir ends. At the end of a run, in a friendly world, the
//! remaining bases must be merged.

use millpond_core::{
    Command, Event, PageCount, PageIndex, PageRange, PageState, Refusal, RegionId, Reply,
};

use crate::actor::{DropStage, Ear, Op};
use crate::mmu::Slot;
use crate::report::{Check, breach};
use crate::run::LAST;
use crate::snapshot::Named;
use crate::world::World;

/// Take-outs that may be refused while a base is merged.
const PATIENCE: u64 = 64;
/// How often a merge asks for memory without handing anything over before it is abandoned.
const MAX_RECLAIMS: u32 = 200;

/// The state of the base of a region that was detached.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Ended {
    /// The base no longer has an heir.
    pub orphan: Option<Named>,
    /// The base has one heir.
    pub single: Option<Named>,
}

/// How far the end of a base has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// The base has no heirs and is being emptied.
    Orphan {
        /// The base.
        base: Named,
        /// The stage of the emptying.
        stage: DropStage,
    },
    /// The base is being merged into its heir, from this page on.
    Merge {
        /// The base.
        base: Named,
        /// Pages before this one are done.
        from: PageIndex,
        /// Take-outs that were refused before the merge began, by all actors.
        refused: u64,
        /// How often the merge was told to reclaim.
        reclaims: u32,
    },
    /// The base is empty and belongs to no region.
    Emptied {
        /// The base.
        base: Named,
    },
}

impl World {
    /// Detaches a region or a base, and returns what that leaves.
    ///
    /// # Errors
    /// The core answered otherwise.
    pub(crate) fn detach(&mut self, i: usize, region: RegionId) -> Check<Ended> {
        let reply = self.hold(i, Event::Detach { region })?;
        let base = self.base_of(region).and_then(Option::take);
        let base = base.and_then(|id| self.bases.iter().find(|base| base.id == id).copied());
        let mut ended = Ended::default();
        if let Some(base) = base {
            match self.heirs(base.id) {
                0 => ended.orphan = Some((base.id, base.range)),
                1 => ended.single = Some((base.id, base.range)),
                _ => {}
            }
        }
        let wanted = Reply::Detached {
            orphan: ended.orphan,
            single: ended.single,
        };
        if reply != wanted {
            breach!("{region:?} is detached with {reply:?}, must be {wanted:?}");
        }
        self.give_out(i)?;
        Ok(ended)
    }

    /// Continues with the bases that a region has left behind, now that it is gone.
    ///
    /// # Errors
    /// A rule is broken.
    pub(crate) fn end_bases(&mut self, i: usize) -> Check {
        let Ended { orphan, single } = std::mem::take(&mut self.actors[i].ended);
        if let Some(base) = orphan {
            let another = matches!(self.actors[i].op, Some(Op::End(End::Orphan { .. })));
            self.count_snapshot(if another {
                "orphans in a chain"
            } else {
                "orphan"
            });
            self.actors[i].ended = self.detach(i, base.0)?;
            let stage = self.begin_emptying(base.1);
            self.actors[i].op = Some(Op::End(End::Orphan { base, stage }));
        } else if let Some(base) = single {
            self.actors[i].op = Some(self.merge_of(base));
        } else {
            self.finish(i);
        }
        Ok(())
    }

    /// The operation that merges `base`. The driver begins at the start. Beginning anywhere is allowed, and lets the
    /// merge of a base below catch up with this one.
    fn merge_of(&mut self, base: Named) -> Op {
        let from = match self.rng.chance(500) {
            true => base.1.start,
            false => base.1.start.plus(self.rng.below(base.1.len.0)),
        };
        Op::End(End::Merge {
            base,
            from,
            refused: self.refused(),
            reclaims: 0,
        })
    }

    /// The number of take-outs refused so far.
    fn refused(&self) -> u64 {
        let stats = self.core.stats();
        stats.takeout_busy + stats.takeout_immovable
    }

    /// Takes one step of the end of a base.
    ///
    /// # Errors
    /// A rule is broken.
    pub(crate) fn step_end(&mut self, i: usize, end: End) -> Check {
        let end = match end {
            End::Orphan { base, stage } => {
                let stage = match stage {
                    DropStage::Discard { rest } => self.discard_base(i, rest)?,
                    DropStage::Gather { rest } => self.gather(i, rest)?,
                    DropStage::GiveBack { rest } => self.give_back(i, rest)?,
                    DropStage::Gathered { rest } => self.gathered(i, rest)?,
                    _ => {
                        self.forget_base(i, base)?;
                        return self.end_bases(i);
                    }
                };
                End::Orphan { base, stage }
            }
            End::Merge {
                base,
                from,
                refused,
                reclaims,
            } => {
                if self.refused() - refused > PATIENCE || reclaims > MAX_RECLAIMS {
                    return self.give_up(i);
                }
                match self.merge_round(i, base, from)? {
                    Reply::Wait { .. } => End::Merge {
                        base,
                        from,
                        refused,
                        reclaims,
                    },
                    Reply::Reclaim { pages } => {
                        // There is enough memory, but not enough places in the pool.
                        let want = self.core.available().0 + pages.0;
                        self.actors[i].reclaim = Some(PageCount(want));
                        End::Merge {
                            base,
                            from,
                            refused,
                            reclaims: reclaims + 1,
                        }
                    }
                    // A pool of few places takes a large base over in hundreds of rounds.
                    Reply::More { from } => End::Merge {
                        base,
                        from,
                        refused,
                        reclaims: 0,
                    },
                    Reply::Detached { .. } => {
                        self.count_snapshot("merged");
                        End::Emptied { base }
                    }
                    _ => return self.give_up(i),
                }
            }
            End::Emptied { base } => {
                self.forget_base(i, base)?;
                self.finish(i);
                return Ok(());
            }
        };
        self.settle_unless_blocked(i);
        self.actors[i].op = Some(Op::End(end));
        Ok(())
    }

    /// Waits for the given commands, unless the actor already waits at a page.
    fn settle_unless_blocked(&mut self, i: usize) {
        if self.actors[i].blocked == crate::actor::Blocked::No {
            self.settle(i);
        }
    }

    fn discard_base(&mut self, i: usize, range: PageRange) -> Check<DropStage> {
        Ok(match self.ask(i, Event::Discard { range })? {
            None => DropStage::Discard { rest: range },
            Some(Reply::Done) => DropStage::Settle,
            Some(Reply::More { from }) => DropStage::Discard {
                rest: self.rest_of(range, from)?,
            },
            Some(other) => breach!("a discard of the base {range} is answered with {other:?}"),
        })
    }

    fn give_up(&mut self, i: usize) -> Check {
        self.count_snapshot("merge given up");
        self.finish(i);
        Ok(())
    }

    /// Sends one event of a merge, and checks that the reply makes sense.
    fn merge_round(&mut self, i: usize, base: Named, from: PageIndex) -> Check<Reply> {
        let event = Event::Merge { base: base.0, from };
        self.one_more_round(i, &event)?;
        let before = self.core.stats();
        let others = |(j, actor): (usize, &crate::actor::Actor)| {
            j != i && matches!(actor.op, Some(Op::End(End::Merge { .. })))
        };
        if self.actors.iter().enumerate().any(others) {
            self.count_snapshot("merge beside another");
        }
        let passed = self.merged_pages(base.0, from);
        let limbo_before = self.core.stats().nr_limbo;
        let held = self.commands.len();
        let reply = self.hold(i, event)?;
        let given: Vec<Command> = self.commands.iter().skip(held).collect();
        self.count_merge(&before, &given, reply);
        if let Some([from, to]) = passed {
            self.handed_over(from, to, limbo_before);
        }
        match reply {
            Reply::Detached { orphan, single } => {
                if (orphan, single) != (Some(base), None) || !given.is_empty() {
                    breach!("the merge of {base:?} ends with {reply:?} and {given:?}");
                }
                self.merged(base)?;
            }
            Reply::More { from: next } if !base.1.contains(next) => {
                breach!(at next, "a merge from {from} of {base:?} goes on at {next}");
            }
            Reply::Wait { page } if given.is_empty() => {
                self.give_out(i)?;
                self.wait_at(i, page, Ear::Wakes)?;
                return Ok(reply);
            }
            Reply::More { from: next } => {
                if next != from {
                    self.actors[i].rounds = 0;
                }
            }
            Reply::Wait { .. } | Reply::Reclaim { .. } => {}
            Reply::Refused(Refusal::Busy) if self.core.store_blocked() => {}
            Reply::Refused(Refusal::RegionInUse) if self.heirs(base.0) == 0 => {}
            Reply::Refused(Refusal::UnknownRegion)
                if !self.bases.iter().any(|b| b.id == base.0) => {}
            other => breach!("a merge of {base:?} from {from} is answered with {other:?}"),
        }
        self.give_out(i)?;
        Ok(reply)
    }

    /// Records that folios in limbo have changed hands without a command. Commands that name no place refer to the new
    /// one.
    fn handed_over(&mut self, from: PageRange, to: PageRange, limbo: u64) {
        let core = &self.core;
        let left = |page| {
            matches!(
                core.page_state(page),
                PageState::Empty | PageState::Inherited
            )
        };
        let came = |page| {
            matches!(
                core.page_state(page),
                PageState::Limbo | PageState::LazyFree { mapped: false }
            )
        };
        let there = |at: PageRange| to.start.plus(at.start.0 - from.start.0);
        let moved = |at: &&mut PageRange| from.covers(**at) && left(at.start) && came(there(**at));
        let mut changed = false;
        for at in self.folio_at.values_mut().filter(moved) {
            at.start = there(*at);
            changed = true;
        }
        if changed && limbo > 0 {
            self.count_snapshot("merge of what is in limbo");
        }
    }

    /// Makes the heir of a merged base inherit what the base inherited.
    fn merged(&mut self, base: Named) -> Check {
        let Some(link) = self.base_of(base.0) else {
            breach!("{base:?} was merged, but is no base");
        };
        let below = link.take();
        let heirs = self.heirs(base.0);
        let regions = self.regions.iter_mut().map(|r| &mut r.base);
        let mut links = regions.chain(self.bases.iter_mut().map(|b| &mut b.base));
        match links.find(|link| **link == Some(base.0)) {
            Some(link) if heirs == 1 => *link = below,
            _ => breach!("{base:?} was merged, but has {heirs} heirs"),
        }
        Ok(())
    }

    fn count_merge(&mut self, before: &millpond_core::VmStat, given: &[Command], reply: Reply) {
        let has = |what: fn(&Command) -> bool| given.iter().any(what);
        let counts = [
            (
                self.core.stats().folio_split > before.folio_split,
                "merge of what is partly hidden and mapped",
            ),
            (
                has(|c| matches!(c, Command::Save { .. })),
                "merge of what is partly hidden and in limbo",
            ),
            (
                has(|c| matches!(c, Command::TakeOut { .. })),
                "merge of what is mapped",
            ),
            (
                has(|c| matches!(c, Command::Poison { .. })),
                "merge of a loss",
            ),
            (
                has(|c| matches!(c, Command::Zap { .. })),
                "merge of what is hidden and mapped",
            ),
            (matches!(reply, Reply::Wait { .. }), "merge waits"),
        ];
        for (_, what) in counts.into_iter().filter(|(seen, _)| *seen) {
            self.count_snapshot(what);
        }
    }

    /// Frees the addresses of an empty base that belongs to no region.
    fn forget_base(&mut self, i: usize, base: Named) -> Check {
        for page in base.1.pages() {
            if self.mmu.page(page) != Slot::Empty {
                breach!(at page, "{page} of the base {base:?}, which ends, is {:?}", self.mmu.page(page));
            }
        }
        let reply = self.send(i, Event::DropRegion { region: base.0 })?;
        if reply != Reply::Done {
            breach!("dropping the base {base:?} is answered with {reply:?}");
        }
        self.bases.retain(|other| other.id != base.0);
        Ok(())
    }

    /// Checks that an empty inheriting page stands for something, and only for contents that the program could have
    /// read.
    ///
    /// # Errors
    /// The page does not.
    pub(crate) fn check_inherited(&self, page: PageIndex) -> Check {
        let state = |page: PageIndex| self.core.page_state(page);
        let mut bases = self.bases_of(page);
        let Some(from) = bases.find(|base| state(*base) != PageState::Inherited) else {
            if self.is_in_base(PageRange::new(page, PageCount(1))) {
                return Ok(());
            }
            breach!(at page, "{page} is said to be inherited, from nobody");
        };
        let right = match state(from) {
            PageState::Empty | PageState::LazyFree { mapped: false } => {
                self.oracle.may_be_zeros(page)
            }
            PageState::Poisoned => self.oracle.is_lost(page),
            _ => true,
        };
        if !right {
            breach!(at page, "{page} stands for {from}, which is {:?}", state(from));
        }
        Ok(())
    }

    /// Checks that every base from which a region or base inherits exists.
    pub(crate) fn check_chains(&self) -> Check {
        let regions = self.regions.iter().map(|r| (r.base, r.range));
        for (base, range) in regions.chain(self.bases.iter().map(|b| (b.base, b.range))) {
            if base.is_some_and(|base| self.bases.iter().all(|b| b.id != base)) {
                breach!(at range.start, "{range} inherits from {base:?}, which is not there");
            }
        }
        Ok(())
    }

    /// Checks what must hold at rest: every base has heirs.
    pub(crate) fn check_ended(&self) -> Check {
        match self.bases.iter().find(|base| self.heirs(base.id) == 0) {
            Some(base) => breach!(at base.range.start, "{base:?} is there for nobody"),
            None => Ok(()),
        }
    }

    /// Merges the bases that still have a single heir into it, in a friendly world.
    pub(crate) fn merge_what_was_left(&mut self) -> Check {
        let left: Vec<_> = self
            .bases
            .iter()
            .map(|base| (base.id, base.range))
            .collect();
        for base in left {
            for _ in 0..3 {
                if self.heirs(base.0) != 1 {
                    break;
                }
                self.expect(Event::RetryStore, Reply::Done)?;
                self.actors[LAST].op = Some(self.merge_of(base));
                self.until_rest("a merge")?;
            }
            if self.heirs(base.0) == 1 {
                breach!(at base.1.start, "{base:?} cannot be merged into its only heir");
            }
        }
        Ok(())
    }
}
