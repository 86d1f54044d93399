//! Discard: a range forgets its contents and reads as zeros (`MADV_DONTNEED`), or as its file holds it.
//!
//! A discard goes entry by entry: a page in the store releases its slot, the frame of a folio in limbo becomes spare, a
//! mapped folio is dropped. As long as demand asks for frames ([`free`](crate::ops::free) explains for how many),
//! mapped folios are taken out by a command, so that their frames serve the next faults. Everything else goes into the
//! batch of the list of commands ([`gather`](crate::gather)): slots, and runs of mapped folios, which are `Zapping`
//! until the batch was given back. With a command for each folio, every 64 of them would take the core's lock twice.
//! Spare frames beyond the pool's mark go to the kernel at the next tick, in a batch of their own, so that the caller
//! does not wait for it.
//!
//! A folio that is only partly in the range is split if it is mapped. If it is in limbo it must come back first, which
//! happens at most at the two ends. If a page is pinned, the whole call is refused before anything is changed.
//!
//! *Purge* is a discard that does not wait, for memory whose owner has agreed that it may go at any time. It skips
//! folios that are in flight, pinned, or in limbo and only partly in the range, and it takes mapped folios out, so that
//! their frames serve the next faults without the kernel.

use crate::addr::{Frame, Order, PageCount, PageIndex, PageRange};
use crate::command::{Command, Commands, Releases};
use crate::event::{Refusal, Reply};
use crate::ids::{FolioId, ListName};
use crate::machine::Core;
use crate::ops::walk::Step;
use crate::tables::folio::{Errand, State};
use crate::tables::leaf::Entry;

impl Core {
    pub(crate) fn discard(&mut self, range: PageRange, out: &mut Commands) -> Reply {
        assert!(
            out.batch().is_empty(),
            "a batch is given back before it is used again"
        );
        if let Some(page) = self.first_pinned(range) {
            return Reply::Refused(Refusal::Pinned { page });
        }
        self.walk(range, out, |core, page, out| {
            core.discard_step(page, range, out)
        })
    }

    fn discard_step(&mut self, page: PageIndex, range: PageRange, out: &mut Commands) -> Step {
        let id = match self.leaves.get(page) {
            Entry::Empty | Entry::Zero | Entry::Swapped { .. } => {
                self.forget_page(page, out.batch());
                return Step::To(page.plus(1));
            }
            Entry::Poisoned => {
                let Some((_, at)) = self.stand_for_poison(page) else {
                    return Step::Stop(Reply::Refused(Refusal::OutOfRecords));
                };
                out.batch().push_run(at);
                return Step::To(at.end());
            }
            Entry::Folio(id) => id,
        };
        if let Some(stop) = self.settle_for(id, page, range, out) {
            return stop;
        }
        let at = self.at(id);
        let folio = *self.folios.get(id);
        if folio.state == State::Limbo {
            self.discard_limbo(id, out.batch());
            return Step::To(at.end());
        }
        // Frames that circulate do not go back to the kernel.
        let kept =
            self.frames.spare_pages() < self.pool_mark() && folio.list != ListName::Unevictable;
        if !(kept && self.start_take_out(id, Errand::Discard, out)) {
            self.begin_zap(id);
            if let Some(slot) = self.folios.get_mut(id).take_slot() {
                self.drop_slot_pages(slot, at.len.0, out.batch());
            }
            out.batch().push_run(at);
        }
        Step::To(at.end())
    }

    /// Notes that a run of a discard was dropped. Returns the range from the first page to the last at which threads
    /// wait.
    pub(crate) fn run_zapped(&mut self, run: PageRange) -> Option<PageRange> {
        let mut waited_for: Option<PageRange> = None;
        let mut page = run.start;
        while page < run.end() {
            let Entry::Folio(id) = self.leaves.get(page) else {
                panic!("{page} was dropped with {run} and is in no folio: the driver lost count");
            };
            let (folio, at) = (*self.folios.get(id), self.at(id));
            assert!(
                folio.state == State::Zapping && run.covers(at),
                "{run} was dropped, in it {id:?}, which is {:?} at {at}: the driver lost count",
                folio.state
            );
            self.flights -= 1;
            self.zapped(id, &folio);
            if folio.waited_for {
                waited_for = Some(waited_for.map_or(at, |range| range.hull(at)));
            }
            page = at.end();
        }
        waited_for
    }

    /// Checks that the folio at `page` is not in flight and lies wholly inside `range`. Returns `None` if so, or else
    /// the step that the walk has to take first.
    pub(crate) fn settle_for(
        &mut self,
        id: FolioId,
        page: PageIndex,
        range: PageRange,
        out: &mut Commands,
    ) -> Option<Step> {
        let (folio, at) = (*self.folios.get(id), self.at(id));
        if folio.in_flight() {
            self.folios.get_mut(id).waited_for = true;
            return Some(Step::Stop(Reply::Wait { page: at.start }));
        }
        if range.covers(at) {
            return None;
        }
        if folio.state == State::Limbo {
            return Some(Step::Stop(Reply::NeedsResident { page }));
        }
        Some(match self.split_at(id, at.edge_of(range), out) {
            true => Step::To(page),
            false => Step::Stop(Reply::Refused(Refusal::OutOfRecords)),
        })
    }

