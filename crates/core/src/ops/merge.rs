//! Merging: the last heir of a base takes over the base's remaining contents.
//!
//! A merge proceeds page by page, by the state of the base's page. Slots and zeros are entries, and their entries move
//! to the heir; so does a folio in limbo, whose frame is mapped in its new place when it is touched. A mapped folio is
//! captured into limbo first. Pages for which the heir has its own are dropped, and a folio is split if the heir has
//! its own pages for a part of it; in limbo it cannot be split, and goes to the store.
//!
//! A dropped page leaves zeros behind if the base itself inherits something there, and a lower base may be merged into
//! this one at the same time, behind the position of this merge. So the merge goes round again until it finds nothing
//! left.
//!
//! The heir's threads run on during the merge. A merge that cannot finish now (the store is full, the kernel holds a
//! page) may stop at any point: an heir with a base is as correct as one without, only slower.

use crate::addr::{PageIndex, PageRange};
use crate::command::Commands;
use crate::event::{Refusal, Reply};
use crate::ids::{FolioId, ListName, RegionId};
use crate::limits::RECLAIM_BATCH;
use crate::machine::Core;
use crate::ops::walk::Step;
use crate::tables::folio::{Errand, State};
use crate::tables::leaf::Entry;

impl Core {
    pub(crate) fn merge(&mut self, base: RegionId, from: PageIndex, out: &mut Commands) -> Reply {
        let Some(region) = self.regions.get(base).copied() else {
            return Reply::Refused(Refusal::UnknownRegion);
        };
        let mut heirs = self
            .regions
            .iter()
            .filter(|(_, heir)| heir.base == Some(base));
        let Some((heir, start)) = heirs.next().map(|(id, heir)| (id, heir.range.start)) else {
            return Reply::Refused(Refusal::RegionInUse);
        };
        let alone = heirs.next().is_none();
        drop(heirs);
        if !alone {
            return Reply::Refused(Refusal::RegionInUse);
        }
        if !region.range.contains(from) {
            return Reply::Refused(Refusal::BadRange);
        }
        let offset = Offset {
            base: region.range.start,
            heir: start,
        };
        let reply = self.walk(region.range.tail(from), out, |core, page, out| {
            core.merge_step(page, &offset, out)
        });
        if !out.is_empty() {
            // The next round hands over the folios that are being captured.
            return Reply::More { from };
        }
        if reply != Reply::Done {
            return reply;
        }
        if let Some(left) = self.first_leaf_in_use(region.range) {
            return Reply::More { from: left };
        }
        self.regions.get_mut(heir).expect("found above").base = region.base;
        let emptied = self.regions.get_mut(base).expect("found above");
        (emptied.base, emptied.heirs) = (None, 0);
        Reply::Detached {
            orphan: Some((base, region.range)),
            single: None,
        }
    }

    /// The start of the first leaf of a region that holds anything.
    fn first_leaf_in_use(&self, region: PageRange) -> Option<PageIndex> {
        let in_use = |&start: &PageIndex| self.leaves.leaf_in_use(start);
        region.leaf_starts().find(in_use)
    }

    fn merge_step(&mut self, page: PageIndex, offset: &Offset, out: &mut Commands) -> Step {
        let heir = offset.heir_of(page);
        let hidden = self.leaves.get(heir) != Entry::Empty;
        let entry = self.leaves.get(page);
        match entry {
            Entry::Folio(id) => return self.merge_folio(id, page, offset, out),
            Entry::Empty => {}
            Entry::Poisoned => return self.merge_poison(page, heir, hidden, out),
            _ if hidden => self.forget_hidden(page, out),
            entry => self.move_entry_alone(page, heir, entry),
        }
        Step::To(page.plus(1))
    }

    /// Drops a page of the base that is in no folio, because the heir has its own page there.
    fn forget_hidden(&mut self, page: PageIndex, out: &mut Commands) {
        match self.leaves.get(page) {
            Entry::Swapped { slot, .. } => self.drop_slot_pages(slot, 1, out),
            Entry::Zero => self.fewer_zeros(page, 1),
            entry => unreachable!("{page} is {entry:?}, which is handed over otherwise"),
        }
        self.leaves.set(page, Entry::Empty);
        self.let_go(page, 1);
    }

    /// Moves poison. It is also a mark in the page table: the mark is removed here and set there.
    fn merge_poison(
        &mut self,
        page: PageIndex,
        heir: PageIndex,
        hidden: bool,
        out: &mut Commands,
    ) -> Step {
        // Each of the two pages needs a record.
        if !self.folios.room(2) {
            return Step::Stop(Reply::Refused(Refusal::OutOfRecords));
        }
        let step = self.zap_poison(page, out);
        if let (Step::To(_), false) = (&step, hidden) {
            self.lose(heir, out);
        }
        step
    }

    fn merge_folio(
        &mut self,
        id: FolioId,
        page: PageIndex,
        offset: &Offset,
        out: &mut Commands,
    ) -> Step {
        let (folio, at) = (*self.folios.get(id), self.at(id));
        if folio.in_flight() {
            self.folios.get_mut(id).waited_for = true;
            return Step::Stop(Reply::Wait { page: at.start });
        }
        let own = |page| self.leaves.get(offset.heir_of(page)) != Entry::Empty;
        let hidden = own(at.start);
        let changes = at.pages().find(|&page| own(page) != hidden);
        match (folio.state, changes) {
            (State::Limbo, None) if hidden => self.discard_limbo(id, out),
            (State::Limbo, None) => self.rehome(id, offset.heir_of(at.start)),
            (State::Limbo, Some(_)) if self.store_blocked => {
                return Step::Stop(Reply::Refused(Refusal::Busy));
            }
            (State::Limbo, Some(_)) => {
                self.unlist(id);
                self.in_use_again(id);
                if !self.start_save(id, out) {
                    self.list(id, ListName::Limbo);
                    return Step::Stop(Reply::Refused(Refusal::OutOfRecords));
                }
            }
            (_, None) if hidden => self.zap(id, out),
            (_, Some(edge)) => {
                return match self.split_at(id, edge, out) {
                    true => Step::To(page),
                    false => Step::Stop(Reply::Refused(Refusal::OutOfRecords)),
                };
            }
            (_, None) => return self.merge_mapped(id, at, out),
        }
        Step::To(at.end())
    }

    /// Captures a mapped folio, so that it can be handed over once it is in limbo. A folio that could not move is tried
    /// again: no event reports that the protection of a base has changed. If the pool has no place for the folio, its
    /// halves may find one.
    fn merge_mapped(&mut self, id: FolioId, at: PageRange, out: &mut Commands) -> Step {
        let given = out.len();
        if std::mem::take(&mut self.folios.get_mut(id).immovable) {
            self.unlist(id);
            self.list(id, ListName::Inactive);
        }
        let starts = self.start_take_out(id, Errand::None, out);
        if starts && out.len() < RECLAIM_BATCH {
            return Step::To(at.end());
        }
        if out.len() > given {
            return Step::Stop(Reply::Done);
        }
        match self.folios.get(id).order.smaller() {
            Some(half) if self.split_at(id, at.start.plus(half.pages().0), out) => {
                Step::To(at.start)
            }
            Some(_) => Step::Stop(Reply::Refused(Refusal::OutOfRecords)),
            None => Step::Stop(Reply::Reclaim { pages: at.len }),
        }
    }
}

/// The first pages of base and heir.
struct Offset {
    base: PageIndex,
    heir: PageIndex,
}

impl Offset {
    fn heir_of(&self, page: PageIndex) -> PageIndex {
        self.heir.plus(page.0 - self.base.0)
    }
}
