//! Snapshots: two regions that read the same until one of them is written to.
//!
//! # Shadow objects
//! Taking a snapshot must cost next to nothing, so no work per page is allowed. The source's leaf tables and page
//! tables are moved unchanged to a hidden region, the *base*; source and snapshot are its *heirs*, and empty at first.
//! An empty entry in an heir represents the base's page at that offset, or a page of the base's own base. (Mach called
//! these shadow objects; FreeBSD's VM still has them.) Moving a leaf means moving a pointer, here and in the kernel: 1
//! GiB is 512 of them.
//!
//! No event names the base, so its contents never change; reclaim treats its folios like any others. How an heir gets a
//! page that it touches depends on the state of the base's page:
//!
//! - *in memory, mapped or in limbo*: the base's folio is lent (it cannot be evicted until the copy is done), and as
//!   much of it is copied at once as the window requests and the heir has no pages of its own for;
//! - *in the store*: the heir's entries also name the slot, which counts its holders, and the page is loaded as usual;
//! - *zeros*: the heir gets zeros;
//! - *lost*: the page is lost for the heir as well.
//!
//! A page that an heir discards or frees becomes [`Entry::Zero`], which hides the base's; the other heir sees nothing
//! of it.
//!
//! # Why not write protection
//! The kernel uses write protection for its own copy on write, and it would let readers share the frame. But protecting
//! a resident GiB page by page takes 17 ms here, and moving its tables 0.3. A page that was taken out comes back
//! unprotected by `UFFDIO_MOVE`, so all pages would have to be copied back in instead; and memory registered for
//! protection can no longer be moved by its tables. The price of shadow objects is that reading also costs a copy.
//! Neither copy keeps the other in memory: an unused copy leaves first.
//!
//! # The end
//! An heir is detached before it is dropped. A base without heirs is dropped; a base with a single remaining heir is
//! merged into it ([`merge`](crate::ops::merge)), so that short-lived snapshots do not build chains of bases.

use crate::addr::{LEAF_PAGES, Order, PageIndex, PageRange};
use crate::command::{Command, Commands, CopyFrom};
use crate::event::{Refusal, Reply};
use crate::ids::{FolioId, Kind, ListName, RegionId};
use crate::machine::Core;
use crate::ops::fault::Coming;
use crate::ops::fault::Memory;
use crate::tables::folio::State;
use crate::tables::leaf::Entry;

impl Core {
    pub(crate) fn snapshot(&mut self, source: RegionId, base: RegionId, copy: RegionId) -> Reply {
        let region = |id| self.regions.get(id).copied();
        let (Some(from), Some(to), Some(other)) = (region(source), region(base), region(copy))
        else {
            return Reply::Refused(Refusal::UnknownRegion);
        };
        let new = |region: &crate::tables::region::Region| {
            let in_use = |leaf| self.leaves.leaf_in_use(leaf);
            region.range.len == from.range.len
                && region.base.is_none()
                && region.heirs == 0
                && !region.range.leaf_starts().any(in_use)
        };
        if source == base || source == copy || base == copy || !new(&to) || !new(&other) {
            return Reply::Refused(Refusal::RegionInUse);
        }
        if [from, to, other]
            .iter()
            .any(|region| region.kind != Kind::Anonymous)
        {
            return Reply::Refused(Refusal::FileBacked);
        }
        if self.flights > 0 || from.leaving.is_some() {
            return Reply::Refused(Refusal::Busy);
        }
        if let Some(page) = self.first_pinned(from.range) {
            return Reply::Refused(Refusal::Pinned { page });
        }
        let (first, onto) = (from.range.start.leaf(), to.range.start.leaf());
        for n in 0..from.range.len.0.div_ceil(LEAF_PAGES) {
            self.leaves.move_leaf(first + n, onto + n);
        }
        let mut change = |id, base, heirs| {
            let region = self.regions.get_mut(id).expect("looked at above");
            (region.base, region.heirs) = (base, heirs);
        };
        change(base, from.base, 2);
        change(source, Some(base), from.heirs);
        change(copy, Some(base), 0);
        for id in [base, copy] {
            let region = self.regions.get_mut(id).expect("looked at above");
            (region.order, region.habit) = (from.order, from.habit);
            (region.group, region.node) = (from.group, from.node);
        }
        self.stat.snapshots += 1;
        Reply::Done
    }

