//! Remap: the contents of a range move to other addresses by their tables.
//!
//! Source and destination have the same offset within their leaves (2 MiB), so each whole leaf is moved by its pointer,
//! whatever it holds: folios, slots, zeros, marks. Only the pages before the first whole leaf and behind the last move
//! entry by entry. 1 GiB is 512 pointers, resident or not. The driver moves the kernel's page tables in the same way
//! (`mremap`), while no other operation is in progress: no folio is in flight, so none can arrive where it no longer
//! belongs.
//!
//! A folio that straddles an end of the source is split there; in limbo it has to come back first. A pinned page
//! refuses the move. Pages that are inherited from a snapshot's base are identified by their offset in the region, so
//! they move only with the whole region.
//!
//! *Resizing* in place adds or returns leaves at the region's end, and touches nothing else.

use crate::addr::{LEAF_PAGES, PageCount, PageIndex, PageRange};
use crate::command::Commands;
use crate::event::{Refusal, Reply};
use crate::ids::{FolioId, Kind, RegionId};
use crate::machine::Core;
use crate::tables::leaf::Entry;
use crate::tables::lru::Lruvecs;

impl Core {
    pub(crate) fn remap(&mut self, from: PageRange, to: PageRange, out: &mut Commands) -> Reply {
        if let Err(refusal) = self.may_remap(from, to) {
            return Reply::Refused(refusal);
        }
        if let Some(reply) = self.split_edges(from, out) {
            return reply;
        }
        let (source, destination) = (self.group_of(from.start), self.group_of(to.start));
        let mut page = from.start;
        while page < from.end() {
            let target = to.start.plus(page.0 - from.start.0);
            let whole = page.0.is_multiple_of(LEAF_PAGES) && from.end().0 - page.0 >= LEAF_PAGES;
            page = if whole {
                let leaf = PageRange::new(page, PageCount(LEAF_PAGES));
                self.hand_over(leaf, source, destination);
                self.leaves.move_leaf(page.leaf(), target.leaf());
                self.trends.moved(page, target);
                page.plus(LEAF_PAGES)
            } else {
                self.move_entry(page, target)
            };
        }
        self.succeed(from, to);
        Reply::Done
    }

    fn may_remap(&self, from: PageRange, to: PageRange) -> Result<(), Refusal> {
        let alike = from.start.0 % LEAF_PAGES == to.start.0 % LEAF_PAGES;
        let apart = from.end() <= to.start || to.end() <= from.start;
        if !self.range_ok(from) || !self.range_ok(to) || from.len != to.len || !alike || !apart {
            return Err(Refusal::BadRange);
        }
        let inside = |range: PageRange| {
            let region = self.regions.of(range.start);
            region.filter(|region| region.range.covers(range))
        };
        let (Some(source), Some(target)) = (inside(from), inside(to)) else {
            return Err(Refusal::OutsideRegion);
        };
        if self.meets_file(from) || self.meets_file(to) {
            return Err(Refusal::FileBacked);
        }
        let moves_whole = from == source.range && to.start == target.range.start;
        if target.base.is_some()
            || (source.base.is_some() && !moves_whole)
            || !self.holds_nothing(to)
        {
            return Err(Refusal::RegionInUse);
        }
        if self.flights > 0 || source.leaving.is_some() || target.leaving.is_some() {
            return Err(Refusal::Busy);
        }
        match self.first_pinned(from) {
            Some(page) => Err(Refusal::Pinned { page }),
            None => Ok(()),
        }
    }

    /// Whether no page of `range` is inherited. Inherited pages would end up at addresses of another region.
    fn inherits_nothing(&self, range: PageRange) -> bool {
        let region = self.regions.of(range.start);
        let inherits = region.is_some_and(|region| region.base.is_some());
        !inherits || range.pages().all(|page| self.inherited(page).is_none())
    }

