//! A fault: a thread needs one page now.
//!
//! The state of the page decides everything. Nothing yet: map zeros. In limbo: map it again. In the store: load it. In
//! its file: read it. In flight: wait. Mapped: another thread was faster. In a base, for a region that is a snapshot or
//! has one: [`snapshot`](crate::ops::snapshot). The order policy ([`order`](crate::policy::order)) decides how much
//! comes in with the page, its *window*; a window that is not in one piece comes in as several folios, the requested
//! one first. The window ends where the program has no access: pages that the program cannot use would only take memory
//! from those that it can. Then memory is sought in this order:
//!
//! 1. a spare frame of the right order: memory that the program gave up a moment ago;
//! 2. new pages from the kernel, while the frames in use stay within the limit;
//! 3. new pages from the kernel after spare frames of other orders are given back: a few by commands of this fault,
//!    many for a large folio by the faulting thread ([`Reply::Scattered`]);
//! 4. none: the caller reclaims and asks again. Reclaim is pointless if the store accepts nothing and no lazily freed
//!    memory is left, or if nothing in memory can leave ([`stuck`](crate::ops::stuck)); then the fault exceeds the
//!    limit and is counted, because the alternatives are to lose data or to hang.

use crate::addr::{Frame, Order, PageCount, PageIndex, PageRange};
use crate::command::{Command, Commands};
use crate::event::{Refusal, Reply, SlotPart};
use crate::ids::{FolioId, GroupId, ListName, SlotId};
use crate::limits::{ANSWER_COMMANDS, FAULT_FOLIOS, FAULT_LOADS, LARGE, TRIM_BATCH};
use crate::machine::Core;
use crate::policy::order::{OrderPolicy, Stand, Step, Way};
use crate::tables::fold::Parts;
use crate::tables::folio::{Errand, State};
use crate::tables::leaf::Entry;

/// Memory for a folio on its way in.
pub(crate) enum Memory {
    /// A populated frame of the pool.
    Spare(Frame),
    /// New pages, from the kernel.
    Fresh,
    /// No memory: the reply says what must be done first.
    Short(Reply),
}

/// What a fault requests.
#[derive(Clone, Copy)]
struct Asked {
    /// The order of the largest folio of pages that read as zeros.
    folio: Order,
    /// The order of the largest part of a slot that comes as one folio.
    slot: Order,
    /// How much around the page comes in too, where it is absent and memory suffices, and which run that continues.
    step: Step,
    /// The range beyond which no page comes in: pages there may be mapped differently, or the program may not use them.
    within: PageRange,
}

impl Asked {
    /// The page, with as much around it as may come as one folio.
    fn around(&self, page: PageIndex, wanted: bool) -> Coming {
        let most = self.folio.max(self.slot);
        let fits = |&order: &Order| self.within.covers(PageRange::block(page, order));
        let fitting = Order::up_to(most).rev().find(fits).unwrap_or(Order::ZERO);
        Coming {
            page,
            zeros: self.folio.min(fitting),
            slot: self.slot.min(fitting),
            wanted,
        }
    }
}

/// An absent page that is to come in, and how much may come with it as one folio.
#[derive(Clone, Copy)]
pub(crate) struct Coming {
    pub(crate) page: PageIndex,
    /// The order of the largest folio of pages that read as zeros.
    pub(crate) zeros: Order,
    /// The order of the largest part of a slot.
    pub(crate) slot: Order,
    /// Whether the fault is at this page. Any other page comes in only if there is free memory for it.
    pub(crate) wanted: bool,
}