    pub(crate) fn detach(&mut self, id: RegionId) -> Reply {
        let Some(region) = self.regions.get_mut(id) else {
            return Reply::Refused(Refusal::UnknownRegion);
        };
        region.ending = true;
        let (mut orphan, mut single) = (None, None);
        if let Some(base) = region.base.take() {
            let region = self
                .regions
                .get_mut(base)
                .expect("a base outlives its heirs");
            region.heirs -= 1;
            let named = Some((base, region.range));
            match region.heirs {
                0 => orphan = named,
                1 => single = named,
                _ => {}
            }
        }
        Reply::Detached { orphan, single }
    }

    /// The page of a base that an empty entry at `page` represents, if a base has one.
    pub(crate) fn inherited(&self, page: PageIndex) -> Option<PageIndex> {
        let mut region = self.regions.of(page)?;
        let mut at = page;
        while let Some(base) = region.base {
            let base = self.regions.get(base).expect("a base outlives its heirs");
            let offset = at.0 - region.range.start.0;
            if offset >= base.range.len.0 {
                return None;
            }
            at = base.range.start.plus(offset);
            if self.leaves.get(at) != Entry::Empty {
                return Some(at);
            }
            region = base;
        }
        None
    }

    /// Whether some page of the leaf of `page` may be inherited.
    pub(crate) fn leaf_is_inherited(&self, page: PageIndex) -> bool {
        let Some(mut region) = self.regions.of(page) else {
            return false;
        };
        let leaf = page.leaf() - region.range.start.leaf();
        while let Some(base) = region.base {
            region = self.regions.get(base).expect("a base outlives its heirs");
            if leaf * LEAF_PAGES >= region.range.len.0 {
                return false;
            }
            let at = region.range.start.plus(leaf * LEAF_PAGES);
            if self.leaves.leaf_in_use(at) {
                return true;
            }
        }
        false
    }

    /// Turns the empty pages of `range` that would inherit something into zeros. Returns how many there are.
    pub(crate) fn hide_inherited(&mut self, range: PageRange) -> u32 {
        let inherits = |region: &crate::tables::region::Region| region.base.is_some();
        if !self.regions.of(range.start).is_some_and(inherits) {
            return 0;
        }
        let mut hidden = 0;
        for page in range.pages() {
            if self.inherited(page).is_some() {
                self.leaves.set(page, Entry::Zero);
                hidden += 1;
            }
        }
        hidden
    }

    /// [`LeafTable::blank`](crate::tables::leaf::LeafTable::blank) of a range whose empty pages may be inherited.
    pub(crate) fn blank(&self, range: PageRange) -> Option<u32> {
        let zeros = self.leaves.blank(range)?;
        let region = self.regions.of(range.start)?;
        let blank = |page| {
            self.leaves.get(page) == Entry::Zero
                || self
                    .inherited(page)
                    .is_none_or(|from| self.leaves.get(from) == Entry::Zero)
        };
        (region.base.is_none() || range.pages().all(blank)).then_some(zeros)
    }

    /// Brings in an empty page that represents the base's page at `from`, by the state of that page.
    pub(crate) fn inherit(&mut self, coming: Coming, from: PageIndex, out: &mut Commands) -> Reply {
        let page = coming.page;
        match self.leaves.get(from) {
            Entry::Empty | Entry::Zero => {
                self.bring_in_blank(page, coming.zeros, coming.wanted, out)
            }
            Entry::Poisoned => Reply::Refused(Refusal::Poisoned { page }),
            Entry::Swapped { slot, index } => {
                let order = self.slots.get(slot).order.min(coming.slot);
                let entry_at = |heir: PageIndex| Entry::Swapped {
                    slot,
                    index: (u32::from(index) + heir.0 - page.0) as u16,
                };
                for heir in PageRange::block(page, order).pages() {
                    let entry = entry_at(heir);
                    if self.inherits_only(heir, page, from, entry) {
                        self.leaves.set(heir, entry);
                        self.slots.share(slot, 1);
                        self.hold(heir, 1);
                    }
                }
                self.bring_in_swapped(coming, slot, index, out)
            }
            Entry::Folio(id) => self.copy_from(id, coming, from, out),
        }
    }

