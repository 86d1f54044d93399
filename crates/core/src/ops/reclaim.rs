//! Reclaim: the next batch of work that makes memory available.
//!
//! What was lazily freed goes first ([`lazy_free`](super::lazy_free)). Then memory leaves in two steps, and a batch has
//! both, so that limbo stays at its length while its old end is written out:
//!
//! 1. *save*: the oldest folios in limbo go to the store, and their frames become spare. Only as long as limbo
//!    is longer than its share: being there for a while is what tells a folio in use from one that is not;
//! 2. *take out*: the oldest inactive folios are captured into limbo. The active list gives its oldest to the
//!    inactive one when that is the shorter of the two.
//!
//! Background and direct reclaim are the same code in the same order. A batch is bounded, in commands and in
//! folios looked at; the caller asks again until enough is available. When nothing but limbo is left, limbo is written
//! out below its share: a fault that cannot be served is worse than a wrong victim.

use crate::addr::{Frame, Order, PageCount};
use crate::command::{Command, Commands};
use crate::event::{Reclaimer, Reply};
use crate::folio::{Errand, FolioId, ListName, State};
use crate::limits::{LOAD_RESERVE, RECLAIM_BATCH, RECLAIM_SCAN};
use crate::lru::{Lruvec, VecId};
use crate::machine::Core;

/// Lruvecs give batches one after the other.
#[derive(Debug, Default)]
pub(crate) struct Turn(u32);

impl Core {
    pub(crate) fn reclaim(&mut self, pages: PageCount, by: Reclaimer, out: &mut Commands) -> Reply {
        let given = out.len();
        let lazy = self.drop_lazyfree(pages.0, Errand::For(by), out);
        // Small folios fill a batch before there are enough of them: the next batch goes on with these. (Those that were
        // in limbo give no command.)
        let progress = lazy > 0 || out.len() > given;
        let more = self.lru.total(ListName::LazyFree) > 0 || !self.deferred.is_empty();
        if lazy >= pages.0 || progress && more {
            return Reply::Done;
        }
        let pages = PageCount(pages.0 - lazy);
        for _ in 0..self.lru.iter().count() {
            let vec = self.next_lruvec();
            if self.shrink_lruvec(vec, pages, by, out) > 0 || out.len() > given {
                break;
            }
            self.turn.0 = self.turn.0.wrapping_add(1);
        }
        Reply::Done
    }

    /// The lruvec whose turn it is.
    pub(crate) fn next_lruvec(&self) -> VecId {
        self.lru.in_turn(self.turn.0)
    }

    /// The next batch of one lruvec: starts saves and take-outs until `pages` pages are on their way. Answers how many are.
    pub(crate) fn shrink_lruvec(
        &mut self,
        vec: VecId,
        pages: PageCount,
        by: Reclaimer,
        out: &mut Commands,
    ) -> u32 {
        let target = self.limbo_target(vec);
        let in_limbo = |core: &Self| {
            let lists = core.lru.get(vec);
            lists.limbo.pages() + lists.taking_out
        };
        let surplus = in_limbo(self).saturating_sub(target);
        let saved = self.save_oldest(vec, pages.0.min(surplus), by, out);
        let refill = (target + pages.0).saturating_sub(in_limbo(self));
        let taken = self.take_oldest(vec, refill, by, out);
        if saved + taken == 0 {
            return self.save_oldest(vec, pages.0, by, out);
        }
        saved + taken
    }

    /// How long limbo should be: the lruvec's share, by its pages, of what is configured for all.
    fn limbo_target(&self, vec: VecId) -> u32 {
        let all = u64::from(self.limit) * u64::from(self.config.limbo_share) / 1024;
        let pages = |lists: &Lruvec| u64::from(lists.pages());
        let total: u64 = self.lru.iter().map(|(_, lists)| pages(lists)).sum();
        (all * pages(self.lru.get(vec)) / total.max(1)) as u32
    }

