//! Groups: who is charged for memory, and how much of it they may have. (Nodes tell where the memory is.)
//!
//! # The tree
//! Groups form a tree below the root, which has all memory. A region belongs to one group. The memory that is brought
//! in for its pages, mapped or in limbo, is charged to that group and to all groups above it; frames that hold nothing
//! are charged to no group. Each group has four marks, those of Linux's memory cgroups:
//!
//! - *max* is a hard limit: a fault that would exceed it reclaims in the group first, however much memory is free
//!   elsewhere;
//! - *high* is a soft limit: a fault that finds the group above it reclaims there first. (It does not reclaim after the
//!   fault was served, which could take the page away before it is touched);
//! - memory below *low* is spared as long as another group has more than its low;
//! - memory below *min* is spared as long as there is memory that is not below a min.
//!
//! # Protection
//! Reclaim on behalf of a group (the root, when the budget is short) takes from all groups below it in proportion to
//! the memory that they have beyond their protection. So a quiet group does not pay for a busy one: it may keep the
//! memory that it uses, up to low. A group cannot give its children more protection than it has from its own parent, so
//! protection is computed from the top down. A child claims the lower of its use and its mark. It gets its whole claim
//! if the parent's share covers all claims, and otherwise a part of the parent's share in proportion to its claim. The
//! part of the parent's share that no child claims is divided among the children by the memory that they have beyond
//! their claims.
//!
//! A wrong mark has a bounded cost: with a low that is too high, the other groups swap; with a low that is too low, the
//! group's memory is reclaimed by its last use, like all other memory. Nothing hangs: when all of the memory is below a
//! min, the mins are broken, and that is counted.
//!
//! # Turns
//! Reclaim's batches differ in size, so proportions are kept over many of them. Each lruvec has a clock for each group
//! above it. A batch on behalf of that group advances the clock by the pages that it took, divided by the pages that
//! the lruvec has beyond its protection. The lruvec whose clock is behind all others gives the next batch. A lruvec
//! that had nothing to give for a while starts at the others' time.
//!
//! # The end
//! A removed group leaves its regions, its memory and its counters to its parent. Its folios change lists a bounded
//! number at a time, and become older than the parent's own, because nobody asks for that group any longer. Folios in
//! flight follow when they are listed; until then the number stays in use.

use crate::addr::PageCount;
use crate::ids::GroupId;
use crate::limits::{MAX_GROUP_DEPTH, MAX_GROUPS, MIN_GROUP_MAX};
use crate::stats::VmStat;
use std::collections::VecDeque;

/// How much memory a group, with all below it, may have, in pages. [`GroupLimits::NONE`] means no mark.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GroupLimits {
    /// Memory below this is not taken as long as any other memory can be.
    pub min: PageCount,
    /// Memory below this is not taken as long as another group has more than its low. A low below `min` counts as
    /// `min`.
    pub low: PageCount,
    /// Above this the group's faults reclaim in the group before they are served.
    pub high: PageCount,
    /// The group never has more than this, except for pages in flight.
    pub max: PageCount,
    /// Lazily freed pages beyond this many are dropped.
    pub lazyfree_max: PageCount,
}

impl GroupLimits {
    /// No mark.
    pub const NONE: PageCount = PageCount(u32::MAX);

    /// Whether max(min, low) ≤ high ≤ max holds, and max leaves room to work in ([`MIN_GROUP_MAX`]).
    #[must_use]
    pub fn are_consistent(&self) -> bool {
        let protected = self.low.max(self.min);
        protected <= self.high && self.high <= self.max && self.max.0 >= MIN_GROUP_MAX
    }
}

impl Default for GroupLimits {
    fn default() -> Self {
        Self {
            min: PageCount::ZERO,
            low: PageCount::ZERO,
            high: Self::NONE,
            max: Self::NONE,
            lazyfree_max: Self::NONE,
        }
    }
}

/// The memory, marks and counters of a group, with all below it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct GroupStat {
    /// The group's counters and gauges, as far as they belong to a group; the others are zero.
    pub vm: VmStat,
    /// Pages charged to the group.
    pub usage: PageCount,
    /// Pages of `usage` that are protected while other groups have more than their own protection: by min, then by low,
    /// as far as the groups above it allow.
    pub protected: (PageCount, PageCount),
    /// The group's marks.
    pub limits: GroupLimits,
    /// How often the marks have had an effect.
    pub events: GroupEvents,
}

