//! Walking a range entry by entry, in bounded pieces.
//!
//! Whole leaves that are not in use, neither in the range nor in the base from which it inherits, are skipped in one
//! step. A walk ends early, with [`Reply::More`], when the list of commands or the batch is full or the piece is long
//! enough. A step that cannot be taken now also ends the walk, but if the walk has already produced work, that is
//! carried out first, and the caller asks again.

use crate::addr::{PageCount, PageIndex, PageRange};
use crate::command::{Commands, Releases};
use crate::event::{Refusal, Reply};
use crate::limits::DISCARD_WALK;
use crate::machine::Core;
use crate::tables::leaf::Entry;

/// Most commands that one step of a walk gives: one for a folio, and the releases of two edge splits and a slot.
const STEP_COMMANDS: usize = 4;
/// Most items that one step adds to a batch: a slot and a run.
const STEP_ENTRIES: usize = 2;

/// The result of one step of a walk.
pub(crate) enum Step {
    /// Continue at this page.
    To(PageIndex),
    /// Stop with this reply.
    Stop(Reply),
}

impl Core {
    /// Takes `step` for each page or folio of `range`, except pages of leaves that are not in use.
    pub(crate) fn walk(
        &mut self,
        range: PageRange,
        out: &mut Commands,
        mut step: impl FnMut(&mut Self, PageIndex, &mut Commands) -> Step,
    ) -> Reply {
        if !self.range_ok(range) {
            return Reply::Refused(Refusal::BadRange);
        }
        let bound = range.start.0.saturating_add(DISCARD_WALK);
        let walk_end = bound.min(range.end().0);
        let mut page = range.start;
        while page.0 < walk_end {
            if out.room() <= STEP_COMMANDS || out.batch().room() < STEP_ENTRIES {
                return Reply::More { from: page };
            }
            if !self.leaf_concerns(page) {
                page = page.next_leaf().min(range.end());
                continue;
            }
            match step(self, page, out) {
                Step::To(next) => page = next,
                Step::Stop(_) if !out.is_empty() || !out.batch().is_empty() => {
                    return Reply::More { from: page };
                }
                Step::Stop(reply) => return reply,
            }
        }
        if page < range.end() {
            Reply::More { from: page }
        } else {
            Reply::Done
        }
    }

    /// Whether a walk looks into the leaf of `page`: the leaf holds something, or inherits.
    pub(crate) fn leaf_concerns(&self, page: PageIndex) -> bool {
        self.leaves.leaf_in_use(page) || self.leaf_is_inherited(page)
    }

    /// Makes one page that is in no folio forget its contents. Its slot is released if this page was the last to need
    /// it.
    pub(crate) fn forget_page(&mut self, page: PageIndex, out: &mut impl Releases) {
        match self.leaves.get(page) {
            Entry::Zero => self.fewer_zeros(page, 1),
            Entry::Swapped { slot, .. } => {
                self.stat.pgdiscard += 1;
                self.drop_slot_pages(slot, 1, out);
            }
            Entry::Empty if self.inherited(page).is_some() => self.hold(page, 1),
            Entry::Empty | Entry::Poisoned | Entry::Folio(_) => return,
        }
        self.forget(PageRange::new(page, PageCount(1)));
    }
}
