//! Reclaim: the next batch of work that makes memory available.
//!
//! What was lazily freed goes first ([`lazy_free`](super::lazy_free)). Then memory leaves in two steps, and a batch has
//! both, so that limbo stays at its length while its old end is written out:
//!
//! 1. *save*: the oldest folios in limbo go to the store, and their frames become spare. Only as long as limbo
//!    is longer than its least share: being there for a while is what tells a folio in use from one that is not;
//! 2. *take out*: the oldest mapped folios are captured into limbo, as many as are wanted there and have been earned.
//!
//! Which list is the old one, how long limbo is and who earns what: [`workingset`](crate::workingset). How much of each kind
//! leaves: [`balance`](crate::balance).
//!
//! Background and direct reclaim are the same code in the same order. A batch is bounded, in commands and in
//! folios looked at; the caller asks again until enough is available. When nothing but limbo is left, limbo is written
//! out below its share: a fault that cannot be served is worse than a wrong victim.

use crate::addr::{Frame, LEAF_PAGES, Order, PageCount, PageIndex, PageRange};
use crate::command::{Command, Commands};
use crate::event::{Reclaimer, Refusal, Reply};
use crate::folio::{Errand, Folio, FolioId, ListName, State};
use crate::group::GroupId;
use crate::limits::{BALANCE_BATCH, FOLIO_SHARE, LOAD_RESERVE, RECLAIM_BATCH, RECLAIM_SCAN};
use crate::lru::{ANON, FILE, UNWATCHED, VecId, WATCHED, kind_of};
use crate::machine::Core;
use crate::places::block_of;
use crate::unproven::End;
use crate::workingset::{Rule, SIXTEENTH, pace};

/// What reclaim leaves alone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Spared {
    /// What is below a low, or a min.
    Low,
    /// What is below a min.
    Min,
    /// Nothing.
    Nothing,
}

