//! Charging: which group pays for a folio's memory, and which group holds a page's contents.
//!
//! Two things are counted by group. *Memory* is counted by folio: mapped or in limbo, from the moment that it is
//! brought in (and its frame reserved) until its frame holds nothing. *Pages held* are counted by entry: a page that is
//! not empty, in memory or in the store, belongs to the group of its region. Every change to either count goes through
//! this file.
//!
//! The shadows that pages have left behind ([`workingset`](crate::policy::workingset)) are no group's memory, but are
//! interpreted by the lists of their page's group. A shadow does not change groups. A page that is handed over forgets
//! its shadow. A page that passes to the group above a removed one keeps its shadow: the depth of the removed group,
//! which the shadow records, shows that it does not refer to the present group.

use crate::addr::{PageIndex, PageRange};
use crate::ids::{FolioId, GroupId, ListName};
use crate::machine::Core;
use crate::stats::VmStat;
use crate::tables::folio::State;
use crate::tables::leaf::Entry;

impl Core {
    /// The group that `page` belongs to. While a region changes groups, the pages that the change has not reached
    /// belong to the old group.
    pub(crate) fn group_of(&self, page: PageIndex) -> GroupId {
        if self.groups.is_single() {
            return GroupId::ROOT;
        }
        match self.regions.of(page) {
            Some(region) => match region.leaving {
                Some((group, from)) if page >= from => group,
                _ => region.group,
            },
            None => GroupId::ROOT,
        }
    }

    /// Counts an event globally, and for the group that it concerns.
    pub(crate) fn count(&mut self, group: GroupId, add: impl Fn(&mut VmStat)) {
        add(&mut self.stat);
        let group = self.groups.heir_of(group);
        add(&mut self.groups.get_mut(group).stat);
    }

    /// Counts an event globally, and for the group of a folio.
    pub(crate) fn count_for(&mut self, id: FolioId, add: impl Fn(&mut VmStat)) {
        self.count(self.folios.get(id).group, add);
    }

    /// Charges a folio that comes in.
    pub(crate) fn charge(&mut self, id: FolioId) {
        let (group, pages) = self.bill(id);
        self.mapped += pages;
        self.groups.get_mut(group).mapped += pages;
        self.groups.charge(group, pages);
    }

    /// Uncharges a folio that is no longer mapped from its group.
    pub(crate) fn uncharge_mapped(&mut self, id: FolioId) {
        let (group, pages) = self.bill(id);
        self.mapped -= pages;
        self.groups.get_mut(group).mapped -= pages;
        self.groups.uncharge(group, pages);
        self.groups.forget_if_gone(group);
    }

    pub(crate) fn uncharge_limbo(&mut self, id: FolioId) {
        let (group, pages) = self.bill(id);
        self.limbo -= pages;
        self.groups.get_mut(group).limbo -= pages;
        self.groups.uncharge(group, pages);
        self.groups.forget_if_gone(group);
    }

    /// Counts a mapped folio as one in limbo.
    pub(crate) fn now_limbo(&mut self, id: FolioId) {
        let (group, pages) = self.bill(id);
        self.mapped -= pages;
        self.limbo += pages;
        let group = self.groups.get_mut(group);
        group.mapped -= pages;
        group.limbo += pages;
    }

    pub(crate) fn now_mapped(&mut self, id: FolioId) {
        let (group, pages) = self.bill(id);
        self.limbo -= pages;
        self.mapped += pages;
        let group = self.groups.get_mut(group);
        group.limbo -= pages;
        group.mapped += pages;
    }

    fn bill(&self, id: FolioId) -> (GroupId, u32) {
        let folio = self.folios.get(id);
        (folio.group, folio.order.pages().0)
    }

    /// Adds lazily freed pages to a group and those above it.
    pub(crate) fn lazy_more(&mut self, group: GroupId, pages: u32) {
        self.each_above(group, |group| group.lazy += pages);
    }

    pub(crate) fn lazy_less(&mut self, group: GroupId, pages: u32) {
        self.each_above(group, |group| group.lazy -= pages);
    }

    /// Adds pages to the lazily freed ones that are being taken out to be dropped.
    pub(crate) fn lazy_leaves(&mut self, group: GroupId, pages: u32) {
        self.lazy_leaving += pages;
        self.each_above(group, |group| group.lazy_leaving += pages);
    }

    pub(crate) fn lazy_left(&mut self, group: GroupId, pages: u32) {
        self.lazy_leaving -= pages;
        self.each_above(group, |group| group.lazy_leaving -= pages);
    }

    fn each_above(&mut self, group: GroupId, change: impl Fn(&mut crate::tables::group::Group)) {
        let mut next = Some(group);
        while let Some(id) = next {
            let group = self.groups.get_mut(id);
            change(group);
            next = group.parent();
        }
    }

