//! Free: a range that nobody can touch any longer is unhooked into a batch ([`gather`](crate::gather)).
//!
//! This module also keeps the mark that determines how much freed memory stays in the pool for the next faults, without
//! passing through the kernel. The mark follows demand, the number of pages that faults brought in since the last tick:
//! it is the higher of that number and half of the previous mark. So memory that circulates stays in the pool, and an
//! idle program gives all of it back within a second.
//!
//! Memory that circulates need not even leave its place. A range that is given up by its only user can be zeroed in
//! place, as a lazy free does, and is touched again without a fault; passing through the pool and back takes two moves
//! and a fault for each folio, five times the price. The driver records such ranges and tells the core their total size
//! ([`Core::keep`]). The pool then keeps that much less. The driver also gives back what is beyond the mark
//! ([`Event::GiveFreedBack`](crate::Event::GiveFreedBack)).

use crate::addr::{Frame, PageCount, PageIndex, PageRange};
use crate::event::{Refusal, Reply};
use crate::gather::{Gather, Gathered};
use crate::ids::FolioId;
use crate::limits::{DISCARD_WALK, POOL_MARK};
use crate::machine::Core;
use crate::tables::folio::State;
use crate::tables::leaf::Entry;

impl Core {
    /// Unhooks `range`, or as much of it as one batch holds: nobody can touch it any longer. Returns `Done`, `More`,
    /// `Wait`, or a refusal; in the first two cases the caller gives the contents of `gather` back, and calls
    /// [`Core::gathered`].
    ///
    /// # Panics
    /// When `gather` is not empty.
    pub fn gather(&mut self, range: PageRange, gather: &mut Gather) -> Reply {
        assert!(
            gather.is_empty(),
            "a batch is given back before it is used again"
        );
        if !self.range_ok(range) {
            return Reply::Refused(Refusal::BadRange);
        }
        if let Some(page) = self.first_pinned(range) {
            return Reply::Refused(Refusal::Pinned { page });
        }
        let end = range
            .end()
            .min(PageIndex(range.start.0.saturating_add(DISCARD_WALK)));
        let mut page = range.start;
        let mut reply = Reply::Done;
        while page < end {
            // A folio adds at most two items to the batch, its frame and its slot.
            if gather.room() < 2 {
                reply = Reply::More { from: page };
                break;
            }
            if !self.leaves.leaf_in_use(page) {
                page = page.next_leaf().min(end);
                continue;
            }
            match self.leaves.get(page) {
                Entry::Folio(id) if self.folios.get(id).in_flight() => {
                    self.folios.get_mut(id).waited_for = true;
                    let start = self.at(id).start;
                    reply = match page == range.start {
                        true => return Reply::Wait { page: start },
                        false => Reply::More { from: page },
                    };
                    break;
                }
                Entry::Folio(id) => page = self.gather_folio(id, gather),
                entry => {
                    self.gather_entry(page, entry, gather);
                    page = page.plus(1);
                }
            }
        }
        gather.zap = PageRange::new(range.start, PageCount(page.0 - range.start.0));
        match reply {
            Reply::Done if page < range.end() => Reply::More { from: page },
            reply => reply,
        }
    }

    fn gather_folio(&mut self, id: FolioId, gather: &mut Gather) -> PageIndex {
        let (folio, at) = (*self.folios.get(id), self.at(id));
        debug_assert!(matches!(folio.state, State::Resident | State::Limbo));
        self.unlist(id);
        self.unmark(id);
        self.leaves.fill(at, Entry::Empty);
        self.let_go(at.start, at.len.0);
        self.stat.pgdiscard += u64::from(at.len.0);
        match folio.frame {
            Some(frame) => {
                self.uncharge_limbo(id);
                if self.frames.spare_pages() < self.pool_mark() {
                    self.frames.now_spare(frame);
                } else {
                    // The frame is given back together with thousands of others: until then it counts as memory.
                    self.frames.drain_busy(frame);
                    self.gather_frame(frame, gather);
                }
            }
            None => {
                self.uncharge_mapped(id);
                self.unhooked += at.len.0;
                gather.mapped += at.len.0;
            }
        }
        self.folios.release(id);
        if let Some(slot) = folio.slot() {
            self.drop_slot_pages(slot, at.len.0, gather);
        }
        at.end()
    }

    fn gather_entry(&mut self, page: PageIndex, entry: Entry, gather: &mut Gather) {
        match entry {
            Entry::Empty | Entry::Folio(_) => return,
            Entry::Zero => self.fewer_zeros(page, 1),
            Entry::Swapped { slot, .. } => {
                self.stat.pgdiscard += 1;
                self.drop_slot_pages(slot, 1, gather);
            }
            // Poison is a mark in the page table, which goes with the mapped pages.
            Entry::Poisoned => {
                self.unhooked += 1;
                gather.mapped += 1;
            }
        }
        self.leaves.set(page, Entry::Empty);
        self.let_go(page, 1);
    }