/// Counts of a group, as Linux has them in `memory.events`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct GroupEvents {
    /// Number of batches that took from the group although it was below its low (or its min).
    pub low: u64,
    /// Number of times that one of its threads reclaimed because the group was above its high.
    pub high: u64,
    /// Number of times that one of its faults found no room below its max.
    pub max: u64,
    /// Of the faults in `max`, those that were served nonetheless, because the store accepted nothing.
    pub beyond: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Life {
    Unused,
    Live,
    /// The group was removed. Some of its folios are in flight, or, until it was emptied, wait to change lists.
    Dying {
        emptied: bool,
    },
}

/// One group.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    pub(crate) life: Life,
    parent: Option<GroupId>,
    children: u16,
    /// How many groups lie above this one.
    depth: u8,
    /// For a dying group: how many leaf tables were searched for those that are charged to it.
    pub(crate) tables_passed: u32,
    pub(crate) limits: GroupLimits,
    /// Pages charged to this group and those below.
    usage: u32,
    /// The sum of the children's claims: for each child the lower of use and mark.
    claimed: Marks,
    /// Lazily freed pages of this group and those below. `lazy_leaving` are those of them on their way out.
    pub(crate) lazy: u32,
    pub(crate) lazy_leaving: u32,
    /// Mapped pages of the group's own memory. `limbo` are its pages in limbo.
    pub(crate) mapped: u32,
    pub(crate) limbo: u32,
    /// The group's own pages whose entry is not empty; `zeros` are those of them that left memory as zeros.
    pub(crate) held: u32,
    pub(crate) zeros: u32,
    /// The time of the turns that reclaim on this group's behalf follows; see `ops/reclaim.rs`.
    pub(crate) turn: u64,
    /// Counters of the group's own memory.
    pub(crate) stat: VmStat,
    pub(crate) events: GroupEvents,
}

/// Protection by min and by low.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Marks {
    pub(crate) min: u32,
    pub(crate) low: u32,
}

impl Group {
    fn new(parent: Option<GroupId>, depth: u8, limits: GroupLimits) -> Self {
        Self {
            life: Life::Live,
            parent,
            children: 0,
            depth,
            tables_passed: 0,
            limits,
            usage: 0,
            claimed: Marks::default(),
            lazy: 0,
            lazy_leaving: 0,
            mapped: 0,
            limbo: 0,
            held: 0,
            zeros: 0,
            turn: 0,
            stat: VmStat::default(),
            events: GroupEvents::default(),
        }
    }

    fn marks(&self) -> Marks {
        let min = self.limits.min.0;
        Marks {
            min,
            low: self.limits.low.0.max(min),
        }
    }

    /// The protection that the group claims from its parent.
    fn claim(&self) -> Marks {
        let Marks { min, low } = self.marks();
        Marks {
            min: min.min(self.usage),
            low: low.min(self.usage),
        }
    }

    /// Lazily freed pages beyond the group's cap that are not on their way out.
    pub(crate) fn lazyfree_over(&self) -> u32 {
        (self.lazy - self.lazy_leaving).saturating_sub(self.limits.lazyfree_max.0)
    }

    pub(crate) fn usage(&self) -> u32 {
        self.usage
    }

    pub(crate) fn parent(&self) -> Option<GroupId> {
        self.parent
    }
}

/// All groups.
#[derive(Debug)]
pub(crate) struct Groups {
    seats: Vec<Group>,
    /// Seats that are not in use, the longest unused first.
    unused: VecDeque<GroupId>,
}

/// The reason why a group could not be made.
pub(crate) enum NoGroup {
    UnknownParent,
    TooDeep,
    TooMany,
}

impl Groups {
    /// Makes a tree of only the root. Of the root's limits only the cap on lazily freed memory applies.
    pub(crate) fn new(limits: GroupLimits) -> Self {
        Self {
            seats: vec![Group::new(None, 0, limits)],
            unused: VecDeque::new(),
        }
    }

    pub(crate) fn create(
        &mut self,
        parent: GroupId,
        limits: GroupLimits,
    ) -> Result<GroupId, NoGroup> {
        if !self.is_live(parent) {
            return Err(NoGroup::UnknownParent);
        }
        let depth = self.depth(parent) + 1;
        if usize::from(depth) >= MAX_GROUP_DEPTH {
            return Err(NoGroup::TooDeep);
        }
        let group = Group::new(Some(parent), depth, limits);
        let id = if self.seats.len() < MAX_GROUPS {
            self.seats.push(group);
            GroupId(self.seats.len() as u16 - 1)
        } else {
            let id = self.unused.pop_front().ok_or(NoGroup::TooMany)?;
            *self.get_mut(id) = group;
            id
        };
        self.get_mut(parent).children += 1;
        Ok(id)
    }

