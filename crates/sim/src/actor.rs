//! Threads as actors: what each of them is doing, and what it waits for.
//!
//! An actor is a small state machine. One step of an actor does one thing after which a thread could be interrupted: it
//! touches a page, sends one event, or processes one reply. Between two steps anything may happen. What a driver would
//! do inside one call is spread over several steps in the same way: a fault is *noted* in one step and *handled* in a
//! later one, when the page may long have been mapped, or its region may have become quiet.
//!
//! Two actors are not threads of the program: [`BACKGROUND`] reclaims ahead of need; [`OPERATOR`] changes the limit,
//! the weather and the store, and sends requests that must be refused.

use millpond_core::{
    Advice, Event, FreeMode, GroupId, PageCount, PageIndex, PageRange, Reclaimer, Refusal, Reply,
};

use crate::bases::{End, Ended};
use crate::mmu::{LINES, Slot};
use crate::remap::{Remap, RemapStage};
use crate::report::{Check, Entry, breach};
use crate::resize::{Resize, ResizeStage};
use crate::snapshot::SnapshotStage;
use crate::sync::SyncStage;
use crate::world::World;

/// The actor that keeps memory available.
pub const BACKGROUND: usize = 0;
/// The actor that changes the circumstances.
pub const OPERATOR: usize = 1;

/// The number of times that an actor requests the same thing before it counts as stuck.
const MAX_ROUNDS: u32 = 4000;
/// Rounds after which an actor gives up an unattainable request, or requests less.
pub(crate) const PATIENT_ROUNDS: u32 = 400;

/// The events that wake an actor while it waits at a page, from the most to the fewest.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Ear {
    /// Any completion at the page, installs and `Wake` wake it.
    Completions,
    /// Installs wake it, as the kernel wakes its waiters, and so does `Wake`.
    Installs,
    /// Only `Wake` wakes it.
    Wakes,
}

/// What an actor waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Blocked {
    /// The actor does not wait.
    #[default]
    No,
    /// The actor waits until something completes at this page.
    OnPage {
        /// The page.
        page: PageIndex,
        /// The events that wake the actor.
        ear: Ear,
    },
    /// The actor waits for the commands that came with its own events.
    OnCommands,
    /// The actor waits for any completion.
    OnAny,
    /// The actor waits for this step.
    Until(u64),
}

/// The operation of an actor.
#[derive(Clone, Copy, Debug)]
pub enum Op {
    /// Touch pages: `left` more of `range`, from `next` on with this stride, or at random when the stride is 0.
    Access {
        /// The range to touch.
        range: PageRange,
        /// The page to touch next.
        next: PageIndex,
        /// Distance to the page after `next`; 0 for a random page of the range.
        stride: u32,
        /// Pages still to touch.
        left: u32,
        /// Chance of a write, per mille.
        writes: u32,
    },
    /// Discard a range; `rest` is the last part of it, which is still to be done.
    Discard {
        /// The whole range.
        range: PageRange,
        /// The part that the core has not reported as done.
        rest: PageRange,
        /// The core has said that everything is done or under way.
        done: bool,
    },
    /// Pin a range, touch it `left` times, and unpin it.
    Pin {
        /// The range.
        range: PageRange,
        /// The pin is held.
        held: bool,
        /// Touches left.
        left: u32,
    },
    /// Give a hint.
    Advise {
        /// The range.
        range: PageRange,
        /// The hint.
        advice: Advice,
    },
    /// Protect a range, wait, and take the protection away.
    Protect {
        /// The range.
        range: PageRange,
        /// The range's pages refuse to move.
        locked: bool,
        /// The stage of the operation.
        stage: ProtectStage,
    },
    /// Lazily free some ranges by one call, then drop the pages beyond the cap.
    Free {
        /// The ranges.
        ranges: Ranges,
        /// The mode of the lazy free.
        mode: FreeMode,
        /// The stage of the operation.
        stage: FreeStage,
    },
    /// Recount all lazily freed memory.
    Recount {
        /// Pages that have not been examined yet.
        left: PageCount,
    },
    /// Mark a range volatile.
    Mark {
        /// The range.
        range: PageRange,
    },
    /// Take a volatile mark back.
    Unmark {
        /// The range.
        range: PageRange,
        /// The stage of the operation.
        stage: UnmarkStage,
    },
    /// Take a snapshot of a region. The range names the region.
    Snapshot {
        /// The region's pages.
        range: PageRange,
        /// The stage of the operation.
        stage: SnapshotStage,
    },
    /// Move pages.
    Remap {
        /// The pages and their destination.
        remap: Remap,
        /// The stage of the operation.
        stage: RemapStage,
    },
    /// Give a region another length.
    Resize {
        /// The region and its new length.
        resize: Resize,
        /// The stage of the operation.
        stage: ResizeStage,
    },
    /// Move a region to another group. The range names the region.
    Regroup {
        /// The region's pages.
        range: PageRange,
        /// The new group.
        group: GroupId,
        /// The page at which the move continues.
        from: PageIndex,
    },
    /// Remove a group.
    RemoveGroup {
        /// The group to remove.
        group: GroupId,
    },
    /// Write the changed pages of a shared file, and wait until the device has them.
    Sync {
        /// The pages.
        range: PageRange,
        /// The stage of the operation.
        stage: SyncStage,
    },
    /// End a base with at most one heir.
    End(End),
    /// Discard all of a region, then drop the region. The range names it.
    Drop {
        /// The region's pages.
        range: PageRange,
        /// The stage of the operation.
        stage: DropStage,
    },
}

