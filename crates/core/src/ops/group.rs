//! The life of groups: creation, new limits, regions that change groups, removal. [`group`](crate::tables::group)
//! explains what groups are.
//!
//! Memory changes groups in bounded steps of entries or folios. A region that moves belongs to its new group at once.
//! The memory from the page that the move has reached onwards still belongs to the old group, and so does memory that
//! is brought in there in the meantime. Steps are whole leaves, so that no folio straddles that page.

use crate::addr::{LEAF_PAGES, PageCount, PageIndex, PageRange};
use crate::event::{Refusal, Reply};
use crate::ids::{FILE, GroupId, ListName, RegionId};
use crate::limits::{DISCARD_WALK, GROUP_WALK, RECLAIM_SCAN, TABLES_WALK};
use crate::machine::Core;
use crate::tables::group::{GroupEvents, GroupLimits, GroupStat, NoGroup};
use crate::tables::lru::{EVICTABLE, Lruvecs};

impl Core {
    pub(crate) fn create_group(&mut self, parent: GroupId, limits: GroupLimits) -> Reply {
        if !limits.are_consistent() {
            return Reply::Refused(Refusal::BadLimits);
        }
        match self.groups.create(parent, limits) {
            Ok(group) => {
                self.lru.add_group(group);
                self.leaves.set_owners(self.lru.len());
                Reply::Group { group }
            }
            Err(NoGroup::UnknownParent) => Reply::Refused(Refusal::UnknownGroup),
            Err(NoGroup::TooDeep) => Reply::Refused(Refusal::TooDeep),
            Err(NoGroup::TooMany) => Reply::Refused(Refusal::TooManyGroups),
        }
    }

    pub(crate) fn set_group_limits(&mut self, group: GroupId, limits: GroupLimits) -> Reply {
        if group == GroupId::ROOT || !self.groups.is_live(group) {
            return Reply::Refused(Refusal::UnknownGroup);
        }
        if !limits.are_consistent() {
            return Reply::Refused(Refusal::BadLimits);
        }
        self.groups.set_limits(group, limits);
        Reply::Done
    }

    pub(crate) fn move_region(&mut self, id: RegionId, to: GroupId, from: PageIndex) -> Reply {
        let Some(region) = self.regions.get(id).copied() else {
            return Reply::Refused(Refusal::UnknownRegion);
        };
        if from == region.range.start {
            if !self.groups.is_live(to) {
                return Reply::Refused(Refusal::UnknownGroup);
            }
            if region.leaving.is_some() {
                return Reply::Refused(Refusal::Busy);
            }
            let region = self.regions.get_mut(id).expect("looked at above");
            region.leaving = Some((region.group, from));
            region.group = to;
        }
        let region = *self.regions.get(id).expect("looked at above");
        let Some((old, at)) = region.leaving.filter(|(_, at)| *at == from) else {
            return Reply::Refused(Refusal::BadRange);
        };
        let (mut end, mut walked) = (at, 0);
        let bound = PageIndex(at.0.saturating_add(GROUP_WALK)).min(region.range.end());
        while end < bound && walked < DISCARD_WALK {
            let next = end.next_leaf().min(bound);
            let piece = PageRange::new(end, PageCount(next.0 - end.0));
            if self.leaves.has_table(end) {
                self.hand_over(piece, old, region.group);
                walked += LEAF_PAGES;
            }
            end = next;
        }
        let done = end == region.range.end();
        let region = self.regions.get_mut(id).expect("looked at above");
        region.leaving = (!done).then_some((old, end));
        match done {
            true => Reply::Done,
            false => Reply::More { from: end },
        }
    }

    /// Removes a group. The first event invalidates its name; repetitions move its folios, until none is left on a
    /// list, and then the tables of shadows that are charged to it.
    pub(crate) fn remove_group(&mut self, group: GroupId) -> Reply {
        if self.groups.is_live(group) {
            if group == GroupId::ROOT || self.groups.has_children(group) {
                return Reply::Refused(Refusal::GroupInUse);
            }
            let parent = self.groups.bury(group);
            self.regions.regroup(group, parent);
        } else if !self.groups.is_dying(group) {
            return Reply::Refused(Refusal::UnknownGroup);
        }
        let parent = self.groups.get(group).parent().expect("it is not the root");
        let mut moved = 0;
        for vec in self.lru.of_group(group) {
            for &name in ListName::ALL.iter().skip(1) {
                // The youngest go to the old end first, so that the folios keep their order, and are older than all of
                // the parent's own.
                while let Some(id) = self.lru.get(vec).youngest(name) {
                    if moved == RECLAIM_SCAN {
                        return Reply::More { from: PageIndex(0) };
                    }
                    self.regroup(id, parent);
                    self.lru.make_oldest(&mut self.folios, id);
                    moved += 1;
                }
            }
        }
        let (mut own, heir) = (
            self.lru.of_group(group).map(Lruvecs::index),
            self.lru.of_group(parent).map(Lruvecs::index),
        );
        let first = own.next().expect("there is a node");
        let own = first..first + 1 + own.count();
        let heir = heir.min().expect("there is a node");
        let at = self.groups.get(group).tables_passed;
        if let Some(next) = self.leaves.pass_on(own, heir, at, TABLES_WALK) {
            self.groups.get_mut(group).tables_passed = next;
            return Reply::More { from: PageIndex(0) };
        }
        self.groups.emptied(group);
        Reply::Done
    }

