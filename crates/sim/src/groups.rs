//! Groups: a tree that changes while the program works in it.
//!
//! The operator makes groups, changes their limits and removes them; threads move regions between them, along with
//! everything under way in these regions. Faults that find a group at its max reclaim there, and faults that leave a
//! group above its high reclaim afterwards, as in the driver.
//!
//! Three rules must hold. No group's charges exceed its max, unless memory was moved there, the max was lowered, or the
//! store accepted nothing (then the charges only shrink towards the max). Reclaim takes nothing from a group below its
//! low while another group, which is not below its low, has something to give. At rest a group's figures are the sums
//! of its regions' pages in memory.

use millpond_core::{
    Command, Event, GroupId, GroupLimits, PageCount, PageIndex, PageRange, Refusal, Reply,
};

use crate::actor::{OPERATOR, Op};
use crate::profile::Sabotage;
use crate::report::{Check, Coverage, breach, command_folio, command_range};
use crate::world::World;

/// Groups that exist at once, in addition to the root.
const MAX_GROUPS: usize = 10;

/// The cases of groups that the fixed seeds must cover.
pub const SEEN: [&str; 11] = [
    "made",
    "made below another",
    "removed with memory",
    "moved with memory",
    "moved in parts",
    "moved with something in flight",
    "above its high",
    "a low was respected",
    "on several nodes",
    "too deep",
    "left its history behind",
];

/// A group of the simulated program.
#[derive(Clone, Copy, Debug)]
pub struct SimGroup {
    /// The group's name.
    pub id: GroupId,
    /// Its parent.
    pub parent: GroupId,
    /// The group's limits.
    pub limits: GroupLimits,
    /// Pages with which the group may be charged now: its max, or its charge when the max was lowered or a move brought
    /// memory.
    pub allowance: u32,
    /// Faults that were served beyond the max, because the store accepted nothing.
    pub beyond: u64,
}

/// A group without children, as it was before an event.
#[derive(Clone, Copy, Debug)]
pub struct Before {
    id: GroupId,
    safe: bool,
    has_to_give: bool,
}

impl World {
    /// Makes the first groups.
    ///
    /// # Errors
    /// A rule is broken.
    pub(crate) fn make_groups(&mut self) -> Check {
        if self.profile.groups == 0 {
            return Ok(());
        }
        if self.profile.config.nodes > 1 {
            self.count_group("on several nodes");
        }
        for _ in 0..self.rng.between(2, 5) {
            self.make_group()?;
        }
        Ok(())
    }

    fn make_group(&mut self) -> Check {
        let (parent, limits) = (self.any_group(), self.draw_limits());
        match self.send(OPERATOR, Event::CreateGroup { parent, limits })? {
            Reply::Group { group } => {
                if group == GroupId::ROOT || self.groups.iter().any(|g| g.id == group) {
                    breach!("the new group {group:?} is not its own");
                }
                self.groups.push(SimGroup {
                    id: group,
                    parent,
                    limits,
                    allowance: limits.max.0,
                    beyond: 0,
                });
                self.count_group("made");
                if parent != GroupId::ROOT {
                    self.count_group("made below another");
                }
                Ok(())
            }
            Reply::Refused(Refusal::TooDeep) => Ok(()),
            other => breach!("a group below {parent:?} is answered with {other:?}"),
        }
    }

    /// The root or any other group.
    pub(crate) fn any_group(&mut self) -> GroupId {
        let n = self.rng.below(self.groups.len() as u32 + 1) as usize;
        self.groups.get(n).map_or(GroupId::ROOT, |group| group.id)
    }

    fn draw_limits(&mut self) -> GroupLimits {
        let none = GroupLimits::NONE;
        let mut limits = GroupLimits::default();
        if self.rng.chance(500) {
            limits.max = PageCount(self.rng.between(1024, 4096));
        }
        if self.rng.chance(300) {
            let most = limits.max.min(PageCount(4096)).0;
            limits.high = PageCount(self.rng.between(most / 2, most));
        } else {
            limits.high = limits.max;
        }
        let most = if limits.high == none {
            2000
        } else {
            limits.high.0
        };
        if self.rng.chance(400) {
            limits.low = PageCount(self.rng.below(most + 1));
        }
        if self.rng.chance(200) {
            limits.min = PageCount(self.rng.below(most / 2 + 1));
        }
        if self.rng.chance(200) {
            limits.lazyfree_max = PageCount(self.rng.below(500));
        }
        limits
    }