/// How far a change of protection has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ProtectStage {
    /// Next: tell the core before the call, as a driver does that intercepts the call.
    Announce,
    /// Next: protect the memory.
    Apply {
        /// The event by which the core was told beforehand.
        announced: Option<u64>,
    },
    /// The protection is in force, for a while.
    Held {
        /// The core was told before the call.
        announced: bool,
    },
}

/// The ranges of one call; the empty ranges at the end do not count.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Ranges(pub [PageRange; 4]);

impl Ranges {
    /// The range at `nth`, if there is one.
    #[must_use]
    pub fn get(&self, nth: usize) -> Option<PageRange> {
        self.0.get(nth).copied().filter(|range| !range.is_empty())
    }

    /// Every range of the call, in order.
    pub fn iter(&self) -> impl Iterator<Item = PageRange> + '_ {
        (0..).map_while(|nth| self.get(nth))
    }
}

/// How far a lazy free has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FreeStage {
    /// Nothing has been requested yet.
    Begin,
    /// A part of one range is left, and so are the ranges after it.
    Go {
        /// The number of the range.
        nth: usize,
        /// The part of the range that the core has not reported as done.
        rest: PageRange,
    },
    /// The last commands are under way.
    Settle {
        /// The core did not refuse the call.
        whole: bool,
    },
    /// The pages beyond the cap are being dropped.
    Trim,
}

/// How far the end of a volatile mark has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum UnmarkStage {
    /// Next: ask the book of volatile ranges.
    Ask,
    /// The range was purged, and the actor waits for ongoing purges.
    Purging,
    /// The pages that the purge skipped are being discarded.
    Discard {
        /// The part that the core has not reported as done.
        rest: PageRange,
    },
    /// The discard's last commands are under way.
    Settle,
}

/// How far the purge of a volatile range has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PurgeStage {
    /// A part of the range is left.
    Drop {
        /// The part that the core has not reported as done.
        rest: PageRange,
    },
    /// The last commands are under way.
    Settle,
}

/// How far the end of a region has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DropStage {
    /// Other operations still work in the region.
    Quiet,
    /// The actor waits for ongoing purges: one of them may have taken a range of the region before the range was
    /// forgotten.
    Purging,
    /// The region is being discarded.
    Discard {
        /// The part that the core has not reported as done.
        rest: PageRange,
    },
    /// The region's memory is being unhooked.
    Gather {
        /// The part that is still hooked.
        rest: PageRange,
    },
    /// Next: return the unhooked memory to the MMU and the store.
    GiveBack {
        /// The part that is still hooked.
        rest: Option<PageRange>,
    },
    /// The memory was returned. Next: tell the core.
    Gathered {
        /// The part that is still hooked.
        rest: Option<PageRange>,
    },
    /// The region is empty, or the last commands are under way.
    Settle,
}

