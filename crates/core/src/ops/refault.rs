//! Observed uses, and departures: this file applies [`workingset`](crate::policy::workingset) to folios, entries and
//! lists.

use crate::addr::{Order, PageIndex, PageRange};
use crate::ids::{ANON, FILE, FolioId, Kind, ListName, VecId};
use crate::limits::{PAGES_PER_PAST_TABLE, PAST_TABLES_BATCH};
use crate::machine::Core;
use crate::policy::curve::Use;
use crate::policy::order::Step;
use crate::tables::folio::Folio;
use crate::tables::leaf::Entry;
use crate::tables::lru::{EVICTABLE, Lruvec, Lruvecs, WATCHED, kind_of};

impl Core {
    /// Notes that a fault requested an absent page, which has come in as a part of a folio, by this `step`. `shadow` is
    /// the shadow that it had left behind. Returns whether the page belongs to a passing stream that is dropped behind:
    /// such a page is used only once, so the rules cannot learn from it.
    pub(crate) fn faulted_in(&mut self, page: PageIndex, shadow: u32, step: Step) -> bool {
        let Entry::Folio(id) = self.leaves.get(page) else {
            unreachable!("{page} was brought in");
        };
        let folio = *self.folios.get(id);
        let (vec, pages) = (self.lru.of(&folio), u64::from(folio.order.pages().0));
        let kind = kind_of(&folio);
        let depth = self.groups.depth(folio.group);
        let found = self.shadows.unpack(shadow, depth, folio.node);
        let (mut near, mut passes) = (false, false);
        if let Some(shadow) = found {
            let lists = self.lru.get_mut(vec);
            let distance = self.shadows.distance(shadow, lists.workingset.now());
            let age = lists.workingset.now().wrapping_sub(distance);
            lists.workingset.first_fill.came_back(age);
            passes = lists.stream_passes(page, folio.order, step, shadow, distance);
            near = !passes && self.is_near(self.lru.get(vec), kind, distance);
            let price = self.cost_of(&folio);
            let most = self.refault_cost[ANON].max(self.refault_cost[FILE]);
            let lists = self.lru.get_mut(vec);
            let all = lists.evictable();
            lists
                .balance
                .note_cost(kind, pages as u32, price, all, most);
        }
        if shadow == 0 && kind == FILE && folio.kind() != Kind::Direct {
            let file = self.regions.of(page).map_or(0, |region| region.range.len.0);
            let (limit, lists) = (self.limit, self.lru.get_mut(vec));
            passes = file >= limit && lists.stream_passes_file(page, step);
        }
        let restored = near && found.is_some_and(|shadow| shadow.workingset);
        let [refaults, activated, restored] =
            [found.is_some(), near, restored].map(|so| u64::from(so) * pages);
        self.count(folio.group, |stat| {
            stat.pgactivate += activated;
            if kind == FILE {
                stat.workingset_refault_file += refaults;
                stat.workingset_activate_file += activated;
                stat.workingset_restore_file += restored;
            } else {
                stat.workingset_refault_anon += refaults;
                stat.workingset_activate_anon += activated;
                stat.workingset_restore_anon += restored;
            }
        });
        let workingset = &mut self.lru.get_mut(vec).workingset;
        workingset.first_fill.arrived();
        if step.window == Order::ZERO {
            workingset.limbo.came_alone();
        }
        let age = workingset.tick();
        let record = self.folios.get_mut(id);
        record.set_active(near);
        record.age = age;
        if !passes {
            self.watch(vec, id, true);
        }
        self.imagine(id, Self::use_of(&folio, shadow));
        passes
    }

    /// Notes that the folio at `page` has come in with a requested one. It is expected to be used next, so a larger
    /// memory would have it. Returns its pages.
    pub(crate) fn came_along(&mut self, page: PageIndex, shadow: u32) -> PageRange {
        let Entry::Folio(id) = self.leaves.get(page) else {
            unreachable!("{page} was brought in")
        };
        self.folios.get_mut(id).ahead = true;
        self.lruvec_of(id).workingset.first_fill.arrived();
        let what = Self::use_of(self.folios.get(id), shadow);
        self.imagine(id, what);
        self.at(id)
    }

    /// Whether a page comes in for the first time. A region that was handed over to another group has lost its shadows,
    /// but not its slots.
    fn use_of(folio: &Folio, shadow: u32) -> Use {
        match shadow == 0 && folio.backing().is_none() {
            true => Use::First,
            false => Use::Again,
        }
    }

    /// Notes that a fault requested a folio that is in limbo and on no list now.
    pub(crate) fn wanted_in_limbo(&mut self, id: FolioId) {
        let folio = *self.folios.get(id);
        let vec = self.lru.of(&folio);
        let lists = self.lru.get(vec);
        // The advice that the folio is not needed was wrong, and nothing better is known.
        let near = lists.workingset.is_coldest(folio.age)
            || self.is_near(lists, kind_of(&folio), lists.workingset.since(folio.age));
        self.count_exit(&folio, true);
        let age = self.lru.get_mut(vec).workingset.tick();
        if near && !folio.is_active() {
            let pages = u64::from(folio.order.pages().0);
            self.count(folio.group, |stat| stat.pgactivate += pages);
        }
        let record = self.folios.get_mut(id);
        record.set_active(near || folio.is_active());
        record.set_referenced();
        record.age = age;
        self.watch(vec, id, false);
        self.imagine(id, Use::Again);
    }

