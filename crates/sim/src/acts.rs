//! The steps of the actors' operations, one at a time.
//!
//! Every operation works as a thread would do it through the facade: ask, do what the reply demands, ask again. Each
//! ends with a check of the property on which its caller relies: a discarded range has been dropped, a pinned page
//! stays mapped, a dropped region is gone.

use millpond_core::{Advice, Event, PageIndex, PageRange, Refusal, Reply};

use crate::actor::{Blocked, DropStage, Op, PATIENT_ROUNDS, ProtectStage};
use crate::mmu::Protection;
use crate::report::{Check, Entry, breach};
use crate::world::World;

impl World {
    /// Takes one step of an operation that has no fault or reclaim before it.
    ///
    /// # Errors
    /// A rule is broken.
    pub fn step_op(&mut self, i: usize, op: Op) -> Check {
        match op {
            Op::Access {
                range,
                next,
                stride,
                left,
                writes,
            } => {
                if left == 0 {
                    self.finish(i);
                    return Ok(());
                }
                if self.touch(i, next, writes)? {
                    let next = self.next_page(range, next, stride);
                    self.actors[i].op = Some(Op::Access {
                        range,
                        next,
                        stride,
                        left: left - 1,
                        writes,
                    });
                }
                Ok(())
            }
            Op::Discard { range, rest, done } => self.step_discard(i, range, rest, done),
            Op::Pin {
                range,
                held: false,
                left,
            } => self.step_pin(i, range, left),
            Op::Pin {
                range,
                held: true,
                left,
            } => self.step_pinned(i, range, left),
            Op::Advise { range, advice } => self.step_advise(i, range, advice),
            Op::Protect {
                range,
                locked,
                stage,
            } => self.step_protect(i, range, locked, stage),
            Op::Free {
                ranges,
                mode,
                stage,
            } => self.step_free(i, ranges, mode, stage),
            Op::Recount { left } => self.step_recount(i, left),
            Op::Mark { range } => self.step_mark(i, range),
            Op::Unmark { range, stage } => self.step_unmark(i, range, stage),
            Op::Snapshot { range, stage } => self.step_snapshot(i, range, stage),
            Op::Remap { remap, stage } => self.step_remap(i, remap, stage),
            Op::Resize { resize, stage } => self.step_resize(i, resize, stage),
            Op::Regroup { range, group, from } => self.step_regroup(i, range, group, from),
            Op::RemoveGroup { group } => self.step_remove_group(i, group),
            Op::Sync { range, stage } => self.step_sync(i, range, stage),
            Op::End(end) => self.step_end(i, end),
            Op::Drop { range, stage } => self.step_drop(i, range, stage),
        }
    }

    fn next_page(&mut self, range: PageRange, page: PageIndex, stride: u32) -> PageIndex {
        let from = page.0 - range.start.0;
        let to = if stride == 0 {
            self.rng.below(range.len.0)
        } else {
            (from + stride) % range.len.0
        };
        range.start.plus(to)
    }

    fn step_discard(&mut self, i: usize, range: PageRange, rest: PageRange, done: bool) -> Check {
        if done {
            self.oracle.discard_ends(i, true)?;
            self.finish(i);
            return Ok(());
        }
        match self.ask(i, Event::Discard { range: rest })? {
            None => {}
            Some(Reply::Done) => {
                self.actors[i].op = Some(Op::Discard {
                    range,
                    rest,
                    done: true,
                });
                self.settle(i);
            }
            Some(Reply::More { from }) => {
                let rest = self.rest_of(rest, from)?;
                self.actors[i].op = Some(Op::Discard {
                    range,
                    rest,
                    done: false,
                });
                self.settle(i);
            }
            Some(Reply::Refused(Refusal::Pinned { page })) => {
                self.expect_pinned(page, rest)?;
                self.oracle.discard_ends(i, false)?;
                self.finish(i);
            }
            Some(other) => breach!("a discard of {rest} is answered with {other:?}"),
        }
        Ok(())
    }

    pub(crate) fn rest_of(&self, range: PageRange, from: PageIndex) -> Check<PageRange> {
        if from < range.start || from >= range.end() {
            breach!(at from, "the rest of {range} is said to begin at {from}");
        }
        Ok(range.tail(from))
    }

    /// Checks that a refusal because of a pin is justified: there must be a pin, at least in the folio.
    pub(crate) fn expect_pinned(&self, page: PageIndex, range: PageRange) -> Check {
        if !range.contains(page) || !self.mmu.is_pinned(page) {
            breach!(at page, "{range} is refused because of a pin of {page}, which is not pinned");
        }
        Ok(())
    }

    fn step_pin(&mut self, i: usize, range: PageRange, left: u32) -> Check {
        // Many pages under heavy pressure may never be resident all at once: a thread gives up eventually.
        let lost = self.actors[i].lost.is_some();
        if self.actors[i].rounds > PATIENT_ROUNDS || lost {
            self.finish(i);
            return Ok(());
        }
        match self.ask(i, Event::Pin { range })? {
            None => {}
            Some(Reply::Done) => {
                if let Some(command) = self.schedule.touches(range) {
                    breach!(at range.start, "{range} was pinned while {command:?} is not answered");
                }
                self.mmu.pin(range)?;
                self.actors[i].op = Some(Op::Pin {
                    range,
                    held: true,
                    left,
                });
            }
            Some(Reply::Refused(Refusal::Poisoned { page })) => {
                self.oracle.saw_poison(page)?;
                self.finish(i);
            }
            Some(other) => breach!("a pin of {range} is answered with {other:?}"),
        }
        Ok(())
    }