impl Core {
    pub(crate) fn fault(
        &mut self,
        page: PageIndex,
        max_order: Order,
        within: PageRange,
        out: &mut Commands,
    ) -> Reply {
        // A handler may be late, so its fault may arrive after the region was detached.
        if self.regions.of(page).is_none_or(|region| region.ending) {
            return Reply::Refused(Refusal::OutsideRegion);
        }
        if self.waits_for_leaf(page) {
            return Reply::Wait { page };
        }
        match self.leaves.get(page) {
            Entry::Empty | Entry::Zero | Entry::Swapped { .. } => {
                self.fault_absent(page, max_order, within, out)
            }
            Entry::Poisoned => Reply::Refused(Refusal::Poisoned { page }),
            Entry::Folio(id) => match self.folios.get(id).state {
                State::Resident | State::Zeroing | State::Looking => Reply::Present,
                State::Limbo => self.fault_limbo(id, max_order, out),
                State::Filling
                | State::TakingOut
                | State::Saving
                | State::Rescuing
                | State::Zapping
                | State::Poisoning
                | State::Lending
                | State::LendingFrame => {
                    self.folios.get_mut(id).waited_for = true;
                    Reply::Wait {
                        page: self.at(id).start,
                    }
                }
                State::Free => unreachable!("{page} belongs to a free folio record"),
            },
        }
    }

    /// Brings in an absent page, and with it as much of its window as there is memory for.
    fn fault_absent(
        &mut self,
        page: PageIndex,
        max_order: Order,
        within: PageRange,
        out: &mut Commands,
    ) -> Reply {
        let habit = self.regions.of(page).expect("a fault is in a region").habit;
        // The pages that were evicted for the stream were in memory when it arrived.
        let was_there = self.was_stepped_over(page);
        let folio = |p| {
            let was_there = was_there.filter(|pages| pages.contains(p));
            was_there.or_else(|| self.folio_of(p).map(|id| self.at(id)))
        };
        let stand = self.trends.stand(page, habit, folio);
        let shadow = self.leaves.shadow(page);
        let asked = self.window(page, &stand, max_order, within);
        let coming = asked.around(page, true);
        let reply = match self.leaf_first(page, asked, within) {
            Some(pages) => {
                self.count(self.group_of(page), |stat| stat.allocstall += 1);
                Reply::Reclaim { pages }
            }
            None => self.bring_in(coming, out),
        };
        if reply != Reply::Done {
            // The fault comes again, and must find the run that it continues.
            let region = self.regions.of_mut(page).expect("a fault is in a region");
            self.trends.restore(&stand, &mut region.habit);
            return reply;
        }
        let whole = self
            .folio_of(page)
            .is_some_and(|id| self.folios.get(id).order >= coming.zeros);
        self.evictions.came_in(page, asked.step, whole, shadow != 0);
        if self.faulted_in(page, shadow, asked.step) {
            self.drop_behind(page, asked.step);
        }
        if asked.step.window > Order::ZERO {
            self.bring_in_rest(page, asked, out);
        }
        if asked.folio == Order::MAX {
            self.bring_in_next(page, asked.step, within, out);
        }
        reply
    }

    /// How much to reclaim before a stream can get the leaf that it has reached as one folio.
    fn leaf_first(
        &mut self,
        page: PageIndex,
        asked: Asked,
        within: PageRange,
    ) -> Option<PageCount> {
        if !within.covers(PageRange::block(page, Order::MAX)) {
            return None;
        }
        let short = self.short_of_leaf(page, asked);
        short.or_else(|| self.evict_leaf(page, asked.step))
    }

    /// How much memory a stream that begins a leaf has to wait for. With the memory available now it would get a part
    /// of the leaf, then the rest and a part of the next one, and so on: frames would never be laid out like the leaf,
    /// so that one move could take the whole leaf.
    fn short_of_leaf(&self, page: PageIndex, asked: Asked) -> Option<PageCount> {
        let leaf = PageRange::block(page, Order::MAX);
        let Step { window, way, .. } = asked.step;
        let whole = window == Order::MAX && way == Way::Up && page == leaf.start;
        let region = self.regions.of(page).expect("a fault is in a region");
        let there = self.available();
        (whole
            && region.range.covers(leaf)
            && self.is_by_leaf(asked.folio)
            && there < leaf.len
            && !self.store_blocked
            && self.blank(leaf).is_some())
        .then(|| PageCount(leaf.len.0 - there.0))
    }