    /// Makes the operator do something with groups.
    ///
    /// # Errors
    /// A rule is broken.
    pub(crate) fn operate_groups(&mut self) -> Check {
        let place = self.rng.below(self.groups.len().max(1) as u32) as usize;
        let picked = self.groups.get(place).copied();
        match (self.rng.below(10), picked) {
            (0..3, _) | (_, None) if self.groups.len() < MAX_GROUPS => self.make_group(),
            (3..7, Some(group)) => {
                let (id, limits) = (group.id, self.draw_limits());
                if self.options.sabotage != Some(Sabotage::KeepLimits) {
                    self.expect(Event::SetGroupLimits { group: id, limits }, Reply::Done)?;
                }
                let usage = self.usage_of(id);
                let known = &mut self.groups[place];
                known.limits = limits;
                known.allowance = limits.max.0.max(usage);
                Ok(())
            }
            (7..9, Some(group)) => self.begin_removal(group),
            _ => self.ask_for_impossible_groups(),
        }
    }

    fn begin_removal(&mut self, group: SimGroup) -> Check {
        if self.groups.iter().any(|other| other.parent == group.id) {
            let event = Event::RemoveGroup { group: group.id };
            return self.expect(event, Reply::Refused(Refusal::GroupInUse));
        }
        if self.usage_of(group.id) > 0 {
            self.count_group("removed with memory");
        }
        self.groups.retain(|other| other.id != group.id);
        let owners = self.regions.iter_mut().map(|region| &mut region.group);
        for owner in owners.chain(self.bases.iter_mut().map(|base| &mut base.group)) {
            if *owner == group.id {
                *owner = group.parent;
            }
        }
        self.actors[OPERATOR].op = Some(Op::RemoveGroup { group: group.id });
        self.step_remove_group(OPERATOR, group.id)
    }

    /// Sends one event of the end of a group.
    ///
    /// # Errors
    /// A rule is broken.
    pub(crate) fn step_remove_group(&mut self, i: usize, group: GroupId) -> Check {
        match self.send(i, Event::RemoveGroup { group })? {
            Reply::More { .. } => Ok(()),
            Reply::Done => {
                self.finish(i);
                self.expect(
                    Event::SetGroupLimits {
                        group,
                        limits: GroupLimits::default(),
                    },
                    Reply::Refused(Refusal::UnknownGroup),
                )
            }
            other => breach!("the removal of {group:?} is answered with {other:?}"),
        }
    }

    fn ask_for_impossible_groups(&mut self) -> Check {
        let (unknown, limits) = (GroupId(999), GroupLimits::default());
        let refused = |why| Reply::Refused(why);
        Coverage::count(&mut self.coverage.injected, "impossible");
        match self.rng.below(7) {
            0 => self.expect(
                Event::CreateGroup {
                    parent: unknown,
                    limits,
                },
                refused(Refusal::UnknownGroup),
            ),
            1 => self.expect(
                Event::SetGroupLimits {
                    group: GroupId::ROOT,
                    limits,
                },
                refused(Refusal::UnknownGroup),
            ),
            2 => self.expect(
                Event::RemoveGroup {
                    group: GroupId::ROOT,
                },
                refused(Refusal::GroupInUse),
            ),
            3 => self.expect(
                Event::CreateGroup {
                    parent: GroupId::ROOT,
                    limits: GroupLimits {
                        low: PageCount(3000),
                        high: PageCount(2000),
                        ..limits
                    },
                },
                refused(Refusal::BadLimits),
            ),
            4 => match self.regions.iter().find(|region| !region.closing).copied() {
                Some(region) => self.expect(
                    Event::MoveRegion {
                        region: region.id,
                        group: unknown,
                        from: region.range.start,
                    },
                    refused(Refusal::UnknownGroup),
                ),
                None => Ok(()),
            },
            5 if self.rng.chance(100) => self.make_a_chain(),
            _ => Ok(()),
        }
    }

