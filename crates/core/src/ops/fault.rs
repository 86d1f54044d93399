//! A fault: one page is wanted now.
//!
//! What the page is decides everything: nothing yet (map zeros), in limbo (map it again), in the store (load it),
//! in flight (wait), mapped (somebody was faster). Then the memory is found, in this order:
//!
//! 1. a spare frame of the right order: memory that the program gave up a moment ago;
//! 2. new pages from the kernel, while the frames in use stay within the limit;
//! 3. the same after giving spare frames of other orders back;
//! 4. none: the caller reclaims and asks again. A store that takes nothing makes reclaim pointless once nothing lazily
//!    freed is left; then the limit is exceeded and counted, because the alternatives are to lose data or to hang.

use crate::addr::PageCount;
use crate::addr::{Frame, Order, PageIndex, PageRange};
use crate::command::{Command, Commands};
use crate::event::{Refusal, Reply, SlotPart};
use crate::folio::{FolioId, State};
use crate::leaf::Entry;
use crate::limits::{ANSWER_COMMANDS, TRIM_BATCH};
use crate::machine::Core;
use crate::swap::SlotId;

/// Memory for a folio on its way in.
enum Memory {
    /// A populated frame.
    Spare(Frame),
    /// New pages, from the kernel.
    Fresh,
    /// None: this much must be reclaimed.
    Short(PageCount),
}

impl Core {
    pub(crate) fn fault(&mut self, page: PageIndex, max_order: Order, out: &mut Commands) -> Reply {
        let Some(region) = self.regions.of(page) else {
            return Reply::Refused(Refusal::OutsideRegion);
        };
        let (bounds, order) = (region.range, region.order.min(max_order));
        match self.leaves.get(page) {
            Entry::Empty | Entry::Zero => self.fault_empty(page, order, bounds, out),
            Entry::Swapped { slot, index } => self.fault_swapped(page, slot, index, max_order, out),
            Entry::Poisoned => Reply::Refused(Refusal::Poisoned { page }),
            Entry::Folio(id) => match self.folios.get(id).state {
                State::Resident | State::Clearing | State::Looking => Reply::Present,
                State::Limbo => self.fault_limbo(id, max_order, out),
                State::Filling
                | State::TakingOut
                | State::Saving
                | State::Rescuing
                | State::Zapping => {
                    let folio = self.folios.get_mut(id);
                    folio.waited_for = true;
                    Reply::Wait { page: folio.start }
                }
                State::Free => unreachable!("{page} belongs to a free folio record"),
            },
        }
    }

    /// First touch: zeros, as many pages as order, region and neighbours allow.
    fn fault_empty(
        &mut self,
        page: PageIndex,
        most: Order,
        bounds: PageRange,
        out: &mut Commands,
    ) -> Reply {
        let fits = |core: &Self, order: Order| {
            let block = PageRange::block(page, order);
            if bounds.covers(block) {
                core.leaves.blank(block)
            } else {
                None
            }
        };
        let mut order = most;
        let zeros = loop {
            match fits(self, order) {
                Some(zeros) => break zeros,
                None => {
                    order = order
                        .smaller()
                        .expect("a blank page of a region fits by itself")
                }
            }
        };
        let frame = match self.memory(order, out) {
            Memory::Spare(frame) => Some(frame),
            Memory::Fresh => None,
            Memory::Short(pages) => return Reply::Reclaim { pages },
        };
        let at = PageRange::block(page, order);
        let Some(id) = self.admit(at, frame) else {
            return Reply::Refused(Refusal::OutOfRecords);
        };
        self.held += at.len.0 - zeros;
        self.zeros -= zeros;
        out.push(Command::Zero {
            folio: id,
            at,
            frame,
        });
        Reply::Done
    }