    /// The state of a group, with all below it; `None` for an unknown group.
    #[must_use]
    pub fn group_stat(&self, id: GroupId) -> Option<GroupStat> {
        if !self.groups.is_live(id) {
            return None;
        }
        let group = self.groups.get(id);
        let mut stat = GroupStat {
            usage: PageCount(group.usage()),
            limits: group.limits,
            ..GroupStat::default()
        };
        let protected = self.groups.protection(id, GroupId::ROOT);
        stat.protected = (PageCount(protected.min), PageCount(protected.low));
        let mut held = 0;
        for (below, group) in self.groups.iter() {
            if !self.groups.is_below(below, id) {
                continue;
            }
            stat.vm.add(&group.stat);
            stat.events.low += group.events.low;
            stat.events.high += group.events.high;
            stat.events.max += group.events.max;
            stat.events.beyond += group.events.beyond;
            held += u64::from(group.held - group.zeros);
            let vm = &mut stat.vm;
            vm.nr_mapped += u64::from(group.mapped);
            vm.nr_limbo += u64::from(group.limbo);
            for vec in self.lru.of_group(below) {
                let lists = self.lru.get(vec);
                vm.nr_active += u64::from(lists.pages_of(ListName::Active));
                vm.nr_inactive += u64::from(lists.pages_of(ListName::Inactive));
                vm.nr_active_file += u64::from(lists.pages_in(ListName::Active, FILE));
                vm.nr_inactive_file += u64::from(lists.pages_in(ListName::Inactive, FILE));
                let of_files = EVICTABLE.map(|name| u64::from(lists.pages_in(name, FILE)));
                vm.nr_file_pages += of_files.into_iter().sum::<u64>();
                vm.nr_dirty += u64::from(lists.stranded());
                vm.nr_unevictable += u64::from(lists.pages_of(ListName::Unevictable));
            }
        }
        stat.vm.nr_swapped = held - stat.vm.nr_mapped - stat.vm.nr_limbo;
        stat.vm.nr_lazyfree = u64::from(group.lazy);
        stat.vm.nr_limit = u64::from(group.limits.max.0.min(self.limit));
        Some(stat)
    }

    /// Pages charged to a group, and the events of its own marks, without the cost of a sum over all groups.
    #[must_use]
    pub fn group_usage(&self, id: GroupId) -> Option<(PageCount, GroupEvents)> {
        let group = self.groups.is_live(id).then(|| self.groups.get(id))?;
        Some((PageCount(group.usage()), group.events))
    }

    /// A group and those above it, nearest first, up to the root.
    pub fn group_path(&self, id: GroupId) -> impl Iterator<Item = GroupId> + '_ {
        self.groups.path(id)
    }

    /// The group that `page` belongs to.
    #[must_use]
    pub fn group_at(&self, page: PageIndex) -> GroupId {
        self.group_of(page)
    }

    /// Pages that a group's faults can still take before its own max, or before the limit for the root.
    #[must_use]
    pub fn available_in(&self, group: GroupId) -> PageCount {
        if group == GroupId::ROOT {
            return self.available();
        }
        if !self.groups.is_live(group) {
            return GroupLimits::NONE;
        }
        let group = self.groups.get(group);
        PageCount(group.limits.max.0.saturating_sub(group.usage()))
    }

    /// Most pages that a group may have, by its own max and the limit.
    #[must_use]
    pub fn most_in(&self, group: GroupId) -> PageCount {
        match self.groups.is_live(group) {
            true => self.groups.get(group).limits.max.min(self.limit()),
            false => self.limit(),
        }
    }

    /// How many pages must be available in a group for a need of `missing` more there.
    #[must_use]
    pub fn wanted_in(&self, group: GroupId, missing: PageCount) -> PageCount {
        match group {
            GroupId::ROOT => self.wanted(missing),
            group => PageCount(self.available_in(group).0.saturating_add(missing.0)),
        }
    }

    /// The group around `page` that is above its high, and how many pages a thread that faults there should reclaim
    /// first: once, and fewer if there are not that many. Returns `None` while the store accepts nothing.
    #[must_use]
    pub fn beyond_high(&self, page: PageIndex) -> Option<(GroupId, PageCount)> {
        if self.groups.is_single() || self.store_blocked {
            return None;
        }
        let (group, over) = self.groups.beyond_high(self.group_of(page))?;
        Some((group, PageCount(over)))
    }

    /// Notes that a thread of the group reclaims because the group is above its high.
    pub fn throttled(&mut self, group: GroupId) {
        debug_assert!(self.groups.is_live(group));
        self.groups.get_mut(group).events.high += 1;
    }
}
