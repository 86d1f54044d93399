//! Discard: a range forgets its contents and reads as zeros (`MADV_DONTNEED`).
//!
//! Entry by entry: what is in the store releases its slot, what is in limbo gives its frame up as spare, what is
//! mapped is zapped. A folio that is only partly in the range is split if it is mapped; in limbo it must come back
//! first, which happens at most at the two ends. Pins refuse the whole call before anything is changed.
//!
//! One call walks a bounded piece and says where the rest begins.

use crate::addr::{LEAF_PAGES, Order, PageCount, PageIndex, PageRange};
use crate::command::{Command, Commands};
use crate::event::{Refusal, Reply};
use crate::folio::{FolioId, State};
use crate::leaf::Entry;
use crate::limits::DISCARD_WALK;
use crate::machine::Core;

/// Commands that one step of the walk can give: a zap or a release, and the releases of two edge splits.
const STEP_COMMANDS: usize = 4;

/// What one step of the walk came to.
enum Step {
    /// Go on at this page.
    To(PageIndex),
    /// Answer this.
    Stop(Reply),
}

impl Core {
    pub(crate) fn discard(&mut self, range: PageRange, out: &mut Commands) -> Reply {
        if !self.range_ok(range) {
            return Reply::Refused(Refusal::BadRange);
        }
        if let Some(page) = self.first_pinned(range) {
            return Reply::Refused(Refusal::Pinned { page });
        }
        let walk_end = range
            .start
            .0
            .saturating_add(DISCARD_WALK)
            .min(range.end().0);
        let mut page = range.start;
        while page.0 < walk_end {
            if out.room() <= STEP_COMMANDS {
                return Reply::More { from: page };
            }
            match self.discard_step(page, range, out) {
                Step::To(next) => page = next,
                // Work already given goes first; then the wait will be asked for again.
                Step::Stop(_) if !out.is_empty() => return Reply::More { from: page },
                Step::Stop(reply) => return reply,
            }
        }
        if page < range.end() {
            Reply::More { from: page }
        } else {
            Reply::Done
        }
    }

    fn discard_step(&mut self, page: PageIndex, range: PageRange, out: &mut Commands) -> Step {
        if !self.leaves.leaf_in_use(page) {
            return Step::To(
                PageIndex(page.0 - page.0 % LEAF_PAGES)
                    .plus(LEAF_PAGES)
                    .min(range.end()),
            );
        }
        let id = match self.leaves.get(page) {
            Entry::Empty => return Step::To(page.plus(1)),
            Entry::Zero => {
                self.zeros -= 1;
                self.forget(PageRange::new(page, PageCount(1)));
                return Step::To(page.plus(1));
            }
            Entry::Swapped { slot, .. } => {
                self.forget(PageRange::new(page, PageCount(1)));
                self.stat.pgdiscard += 1;
                self.drop_slot_pages(slot, 1, out);
                return Step::To(page.plus(1));
            }
            Entry::Poisoned => return self.zap_poison(page, out),
            Entry::Folio(id) => id,
        };
        let folio = *self.folios.get(id);
        if folio.in_flight() {
            self.folios.get_mut(id).waited_for = true;
            return Step::Stop(Reply::Wait { page: folio.start });
        }
        let whole = range.covers(folio.range());
        match (folio.state, whole) {
            (State::Resident, true) => {
                self.unlist(id);
                self.begin(id, State::Zapping);
                out.push(Command::Zap {
                    folio: id,
                    at: folio.range(),
                });
                Step::To(folio.range().end())
            }
            (State::Limbo, true) => {
                self.discard_limbo(id, out);
                Step::To(folio.range().end())
            }
            (State::Limbo, false) => Step::Stop(Reply::NeedsResident { page }),
            (_, false) => {
                let edge = if folio.start < range.start {
                    range.start
                } else {
                    range.end()
                };
                match self.split_at(id, edge, out) {
                    true => Step::To(page),
                    false => Step::Stop(Reply::Refused(Refusal::OutOfRecords)),
                }
            }
            (state, true) => unreachable!("{id:?} is {state:?} and not in flight"),
        }
    }

    /// Poison leaves by the same way as mapped pages, so that nobody maps there before it is gone.
    fn zap_poison(&mut self, page: PageIndex, out: &mut Commands) -> Step {
        let Some(id) = self.folios.alloc(page, Order::ZERO, State::Zapping) else {
            return Step::Stop(Reply::Refused(Refusal::OutOfRecords));
        };
        self.folios.get_mut(id).uncharged = true;
        self.flights += 1;
        self.leaves.set(page, Entry::Folio(id));
        out.push(Command::Zap {
            folio: id,
            at: PageRange::new(page, PageCount(1)),
        });
        Step::To(page.plus(1))
    }

    fn discard_limbo(&mut self, id: FolioId, out: &mut Commands) {
        let folio = *self.folios.get(id);
        let pages = folio.order.pages().0;
        self.unlist(id);
        self.limbo -= pages;
        self.frames
            .now_spare(folio.frame.expect("a folio in limbo has a frame"));
        self.stat.pgdiscard += u64::from(pages);
        self.forget(folio.range());
        if let Some(slot) = folio.slot {
            self.drop_slot_pages(slot, pages, out);
        }
        self.folios.release(id);
    }

    fn first_pinned(&self, range: PageRange) -> Option<PageIndex> {
        if self.pins == 0 {
            return None;
        }
        range.pages().find(|&page| match self.leaves.get(page) {
            Entry::Folio(id) => self.folios.get(id).pins > 0,
            _ => false,
        })
    }
}