    /// In the store: the largest part of the slot around the page that is still needed.
    fn fault_swapped(
        &mut self,
        page: PageIndex,
        slot: SlotId,
        index: u16,
        max_order: Order,
        out: &mut Commands,
    ) -> Reply {
        let slot_order = self.slots.get(slot).order;
        let slot_start = PageIndex(page.0 - u32::from(index));
        let needed = |core: &Self, block: PageRange| {
            block.pages().all(|p| {
                let index = (p.0 - slot_start.0) as u16;
                core.leaves.get(p) == Entry::Swapped { slot, index }
            })
        };
        let mut order = slot_order.min(max_order);
        while !needed(self, PageRange::block(page, order)) {
            order = order.smaller().expect("a swapped page is needed by itself");
        }
        if self.frames.holes(order) == 0 && !self.frames.has_spare(order) {
            return Reply::Reclaim {
                pages: order.pages(),
            };
        }
        let (frame, fresh) = match self.memory(order, out) {
            Memory::Spare(frame) => (frame, false),
            Memory::Fresh => (
                self.frames.take_hole(order).expect("holes were counted"),
                true,
            ),
            Memory::Short(pages) => return Reply::Reclaim { pages },
        };
        let at = PageRange::block(page, order);
        let Some(id) = self.admit(at, Some(frame)) else {
            return Reply::Refused(Refusal::OutOfRecords);
        };
        let first = (at.start.0 - slot_start.0) as u16;
        let folio = self.folios.get_mut(id);
        folio.slot = Some(slot);
        folio.slot_first = first;
        folio.part_of_slot = order != slot_order;
        out.push(Command::Load {
            folio: id,
            part: SlotPart { slot, first, order },
            at,
            frame,
            fresh,
        });
        Reply::Done
    }

    /// In limbo: the frame is mapped where it was.
    fn fault_limbo(&mut self, id: FolioId, max_order: Order, out: &mut Commands) -> Reply {
        self.unlist(id);
        self.in_use_again(id);
        let folio = *self.folios.get(id);
        let frame = folio.frame.expect("a folio in limbo has a frame");
        if max_order < folio.order {
            // It cannot be mapped as a whole any more: from the store it can be had page by page.
            return match self.start_save(id, out) {
                true => {
                    self.folios.get_mut(id).waited_for = true;
                    Reply::Wait { page: folio.start }
                }
                false => {
                    self.list(id, crate::folio::ListName::Limbo);
                    Reply::Refused(Refusal::OutOfRecords)
                }
            };
        }
        self.begin(id, State::Rescuing);
        out.push(Command::Rescue {
            folio: id,
            at: folio.range(),
            frame,
        });
        Reply::Done
    }

    /// A folio record for what comes in at `at`; gives the frame back when there is none.
    fn admit(&mut self, at: PageRange, frame: Option<Frame>) -> Option<FolioId> {
        let order = Order::new(at.len.0.trailing_zeros() as u8).expect("a block has an order");
        let Some(id) = self.folios.alloc(at.start, order, State::Filling) else {
            if let Some(frame) = frame {
                self.frames.now_spare(frame);
            }
            return None;
        };
        self.folios.get_mut(id).frame = frame;
        self.flights += 1;
        self.mapped += at.len.0;
        self.set_entries(at, Entry::Folio(id));
        Some(id)
    }

    fn memory(&mut self, order: Order, out: &mut Commands) -> Memory {
        let pages = order.pages().0;
        if let Some(frame) = self.frames.take_spare(order) {
            return Memory::Spare(frame);
        }
        let missing = |core: &Self| (core.frames_in_use() + pages).saturating_sub(core.limit);
        if missing(self) > 0 && self.frames.spare_pages() > 0 {
            self.drain(missing(self), out);
        }
        match missing(self) {
            0 => Memory::Fresh,
            _ if self.store_blocked && self.lru.lazyfree.pages() == 0 => {
                self.stat.over_limit += 1;
                Memory::Fresh
            }
            short => {
                self.stat.allocstall += 1;
                Memory::Short(PageCount(short))
            }
        }
    }

    /// Gives spare frames back to the kernel until `pages` pages are on their way; when these are single pages, a
    /// whole batch, so that they share a TLB shootdown.
    pub(crate) fn drain(&mut self, pages: u32, out: &mut Commands) {
        let mut drained = 0;
        for _ in 0..TRIM_BATCH {
            if out.room() <= ANSWER_COMMANDS {
                break;
            }
            let missing = pages.saturating_sub(drained);
            if missing == 0 && !self.frames.has_spare(Order::ZERO) {
                break;
            }
            let Some(frame) = self.frames.drain_one(missing.max(1)) else {
                break;
            };
            drained += frame.order().pages().0;
            out.push(Command::FreeFrame { frame });
        }
    }
}