    /// The orders and the step that a fault at `page` requests.
    fn window(
        &mut self,
        page: PageIndex,
        stand: &Stand,
        max_order: Order,
        usable: PageRange,
    ) -> Asked {
        let share = Order::new(self.folio_share().max(1).ilog2() as u8).unwrap_or(Order::MAX);
        let region = self.regions.of_mut(page).expect("a fault is in a region");
        let within = |order| usable.common(PageRange::block(page, order));
        let step = self.trends.window(stand, &mut region.habit);
        let window = step.window.min(max_order).min(share);
        match region.order {
            OrderPolicy::Fixed(order) => Asked {
                folio: order.min(max_order),
                slot: max_order,
                step: Step { window, ..step },
                within: within(max_order),
            },
            OrderPolicy::Adaptive { max } => {
                let window = window.min(max);
                Asked {
                    folio: window,
                    slot: window,
                    step: Step { window, ..step },
                    within: within(max.min(max_order)),
                }
            }
        }
    }

    /// The most pages that one folio may have: its share of the limit. The limit is the remainder of a budget that is
    /// usually a power of two, so up to a fifth of that power may be missing.
    pub(crate) fn folio_share(&self) -> u32 {
        (self.limit + self.limit / 4) / self.config.folio_share
    }

    /// Brings in the other absent pages of the window, in memory that is free anyway.
    fn bring_in_rest(&mut self, page: PageIndex, asked: Asked, out: &mut Commands) {
        let region = self.regions.of(page).expect("a fault is in a region").range;
        let Step { window, way, .. } = asked.step;
        let (block, pages) = (PageRange::block(page, window), window.pages().0);
        // Pages behind a stream are not needed again, even if they have left memory by now.
        let (first, end) = match way {
            Way::Unknown => (block.start.0, block.end().0),
            Way::Up => (page.0, page.0.saturating_add(pages)),
            Way::Down => (page.0.saturating_sub(pages - 1), page.0 + 1),
        };
        let first = PageIndex(first).max(region.start).max(asked.within.start);
        let end = PageIndex(end).min(region.end()).min(asked.within.end());
        let (mut folios, mut loads) = (1, 1);
        // The pages come in from the requested one onwards, in the stream's direction: if memory does not suffice for
        // all of them, those that come in have no hole.
        let mut next = Some(if way == Way::Down { page } else { first });
        while let Some(at) = next
            && folios < FAULT_FOLIOS
            && loads < FAULT_LOADS
            && out.room() > ANSWER_COMMANDS
        {
            let here = match self.leaves.get(at) {
                Entry::Folio(id) => self.at(id),
                Entry::Poisoned => PageRange::new(at, PageCount(1)),
                Entry::Empty | Entry::Zero | Entry::Swapped { .. } => {
                    let shadow = self.leaves.shadow(at);
                    let given = out.len();
                    if self.bring_in(asked.around(at, false), out) != Reply::Done {
                        return;
                    }
                    folios += 1;
                    let zeros = |command| matches!(command, Command::Zero { .. });
                    loads += usize::from(!out.iter().skip(given).all(zeros));
                    self.came_along(at, shadow)
                }
            };
            next = match way {
                Way::Down => (here.start > first).then(|| PageIndex(here.start.0 - 1)),
                Way::Up | Way::Unknown => Some(here.end()).filter(|&at| at < end),
            };
        }
        let leaf = PageRange::block(page, Order::MAX);
        if next.is_none() && folios > 1 && loads == 1 && (first, end) == (leaf.start, leaf.end()) {
            self.keep_together(leaf);
        }
    }

    /// Keeps the folios of a leaf that came in at once together when they leave: none of them is taken out early to be
    /// watched. A folio that is used again is watched from then on ([`fault_limbo`](Self::fault_limbo)).
    fn keep_together(&mut self, leaf: PageRange) {
        let mut at = leaf.start;
        while at < leaf.end() {
            let Entry::Folio(id) = self.leaves.get(at) else {
                return;
            };
            // A folio that was in memory before the window came is on the list of its part. If it changed parts while
            // it was listed, it would be taken off the other part's list later, and that list's end would be wrong.
            if self.folios.get(id).list == ListName::None {
                self.folios.get_mut(id).set_watched(false);
            }
            at = self.at(id).end();
        }
    }

