//! Into limbo and out of it: the two steps by which memory leaves.
//!
//! *In.* The oldest mapped folios of a lruvec are taken out of the program into frames of the pool. One system call
//! takes out consecutive neighbours, so a batch that already has enough still takes the rest of a leaf
//! ([`ends_leaf`](Core::ends_leaf)). If the victims are scattered, their leaf may leave as a whole
//! ([`leaf_out`](crate::ops::leaf_out)).
//!
//! *Out.* The oldest folios in limbo go to the store, or to their file. A batch that already has enough still empties a
//! block of frames ([`ends_block`](Core::ends_block)), so that the next leaf can be taken out to that block.
//!
//! Limbo has a part for watched folios and one for all others. The length of each part is measured as a share of its
//! folios, mapped and in limbo together.

use crate::addr::{Frame, LEAF_PAGES, Order, PageIndex, PageRange};
use crate::command::{Command, Commands};
use crate::event::Reclaimer;
use crate::ids::{ANON, FILE, FolioId, ListName, Rule, VecId};
use crate::limits::{BALANCE_BATCH, LOAD_RESERVE, RECLAIM_BATCH, RECLAIM_SCAN};
use crate::machine::Core;
use crate::policy::first_fill::End;
use crate::tables::folio::{Errand, State};
use crate::tables::lru::{WATCHED, kind_of};
use crate::tables::places::block_of;

impl Core {
    /// Pages in limbo, or on their way there.
    pub(crate) fn in_limbo(&self, vec: VecId) -> u32 {
        let lists = self.lru.get(vec);
        let limbo = [ListName::Limbo, ListName::LimboActive].map(|name| lists.pages_of(name));
        limbo.into_iter().sum::<u32>() + lists.taking_out - self.stranded(vec)
    }

    /// Pages in limbo that wait for their file, while files are not asked to accept anything.
    fn stranded(&self, vec: VecId) -> u32 {
        match self.files_blocked {
            true => self.lru.get(vec).stranded(),
            false => 0,
        }
    }

    /// Minimum number of pages in limbo, such that every folio that leaves memory has been there: the lruvec's share,
    /// by its pages, of the configured minimum for all.
    pub(crate) fn limbo_least(&self, vec: VecId) -> u32 {
        let all = u64::from(self.limit) * u64::from(self.config.limbo_share) / 1024;
        let total = self.lru.pages().max(1);
        (all * u64::from(self.lru.get(vec).pages()) / u64::from(total)) as u32
    }

    /// Limbo's share of a part of a lruvec, in 1/1024.
    fn limbo_share(&self, vec: VecId, watched: bool) -> u32 {
        let (cost, least) = (self.dearest(vec), u32::from(self.config.limbo_share));
        match self.config.workingset {
            true => {
                let workingset = &self.lru.get(vec).workingset;
                workingset.limbo.of_part(watched, cost, least)
            }
            false => least,
        }
    }

    /// Number of pages by which a part's limbo is too short.
    pub(crate) fn limbo_behind(&self, vec: VecId, part: u8) -> u32 {
        let lists = self.lru.get(vec);
        let (mut limbo, mut mapped) = (lists.taking_out, 0);
        for &kind in lists.kinds() {
            let pages = |name| lists.list(name, kind, part).pages();
            limbo += pages(ListName::Limbo) + pages(ListName::LimboActive);
            if self.files_blocked {
                let stranded = |name| lists.list(name, kind, part).stranded();
                limbo -= stranded(ListName::Limbo) + stranded(ListName::LimboActive);
            }
            mapped += pages(ListName::Active) + pages(ListName::Inactive);
        }
        let share = self.limbo_share(vec, part == WATCHED);
        let wanted = u64::from(limbo + mapped) * u64::from(share) / 1024;
        (wanted as u32).saturating_sub(limbo)
    }

    /// Starts saving from limbo's old ends until `pages` pages are on their way out, in at most `most` folios.
    pub(crate) fn save_oldest(
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
            let Some(id) = self.next_offered(vec) else {
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
            // A store that accepts nothing may still have the bytes of an unchanged folio. The other folios step aside
            // for the next scan.
            if self.waits_for_room(&folio) {
                self.waits(id);
                continue;
            }
            if !self.evict(id, by, out) {
                self.list_old(id, ListName::Limbo);
                break;
            }
            started += n;
            saves += 1;
        }
        started
    }

    /// The folio in limbo that a scan reaches next. While the store or a file accepts nothing, the usual order may
    /// fail: it has one list for folios that were used again and one for the others, and the scan could go round one of
    /// these lists forever.
    fn next_offered(&self, vec: VecId) -> Option<FolioId> {
        let lists = self.lru.get(vec);
        if self.store_blocked {
            return match lists.oldest_beside_unchanged() {
                None if !self.files_blocked && lists.stranded() > 0 => lists.oldest_stranded(),
                oldest => oldest,
            };
        }
        let next = self.next_evicted(vec)?;
        match self.waits_for_room(self.folios.get(next)) {
            true => lists.oldest_beside_stranded(),
            false => Some(next),
        }
    }