/// One actor.
#[derive(Clone, Copy, Debug, Default)]
pub struct Actor {
    /// The operation of the actor.
    pub op: Option<Op>,
    /// What the actor waits for.
    pub blocked: Blocked,
    /// The fault that the actor has to resolve first.
    pub fault: Option<PageIndex>,
    /// A page that its file could not provide; the actor has to forget that failure.
    pub again: Option<PageIndex>,
    /// Pages that the actor has to reclaim before it resolves the fault.
    pub reclaim: Option<PageCount>,
    /// The group in which the actor has to reclaim.
    pub reclaim_in: GroupId,
    /// The taking out of a leaf has begun, and the actor has to continue it.
    pub leaf: bool,
    /// The actor has reclaimed because the group of its fault was above its high.
    pub throttled: bool,
    /// The actor's ongoing purge; it comes before anything else.
    pub purge: Option<PurgeStage>,
    /// The actor has purged since it began to reclaim.
    pub purged: bool,
    /// The number of the actor's commands under way.
    pub outstanding: u32,
    /// An install of the actor's own was answered with "split": it faults page by page until it moves on.
    pub split: bool,
    /// How often the actor has requested the same thing.
    pub rounds: u32,
    /// The actor's region, by its first page, while an operation counts as a user of the region.
    pub using: Option<PageIndex>,
    /// The page whose inherited contents are lost, as reported to the actor.
    pub lost: Option<PageIndex>,
    /// The bases left behind by the region that the actor is dropping.
    pub ended: Ended,
}

impl World {
    /// Whether actor `i` could take a step now.
    #[must_use]
    pub fn is_ready(&self, i: usize) -> bool {
        match self.actors[i].blocked {
            Blocked::No => true,
            Blocked::Until(step) => step <= self.step,
            _ => false,
        }
    }

    /// Takes one step of actor `i`, which has an operation, a fault or something to reclaim.
    ///
    /// # Errors
    /// A rule was broken.
    pub fn step_actor(&mut self, i: usize) -> Check {
        self.actors[i].blocked = Blocked::No;
        if let Some(stage) = self.actors[i].purge {
            return self.step_purge(i, stage);
        }
        if let Some(pages) = self.actors[i].reclaim.take() {
            return self.reclaim_directly(i, pages);
        }
        if let Some(page) = self.actors[i].again {
            return self.step_again(i, page);
        }
        if let Some(page) = self.actors[i].fault.take() {
            return self.handle_fault(i, page);
        }
        if let Some(op) = self.actors[i].op {
            self.step_op(i, op)?;
        }
        Ok(())
    }

    /// Sends `event` for an operation and handles the replies common to all operations. Returns `None` if the operation
    /// has to ask again, after doing what the reply demanded.
    ///
    /// # Errors
    /// A rule was broken.
    pub fn ask(&mut self, i: usize, event: Event) -> Check<Option<Reply>> {
        self.one_more_round(i, &event)?;
        let reply = self.send(i, event)?;
        match reply {
            Reply::Wait { page } => self.wait_at(i, page, Ear::Wakes)?,
            Reply::NeedsResident { page } => {
                self.actors[i].fault = Some(page);
            }
            Reply::Reclaim { pages } => self.actors[i].reclaim = Some(pages),
            Reply::ReclaimGroup { group, pages } => self.must_reclaim(i, group, pages),
            _ => return Ok(Some(reply)),
        }
        Ok(None)
    }

    pub(crate) fn must_reclaim(&mut self, i: usize, group: GroupId, pages: PageCount) {
        let actor = &mut self.actors[i];
        (actor.reclaim, actor.reclaim_in) = (Some(pages), group);
    }

    /// Sends one batch of reclaim.
    ///
    /// # Errors
    /// A rule was broken.
    pub fn reclaim(&mut self, i: usize, pages: PageCount, by: Reclaimer) -> Check {
        let group = std::mem::take(&mut self.actors[i].reclaim_in);
        let event = match group {
            GroupId::ROOT => Event::Reclaim { pages, by },
            group => Event::ReclaimGroup { group, pages, by },
        };
        match self.send(i, event)? {
            Reply::Done => {}
            // A leaf is being taken out: that continues at the next step.
            Reply::More { .. } => {
                let actor = &mut self.actors[i];
                (actor.reclaim, actor.reclaim_in) = (Some(pages), group);
                actor.leaf = true;
                self.settle(i);
                return Ok(());
            }
            // The group was removed in the meantime.
            Reply::Refused(Refusal::UnknownGroup) if group != GroupId::ROOT => {}
            reply => breach!("reclaim is answered with {reply:?}"),
        }
        if self.actors[i].outstanding > 0 {
            self.actors[i].blocked = Blocked::OnCommands;
        } else if !self.schedule.is_empty() {
            self.actors[i].blocked = Blocked::OnAny;
        } else if by == Reclaimer::Background {
            self.actors[i].blocked = Blocked::Until(self.step + 100);
        } else {
            // Nothing was done, and nothing is under way: a single page is requested next, as in the driver.
            self.actors[i].split = true;
        }
        Ok(())
    }