    /// Notes that the contents of `gather` were given back to kernel and store: everything that [`Core::gather`],
    /// [`Core::gather_spare`] or a discard has collected. Returns the pages at which threads may wait for that, as for
    /// [`Command::Wake`](crate::Command::Wake).
    #[must_use = "somebody may wait there"]
    pub fn gathered(&mut self, gather: &Gather) -> Option<PageRange> {
        self.unhooked -= gather.mapped;
        self.gathered_frames -= gather.frames;
        let mut waited_for: Option<PageRange> = None;
        for item in gather.items() {
            match item {
                Gathered::Slot(slot) => {
                    self.slot_released(slot);
                }
                Gathered::Frame(frame) => {
                    self.frame_freed(frame);
                }
                Gathered::Run(run) => {
                    let here = self.run_zapped(run);
                    waited_for = waited_for.into_iter().chain(here).reduce(PageRange::hull);
                }
            }
        }
        waited_for
    }

    /// Number of pages that hold nothing and are kept for the next faults, in the pool or in place.
    fn keep_mark(&self) -> u32 {
        let demand = self.demand.mark.max(self.demand.now);
        demand.min(self.limit / 2).min(POOL_MARK)
    }

    /// The part of these pages that is kept in the pool.
    pub(crate) fn pool_mark(&self) -> u32 {
        self.keep_mark().saturating_sub(self.demand.kept)
    }

    /// Tells the core that `kept` pages are zeros and stay in place, to be used again. `used_again` pages were just
    /// used again: they count as demand, like pages that faults bring in.
    pub fn keep(&mut self, kept: PageCount, used_again: PageCount) {
        self.demand.kept = kept.0;
        self.demand.brought(used_again.0);
    }

    /// Number of further pages that could be kept in place.
    #[must_use]
    pub fn room_to_keep(&self) -> PageCount {
        PageCount(self.pool_mark())
    }

    /// Pages kept in place beyond what demand requires.
    #[must_use]
    pub fn kept_too_much(&self) -> PageCount {
        PageCount(self.demand.kept.saturating_sub(self.keep_mark()))
    }

    /// Freed pages that the pool would accept now.
    #[must_use]
    pub fn pool_room(&self) -> PageCount {
        PageCount(self.pool_mark().saturating_sub(self.frames.spare_pages()))
    }

    /// Notes that some time has passed. Frames that are spare beyond the new mark are to be
    /// [collected](Core::gather_spare).
    pub(crate) fn tick(&mut self) -> Reply {
        self.demand.tick();
        self.look_again();
        Reply::Done
    }

    /// Collects spare frames that should go to the kernel, `most` pages or a batch: those beyond the mark, those for
    /// which a lowered budget leaves no room, and those that a cap on lazily freed memory has made spare. The caller
    /// gives them back, and calls [`Core::gathered`]. An empty batch means that there are no more.
    ///
    /// # Panics
    /// When `gather` is not empty.
    pub fn gather_spare(&mut self, most: PageCount, gather: &mut Gather) {
        assert!(
            gather.is_empty(),
            "a batch is given back before it is used again"
        );
        while gather.room() > 0 && gather.frames < most.0 {
            // After the budget was lowered, the limit may require more than the mark.
            let over = self
                .frames
                .spare_pages()
                .saturating_sub(self.pool_mark())
                .max(self.spare_excess().0)
                .max(self.demand.unwanted);
            let frame = match over {
                0 => None,
                _ => self.frames.drain_at_most(over),
            };
            let Some(frame) = frame else {
                // The unwanted frames have served a fault.
                self.demand.unwanted = 0;
                break;
            };
            let pages = frame.order().pages().0;
            self.demand.unwanted = self.demand.unwanted.saturating_sub(pages);
            self.gather_frame(frame, gather);
        }
    }

    /// Collects `missing` pages of scattered spare frames, because a fault needs that much memory in one piece
    /// ([`Reply::Scattered`]). The caller gives them back, and calls [`Core::gathered`]. An empty batch means that
    /// there are none.
    ///
    /// # Panics
    /// When `gather` is not empty.
    pub fn gather_scattered(&mut self, missing: PageCount, gather: &mut Gather) {
        assert!(
            gather.is_empty(),
            "a batch is given back before it is used again"
        );
        while gather.room() > 0 && gather.frames < missing.0 {
            let Some(frame) = self.frames.drain_one(missing.0 - gather.frames) else {
                break;
            };
            self.gather_frame(frame, gather);
        }
    }

    /// Adds a draining frame to the batch.
    pub(crate) fn gather_frame(&mut self, frame: Frame, gather: &mut Gather) {
        let pages = frame.order().pages().0;
        self.gathered_frames += pages;
        gather.frames += pages;
        gather.push(Gathered::Frame(frame));
    }

    /// Spare pages for which a lowered limit leaves no room, and that are not collected yet.
    #[must_use]
    pub fn spare_excess(&self) -> PageCount {
        let beyond = self.frames_that_stay().saturating_sub(self.limit);
        PageCount(beyond.min(self.frames.spare_pages()))
    }

    /// Frames that are in use and not gathered: gathered frames are on their way back.
    pub(crate) fn frames_that_stay(&self) -> u32 {
        self.frames_in_use() - self.gathered_frames
    }
}