    fn holds_nothing(&self, range: PageRange) -> bool {
        let mut page = range.start;
        while page < range.end() {
            let next_leaf = page.next_leaf().min(range.end());
            let here = PageRange::new(page, PageCount(next_leaf.0 - page.0));
            let empty = |page| self.leaves.get(page) == Entry::Empty;
            if self.leaves.leaf_in_use(page) && !here.pages().all(empty) {
                return false;
            }
            page = next_leaf;
        }
        true
    }

    /// Moves one entry, or all of one folio. Returns where to continue.
    fn move_entry(&mut self, page: PageIndex, target: PageIndex) -> PageIndex {
        match self.leaves.get(page) {
            Entry::Folio(id) => {
                let end = self.at(id).end();
                self.rehome(id, target);
                end
            }
            entry => {
                self.move_entry_alone(page, target, entry);
                page.plus(1)
            }
        }
    }

    /// Moves an entry of a page that is in no folio.
    pub(crate) fn move_entry_alone(&mut self, from: PageIndex, to: PageIndex, entry: Entry) {
        let (old, new) = (self.group_of(from), self.group_of(to));
        self.hand_over(PageRange::new(from, PageCount(1)), old, new);
        let shadow = self.leaves.shadow(from);
        self.leaves.set(from, Entry::Empty);
        self.leaves.set(to, entry);
        if let (true, Some(region)) = (shadow != 0, self.regions.of(to)) {
            let owner = self.lru.id(new, region.node);
            let to = PageRange::new(to, PageCount(1));
            self.leaves.set_shadows(to, shadow, Lruvecs::index(owner));
        }
    }

    /// Moves a folio to the pages from `start` on.
    pub(crate) fn rehome(&mut self, id: FolioId, start: PageIndex) {
        let at = self.at(id);
        let (old, new) = (self.group_of(at.start), self.group_of(start));
        self.hand_over(at, old, new);
        self.leaves.fill(at, Entry::Empty);
        let entry = self.leaves.entry_of(start);
        self.folios.get_mut(id).entry = entry;
        self.leaves
            .fill(PageRange::new(start, at.len), Entry::Folio(id));
    }

    /// Makes the region at the destination the successor of a region that was moved whole.
    fn succeed(&mut self, from: PageRange, to: PageRange) {
        let source = *self.regions.of(from.start).expect("looked at before");
        let target = self.regions.of_mut(to.start).expect("looked at before");
        if source.range != from || target.range.start != to.start {
            return;
        }
        (target.order, target.habit, target.base) = (source.order, source.habit, source.base);
        target.node = source.node;
        let source = self.regions.of_mut(from.start).expect("looked at before");
        source.base = None;
    }

    pub(crate) fn resize(&mut self, id: RegionId, pages: PageCount) -> Reply {
        let Some(region) = self.regions.get(id).copied() else {
            return Reply::Refused(Refusal::UnknownRegion);
        };
        if pages.0 == 0 || pages.0 > self.config.arena.0 {
            return Reply::Refused(Refusal::BadRange);
        }
        if region.kind != Kind::Anonymous {
            return Reply::Refused(Refusal::FileBacked);
        }
        if region.leaving.is_some() {
            return Reply::Refused(Refusal::Busy);
        }
        let old = region.range;
        let rest = || old.tail(old.start.plus(pages.0));
        if pages < old.len && !(self.holds_nothing(rest()) && self.inherits_nothing(rest())) {
            return Reply::Refused(Refusal::RegionInUse);
        }
        match self.regions.resize(id, pages) {
            Some(range) => {
                for leaf in range.end().0.div_ceil(LEAF_PAGES)..old.end().0.div_ceil(LEAF_PAGES) {
                    self.leaves.drop_past(leaf);
                    self.trends.forget(PageIndex(leaf * LEAF_PAGES));
                }
                self.leaves.forget_shadows(behind(range.end()));
                Reply::Region { region: id, range }
            }
            None => Reply::Refused(Refusal::NoAddressSpace),
        }
    }
}

/// The pages of a leaf from `page` on, if that is not the leaf's first.
fn behind(page: PageIndex) -> PageRange {
    PageRange::new(
        page,
        PageCount(page.0.next_multiple_of(LEAF_PAGES) - page.0),
    )
}