    pub(crate) fn get(&self, id: GroupId) -> &Group {
        &self.seats[usize::from(id.0)]
    }

    pub(crate) fn get_mut(&mut self, id: GroupId) -> &mut Group {
        &mut self.seats[usize::from(id.0)]
    }

    /// How many groups lie above this one. The depths of a region's group and of the groups above it all differ.
    pub(crate) fn depth(&self, id: GroupId) -> u8 {
        self.get(id).depth
    }

    pub(crate) fn is_live(&self, id: GroupId) -> bool {
        let group = self.seats.get(usize::from(id.0));
        group.is_some_and(|group| group.life == Life::Live)
    }

    /// Whether there is no group except the root.
    pub(crate) fn is_single(&self) -> bool {
        self.seats.len() == 1
    }

    /// The groups in use, including dying ones.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (GroupId, &Group)> {
        let numbered = self.seats.iter().enumerate();
        numbered
            .map(|(i, group)| (GroupId(i as u16), group))
            .filter(|(_, group)| group.life != Life::Unused)
    }

    /// A group and those above it, up to the root.
    pub(crate) fn path(&self, id: GroupId) -> impl Iterator<Item = GroupId> + '_ {
        std::iter::successors(Some(id), |&id| self.get(id).parent)
    }

    /// Whether `id` is `above` or lies below it.
    pub(crate) fn is_below(&self, id: GroupId, above: GroupId) -> bool {
        above == GroupId::ROOT || self.path(id).any(|group| group == above)
    }

    /// Charges pages to a group and all above it.
    pub(crate) fn charge(&mut self, id: GroupId, pages: u32) {
        self.recount(id, |usage| usage + pages);
    }

    pub(crate) fn uncharge(&mut self, id: GroupId, pages: u32) {
        self.recount(id, |usage| usage - pages);
    }

    fn recount(&mut self, id: GroupId, change: impl Fn(u32) -> u32) {
        let mut next = Some(id);
        while let Some(id) = next {
            let group = self.get_mut(id);
            let before = group.claim();
            group.usage = change(group.usage);
            next = group.parent;
            if group.marks() != Marks::default() {
                let after = group.claim();
                self.claim_instead(next, before, after);
            }
        }
    }

    fn claim_instead(&mut self, parent: Option<GroupId>, before: Marks, after: Marks) {
        if let Some(parent) = parent {
            let claimed = &mut self.get_mut(parent).claimed;
            claimed.min = claimed.min - before.min + after.min;
            claimed.low = claimed.low - before.low + after.low;
        }
    }

    pub(crate) fn set_limits(&mut self, id: GroupId, limits: GroupLimits) {
        let group = self.get_mut(id);
        let before = group.claim();
        group.limits = limits;
        let (after, parent) = (group.claim(), group.parent);
        self.claim_instead(parent, before, after);
    }

    /// The nearest group, from `id` up, that has no room for `pages` more, and how many it lacks.
    pub(crate) fn beyond_max(&self, id: GroupId, pages: u32) -> Option<(GroupId, u32)> {
        self.path(id).find_map(|id| {
            let group = self.get(id);
            let over = (group.usage + pages).saturating_sub(group.limits.max.0);
            (over > 0).then_some((id, over))
        })
    }

    /// Counts a fault that found no room for `pages` more below a max, and whether it was `served` nonetheless.
    pub(crate) fn count_max(&mut self, id: GroupId, pages: u32, served: bool) {
        let mut next = Some(id);
        while let Some(id) = next {
            let group = self.get_mut(id);
            if group.usage + pages > group.limits.max.0 {
                group.events.max += 1;
                group.events.beyond += u64::from(served);
            }
            next = group.parent;
        }
    }

    /// The nearest group, from `id` up, that is above its high, and by how much.
    pub(crate) fn beyond_high(&self, id: GroupId) -> Option<(GroupId, u32)> {
        self.path(id).find_map(|id| {
            let group = self.get(id);
            let over = group.usage.saturating_sub(group.limits.high.0);
            (over > 0).then_some((id, over))
        })
    }

    /// How much of a group's memory is protected from reclaim on behalf of `scope`, a group above it. See the
    /// [module](self).
    pub(crate) fn protection(&self, id: GroupId, scope: GroupId) -> Marks {
        let group = self.get(id);
        let parent = match group.parent {
            Some(parent) if id != scope => parent,
            // A group is not protected from reclaim on its own behalf.
            _ => return Marks::default(),
        };
        let claim = group.claim();
        if parent == scope {
            return claim;
        }
        let (above, siblings) = (self.protection(parent, scope), self.get(parent));
        let share = |claim, claimed, above| {
            let usage = (group.usage, siblings.usage);
            share(claim, claimed, above, usage)
        };
        Marks {
            min: share(claim.min, siblings.claimed.min, above.min),
            low: share(claim.low, siblings.claimed.low, above.low),
        }
    }

    /// Marks a group as removed, hands its counters over to its parent, and returns the parent. From now on no caller
    /// names the group.
    pub(crate) fn bury(&mut self, id: GroupId) -> GroupId {
        self.set_limits(id, GroupLimits::default());
        let group = self.get_mut(id);
        group.life = Life::Dying { emptied: false };
        let (held, zeros) = (group.held, group.zeros);
        let (stat, events) = (group.stat, group.events);
        (group.held, group.zeros) = (0, 0);
        group.stat = VmStat::default();
        let parent = group.parent.expect("the root is not removed");
        let heir = self.get_mut(parent);
        heir.children -= 1;
        heir.held += held;
        heir.zeros += zeros;
        heir.stat.add(&stat);
        heir.events.low += events.low;
        heir.events.high += events.high;
        heir.events.max += events.max;
        heir.events.beyond += events.beyond;
        parent
    }

    /// The group itself, or the nearest live group above it, which has taken over from a dying group.
    pub(crate) fn heir_of(&self, mut id: GroupId) -> GroupId {
        debug_assert!(self.get(id).life != Life::Unused, "{id:?} is gone");
        while let (Life::Dying { .. }, Some(parent)) = (self.get(id).life, self.get(id).parent) {
            id = parent;
        }
        id
    }

    /// Records that the lists of a dying group are empty.
    pub(crate) fn emptied(&mut self, id: GroupId) {
        self.get_mut(id).life = Life::Dying { emptied: true };
        self.forget_if_gone(id);
    }

    /// Frees the seat of a dying group once nothing is charged to it.
    pub(crate) fn forget_if_gone(&mut self, id: GroupId) {
        let mut next = Some(id);
        while let Some(id) = next {
            let group = self.get_mut(id);
            if group.life != (Life::Dying { emptied: true }) || group.usage > 0 {
                return;
            }
            next = group.parent;
            group.life = Life::Unused;
            self.unused.push_back(id);
        }
    }

    pub(crate) fn is_dying(&self, id: GroupId) -> bool {
        let group = self.seats.get(usize::from(id.0));
        group.is_some_and(|group| matches!(group.life, Life::Dying { .. }))
    }

    pub(crate) fn has_children(&self, id: GroupId) -> bool {
        self.get(id).children > 0
    }
}