    /// Whether a page last used `distance` ago was used after the oldest active folio of its kind was taken out. Only
    /// an active folio in limbo is known to be idle. If no folio is active, every page is near.
    fn is_near(&self, lists: &Lruvec, kind: usize, distance: u32) -> bool {
        let pages = |name| lists.pages_in(name, kind);
        if pages(ListName::Active) + pages(ListName::LimboActive) == 0 {
            return true;
        }
        let oldest = lists.oldest_in(&self.folios, ListName::LimboActive, kind);
        let idle = |id| lists.workingset.since(self.folios.get(id).idle_since);
        oldest.is_some_and(|id| distance < idle(id))
    }

    fn watch(&mut self, vec: VecId, id: FolioId, missed: bool) {
        let folio = self.folios.get(id);
        if folio.part() == WATCHED {
            let key = folio.entry.number();
            let (room, limit) = (self.watched(vec) + 1, self.limit);
            let lists = self.lru.get_mut(vec);
            let folios = lists.folios() + 1;
            let seats = lists.workingset.seats(room, folios, limit);
            lists.workingset.watched_use(key, seats, missed);
        }
    }

    /// Counts what the use would have been with other sizes of memory.
    fn imagine(&mut self, id: FolioId, what: Use) {
        let folio = *self.folios.get(id);
        let watched = folio.part() == WATCHED;
        if !self.config.workingset || what == Use::Again && !watched {
            return;
        }
        let (vec, limit) = (self.lru.of(&folio), self.limit);
        let lists = self.lru.get_mut(vec);
        if what == Use::First {
            lists.workingset.touched_first(watched, limit);
        }
        let key = folio.entry.number();
        if !lists.workingset.curve.follows(key, what, limit) {
            return;
        }
        let (folios, trusted) = (lists.folios() + 1, lists.workingset.trusts_reuse());
        let curve = &mut lists.workingset.curve;
        let Some(missed) = curve.used(key, what, folios, trusted) else {
            return;
        };
        self.count(folio.group, |stat| {
            for (count, missed) in stat.refaults_at.iter_mut().zip(missed) {
                *count += u64::from(missed);
            }
        });
    }

    /// How many watched folios are listed.
    fn watched(&self, vec: VecId) -> u32 {
        let lists = self.lru.get(vec);
        let folios = |name| {
            let of = |&kind: &usize| lists.list(name, kind, WATCHED).folios();
            lists.kinds().iter().map(of).sum::<u32>()
        };
        EVICTABLE.into_iter().map(folios).sum()
    }

    /// Notes that a folio leaves limbo. Limbo's length follows from the numbers of folios of each class that leave.
    pub(crate) fn count_exit(&mut self, folio: &Folio, rescued: bool) {
        if folio.part() == WATCHED {
            let vec = self.lru.of(folio);
            let (room, cost) = (self.watched(vec), self.cost_of(folio));
            let least = u32::from(self.config.limbo_share);
            let workingset = &mut self.lru.get_mut(vec).workingset;
            workingset
                .limbo
                .left_limbo(folio, rescued, room, cost, least);
        }
    }

    /// Stores the shadow of a folio that leaves memory in the entries of its pages, which already say where these are
    /// now. A folio of a removed group leaves no shadow, which would mean nothing by that group's clock. Neither does a
    /// folio that is mapped directly from its file's memory: it comes back at no cost.
    pub(crate) fn leave_shadows(&mut self, at: PageRange, folio: &Folio) {
        let useless = self.groups.is_dying(folio.group) || folio.kind() == Kind::Direct;
        if useless || !self.config.workingset {
            return;
        }
        let shadow = self.shadows.pack(folio, self.groups.depth(folio.group));
        let owner = self.lru.of(folio);
        self.leaves.set_shadows(at, shadow, Lruvecs::index(owner));
        self.shrink_shadows(owner);
    }

    /// Drops the oldest tables that hold only shadows, if there are more of them than memory warrants.
    fn shrink_shadows(&mut self, owner: VecId) {
        let most = self.lru.get(owner).pages() / PAGES_PER_PAST_TABLE + 1;
        let index = Lruvecs::index(owner);
        for _ in 0..PAST_TABLES_BATCH {
            if self.leaves.past_tables(index) <= most || !self.leaves.drop_oldest_past(index) {
                break;
            }
            self.stat.workingset_nodereclaim += 1;
        }
    }

    /// Whether a folio is treated as older than all others.
    pub(crate) fn is_coldest(&self, id: FolioId) -> bool {
        let folio = self.folios.get(id);
        self.lru
            .get(self.lru.of(folio))
            .workingset
            .is_coldest(folio.age)
    }

    /// Makes a folio that is not needed older than all others.
    pub(crate) fn make_coldest(&mut self, id: FolioId) {
        let folio = self.folios.get_mut(id);
        folio.set_active(false);
        let vec = self.lru.of(folio);
        folio.age = self.lru.get(vec).workingset.coldest();
    }
}