    /// Brings in the folio around an absent page.
    fn bring_in(&mut self, coming: Coming, out: &mut Commands) -> Reply {
        let Coming {
            page,
            zeros,
            slot: most,
            wanted,
        } = coming;
        if self.is_of_file(page) {
            return self.bring_in_of_file(coming, out);
        }
        if let Some(reply) = self.fold_up(page, zeros.min(most), wanted, out) {
            return reply;
        }
        match self.leaves.get(page) {
            Entry::Swapped { slot, index } => self.bring_in_swapped(coming, slot, index, out),
            Entry::Empty => match self.inherited(page) {
                Some(from) => self.inherit(coming, from, out),
                None => self.bring_in_blank(page, zeros, wanted, out),
            },
            _ => self.bring_in_blank(page, zeros, wanted, out),
        }
    }

    /// Brings in the largest block around the page that is entirely out of memory, if that takes more than one part.
    /// Returns `None` when it does not, or when nothing can be folded now.
    fn fold_up(
        &mut self,
        page: PageIndex,
        most: Order,
        wanted: bool,
        out: &mut Commands,
    ) -> Option<Reply> {
        let region = self.regions.of(page).expect("a fault is in a region");
        if matches!(region.order, OrderPolicy::Fixed(_)) {
            return None;
        }
        let bounds = region.range;
        let (at, parts) = Order::up_to(most).rev().find_map(|order| {
            let block = PageRange::block(page, order);
            let parts = self.parts_of(block, bounds)?;
            Some((block, parts))
        })?;
        let room = parts.as_slice().len() <= out.room_for_parts();
        if parts.as_slice().len() < 2 || !room || out.room() <= ANSWER_COMMANDS {
            return None;
        }
        let order = Order::new(at.len.0.trailing_zeros() as u8).expect("a block has an order");
        if !self.has_place(page, order) {
            return None;
        }
        let fold = self.folds.keep(parts)?;
        let (frame, fresh) = match self.memory(page, order, wanted, out) {
            Memory::Spare(frame) => (frame, false),
            Memory::Fresh => match self.frames.take_hole(order, self.node_of(page), at.start) {
                Some(frame) => (frame, true),
                None => {
                    self.folds.take(fold);
                    return None;
                }
            },
            Memory::Short(reply) => {
                self.folds.take(fold);
                return Some(reply);
            }
        };
        let zeros = self.leaves.count_zeros(at);
        let blank: u32 = parts
            .as_slice()
            .iter()
            .filter(|part| part.slot.is_none())
            .map(|part| u32::from(part.pages))
            .sum();
        let Some(id) = self.admit(at, Some(frame), fresh) else {
            self.folds.take(fold);
            return Some(Reply::Refused(Refusal::OutOfRecords));
        };
        self.hold(at.start, blank - zeros);
        self.fewer_zeros(at.start, zeros);
        self.folios.get_mut(id).errand = Errand::Fold(fold);
        let parts = out.push_parts(parts.as_slice());
        out.push(Command::Fold {
            folio: id,
            parts,
            at,
            frame,
            fresh,
        });
        Some(Reply::Done)
    }

    /// The parts of a block, if all of it is out of memory, none of it is lost, and there are not too many parts.
    fn parts_of(&self, block: PageRange, bounds: PageRange) -> Option<Parts> {
        if !bounds.covers(block) {
            return None;
        }
        let mut parts = Parts::new();
        let all = block.pages().all(|page| match self.leaves.get(page) {
            Entry::Empty if self.inherited(page).is_some() => false,
            Entry::Empty | Entry::Zero => parts.add(None, 0),
            Entry::Swapped { slot, index } => parts.add(Some(slot), index),
            Entry::Folio(_) | Entry::Poisoned => false,
        });
        all.then_some(parts)
    }

    /// Brings in zeros at the first touch: as many pages as order, region and neighbours allow.
    pub(crate) fn bring_in_blank(
        &mut self,
        page: PageIndex,
        most: Order,
        wanted: bool,
        out: &mut Commands,
    ) -> Reply {
        let (at, order, zeros) = self.largest_blank(page, most);
        let frame = match self.memory(page, order, wanted, out) {
            Memory::Spare(frame) => Some(frame),
            Memory::Fresh => None,
            Memory::Short(reply) => return reply,
        };
        let Some(id) = self.admit(at, frame, false) else {
            return Reply::Refused(Refusal::OutOfRecords);
        };
        self.hold(at.start, at.len.0 - zeros);
        self.fewer_zeros(at.start, zeros);
        out.push(Command::Zero {
            folio: id,
            at,
            frame,
        });
        Reply::Done
    }

