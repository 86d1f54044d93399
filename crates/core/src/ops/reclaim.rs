//! Reclaim: the next batch of work that makes memory available.
//!
//! Lazily freed memory goes first ([`lazy_free`](crate::ops::lazy_free)). All other memory leaves in two steps, and a
//! batch contains both, so that limbo keeps its length while its old end is written out:
//!
//! 1. *save*: the oldest folios in limbo go to the store, and their frames become spare. This happens only while limbo
//!    is longer than its minimum share: the time spent there distinguishes a folio in use from an idle one;
//! 2. *take out*: the oldest mapped folios are captured into limbo, as many as limbo lacks and as have been earned.
//!
//! [`limbo`](crate::ops::limbo) chooses the next folio and implements the two steps.
//! [`workingset`](crate::policy::workingset) explains which list is the old one, how long limbo is and how take-outs
//! are earned. [`balance`](crate::policy::balance) decides how much of each kind leaves.
//!
//! Background and direct reclaim are the same code in the same order. A batch is bounded in its commands and in the
//! folios that it examines; the caller asks again until enough memory is available. When only limbo is left, limbo is
//! written out below its share: a fault that cannot be served is worse than a wrong victim.

use crate::addr::PageCount;
use crate::command::Commands;
use crate::event::{Reclaimer, Refusal, Reply};
use crate::ids::{FolioId, GroupId, ListName, Rule, VecId};
use crate::limits::RECLAIM_BATCH;
use crate::machine::Core;
use crate::policy::limbo_share::{SIXTEENTH, pace};
use crate::tables::folio::{Errand, Folio};
use crate::tables::group::Spared;
use crate::tables::lru::{UNWATCHED, WATCHED};

/// The lruvec that gives the next batch, chosen by its clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Victim {
    pub(crate) clock: u64,
    pub(crate) vec: VecId,
    /// Pages of the lruvec beyond its protection.
    overage: u32,
}

impl Core {
    pub(crate) fn reclaim(
        &mut self,
        pages: PageCount,
        by: Reclaimer,
        scope: GroupId,
        out: &mut Commands,
    ) -> Reply {
        // Any thread continues a leaf that another has begun.
        if let Some(reply) = self.go_on_with_leaf(by, out) {
            return reply;
        }
        if !self.groups.is_live(scope) {
            return Reply::Refused(Refusal::UnknownGroup);
        }
        if self.room.once {
            self.sweep_slots(RECLAIM_BATCH / 2, out);
        }
        let given = out.len();
        let lazy = self.drop_lazyfree(pages.0, Errand::For(by), scope, out);
        // Small folios fill a batch before they amount to enough memory: the next batch continues with them. (Folios
        // that were in limbo give no command.)
        let progress = lazy > 0 || out.len() > given;
        if lazy >= pages.0 || progress && self.more_lazyfree(scope) {
            return Reply::Done;
        }
        let pages = PageCount(pages.0 - lazy);
        for spared in [Spared::Low, Spared::Min, Spared::Nothing] {
            let mut tried = None;
            while let Some(victim) = self.next_victim(scope, spared, tried) {
                let taken = self.shrink_lruvec(victim.vec, pages, by, out);
                if let Some(from) = self.leaf_to_look_at() {
                    self.put_forward(victim, scope, taken, spared);
                    return Reply::More { from };
                }
                if taken > 0 || out.len() > given {
                    self.put_forward(victim, scope, taken, spared);
                    return Reply::Done;
                }
                tried = Some(victim);
            }
            if !self.spares(scope, spared) {
                break;
            }
        }
        if self.give_slots_up(out) {
            return Reply::Done;
        }
        if scope != GroupId::ROOT {
            self.make_places(pages, by, out);
        }
        Reply::Done
    }

    /// Frees places in the pool for a group that has none to give. All groups share the pool's places, and other
    /// groups' folios in limbo may fill it: these are dropped or saved, so that the group can take something out.
    fn make_places(&mut self, pages: PageCount, by: Reclaimer, out: &mut Commands) {
        let given = out.len();
        self.drop_lazyfree(pages.0, Errand::For(by), GroupId::ROOT, out);
        if out.len() > given {
            return;
        }
        let mut vec = VecId::default();
        for _ in 0..self.lru.iter().count() {
            if self.save_oldest(vec, pages.0, RECLAIM_BATCH as u32, by, out) > 0 {
                return;
            }
            vec = self.lru.after(vec);
        }
    }

    fn more_lazyfree(&self, scope: GroupId) -> bool {
        if scope == GroupId::ROOT {
            return self.lru.total(ListName::LazyFree) > 0 || !self.deferred.is_empty();
        }
        let group = self.groups.get(scope);
        group.lazy > group.lazy_leaving
    }

    /// The lruvec of `scope`, and of the groups below it, whose clock is behind all others'. If `tried` had nothing to
    /// give, only the lruvecs after it count.
    pub(crate) fn next_victim(
        &self,
        scope: GroupId,
        spared: Spared,
        tried: Option<Victim>,
    ) -> Option<Victim> {
        let depth = self.groups.path(scope).count() - 1;
        let now = self.groups.get(scope).turn;
        let mut next: Option<Victim> = None;
        for (vec, lists) in self.lru.iter() {
            let evictable = lists.evictable();
            if evictable == 0 || !self.groups.is_below(self.lru.group(vec), scope) {
                continue;
            }
            let clock = lists.clocks[depth].max(now);
            let first = |other: Option<Victim>| other.map(|v| (v.clock, v.vec));
            let had_its_turn = first(tried).is_some_and(|tried| (clock, vec) <= tried);
            if had_its_turn || first(next).is_some_and(|next| (clock, vec) > next) {
                continue;
            }
            let overage = self.overage(vec, evictable, scope, spared);
            if overage > 0 {
                next = Some(Victim {
                    clock,
                    vec,
                    overage,
                });
            }
        }
        next
    }