    /// Makes a chain of nested groups until that is refused, and then removes them all.
    fn make_a_chain(&mut self) -> Check {
        let (mut chain, mut parent) = (Vec::new(), GroupId::ROOT);
        loop {
            let limits = GroupLimits::default();
            match self.send(OPERATOR, Event::CreateGroup { parent, limits })? {
                Reply::Group { group } if chain.len() < 64 => {
                    chain.push(group);
                    parent = group;
                }
                Reply::Refused(Refusal::TooDeep) => break,
                other => breach!(
                    "group {} of a chain is answered with {other:?}",
                    chain.len()
                ),
            }
        }
        self.count_group("too deep");
        for group in chain.into_iter().rev() {
            self.expect(Event::RemoveGroup { group }, Reply::Done)?;
        }
        Ok(())
    }

    /// Sends one event of a region's move to another group. The range names the region.
    ///
    /// # Errors
    /// A rule is broken.
    pub(crate) fn step_regroup(
        &mut self,
        i: usize,
        range: PageRange,
        group: GroupId,
        from: PageIndex,
    ) -> Check {
        let Some(place) = self.regions.iter().position(|r| r.range == range) else {
            breach!("actor {i} moves {range}, which is no region");
        };
        let region = self.regions[place];
        let first = from == range.start;
        let held = self.usage_of(region.group);
        let flies = self
            .schedule
            .iter()
            .any(|pending| command_range(&pending.command).is_some_and(|at| range.covers(at)));
        let event = Event::MoveRegion {
            region: region.id,
            group,
            from,
        };
        let reply = self.send(i, event)?;
        match reply {
            // Another thread is moving the region, or the group was removed before this thread could name it.
            Reply::Refused(Refusal::Busy | Refusal::UnknownGroup) if first => {
                let known = group == GroupId::ROOT || self.groups.iter().any(|g| g.id == group);
                if known && reply == Reply::Refused(Refusal::UnknownGroup) {
                    breach!("{group:?} is not known");
                }
                self.finish(i);
                return Ok(());
            }
            Reply::Done | Reply::More { .. } => {}
            other => breach!("{event:?} is answered with {other:?}"),
        }
        if first {
            self.regions[place].group = group;
        }
        if held != self.usage_of(region.group) {
            self.count_group("moved with memory");
            if flies {
                self.count_group("moved with something in flight");
            }
        }
        match reply {
            Reply::More { from } => {
                self.rest_of(range, from)?;
                self.count_group("moved in parts");
                if self.options.sabotage == Some(Sabotage::LeaveMove) {
                    self.finish(i);
                } else {
                    self.actors[i].op = Some(Op::Regroup { range, group, from });
                }
            }
            _ => self.finish(i),
        }
        Ok(())
    }

    fn usage_of(&self, group: GroupId) -> u32 {
        self.core.group_usage(group).map_or(0, |(usage, _)| usage.0)
    }

    /// The groups without children, before a request for reclaim.
    pub(crate) fn groups_before(&self, event: &Event) -> Vec<Before> {
        let blocked = self.core.store_blocked() || self.core.files_blocked();
        let asked = matches!(event, Event::Reclaim { .. }) && !blocked;
        if self.groups.is_empty() || !asked {
            return Vec::new();
        }
        // Large folios may find no place in the pool.
        let large = |id| self.regions.iter().any(|r| r.group == id && r.largest > 4);
        let leaf = |id: GroupId| !self.groups.iter().any(|other| other.parent == id);
        let leaves = self.groups.iter().filter(|group| leaf(group.id));
        leaves
            .filter_map(|group| {
                let stat = self.core.group_stat(group.id)?;
                let mapped = stat.vm.nr_active + stat.vm.nr_inactive;
                // If the kernel has refused all of them, the group has nothing to give (seed 29422893).
                let can_give = !large(group.id) && !self.core.all_refused(group.id);
                Some(Before {
                    id: group.id,
                    safe: stat.protected.1 >= stat.usage,
                    has_to_give: mapped > 0 && can_give,
                })
            })
            .collect()
    }