impl Groups {
    /// Checks that each group's count of its children and their claims is correct.
    pub(crate) fn check(&self) -> Result<(), String> {
        for (id, group) in self.iter() {
            let mut claimed = Marks::default();
            let mut children = 0;
            for (_, child) in self.iter().filter(|(_, child)| child.parent == Some(id)) {
                let claim = child.claim();
                claimed.min += claim.min;
                claimed.low += claim.low;
                children += u16::from(child.life == Life::Live);
            }
            if claimed != group.claimed || children != group.children {
                return Err(format!(
                    "{children} children of {id:?} claim {claimed:?}; it says {}, {:?}",
                    group.children, group.claimed
                ));
            }
        }
        Ok(())
    }
}

/// The protection that a group gets out of its parent's: see the [module](self). `usage` is its own usage and its
/// parent's.
fn share(claim: u32, claimed: u32, above: u32, usage: (u32, u32)) -> u32 {
    let part = |of: u32, n: u32, all: u32| (u64::from(of) * u64::from(n) / u64::from(all)) as u32;
    if claimed > above {
        return part(claim, above, claimed);
    }
    let (own, all) = (usage.0 - claim, usage.1.saturating_sub(claimed));
    match all {
        0 => claim,
        _ => claim + part(above - claimed, own, all).min(own),
    }
}