/// The lruvec that gives the next batch, by its clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Victim {
    pub(crate) clock: u64,
    pub(crate) vec: VecId,
    /// Its pages beyond what is safe.
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
        // Whoever comes first goes on with what anybody has begun.
        if let Some(reply) = self.go_on_with_leaf(by, out) {
            return reply;
        }
        if !self.groups.is_live(scope) {
            return Reply::Refused(Refusal::UnknownGroup);
        }
        let given = out.len();
        let lazy = self.drop_lazyfree(pages.0, Errand::For(by), scope, out);
        // Small folios fill a batch before there are enough of them: the next batch goes on with these. (Those that were
        // in limbo give no command.)
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
        if scope != GroupId::ROOT {
            self.make_places(pages, by, out);
        }
        Reply::Done
    }

    /// A group can give nothing. The places of the pool are everybody's, and what others have in limbo may be what fills it: that
    /// is dropped or saved, so that the group can take something out.
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

    /// The lruvec of `scope`, and of what is below it, whose clock is behind all others'; of those after `tried` if
    /// that had nothing to give.
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

    /// How much of a lruvec's memory is beyond what is safe from reclaim on behalf of `scope`.
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

    /// Whether something was left alone that is not for ever.
    fn spares(&self, scope: GroupId, spared: Spared) -> bool {
        let below = |vec| self.groups.is_below(self.lru.group(vec), scope);
        spared != Spared::Nothing
            && self.lru.iter().any(|(vec, lists)| {
                let evictable = lists.evictable();
                evictable > 0 && below(vec) && self.overage(vec, evictable, scope, spared) == 0
            })
    }

    /// The victim's clock goes forward by what it gave over what it has to give.
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

    /// The next batch of one lruvec: starts saves and take-outs until `pages` pages are on their way. Answers how many are.
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
            lists.workingset.unproven.pressed(now, folios);
        }
        let least = self.limbo_least(vec);
        let behind = [UNWATCHED, WATCHED].map(|part| self.limbo_behind(vec, part));
        let costs = self.lru.get(vec).kinds().iter();
        let dearest = costs.map(|&kind| self.refault_cost[kind]).max();
        let dearest = dearest.unwrap_or_default();
        // What is earned must fit into the batch: where limbo is to grow, less is saved in one.
        let most = match behind {
            [0, 0] => RECLAIM_BATCH as u32,
            _ => (RECLAIM_BATCH as u32 * SIXTEENTH / pace(dearest)).max(1),
        };
        let surplus = self.in_limbo(vec).saturating_sub(least);
        let saved = self.save_oldest(vec, pages.0.min(surplus), most, by, out);
        let refill = (least + pages.0).saturating_sub(self.in_limbo(vec));
        let mut taken = self.take_oldest(vec, refill, &[UNWATCHED, WATCHED], by, out);
        for part in [WATCHED, UNWATCHED] {
            let watched = part == WATCHED;
            let earned = self.lru.get(vec).workingset.earned(watched);
            if earned == 0 {
                continue;
            }
            let wanted = earned.min(self.limbo_behind(vec, part));
            // Who is not looked at, since nothing pays for it, is due when others of its age are.
            let parts: &[u8] = match self.lru.get(vec).workingset.earned(true) {
                _ if watched => &[WATCHED],
                0 => &[UNWATCHED, WATCHED],
                _ => &[UNWATCHED],
            };
            let more = self.take_oldest(vec, wanted, parts, by, out);
            self.lru.get_mut(vec).workingset.spend(more, watched);
            taken += more;
        }
        if saved + taken == 0 && self.leaf_to_look_at().is_none() {
            return self.save_oldest(vec, pages.0, RECLAIM_BATCH as u32, by, out);
        }
        saved + taken
    }

    /// Pages in limbo, or on their way there.
    fn in_limbo(&self, vec: VecId) -> u32 {
        let lists = self.lru.get(vec);
        let limbo = [ListName::Limbo, ListName::LimboActive].map(|name| lists.pages_of(name));
        limbo.into_iter().sum::<u32>() + lists.taking_out
    }

    /// How long limbo is at least, so that who leaves memory has been there: the lruvec's share, by its pages, of what is
    /// configured for all.
    fn limbo_least(&self, vec: VecId) -> u32 {
        let all = u64::from(self.limit) * u64::from(self.config.limbo_share) / 1024;
        let total = self.lru.pages().max(1);
        (all * u64::from(self.lru.get(vec).pages()) / u64::from(total)) as u32
    }

    /// By how many pages a part's limbo is shorter than it should be.
    fn limbo_behind(&self, vec: VecId, part: u8) -> u32 {
        let lists = self.lru.get(vec);
        let (mut limbo, mut mapped) = (lists.taking_out, 0);
        for &kind in lists.kinds() {
            let pages = |name| lists.list(name, kind, part).pages();
            limbo += pages(ListName::Limbo) + pages(ListName::LimboActive);
            mapped += pages(ListName::Active) + pages(ListName::Inactive);
        }
        let least = u32::from(self.config.limbo_share);
        let share = match self.config.workingset {
            true => lists.workingset.limbo_share(part == WATCHED, least),
            false => least,
        };
        let wanted = u64::from(limbo + mapped) * u64::from(share) / 1024;
        (wanted as u32).saturating_sub(limbo)
    }

    /// Starts saves from limbo's old ends until `pages` pages are on their way out, in at most `most` folios.
    fn save_oldest(
        &mut self,
        vec: VecId,
        pages: u32,
        most: u32,
        by: Reclaimer,
        out: &mut Commands,
    ) -> u32 {
        let (mut started, mut saves) = (0, 0);
        let mut last = None;
        for _ in 0..RECLAIM_SCAN {
            if out.len() >= RECLAIM_BATCH {
                break;
            }
            let Some(id) = self.next_evicted(vec) else {
                break;
            };
            let folio = *self.folios.get(id);
            let goes_on = || {
                folio
                    .frame
                    .is_some_and(|frame| self.ends_block(last, frame))
            };
            if (started >= pages || saves >= most) && !goes_on() {
                break;
            }
            last = folio.frame;
            let n = folio.order.pages().0;
            self.count_scan(id, by);
            self.unlist(id);
            // A store that takes nothing may still hold what has not changed. The rest makes way for the next scan.
            if self.store_blocked && folio.must_be_written() {
                self.folios.get_mut(id).age = self.lru.get(vec).workingset.now();
                self.list(id, ListName::Limbo);
                continue;
            }
            if !self.start_save(id, out) {
                self.list_old(id, ListName::Limbo);
                break;
            }
            self.folios.get_mut(id).errand = Errand::For(by);
            let (cost, limit) = (self.cost_of(&folio), self.limit);
            let lists = self.lru.get_mut(vec);
            let sizes = lists.sizes();
            lists.balance.gave(kind_of(&folio), n, sizes);
            let workingset = &mut lists.workingset;
            workingset.unproven.left(folio.age, workingset.now());
            workingset.earn(n, cost);
            workingset.earn_watched(n, limit, cost);
            started += n;
            saves += 1;
        }
        started
    }

    /// Who leaves limbo next: of the kind whose turn it is, if that has something there.
    fn next_evicted(&self, vec: VecId) -> Option<FolioId> {
        let lists = self.lru.get(vec);
        let next = |kind| self.next_evicted_of(vec, kind);
        match *lists.kinds() {
            [kind] => next(kind),
            _ => {
                let kind = lists.balance.next();
                next(kind).or_else(|| next(1 - kind))
            }
        }
    }

    fn next_evicted_of(&self, vec: VecId, kind: usize) -> Option<FolioId> {
        let lists = self.lru.get(vec);
        if lists.workingset.unproven.next() == End::Young
            && let Some(young) = lists.youngest_unproven(&self.folios, kind)
            && !self.is_by_leaf(self.folios.get(young).order)
        {
            return Some(young);
        }
        let inactive = lists.oldest_in(&self.folios, ListName::Limbo, kind);
        let active = || lists.oldest_in(&self.folios, ListName::LimboActive, kind);
        match lists.workingset.rule() {
            Rule::Reuse => inactive.or_else(active),
            Rule::Recency => lists.older(&self.folios, inactive, active()),
        }
    }

    /// Who is taken out next, of these parts: of the kind of which less is in limbo, as both should have the same share there.
    pub(crate) fn next_for_limbo(&self, vec: VecId, parts: &[u8]) -> Option<FolioId> {
        let lists = self.lru.get(vec);
        let next = |kind| self.next_for_limbo_of(vec, kind, parts);
        if let [kind] = *lists.kinds() {
            return next(kind);
        }
        let limbo = |kind| {
            let names = [ListName::Limbo, ListName::LimboActive];
            let pages = names.map(|name| u64::from(lists.pages_in(name, kind)));
            pages.into_iter().sum::<u64>()
        };
        let [anon, file] = lists.sizes().map(u64::from);
        let kind = match limbo(FILE) * anon < limbo(ANON) * file {
            true => FILE,
            false => ANON,
        };
        next(kind).or_else(|| next(1 - kind))
    }

    fn next_for_limbo_of(&self, vec: VecId, kind: usize, parts: &[u8]) -> Option<FolioId> {
        let lists = self.lru.get(vec);
        let oldest = |name| {
            let of = |&part: &u8| lists.list(name, kind, part).oldest();
            let all = parts.iter().map(of);
            all.fold(None, |one, other| lists.older(&self.folios, one, other))
        };
        let (active, inactive) = (oldest(ListName::Active), oldest(ListName::Inactive));
        if active.is_none() || inactive.is_none() || lists.workingset.rule() == Rule::Recency {
            return lists.older(&self.folios, active, inactive);
        }
        // Active and inactive have the same share in limbo.
        let pages = |name| {
            let of = |&part: &u8| lists.list(name, kind, part).pages();
            parts.iter().map(of).sum::<u32>()
        };
        let (mapped, all) = (
            pages(ListName::Inactive),
            pages(ListName::Inactive) + pages(ListName::Limbo),
        );
        let watched = parts == [WATCHED];
        let share = lists
            .workingset
            .limbo_share(watched, u32::from(self.config.limbo_share));
        let stays = (u64::from(all) * u64::from(1024 - share) / 1024).max(1);
        match u64::from(mapped) <= stays {
            true => active,
            false => inactive,
        }
    }

    /// Starts the save of a folio in limbo that is on no list. False when no slot is to be had. What is a file's has its place
    /// there.
    pub(crate) fn start_save(&mut self, id: FolioId, out: &mut Commands) -> bool {
        let folio = *self.folios.get(id);
        if folio.is_in_file() {
            self.begin(id, State::Saving);
            out.push(Command::WriteBack {
                folio: id,
                at: self.at(id),
                frame: folio.frame.expect("a folio in limbo has a frame"),
            });
            return true;
        }
        let Some(slot) = self.slots.reserve(folio.order) else {
            return false;
        };
        self.begin(id, State::Saving);
        self.folios.get_mut(id).save_as(slot);
        let frame = folio.frame.expect("a folio in limbo has a frame");
        out.push(Command::Save {
            folio: id,
            frame,
            slot,
            previous: folio.backing(),
        });
        true
    }

    /// Starts take-outs of the oldest folios of these parts until `pages` pages are on their way.
    fn take_oldest(
        &mut self,
        vec: VecId,
        pages: u32,
        parts: &[u8],
        by: Reclaimer,
        out: &mut Commands,
    ) -> u32 {
        let mut started = 0;
        let mut last = None;
        // What is watched is not due yet: it is looked at.
        let are_due = parts != [WATCHED];
        while out.len() < 2 * RECLAIM_BATCH {
            let Some(id) = self.next_for_limbo(vec, parts) else {
                break;
            };
            let (at, order) = (self.at(id), self.folios.get(id).order);
            let room = 2 * RECLAIM_BATCH - out.len();
            let enough = started >= pages || self.is_by_leaf(order) && room < block_of(order);
            if enough && !self.ends_leaf(last, at, order) {
                break;
            }
            // Each victim is asked for its leaf: the next one lies elsewhere, and is not to go by itself because this one had to.
            if are_due && self.consider_leaf(id) {
                break;
            }
            last = Some(at.end());
            if self.folios.get(id).freed.pages > 0 {
                // Its part was passed over because the pool has no place for what is dropped: it is not written out.
                self.split_off_freed(id, out);
                continue;
            }
            let n = self.folios.get(id).order.pages().0;
            if !self.start_take_out(id, Errand::None, out) {
                break;
            }
            self.count_scan(id, by);
            started += n;
        }
        started
    }

    /// Whether a batch that has what it wants takes this folio too, because the rest of its leaf has gone: what fits into
    /// a batch leaves by one call.
    fn ends_leaf(&self, last: Option<PageIndex>, at: PageRange, order: Order) -> bool {
        last == Some(at.start) && !at.start.0.is_multiple_of(LEAF_PAGES) && self.is_by_leaf(order)
    }

    /// The same for a frame that is being emptied: a block that is spare as a whole can take in a leaf as a whole.
    fn ends_block(&self, last: Option<Frame>, frame: Frame) -> bool {
        let order = frame.order();
        let follows =
            last.is_some_and(|last| last.order() == order && last.index() + 1 == frame.index());
        let begins = (frame.index() as usize).is_multiple_of(block_of(order));
        follows && !begins && self.is_by_leaf(order)
    }

    /// Whether folios of this order come and go by the leaf, if they are neighbours: that is little of all memory, and no more of them
    /// than a batch has.
    pub(crate) fn is_by_leaf(&self, order: Order) -> bool {
        block_of(order) <= RECLAIM_BATCH && self.limit / FOLIO_SHARE >= LEAF_PAGES
    }

    /// Starts the take-out of a resident folio. False when the pool has no place for it.
    pub(crate) fn start_take_out(
        &mut self,
        id: FolioId,
        errand: Errand,
        out: &mut Commands,
    ) -> bool {
        let folio = *self.folios.get(id);
        let Some(frame) = self.hole_for_take_out(id, out) else {
            return false;
        };
        self.unlist(id);
        self.unmark(id);
        self.begin(id, State::TakingOut);
        let record = self.folios.get_mut(id);
        record.frame = Some(frame);
        record.errand = errand;
        if record.goes_to_limbo() {
            self.lruvec_of(id).taking_out += folio.order.pages().0;
        }
        out.push(Command::TakeOut {
            folio: id,
            at: self.at(id),
            frame,
        });
        true
    }

    /// A place in the pool for what is taken out. When there is none, one may be made.
    pub(crate) fn hole_for_take_out(&mut self, id: FolioId, out: &mut Commands) -> Option<Frame> {
        let (folio, page) = (self.folios.get(id), self.at(id).start);
        let (order, node) = (folio.order, folio.node);
        if self.frames.holes(order, node) > LOAD_RESERVE {
            return self.frames.take_hole(order, node, page);
        }
        // Spare frames may be what fills the pool: their places are wanted more than their pages.
        if let Some(frame) = self.frames.drain_one_of(order, node) {
            out.push(Command::FreeFrame { frame });
        }
        None
    }

    /// Under the rule of reuse each kind's inactive list is a thirty-second of all of it. What is too much of either changes over,
    /// oldest first.
    fn balance(&mut self, vec: VecId, kind: usize) {
        for _ in 0..BALANCE_BATCH {
            let lists = self.lru.get(vec);
            let pages = |name| lists.pages_in(name, kind);
            let active = pages(ListName::Active) + pages(ListName::LimboActive);
            let all = active + pages(ListName::Inactive) + pages(ListName::Limbo);
            let want = all - (all / 32).max(2).min(all);
            if active > want {
                let Some(id) = lists.oldest_in(&self.folios, ListName::LimboActive, kind) else {
                    break;
                };
                let pages = u64::from(self.folios.get(id).order.pages().0);
                self.count_for(id, |stat| stat.pgdeactivate += pages);
                self.unlist(id);
                self.folios.get_mut(id).set_active(false);
                self.list(id, ListName::Limbo);
            } else {
                let Some(id) = lists.oldest_in(&self.folios, ListName::Limbo, kind) else {
                    break;
                };
                let pages = self.folios.get(id).order.pages().0;
                if active + pages > want || lists.pages_in(ListName::Limbo, kind) <= pages {
                    break;
                }
                self.count_for(id, |stat| stat.pgactivate += u64::from(pages));
                self.unlist(id);
                self.folios.get_mut(id).set_active(true);
                self.lru.add_old(&mut self.folios, id, ListName::Limbo);
            }
        }
    }

    pub(crate) fn count_scan(&mut self, id: FolioId, by: Reclaimer) {
        let folio = self.folios.get(id);
        let (pages, in_file) = (u64::from(folio.order.pages().0), folio.is_in_file());
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

    /// What a folio holds has left memory on behalf of `by`.
    pub(crate) fn count_steal(&mut self, folio: &Folio, by: Reclaimer) {
        let pages = u64::from(folio.order.pages().0);
        self.count(folio.group, |stat| {
            match by {
                Reclaimer::Background => stat.pgsteal_kswapd += pages,
                Reclaimer::Direct => stat.pgsteal_direct += pages,
            }
            match folio.is_in_file() {
                true => stat.pgsteal_file += pages,
                false => stat.pgsteal_anon += pages,
            }
        });
    }
}