    /// Checks that reclaim for all groups takes nothing from a group below its low while another has something to give
    /// and there are places in the pool.
    ///
    /// # Errors
    /// Reclaim did so.
    pub(crate) fn check_protection(&mut self, before: &[Before], given: &[Command]) -> Check {
        let others = before.iter().any(|group| !group.safe && group.has_to_give);
        let short = given.iter().any(|c| matches!(c, Command::FreeFrame { .. }));
        if !others || short || self.profile.is_cramped || before.iter().all(|group| !group.safe) {
            return Ok(());
        }
        for command in given {
            // A leaf may have been chosen when its group was not yet protected.
            if !matches!(command, Command::Save { .. } | Command::TakeOut { .. }) {
                continue;
            }
            let known = |folio| self.folio_at.get(&folio).copied();
            let at = command_range(command).or_else(|| command_folio(command).and_then(known));
            let Some(at) = at else { continue };
            let owner = self.core.group_at(at.start);
            if before.iter().any(|group| group.id == owner && group.safe) {
                breach!(at at.start, "{command:?} takes from {owner:?}, which is below its low: {before:?}");
            }
            self.count_group("a low was respected");
        }
        Ok(())
    }

    /// Allows a group more than its max if a move or a merge brings it.
    pub(crate) fn allow_moves(&mut self, event: &Event) {
        let moves = matches!(
            event,
            Event::MoveRegion { .. } | Event::Remap { .. } | Event::Merge { .. }
        );
        for place in 0..self.groups.len() * usize::from(moves) {
            let usage = self.usage_of(self.groups[place].id);
            let group = &mut self.groups[place];
            group.allowance = group.allowance.max(usage);
        }
    }

    /// Checks that no group has more than allowed.
    ///
    /// # Errors
    /// A group has more.
    pub(crate) fn check_group_budgets(&mut self) -> Check {
        for place in 0..self.groups.len() {
            let group = self.groups[place];
            let (usage, events) = self.core.group_usage(group.id).unwrap_or_default();
            let (usage, beyond) = (usage.0, events.beyond);
            let allowance = match beyond == group.beyond {
                true => group.allowance,
                false => group.allowance.max(usage),
            };
            self.groups[place].beyond = beyond;
            if usage > allowance {
                breach!("{group:?} is charged with {usage} pages");
            }
            self.groups[place].allowance = group.limits.max.0.max(allowance.min(usage));
        }
        Ok(())
    }

    /// Checks, at rest, that a group's figures are the sums over the regions in it, and below it, of their pages in
    /// memory.
    ///
    /// # Errors
    /// The figures are not these sums.
    pub(crate) fn check_group_gauges(&self) -> Check {
        let parent = |id| self.groups.iter().find(|g| g.id == id).map(|g| g.parent);
        let is_below = |id, above| {
            std::iter::successors(Some(id), |&id| parent(id)).any(|group| group == above)
        };
        let owned = |above| {
            let regions = self.regions.iter().map(|r| (r.group, r.range));
            let bases = self.bases.iter().map(|b| (b.group, b.range));
            let all = regions.chain(bases);
            all.filter(move |(group, _)| is_below(*group, above))
        };
        let roots = std::iter::once(GroupId::ROOT);
        for id in roots.chain(self.groups.iter().map(|group| group.id)) {
            let Some(stat) = self.core.group_stat(id) else {
                breach!("{id:?} is not known to the core");
            };
            let pages = || owned(id).flat_map(|(_, range)| range.pages());
            let mapped = pages().filter(|&page| self.mmu.is_mapped(page)).count() as u64;
            if stat.vm.nr_mapped != mapped {
                breach!(
                    "{id:?} says that {} pages are mapped, {mapped} are",
                    stat.vm.nr_mapped
                );
            }
            let swapped = |page: &PageIndex| {
                let state = self.core.page_state(*page);
                use millpond_core::PageState::{Poisoned, Swapped};
                matches!(state, Swapped | Poisoned)
            };
            let stored = pages().filter(swapped).count() as u64;
            if stat.vm.nr_swapped != stored {
                breach!(
                    "{id:?} says that {} pages are in the store, {stored} are",
                    stat.vm.nr_swapped
                );
            }
        }
        Ok(())
    }

    /// Counts the cases of groups.
    pub(crate) fn count_group(&mut self, what: &'static str) {
        Coverage::count(&mut self.coverage.groups, what);
    }
}