    /// Starts dropping a mapped folio.
    pub(crate) fn zap(&mut self, id: FolioId, out: &mut Commands) {
        self.begin_zap(id);
        let at = self.at(id);
        out.push(Command::Zap { folio: id, at });
    }

    fn begin_zap(&mut self, id: FolioId) {
        self.unlist(id);
        self.unmark(id);
        self.begin(id, State::Zapping);
    }

    /// Drops poison in the same way as mapped pages, so that no fault maps there before it is gone.
    pub(crate) fn zap_poison(&mut self, page: PageIndex, out: &mut Commands) -> Step {
        let Some((folio, at)) = self.stand_for_poison(page) else {
            return Step::Stop(Reply::Refused(Refusal::OutOfRecords));
        };
        out.push(Command::Zap { folio, at });
        Step::To(at.end())
    }

    /// Makes an in-flight folio that represents the poison of a page while the poison is dropped. Returns `None`
    /// without records.
    fn stand_for_poison(&mut self, page: PageIndex) -> Option<(FolioId, PageRange)> {
        let id = self.new_folio(page, Order::ZERO, State::Zapping)?;
        self.folios.get_mut(id).errand = Errand::Poison;
        self.flights += 1;
        self.leaves.set(page, Entry::Folio(id));
        Some((id, PageRange::new(page, PageCount(1))))
    }

    /// Makes an empty page lost from now on. There must be a record for it.
    pub(crate) fn lose(&mut self, page: PageIndex, out: &mut Commands) {
        let id = self.new_folio(page, Order::ZERO, State::Poisoning);
        let id = id.expect("whoever asks has looked for a record");
        self.leaves.set(page, Entry::Folio(id));
        self.hold(page, 1);
        self.begin_poison(id, out);
    }

    pub(crate) fn discard_limbo(&mut self, id: FolioId, out: &mut impl Releases) {
        self.stat.pgdiscard += u64::from(self.folios.get(id).order.pages().0);
        let frame = self.drop_limbo(id, out);
        self.frames.now_spare(frame);
    }

    /// Ends a folio in limbo, and returns its frame, which is still busy.
    pub(crate) fn drop_limbo(&mut self, id: FolioId, out: &mut impl Releases) -> Frame {
        self.unlist(id);
        self.unmark(id);
        let folio = *self.folios.get(id);
        let pages = folio.order.pages().0;
        self.uncharge_limbo(id);
        self.forget(self.at(id));
        if let Some(slot) = folio.slot() {
            self.drop_slot_pages(slot, pages, out);
        }
        self.folios.release(id);
        folio.frame.expect("a folio in limbo has a frame")
    }

    pub(crate) fn purge(&mut self, range: PageRange, out: &mut Commands) -> Reply {
        if self.meets_file(range) {
            return Reply::Refused(Refusal::FileBacked);
        }
        self.walk(range, out, |core, page, out| {
            Step::To(match core.leaves.get(page) {
                Entry::Folio(id) => core.purge_folio(id, page, range, out),
                _ => {
                    core.forget_page(page, out);
                    page.plus(1)
                }
            })
        })
    }

    /// Purges the folio at `page`. Returns where to continue: at the same page if the folio was split there.
    fn purge_folio(
        &mut self,
        id: FolioId,
        page: PageIndex,
        range: PageRange,
        out: &mut Commands,
    ) -> PageIndex {
        let (folio, at) = (*self.folios.get(id), self.at(id));
        let end = at.end();
        if folio.in_flight() || folio.list == ListName::Unevictable {
            return end;
        }
        if !range.covers(at) {
            let splits =
                folio.state == State::Resident && self.split_at(id, at.edge_of(range), out);
            return if splits { page } else { end };
        }
        if folio.state == State::Limbo {
            self.discard_limbo(id, out);
        } else {
            self.unlist(id);
            self.unmark(id);
            self.list(id, ListName::Inactive);
            self.start_take_out(id, Errand::Drop, out);
        }
        end
    }

    /// Where a discard of `range` has to begin, exact to a leaf; `None` if the discard would change nothing. For a
    /// range outside the arena it is the range's start, where the discard would be refused.
    #[must_use]
    pub fn first_in_use(&self, range: PageRange) -> Option<PageIndex> {
        if !self.range_ok(range) {
            return (!range.is_empty()).then_some(range.start);
        }
        let leaf = range.leaf_starts().find(|&leaf| self.leaf_concerns(leaf))?;
        Some(leaf.max(range.start))
    }

    /// The first page of `range` that is pinned.
    #[must_use]
    pub fn first_pinned(&self, range: PageRange) -> Option<PageIndex> {
        if self.pins == 0 || !self.range_ok(range) {
            return None;
        }
        range.pages().find(|&page| match self.leaves.get(page) {
            Entry::Folio(id) => self.folios.get(id).pins > 0,
            _ => false,
        })
    }
}
