//! Hints, and notices of changed protection: folios change lists, or leave at once.

use crate::addr::{PageIndex, PageRange};
use crate::command::Commands;
use crate::event::{Advice, Refusal, Reply};
use crate::ids::{FolioId, ListName};
use crate::limits::RECLAIM_BATCH;
use crate::machine::Core;
use crate::ops::walk::Step;
use crate::policy::order::Hint;
use crate::tables::folio::{Errand, State};
use crate::tables::leaf::Entry;

impl Core {
    pub(crate) fn advise(&mut self, range: PageRange, advice: Advice, out: &mut Commands) -> Reply {
        if !self.range_ok(range) {
            return Reply::Refused(Refusal::BadRange);
        }
        let mut expect = |hint| {
            let advise = |leaf| self.trends.advise(leaf, hint);
            range.leaf_starts().for_each(advise);
            Reply::Done
        };
        match advice {
            Advice::Sequential => expect(Hint::Sequential),
            Advice::Random => expect(Hint::Random),
            Advice::Normal => expect(Hint::None),
            Advice::WillNeed => {
                let will_need = |leaf| self.trends.will_need(leaf);
                range.leaf_starts().for_each(will_need);
                Reply::Done
            }
            Advice::Cold | Advice::PageOut => self.walk(range, out, |core, page, out| {
                core.advise_step(page, advice, out)
            }),
        }
    }

    fn advise_step(&mut self, page: PageIndex, advice: Advice, out: &mut Commands) -> Step {
        if out.len() >= RECLAIM_BATCH {
            return Step::Stop(Reply::Done);
        }
        let Entry::Folio(id) = self.leaves.get(page) else {
            return Step::To(page.plus(1));
        };
        let folio = self.folios.get(id);
        if folio.state == State::Resident && folio.lazy_part.pages > 0 {
            self.split_off_freed(id, out);
            return Step::To(page);
        }
        // The page that a thread touched last may already be mapped before its arrival is reported.
        if folio.state == State::Filling && advice == Advice::PageOut {
            let start = self.at(id).start;
            self.folios.get_mut(id).waited_for = true;
            return Step::Stop(Reply::Wait { page: start });
        }
        self.cool(id, advice, out);
        Step::To(self.at(id).end())
    }

    /// Makes a mapped folio that can leave the next victim, or starts to take it out.
    fn cool(&mut self, id: FolioId, advice: Advice, out: &mut Commands) {
        let folio = self.folios.get_mut(id);
        let first_anyway = folio.lazy;
        if folio.state != State::Resident || folio.list == ListName::Unevictable || first_anyway {
            return;
        }
        match advice {
            Advice::Cold => {
                self.unlist(id);
                self.make_coldest(id);
                self.list_old(id, ListName::Inactive);
            }
            _ => {
                // Without room in the pool the folio stays, as the next victim.
                if !self.start_take_out(id, Errand::PageOut, out) {
                    self.unlist(id);
                    self.make_coldest(id);
                    self.list_old(id, ListName::Inactive);
                }
            }
        }
    }

    /// The protection of `range` is about to change, or has. From now on folios end at the range's ends, so that each
    /// lies in one mapping, and folios that could not move get another chance. Lazily freed folios that are mapped lose
    /// their mark, since they may no longer be readable: the check whether they were used again reads them.
    pub(crate) fn protected(&mut self, range: PageRange, out: &mut Commands) -> Reply {
        if !self.range_ok(range) {
            return Reply::Refused(Refusal::BadRange);
        }
        let mut waits = None;
        self.for_each_folio(range, |core, id| {
            let folio = core.folios.get_mut(id);
            let is_looked_at = (folio.lazy || folio.lazy_part.pages > 0) && folio.in_flight();
            // A take-out may encounter the former protection: its answer, which arrives after this notice, would
            // permanently keep the folio from moving.
            if is_looked_at || folio.state == State::TakingOut {
                folio.waited_for = true;
                waits = Some(core.at(id).start);
            }
        });
        if let Some(page) = waits {
            return Reply::Wait { page };
        }
        if let Some(reply) = self.split_edges(range, out) {
            return reply;
        }
        self.for_each_folio(range, |core, id| {
            let folio = core.folios.get_mut(id);
            let marked = folio.lazy || folio.lazy_part.pages > 0;
            let relist = (folio.immovable || marked) && folio.state == State::Resident;
            folio.immovable = false;
            // A folio in flight is on no list, and joins one when it has arrived.
            if relist {
                core.unlist(id);
                core.unmark(id);
                core.list(id, ListName::Inactive);
            }
        });
        Reply::Done
    }
}