    /// Starts saves from limbo's old end until `pages` pages are on their way out.
    fn save_oldest(&mut self, vec: VecId, pages: u32, by: Reclaimer, out: &mut Commands) -> u32 {
        let mut started = 0;
        let mut victim = self.lru.get(vec).limbo.oldest();
        for _ in 0..RECLAIM_SCAN {
            let Some(id) = victim else { break };
            if started >= pages || out.len() >= RECLAIM_BATCH {
                break;
            }
            victim = self.lru.get(vec).limbo.younger(&self.folios, id);
            let folio = *self.folios.get(id);
            let n = folio.order.pages().0;
            self.count_scan(n, by);
            self.unlist(id);
            // A store that takes nothing may still hold what has not changed. The rest makes way for the next scan.
            if self.store_blocked && folio.slot.is_none() {
                self.list(id, ListName::Limbo);
                continue;
            }
            if !self.start_save(id, out) {
                self.lru.add_old(&mut self.folios, id, ListName::Limbo);
                break;
            }
            self.folios.get_mut(id).errand = Errand::For(by);
            started += n;
        }
        started
    }

    /// Starts the save of a folio in limbo that is on no list. False when no slot is to be had.
    pub(crate) fn start_save(&mut self, id: FolioId, out: &mut Commands) -> bool {
        let folio = *self.folios.get(id);
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

    /// Starts take-outs from the inactive list's old end until `pages` pages are on their way.
    fn take_oldest(&mut self, vec: VecId, pages: u32, by: Reclaimer, out: &mut Commands) -> u32 {
        let mut started = 0;
        let first = out.len();
        while started < pages && out.len() - first < RECLAIM_BATCH {
            self.balance(vec);
            let Some(id) = self.lru.get(vec).inactive.oldest() else {
                break;
            };
            if self.folios.get(id).freed.pages > 0 {
                // Its part was passed over because the pool has no place for what is dropped: it is not written out.
                self.split_off_freed(id, out);
                continue;
            }
            let n = self.folios.get(id).order.pages().0;
            if !self.start_take_out(id, Errand::None, out) {
                break;
            }
            self.count_scan(n, by);
            started += n;
        }
        started
    }

    /// Starts the take-out of a resident folio. False when the pool has no place for it.
    pub(crate) fn start_take_out(
        &mut self,
        id: FolioId,
        errand: Errand,
        out: &mut Commands,
    ) -> bool {
        let folio = *self.folios.get(id);
        let Some(frame) = self.hole_for_take_out(folio.order, out) else {
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
    pub(crate) fn hole_for_take_out(&mut self, order: Order, out: &mut Commands) -> Option<Frame> {
        if self.frames.holes(order) > LOAD_RESERVE {
            return self.frames.take_hole(order);
        }
        // Spare frames may be what fills the pool: their places are wanted more than their pages.
        if let Some(frame) = self.frames.drain_one_of(order) {
            out.push(Command::FreeFrame { frame });
        }
        None
    }

    /// Moves the oldest active folio over when the inactive list is the shorter one.
    fn balance(&mut self, vec: VecId) {
        let lists = self.lru.get(vec);
        if lists.inactive.pages() >= lists.active.pages() {
            return;
        }
        if let Some(id) = lists.active.oldest() {
            self.stat.pgdeactivate += u64::from(self.folios.get(id).order.pages().0);
            self.unlist(id);
            self.list(id, ListName::Inactive);
        }
    }

    pub(crate) fn count_scan(&mut self, pages: u32, by: Reclaimer) {
        match by {
            Reclaimer::Background => self.stat.pgscan_kswapd += u64::from(pages),
            Reclaimer::Direct => self.stat.pgscan_direct += u64::from(pages),
        }
    }

    /// `pages` pages have left memory on behalf of `by`.
    pub(crate) fn count_steal(&mut self, pages: u32, by: Option<Reclaimer>) {
        match by {
            Some(Reclaimer::Background) => self.stat.pgsteal_kswapd += u64::from(pages),
            Some(Reclaimer::Direct) => self.stat.pgsteal_direct += u64::from(pages),
            None => {}
        }
    }
}