    /// Starts saving a folio that is in limbo and on no list now, on behalf of `by`. Returns false if there is no slot
    /// for it.
    pub(crate) fn evict(&mut self, id: FolioId, by: Reclaimer, out: &mut Commands) -> bool {
        let folio = *self.folios.get(id);
        if !self.start_save(id, out) {
            return false;
        }
        self.folios.get_mut(id).errand = Errand::For(by);
        let (cost, limit, pages) = (self.cost_of(&folio), self.limit, folio.order.pages().0);
        let lists = self.lruvec_of(id);
        let sizes = lists.sizes();
        lists.balance.gave(kind_of(&folio), pages, sizes);
        let workingset = &mut lists.workingset;
        workingset.first_fill.left(folio.age, workingset.now());
        workingset.limbo.earn(pages, cost);
        workingset.limbo.earn_watched(pages, limit, cost);
        true
    }

    /// The folio that leaves limbo next: of the kind whose turn it is, if that kind has folios there.
    pub(crate) fn next_evicted(&self, vec: VecId) -> Option<FolioId> {
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
        if lists.workingset.first_fill.next() == End::Young
            && let Some(young) = lists.youngest_of_first_fill(&self.folios, kind)
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

    /// The folio of these parts that is taken out next: it is of the kind with less in limbo, as both should have the
    /// same share there.
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
        let share = self.limbo_share(vec, parts == [WATCHED]);
        let stays = (u64::from(all) * u64::from(1024 - share) / 1024).max(1);
        match u64::from(mapped) <= stays {
            true => active,
            false => inactive,
        }
    }

    /// Starts saving a folio that is in limbo and on no list. Returns false if there is no slot for it. A file's folio
    /// needs no slot: it has its place in the file.
    pub(crate) fn start_save(&mut self, id: FolioId, out: &mut Commands) -> bool {
        let folio = *self.folios.get(id);
        if folio.is_in_file() {
            self.begin(id, State::Saving);
            self.writing_back += folio.order.pages().0;
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
        let previous = folio.backing();
        let forgets = previous.is_some_and(|part| self.is_own_part(part));
        out.push(Command::Save {
            folio: id,
            frame,
            slot,
            previous,
            forgets,
            read_from: folio.is_as_read().then(|| self.at(id)),
        });
        true
    }

    /// Starts taking out the oldest folios of these parts until `pages` pages are on their way.
    pub(crate) fn take_oldest(
        &mut self,
        vec: VecId,
        pages: u32,
        parts: &[u8],
        by: Reclaimer,
        out: &mut Commands,
    ) -> u32 {
        let mut started = 0;
        let mut last = None;
        // Watched folios are not due yet: they are only tested.
        let are_due = parts != [WATCHED];
        while out.len() < 2 * RECLAIM_BATCH && !self.lru.get(vec).is_stuck() {
            let Some(id) = self.next_for_limbo(vec, parts) else {
                break;
            };
            let (at, order) = (self.at(id), self.folios.get(id).order);
            let room = 2 * RECLAIM_BATCH - out.len();
            let enough = started >= pages || self.is_by_leaf(order) && room < block_of(order);
            if enough && !self.ends_leaf(last, at, order) {
                break;
            }
            // The leaf of each victim is considered: the next victim lies elsewhere, and may leave with its leaf even
            // if this one could not.
            if are_due && self.consider_leaf(id) {
                break;
            }
            last = Some(at.end());
            if self.folios.get(id).lazy_part.pages > 0 {
                // The freed part was skipped because the pool has no place for dropped folios. It is not written out.
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

    /// Whether a batch that already has enough also takes this folio, because the folio before it in its leaf has gone:
    /// a leaf that fits into a batch leaves by one call.
    fn ends_leaf(&self, last: Option<PageIndex>, at: PageRange, order: Order) -> bool {
        last == Some(at.start) && !at.start.0.is_multiple_of(LEAF_PAGES) && self.is_by_leaf(order)
    }

    /// Whether a batch that already has enough also empties this frame, because the frame before it in its block was
    /// emptied. An entirely spare block can take in an entire leaf.
    fn ends_block(&self, last: Option<Frame>, frame: Frame) -> bool {
        let order = frame.order();
        let follows =
            last.is_some_and(|last| last.order() == order && last.index() + 1 == frame.index());
        let begins = (frame.index() as usize).is_multiple_of(block_of(order));
        follows && !begins && self.is_by_leaf(order)
    }

    /// Whether neighbouring folios of this order come and go by the leaf. They do if a leaf is a small part of all
    /// memory, and has no more of them than a batch.
    pub(crate) fn is_by_leaf(&self, order: Order) -> bool {
        block_of(order) <= RECLAIM_BATCH && self.folio_share() >= LEAF_PAGES
    }

    /// Starts taking out a resident folio. Returns false if the pool has no place for it.
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

    /// A place in the pool for a folio that is taken out. When there is none, one may be made free.
    pub(crate) fn hole_for_take_out(&mut self, id: FolioId, out: &mut Commands) -> Option<Frame> {
        let (folio, page) = (self.folios.get(id), self.at(id).start);
        let (order, node) = (folio.order, folio.node);
        if self.frames.holes(order, node) > LOAD_RESERVE {
            return self.frames.take_hole(order, node, page);
        }
        // The pool may be full of spare frames: their places are needed more than their pages.
        if let Some(frame) = self.frames.drain_one_of(order, node) {
            out.push(Command::FreeFrame { frame });
        }
        None
    }

    /// Under the rule of reuse each kind's inactive list has a thirty-second of all its folios. The excess of either
    /// list moves to the other, oldest first.
    pub(crate) fn balance(&mut self, vec: VecId, kind: usize) {
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
}