    /// The largest block around an empty page, up to `most`, that is completely empty and in the page's region, and how
    /// many of its pages were touched before but are zero.
    pub(crate) fn largest_blank(&self, page: PageIndex, most: Order) -> (PageRange, Order, u32) {
        let bounds = self.regions.of(page).expect("a fault is in a region").range;
        let fitting = Order::up_to(most).rev().find_map(|order| {
            let block = PageRange::block(page, order);
            let zeros = bounds.covers(block).then(|| self.blank(block))??;
            Some((block, order, zeros))
        });
        fitting.expect("an empty page of a region fits by itself")
    }

    /// Brings in a page from the store: the largest part of the slot around the page that is still needed.
    pub(crate) fn bring_in_swapped(
        &mut self,
        coming: Coming,
        slot: SlotId,
        index: u16,
        out: &mut Commands,
    ) -> Reply {
        let page = coming.page;
        let slot_order = self.slots.get(slot).order;
        let slot_start = PageIndex(page.0 - u32::from(index));
        let needed = |core: &Self, block: PageRange| {
            let first = block.start.0.checked_sub(slot_start.0);
            first.is_some_and(|first| core.leaves.is_swapped(block, slot, first as u16))
        };
        let mut order = slot_order.min(coming.slot);
        while !needed(self, PageRange::block(page, order)) {
            order = order.smaller().expect("a swapped page is needed by itself");
        }
        let (id, at, frame, fresh) = match self.admit_to_place(page, order, coming.wanted, out) {
            Ok(admitted) => admitted,
            Err(reply) => return reply,
        };
        let (first, order) = ((at.start.0 - slot_start.0) as u16, frame.order());
        let folio = self.folios.get_mut(id);
        folio.set_slot(Some(slot));
        folio.slot_first = first;
        let part = SlotPart { slot, first, order };
        let forgets = self.is_held_once(id) && self.is_own_part(part);
        if forgets {
            self.folios.get_mut(id).errand = Errand::Forget;
        }
        out.push(Command::Load {
            folio: id,
            part,
            at,
            frame,
            fresh,
            forgets,
        });
        Reply::Done
    }

    /// Rescues a folio in limbo: its frame is mapped where it was.
    fn fault_limbo(&mut self, id: FolioId, max_order: Order, out: &mut Commands) -> Reply {
        self.unlist(id);
        self.in_use_again(id);
        let folio = *self.folios.get(id);
        let frame = folio.frame.expect("a folio in limbo has a frame");
        if max_order < folio.order {
            // The folio can no longer be mapped as a whole: from the store it can be loaded page by page.
            return match self.start_save(id, out) {
                true => {
                    self.folios.get_mut(id).waited_for = true;
                    Reply::Wait {
                        page: self.at(id).start,
                    }
                }
                false => {
                    self.list(id, ListName::Limbo);
                    Reply::Refused(Refusal::OutOfRecords)
                }
            };
        }
        let watched = self.is_watched_at(self.folios.get(id).entry);
        self.folios.get_mut(id).set_watched(watched);
        self.wanted_in_limbo(id);
        self.begin(id, State::Rescuing);
        out.push(Command::Rescue {
            folio: id,
            at: self.at(id),
            frame,
        });
        Reply::Done
    }

    /// Admits a folio of at most this order around `page`, with a place in the pool to read it into. The last value
    /// says whether the place is a hole that needs new memory.
    pub(crate) fn admit_to_place(
        &mut self,
        page: PageIndex,
        mut order: Order,
        wanted: bool,
        out: &mut Commands,
    ) -> Result<(FolioId, PageRange, Frame, bool), Reply> {
        // Without a place in the pool, a smaller piece may have one.
        while !self.has_place(page, order) {
            let pages = order.pages();
            order = order.smaller().ok_or(Reply::Reclaim { pages })?;
        }
        let (frame, fresh) = match self.memory(page, order, wanted, out) {
            Memory::Spare(frame) => (frame, false),
            Memory::Fresh => {
                let pages = order.pages();
                let start = PageRange::block(page, order).start;
                let hole = self.frames.take_hole(order, self.node_of(page), start);
                (hole.ok_or(Reply::Reclaim { pages })?, true)
            }
            Memory::Short(reply) => return Err(reply),
        };
        let at = PageRange::block(page, order);
        let id = self.admit(at, Some(frame), fresh);
        let id = id.ok_or(Reply::Refused(Refusal::OutOfRecords))?;
        Ok((id, at, frame, fresh))
    }