    /// Counts entries at `page`, and behind it in its leaf, that are no longer empty.
    pub(crate) fn hold(&mut self, page: PageIndex, pages: u32) {
        self.held += pages;
        let group = self.group_of(page);
        self.groups.get_mut(group).held += pages;
    }

    /// Counts entries at `page`, and behind it in its leaf, that are empty now.
    pub(crate) fn let_go(&mut self, page: PageIndex, pages: u32) {
        self.held -= pages;
        let group = self.group_of(page);
        self.groups.get_mut(group).held -= pages;
    }

    /// Counts entries at `page`, and behind it in its leaf, that are zeros now.
    pub(crate) fn more_zeros(&mut self, page: PageIndex, pages: u32) {
        self.zeros += pages;
        let group = self.group_of(page);
        self.groups.get_mut(group).zeros += pages;
    }

    /// Counts entries at `page`, and behind it in its leaf, that are no longer zeros.
    pub(crate) fn fewer_zeros(&mut self, page: PageIndex, pages: u32) {
        if pages > 0 {
            self.zeros -= pages;
            let group = self.group_of(page);
            self.groups.get_mut(group).zeros -= pages;
        }
    }

    /// Hands the contents of `range`, a part of a leaf, from the group `from` to the group `to`. The shadows there are
    /// forgotten: they mean nothing by `to`'s clock, and `from`'s number may belong to another group by the time they
    /// are read.
    pub(crate) fn hand_over(&mut self, range: PageRange, from: GroupId, to: GroupId) {
        if from == to {
            return;
        }
        self.leaves.forget_shadows(range);
        if !self.leaves.leaf_in_use(range.start) {
            return;
        }
        let (mut held, mut zeros) = (0, 0);
        for page in range.pages() {
            match self.leaves.get(page) {
                Entry::Empty => continue,
                Entry::Zero => zeros += 1,
                Entry::Folio(id) if self.at(id).start == page => self.regroup(id, to),
                Entry::Folio(_) | Entry::Swapped { .. } | Entry::Poisoned => {}
            }
            held += 1;
        }
        let old = self.groups.get_mut(from);
        old.held -= held;
        old.zeros -= zeros;
        let new = self.groups.get_mut(to);
        new.held += held;
        new.zeros += zeros;
    }

    /// Charges the folio's memory to the group `to` from now on. The folio keeps its list's name, and is the youngest
    /// on that list.
    pub(crate) fn regroup(&mut self, id: FolioId, to: GroupId) {
        let folio = *self.folios.get(id);
        let (from, pages) = (folio.group, folio.order.pages().0);
        if from == to {
            return;
        }
        let list = self.lru.remove(&mut self.folios, id);
        let leaves = folio.state == State::TakingOut;
        let lazy = match folio.lazy {
            true => pages,
            false if folio.state == State::Zeroing => 0,
            false => u32::from(folio.lazy_part.pages),
        };
        if leaves && folio.goes_to_limbo() {
            self.lruvec_of(id).taking_out -= pages;
        }
        if leaves && folio.lazy {
            self.lazy_left(from, pages);
        }
        let lazy_limbo = match folio.lazy && !folio.state.is_mapped() {
            true => pages,
            false => 0,
        };
        self.lruvec_of(id).lazy_limbo -= lazy_limbo;
        self.lazy_less(from, lazy);
        if folio.is_charged() {
            let old = self.groups.get_mut(from);
            match folio.state.is_mapped() {
                true => old.mapped -= pages,
                false => old.limbo -= pages,
            }
            self.groups.uncharge(from, pages);
            let new = self.groups.get_mut(to);
            match folio.state.is_mapped() {
                true => new.mapped += pages,
                false => new.limbo += pages,
            }
            self.groups.charge(to, pages);
        }
        // By the clock of another lruvec the folio's age means nothing.
        let coldest = self
            .lru
            .get(self.lru.id(to, folio.node))
            .workingset
            .coldest();
        let record = self.folios.get_mut(id);
        (record.group, record.age, record.idle_since) = (to, coldest, coldest);
        self.lruvec_of(id).lazy_limbo += lazy_limbo;
        self.lazy_more(to, lazy);
        if leaves && folio.lazy {
            self.lazy_leaves(to, pages);
        }
        if leaves && folio.goes_to_limbo() {
            self.lruvec_of(id).taking_out += pages;
        }
        if list != ListName::None {
            self.lru.add(&mut self.folios, id, list);
        }
        self.groups.forget_if_gone(from);
    }

    /// Moves a folio that is about to be listed to the parent of its group, if the group was removed.
    pub(crate) fn settle_group(&mut self, id: FolioId) {
        let group = self.groups.heir_of(self.folios.get(id).group);
        self.regroup(id, group);
    }
}