    fn step_pinned(&mut self, i: usize, range: PageRange, left: u32) -> Check {
        if left > 0 {
            let page = range.start.plus(self.rng.below(range.len.0));
            if !self.mmu.is_mapped(page) {
                breach!(at page, "{page} is pinned and not mapped");
            }
            self.touch(i, page, self.profile.writes)?;
            self.actors[i].op = Some(Op::Pin {
                range,
                held: true,
                left: left - 1,
            });
            return Ok(());
        }
        match self.ask(i, Event::Unpin { range })? {
            None => {}
            Some(Reply::Done) => {
                self.mmu.unpin(range);
                self.finish(i);
            }
            Some(other) => breach!("an unpin of {range} is answered with {other:?}"),
        }
        Ok(())
    }

    fn step_advise(&mut self, i: usize, range: PageRange, advice: Advice) -> Check {
        match self.ask(i, Event::Advise { range, advice })? {
            None => {}
            Some(Reply::Done) => {
                self.finish(i);
                self.settle(i);
            }
            Some(Reply::More { from }) => {
                let range = self.rest_of(range, from)?;
                self.actors[i].op = Some(Op::Advise { range, advice });
                self.settle(i);
            }
            Some(other) => breach!("advice about {range} is answered with {other:?}"),
        }
        Ok(())
    }

    fn step_protect(
        &mut self,
        i: usize,
        range: PageRange,
        locked: bool,
        stage: ProtectStage,
    ) -> Check {
        if let ProtectStage::Apply { announced } = stage {
            let note = Entry::World("protected", u64::from(locked), range);
            self.log.push(self.step, note);
            self.mmu.protections.push(Protection {
                range,
                locked,
                announced,
            });
            let announced = announced.is_some();
            let stage = ProtectStage::Held { announced };
            self.actors[i].op = Some(Op::Protect {
                range,
                locked,
                stage,
            });
            self.actors[i].blocked = Blocked::Until(self.step + u64::from(self.rng.below(2000)));
            return Ok(());
        }
        if self.siege && stage == (ProtectStage::Held { announced: true }) {
            self.actors[i].blocked = Blocked::Until(self.step + 100);
            return Ok(());
        }
        if let Some(place) = self.mmu.protections.iter().position(|p| p.range == range)
            && stage != ProtectStage::Announce
        {
            let note = Entry::World("unprotected", u64::from(locked), range);
            self.log.push(self.step, note);
            self.mmu.protections.swap_remove(place);
        }
        match self.ask(i, Event::Protected { range })? {
            None => {}
            Some(Reply::Done) if stage == ProtectStage::Announce => {
                let announced = Some(self.events);
                let stage = ProtectStage::Apply { announced };
                self.actors[i].op = Some(Op::Protect {
                    range,
                    locked,
                    stage,
                });
                self.settle(i);
            }
            Some(Reply::Done) => {
                self.finish(i);
                self.settle(i);
            }
            Some(other) => breach!("news of protection of {range} is answered with {other:?}"),
        }
        Ok(())
    }

    fn step_drop(&mut self, i: usize, range: PageRange, stage: DropStage) -> Check {
        let Some(place) = self.regions.iter().position(|r| r.range == range) else {
            breach!("actor {i} drops {range}, which is no region");
        };
        let stage = match stage {
            DropStage::Quiet if self.regions[place].users > 0 => {
                self.actors[i].blocked = Blocked::Until(self.step + 20);
                DropStage::Quiet
            }
            DropStage::Quiet if self.forget_volatile(range)? => DropStage::Purging,
            DropStage::Purging if self.must_wait_for_purges(i) => DropStage::Purging,
            DropStage::Quiet | DropStage::Purging => {
                self.actors[i].ended = self.detach(i, self.regions[place].id)?;
                self.oracle.discard_begins(i, range);
                self.begin_emptying(range)
            }
            DropStage::Discard { rest } => match self.ask(i, Event::Discard { range: rest })? {
                None => DropStage::Discard { rest },
                Some(Reply::Done) => {
                    self.settle(i);
                    DropStage::Settle
                }
                Some(Reply::More { from }) => {
                    self.settle(i);
                    DropStage::Discard {
                        rest: self.rest_of(rest, from)?,
                    }
                }
                Some(other) => breach!("a discard of {rest} is answered with {other:?}"),
            },
            DropStage::Gather { rest } => self.gather(i, rest)?,
            DropStage::GiveBack { rest } => self.give_back(i, rest)?,
            DropStage::Gathered { rest } => self.gathered(i, rest)?,
            DropStage::Settle => return self.drop_region(i, place),
        };
        self.actors[i].op = Some(Op::Drop { range, stage });
        Ok(())
    }

    fn drop_region(&mut self, i: usize, place: usize) -> Check {
        let region = self.regions[place];
        self.oracle.discard_ends(i, true)?;
        let reply = self.send(i, Event::DropRegion { region: region.id })?;
        if reply != Reply::Done {
            breach!("dropping {region:?} after its discard is answered with {reply:?}");
        }
        for page in region.range.pages() {
            if self.mmu.page(page) != crate::mmu::Slot::Empty {
                breach!(at page, "{page} of a dropped region is {:?}", self.mmu.page(page));
            }
        }
        self.durable.ends(region.range);
        self.disk.left(region.range);
        self.regions.swap_remove(place);
        self.end_bases(i)
    }
}