    /// Makes a folio record for the pages at `at`, which are about to come in. Gives the frame back when there is no
    /// record.
    pub(crate) fn admit(
        &mut self,
        at: PageRange,
        frame: Option<Frame>,
        fresh: bool,
    ) -> Option<FolioId> {
        let order = Order::new(at.len.0.trailing_zeros() as u8).expect("a block has an order");
        let Some(id) = self.new_folio(at.start, order, State::Filling) else {
            match frame {
                Some(frame) if fresh => self.frames.now_hole(frame),
                Some(frame) => self.frames.now_spare(frame),
                None => {}
            }
            return None;
        };
        self.folios.get_mut(id).frame = frame;
        self.flights += 1;
        self.charge(id);
        self.leaves.fill(at, Entry::Folio(id));
        self.trends.brought(at);
        self.demand.brought(at.len.0);
        self.lruvec_of(id).workingset.came_in(at.len.0);
        Some(id)
    }

    /// Whether the pool has a place for a folio of this order at `page`.
    pub(crate) fn has_place(&self, page: PageIndex, order: Order) -> bool {
        let node = self.node_of(page);
        self.frames.holes(order, node) > 0 || self.frames.has_spare_on(order, node)
    }

    /// Memory for a folio at `page`.
    pub(crate) fn memory(
        &mut self,
        page: PageIndex,
        order: Order,
        wanted: bool,
        out: &mut Commands,
    ) -> Memory {
        let (group, pages) = (self.group_of(page), order.pages().0);
        if let Some((full, over)) = self.groups.beyond_max(group, pages) {
            let short = Memory::Short(Reply::short(full, PageCount(over)));
            if !wanted {
                return short;
            }
            // Only reclaim in the group itself makes room there, unless the store accepts nothing.
            let stuck = order == Order::ZERO && self.nothing_leaves(full);
            let served =
                self.groups.get(full).lazy == 0 && (stuck || self.store_ends_it(full, out));
            self.groups.count_max(group, pages, served);
            if !served {
                self.count(full, |stat| stat.allocstall += 1);
                return short;
            }
        }
        let start = PageRange::block(page, order).start;
        if let Some(frame) = self.frames.take_spare(order, self.node_of(page), start) {
            return Memory::Spare(frame);
        }
        let missing = |core: &Self| (core.frames_in_use() + pages).saturating_sub(core.limit);
        if missing(self) > 0 && !wanted {
            return Memory::Short(Reply::short(GroupId::ROOT, PageCount(missing(self))));
        }
        // Commands would give back only about two dozen pieces at a time.
        if order >= LARGE && (1..=self.frames.spare_pages()).contains(&missing(self)) {
            let pages = PageCount(missing(self));
            return Memory::Short(Reply::Scattered { pages });
        }
        if missing(self) > 0 && self.frames.spare_pages() > 0 {
            self.drain(missing(self), out);
        }
        match missing(self) {
            0 => Memory::Fresh,
            _ if self.lru.total(ListName::LazyFree) == 0
                && self.deferred.is_empty()
                && (order == Order::ZERO && self.nothing_leaves(GroupId::ROOT)
                    || self.store_ends_it(GroupId::ROOT, out)) =>
            {
                self.stat.over_limit += 1;
                if !self.store_blocked && !self.files_blocked {
                    self.note_excess();
                }
                Memory::Fresh
            }
            short => {
                self.count(group, |stat| stat.allocstall += 1);
                Memory::Short(Reply::short(GroupId::ROOT, PageCount(short)))
            }
        }
    }

    /// Gives spare frames back to the kernel until `pages` pages are on their way. If these are single pages, it gives
    /// a whole batch, so that they share a TLB shootdown.
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