    /// Whether `heir` is empty and inherits `entry` from the same base as `page` inherits from `from`.
    fn inherits_only(
        &self,
        heir: PageIndex,
        page: PageIndex,
        from: PageIndex,
        entry: Entry,
    ) -> bool {
        let inside = self.regions.of(heir).is_some();
        let source = PageIndex(from.0 + heir.0 - page.0);
        inside
            && self.leaves.get(heir) == Entry::Empty
            && self.inherited(heir) == Some(source)
            && self.leaves.get(source) == entry
    }

    /// Copies a folio that the base has in memory: as much of `lender` around the page as is requested and inherited.
    fn copy_from(
        &mut self,
        lender: FolioId,
        coming: Coming,
        from: PageIndex,
        out: &mut Commands,
    ) -> Reply {
        let Coming {
            page,
            zeros,
            wanted,
            ..
        } = coming;
        let (folio, lent) = (*self.folios.get(lender), self.at(lender));
        if folio.in_flight() {
            self.folios.get_mut(lender).waited_for |= wanted;
            return Reply::WaitForBase { page: lent.start };
        }
        let entry = Entry::Folio(lender);
        let inherited = |core: &Self, order| {
            let mut block = PageRange::block(page, order).pages();
            block.all(|heir| core.inherits_only(heir, page, from, entry))
        };
        let order = Order::up_to(zeros.min(folio.order))
            .rev()
            .find(|&order| inherited(self, order))
            .expect("a page that is inherited is so by itself");
        let frame = match self.memory(page, order, wanted, out) {
            Memory::Spare(frame) => Some(frame),
            Memory::Fresh => None,
            Memory::Short(reply) => return reply,
        };
        let at = PageRange::block(page, order);
        let Some(id) = self.admit(at, frame, false) else {
            return Reply::Refused(Refusal::OutOfRecords);
        };
        self.hold(at.start, at.len.0);
        self.unlist(lender);
        self.in_use_again(lender);
        let first = from.align_down(order);
        let offset = (first.0 - lent.start.0) as u16;
        let (state, from) = match folio.frame {
            Some(frame) => {
                let first = offset;
                (State::LendingFrame, CopyFrom::Frame { frame, first })
            }
            None => (State::Lending, CopyFrom::Mapped(first)),
        };
        self.begin(lender, state);
        let record = self.folios.get_mut(id);
        record.set_lender(lender);
        if let Some(slot) = folio.slot() {
            record.set_slot(Some(slot));
            record.slot_first = folio.slot_first + offset;
            self.slots.share(slot, at.len.0);
        }
        out.push(Command::Copy {
            folio: id,
            at,
            from,
            frame,
        });
        Reply::Done
    }

    /// Takes a lent folio back. It is where it was, and may leave again.
    pub(crate) fn given_back(&mut self, lender: FolioId, out: &mut Commands) {
        self.flights -= 1;
        let folio = self.folios.get_mut(lender);
        let (state, list) = match folio.state {
            State::Lending => (State::Resident, ListName::Inactive),
            State::LendingFrame => (State::Limbo, ListName::Limbo),
            state => unreachable!("{lender:?} was lent and is {state:?}"),
        };
        folio.state = state;
        self.keeps_slot(lender);
        let folio = self.folios.get_mut(lender);
        if std::mem::take(&mut folio.waited_for) {
            out.push(Command::Wake {
                at: self.at(lender),
            });
        }
        self.list(lender, list);
    }

    /// Undoes a copy that could not be mapped: the pages are inherited as before.
    pub(crate) fn not_copied(&mut self, id: FolioId, out: &mut Commands) {
        let (folio, at) = (*self.folios.get(id), self.at(id));
        if let Some(slot) = folio.slot() {
            self.drop_slot_pages(slot, at.len.0, out);
        }
        self.leaves.fill(at, Entry::Empty);
        self.let_go(at.start, at.len.0);
        self.given_back(folio.lender(), out);
    }
}