    /// How many pages of a lruvec are beyond its protection from reclaim on behalf of `scope`.
    fn overage(&self, vec: VecId, evictable: u32, scope: GroupId, spared: Spared) -> u32 {
        let group = self.lru.group(vec);
        if spared == Spared::Nothing || self.groups.is_single() {
            return evictable;
        }
        let safe = self.groups.protection(group, scope);
        let safe = if spared == Spared::Low {
            safe.low
        } else {
            safe.min
        };
        let usage = self.groups.get(group).usage();
        let beyond = usage.saturating_sub(safe);
        (u64::from(evictable) * u64::from(beyond)).div_ceil(u64::from(usage.max(1))) as u32
    }

    /// Whether memory was spared that a lower degree of protection would not spare.
    fn spares(&self, scope: GroupId, spared: Spared) -> bool {
        let below = |vec| self.groups.is_below(self.lru.group(vec), scope);
        spared != Spared::Nothing
            && self.lru.iter().any(|(vec, lists)| {
                let evictable = lists.evictable();
                evictable > 0 && below(vec) && self.overage(vec, evictable, scope, spared) == 0
            })
    }

    /// Advances the victim's clock by the pages that it gave, divided by the pages that it has to give.
    fn put_forward(&mut self, victim: Victim, scope: GroupId, taken: u32, spared: Spared) {
        const SECOND: u64 = 1 << 20;
        let depth = self.groups.path(scope).count() - 1;
        let given = u64::from(taken.max(1)) * SECOND / u64::from(victim.overage);
        self.lru.get_mut(victim.vec).clocks[depth] = victim.clock + given.max(1);
        self.groups.get_mut(scope).turn = victim.clock;
        if spared != Spared::Low {
            let group = self.lru.group(victim.vec);
            self.groups.get_mut(group).events.low += 1;
        }
    }

    /// The next batch of one lruvec: starts saves and take-outs until `pages` pages are on their way. Returns how many
    /// are.
    pub(crate) fn shrink_lruvec(
        &mut self,
        vec: VecId,
        pages: PageCount,
        by: Reclaimer,
        out: &mut Commands,
    ) -> u32 {
        if self.lru.get(vec).workingset.rule() == Rule::Reuse {
            for &kind in self.lru.get(vec).kinds() {
                self.balance(vec, kind);
            }
        }
        if self.config.workingset {
            let lists = self.lru.get_mut(vec);
            let (now, folios) = (lists.workingset.now(), lists.folios());
            lists.workingset.first_fill.pressed(now, folios);
        }
        let least = self.limbo_least(vec);
        let behind = [UNWATCHED, WATCHED].map(|part| self.limbo_behind(vec, part));
        // The earned take-outs must fit into the batch: if limbo should grow, a batch saves less.
        let most = match behind {
            [0, 0] => RECLAIM_BATCH as u32,
            _ => (RECLAIM_BATCH as u32 * SIXTEENTH / pace(self.dearest(vec))).max(1),
        };
        let surplus = self.in_limbo(vec).saturating_sub(least);
        let saved = self.save_oldest(vec, pages.0.min(surplus), most, by, out);
        let refill = (least + pages.0).saturating_sub(self.in_limbo(vec));
        let mut taken = self.take_oldest(vec, refill, &[UNWATCHED, WATCHED], by, out);
        for part in [WATCHED, UNWATCHED] {
            let watched = part == WATCHED;
            let earned = self.lru.get(vec).workingset.limbo.earned(watched);
            if earned == 0 {
                continue;
            }
            let wanted = earned.min(self.limbo_behind(vec, part));
            // If nothing pays for examining watched folios, they are due at the same age as others.
            let looked_at = self.lru.get(vec).workingset.limbo.earned(true) > 0;
            let parts: &[u8] = match (watched, looked_at) {
                (true, _) => &[WATCHED],
                (false, true) => &[UNWATCHED],
                (false, false) => &[UNWATCHED, WATCHED],
            };
            let more = self.take_oldest(vec, wanted, parts, by, out);
            self.lru.get_mut(vec).workingset.limbo.spend(more, watched);
            taken += more;
        }
        if saved + taken == 0 && self.leaf_to_look_at().is_none() {
            return self.save_oldest(vec, pages.0, RECLAIM_BATCH as u32, by, out);
        }
        saved + taken
    }

    pub(crate) fn count_scan(&mut self, id: FolioId, by: Reclaimer) {
        let folio = self.folios.get(id);
        let (pages, in_file) = (u64::from(folio.order.pages().0), folio.is_from_file());
        self.count_for(id, |stat| {
            match by {
                Reclaimer::Background => stat.pgscan_kswapd += pages,
                Reclaimer::Direct => stat.pgscan_direct += pages,
            }
            match in_file {
                true => stat.pgscan_file += pages,
                false => stat.pgscan_anon += pages,
            }
        });
    }

    /// Counts a folio whose contents `by` has made leave memory.
    pub(crate) fn count_steal(&mut self, folio: &Folio, by: Reclaimer) {
        let pages = u64::from(folio.order.pages().0);
        self.count(folio.group, |stat| {
            match by {
                Reclaimer::Background => stat.pgsteal_kswapd += pages,
                Reclaimer::Direct => stat.pgsteal_direct += pages,
            }
            match folio.is_from_file() {
                true => stat.pgsteal_file += pages,
                false => stat.pgsteal_anon += pages,
            }
        });
    }
}