/// Memory that reclaim spares.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Spared {
    /// Memory below a low, or a min.
    Low,
    /// Memory below a min.
    Min,
    /// No memory.
    Nothing,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(min: u32, low: u32) -> GroupLimits {
        GroupLimits {
            min: PageCount(min),
            low: PageCount(low),
            ..GroupLimits::default()
        }
    }

    fn make(groups: &mut Groups, parent: GroupId, min: u32, low: u32, usage: u32) -> GroupId {
        let made = groups.create(parent, limits(min, low));
        let id = made.unwrap_or_else(|_| panic!("there is room"));
        groups.charge(id, usage);
        id
    }

    fn low_of(groups: &Groups, id: GroupId) -> u32 {
        groups.protection(id, GroupId::ROOT).low
    }

    /// The groups are those of the example in Linux's documentation of `memory.low`, in hundredths of that example's
    /// gigabytes.
    #[test]
    fn children_share_their_parents_protection_by_their_claims() {
        let mut groups = Groups::new(GroupLimits::default());
        let a = make(&mut groups, GroupId::ROOT, 0, 500, 0);
        let b = make(&mut groups, a, 0, 300, 200);
        let c = make(&mut groups, a, 0, 100, 200);
        let d = make(&mut groups, a, 0, 0, 200);
        let e = make(&mut groups, a, 0, 500, 0);
        // 300 are claimed. The other 200 are divided by the use beyond the claims: none for B, 100 of C, 200 of D.
        let shares = [b, c, d, e].map(|id| low_of(&groups, id));
        assert_eq!(shares, [200, 100 + 66, 133, 0]);
        // Twice as much is claimed as there is: each group gets half of its claim.
        groups.set_limits(a, limits(0, 150));
        let shares = [b, c, d].map(|id| low_of(&groups, id));
        assert_eq!(shares, [100, 50, 0]);
    }

    #[test]
    fn protection_ignores_own_reclaim_and_unused_memory() {
        let mut groups = Groups::new(GroupLimits::default());
        let a = make(&mut groups, GroupId::ROOT, 10, 500, 100);
        assert_eq!(
            groups.protection(a, GroupId::ROOT),
            Marks { min: 10, low: 100 }
        );
        assert_eq!(groups.protection(a, a), Marks::default());
        let b = make(&mut groups, a, 50, 50, 60);
        assert_eq!(
            groups.protection(b, a).low,
            50,
            "its parent's share does not count inside"
        );
        assert_eq!(
            groups.protection(b, GroupId::ROOT).min,
            10,
            "it does from above"
        );
    }

    #[test]
    fn claims_follow_use_and_marks() {
        let mut groups = Groups::new(GroupLimits::default());
        let a = make(&mut groups, GroupId::ROOT, 30, 60, 100);
        assert_eq!(
            groups.get(GroupId::ROOT).claimed,
            Marks { min: 30, low: 60 }
        );
        groups.uncharge(a, 60);
        assert_eq!(
            groups.get(GroupId::ROOT).claimed,
            Marks { min: 30, low: 40 }
        );
        groups.set_limits(a, GroupLimits::default());
        assert_eq!(groups.get(GroupId::ROOT).claimed, Marks::default());
        assert_eq!(groups.get(GroupId::ROOT).usage, 40);
    }

    #[test]
    fn group_number_is_reused_once_nothing_is_charged_to_it() {
        let mut groups = Groups::new(GroupLimits::default());
        let ids: Vec<_> = (1..MAX_GROUPS)
            .map(|_| make(&mut groups, GroupId::ROOT, 0, 0, 1))
            .collect();
        let another = |groups: &mut Groups| groups.create(GroupId::ROOT, GroupLimits::default());
        assert!(matches!(another(&mut groups), Err(NoGroup::TooMany)));
        assert_eq!(groups.bury(ids[7]), GroupId::ROOT);
        groups.emptied(ids[7]);
        assert!(matches!(another(&mut groups), Err(NoGroup::TooMany)));
        groups.uncharge(ids[7], 1);
        groups.forget_if_gone(ids[7]);
        assert!(another(&mut groups).is_ok_and(|id| id == ids[7]));
    }

    #[test]
    fn the_tree_has_a_bounded_depth() {
        let mut groups = Groups::new(GroupLimits::default());
        let mut at = GroupId::ROOT;
        for _ in 1..MAX_GROUP_DEPTH {
            at = make(&mut groups, at, 0, 0, 0);
        }
        let deeper = groups.create(at, GroupLimits::default());
        assert!(matches!(deeper, Err(NoGroup::TooDeep)));
    }

    #[test]
    fn contradictory_limits_are_refused() {
        let good = GroupLimits {
            min: PageCount(2000),
            low: PageCount(0),
            high: PageCount(3000),
            max: PageCount(4000),
            ..GroupLimits::default()
        };
        assert!(good.are_consistent());
        let bad = |change: fn(&mut GroupLimits)| {
            let mut limits = good;
            change(&mut limits);
            !limits.are_consistent()
        };
        assert!(bad(|l| l.min = PageCount(3001)));
        assert!(bad(|l| l.low = PageCount(3001)));
        assert!(bad(|l| l.high = PageCount(4001)));
        assert!(bad(
            |l| (l.min, l.high, l.max) = (PageCount(0), PageCount(8), PageCount(8))
        ));
    }
}