    /// Waits for the actor's own commands, if there are any under way.
    pub fn settle(&mut self, i: usize) {
        if self.actors[i].outstanding > 0 {
            self.actors[i].blocked = Blocked::OnCommands;
        }
    }

    /// Ends the actor's operation.
    pub fn finish(&mut self, i: usize) {
        let actor = &mut self.actors[i];
        actor.op = None;
        actor.rounds = 0;
        actor.split = false;
        actor.lost = None;
        if let Some(start) = actor.using.take()
            && let Some(region) = self.regions.iter_mut().find(|r| r.range.start == start)
        {
            region.users -= 1;
        }
    }

    /// Touches `page`. Returns true if that was possible or proved impossible (poison), and false if the page faulted
    /// and the fault was noted.
    ///
    /// # Errors
    /// The page does not read as it must.
    pub fn touch(&mut self, i: usize, page: PageIndex, writes: u32) -> Check<bool> {
        let write = self.rng.chance(writes);
        match self.mmu.page(page) {
            Slot::Mapped(content) => {
                if write {
                    let line = self.rng.below(LINES as u32) as usize;
                    let zero = self.rng.chance(self.profile.zeros);
                    self.stamp += 1;
                    let before = self.disk.line_as_read(page, line);
                    let value = match before.filter(|_| self.rng.chance(200)) {
                        Some(before) => before,
                        None if zero => 0,
                        None => self.stamp,
                    };
                    self.mmu.write(page, line, value);
                    self.oracle.write(page, line, value);
                    self.durable.wrote(page, line, value);
                    self.log.push(self.step, Entry::Wrote(i, page, line, value));
                } else {
                    self.log.push(self.step, Entry::Read(i, page));
                    self.oracle.read(page, content)?;
                }
                self.actors[i].rounds = 0;
                self.actors[i].split = false;
                Ok(true)
            }
            // A touch of a page that its file could not provide requests it once more.
            Slot::Poisoned if self.may_have_again(page) && (self.calm || self.rng.chance(300)) => {
                self.actors[i].again = Some(page);
                Ok(false)
            }
            // Occasionally the fault was noted just before the poison came, and still has to be handled.
            Slot::Poisoned if self.rng.chance(200) => {
                self.actors[i].fault = Some(page);
                Ok(false)
            }
            Slot::Poisoned => {
                self.log.push(self.step, Entry::SawPoison(i, page));
                self.oracle.saw_poison(page)?;
                Ok(true)
            }
            Slot::Empty if self.actors[i].lost.take() == Some(page) => {
                self.log.push(self.step, Entry::SawPoison(i, page));
                Ok(true)
            }
            Slot::Empty => {
                self.actors[i].fault = Some(page);
                Ok(false)
            }
        }
    }

    pub(crate) fn wait_at(&mut self, i: usize, page: PageIndex, strict: Ear) -> Check {
        if !self.is_under_way(page) {
            breach!(at page, "actor {i} is to wait at {page}, where nothing is under way");
        }
        let ear = if self.profile.strict_wake {
            strict
        } else {
            Ear::Completions
        };
        self.actors[i].blocked = Blocked::OnPage { page, ear };
        Ok(())
    }

    pub(crate) fn one_more_round(&mut self, i: usize, event: &Event) -> Check {
        self.actors[i].rounds += 1;
        if self.actors[i].rounds > MAX_ROUNDS {
            let stats = self.core.stats();
            breach!("actor {i} gets nowhere: {event:?} was asked {MAX_ROUNDS} times; {stats:?}");
        }
        Ok(())
    }
}
