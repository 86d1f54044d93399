//! Handles a fault that an actor has noted, as the driver does: first the checks, then the event, then the reply.

use millpond_core::{
    Event, GroupId, LEAF_PAGES, Order, PageCount, PageIndex, PageRange, Refusal, Reply,
};

use crate::actor::Ear;
use crate::gather::Spare;
use crate::report::{Check, Coverage, breach};
use crate::world::{SimRegion, World};

impl World {
    /// Passes a noted fault to the core.
    pub(crate) fn handle_fault(&mut self, i: usize, page: PageIndex) -> Check {
        if self.throttle(i, page) {
            self.actors[i].fault = Some(page);
            return Ok(());
        }
        let max_order = self.draw_max_order(i);
        let within = self.usable_around(page);
        let event = Event::Fault {
            page,
            max_order,
            within,
        };
        self.one_more_round(i, &event)?;
        // With a store that accepts nothing, faults may exceed the limit. Volatile memory goes before that happens.
        let blocked = self.core.store_blocked() || self.core.files_blocked();
        let exceeds = blocked && self.core.available().0 < LEAF_PAGES;
        if exceeds && self.begin_purge(i)? {
            self.actors[i].fault = Some(page);
            return Ok(());
        }
        if self.mmu.is_mapped(page) {
            Coverage::count(&mut self.coverage.injected, "late fault");
        }
        let given = self.schedule.len();
        let was = self.core.page_state(page);
        let reply = self.send(i, event)?;
        self.expect_small_enough(given, page, max_order)?;
        self.expect_within(given, page, within)?;
        self.count_inherited(was, reply, given);
        self.take_answer(i, page, reply)
    }

    /// The largest order that the next fault of actor `i` requests: usually any.
    fn draw_max_order(&mut self, i: usize) -> Order {
        if self.actors[i].split {
            Order::ZERO
        } else if self.rng.chance(100) {
            Order::new(self.rng.below(10) as u8).expect("below ten")
        } else {
            Order::MAX
        }
    }

    /// Carries out the reply to a fault.
    fn take_answer(&mut self, i: usize, page: PageIndex, reply: Reply) -> Check {
        match reply {
            Reply::Done => self.settle(i),
            Reply::Present if self.mmu.is_mapped(page) => {}
            Reply::Wait { page: at } => {
                // The next folio there may be mapped as a whole, such as one in limbo: only folios from a store come
                // page by page.
                self.actors[i].split = false;
                self.wait_at(i, at, Ear::Installs)?;
            }
            Reply::WaitForBase { page: at } if self.is_above(page, at) => {
                self.wait_at(i, at, Ear::Wakes)?;
            }
            Reply::Reclaim { pages } => {
                if pages.0 == 0 {
                    breach!(at page, "a fault asks for no pages to be reclaimed");
                }
                self.actors[i].reclaim = Some(self.core.wanted(pages));
                self.actors[i].fault = Some(page);
            }
            Reply::Scattered { pages } => {
                if pages.0 == 0 {
                    breach!(at page, "a fault asks for no pages to be given back");
                }
                self.give_spare_back(Spare::Scattered(pages))?;
                self.actors[i].fault = Some(page);
            }
            Reply::ReclaimGroup { group, pages } => {
                if pages.0 == 0 || group == GroupId::ROOT {
                    breach!(at page, "a fault asks for {pages:?} pages of {group:?} to be reclaimed");
                }
                let pages = self.core.wanted_in(group, pages);
                self.must_reclaim(i, group, pages);
                self.actors[i].fault = Some(page);
            }
            // The operation itself will meet the poison, or discard it.
            Reply::Refused(Refusal::Poisoned { page: lost }) => {
                self.oracle.saw_poison(lost)?;
                self.actors[i].lost = Some(lost);
            }
            other => {
                breach!(at page, "a fault at {page} ({:?}) is answered with {other:?}", self.mmu.page(page))
            }
        }
        Ok(())
    }

    /// The range around a page that the faulting thread's program may use: usually everything, otherwise up to a border
    /// on one side or both.
    fn usable_around(&mut self, page: PageIndex) -> PageRange {
        if !self.rng.chance(50) {
            return PageRange::ALL;
        }
        let [lead, trail] = [(); 2].map(|()| {
            let most = 1 << self.rng.below(11);
            self.rng.below(most)
        });
        let lead = lead.min(page.0);
        Coverage::count(&mut self.coverage.injected, "closed neighbours");
        PageRange::new(page, PageCount(1)).widened(PageCount(lead), PageCount(trail))
    }

    /// Checks that the fault brings in nothing that the program may not use. A folio in limbo already has frames, and
    /// lies on one side of each border: it comes back whole.
    fn expect_within(&mut self, given: usize, page: PageIndex, within: PageRange) -> Check {
        for pending in self.schedule.iter().skip(given) {
            use millpond_core::Command::{Copy, Fold, Load, Read, Zero};
            if let Zero { at, .. }
            | Load { at, .. }
            | Fold { at, .. }
            | Copy { at, .. }
            | Read { at, .. } = pending.command
                && !within.covers(at)
            {
                breach!(at page, "a fault at {page} within {within} gives {:?}", pending.command);
            }
        }
        Ok(())
    }

    /// Checks that the folios that a fault brings in contain the page and obey both bounds on their order.
    fn expect_small_enough(&mut self, given: usize, page: PageIndex, max_order: Order) -> Check {
        let (mut first, mut last) = (true, None::<PageRange>);
        for pending in self.schedule.iter().skip(given) {
            use millpond_core::Command::{Copy, Fold, Load, Read, Rescue, Zero};
            let at = match pending.command {
                Zero { at, .. }
                | Load { at, .. }
                | Fold { at, .. }
                | Copy { at, .. }
                | Read { at, .. }
                | Rescue { at, .. } => at,
                _ => continue,
            };
            let region = self.regions.iter().find(|r| r.range.contains(page));
            // Pages that have moved here stay as large as they were.
            let own = |r: &SimRegion| match pending.command {
                Zero { .. } | Fold { .. } | Read { .. } => r.order,
                _ => r.largest,
            };
            let bound = region.map_or(0, own).min(max_order.get());
            let bound = Order::new(bound).expect("orders are below ten");
            // The wanted folio comes first, and the rest of its window follows. If the order is fixed, it does not
            // bound the window.
            let window = match region.is_some_and(|r| r.adaptive) {
                true => bound,
                false => max_order,
            };
            let near = match first {
                true => at.contains(page),
                false => PageRange::block(page, window).covers(at),
            };
            // A long stream takes whole leaves, one after the other.
            let goes_on = |leaf: PageRange| {
                leaf.len.0 == LEAF_PAGES && leaf.len == at.len && leaf.end() == at.start
            };
            let next = last.is_some_and(goes_on);
            if next {
                Coverage::count(&mut self.coverage.answers, "several leaves at once");
            }
            let near = near || next;
            (first, last) = (false, Some(at));
            if !near || at.len.0 > bound.pages().0 {
                breach!(at page, "a fault at {page} with order at most {bound:?} gives {:?}", pending.command);
            }
        }
        Ok(())
    }

    /// Makes a fault wait if its group is above its high: the thread first reclaims in that group, once.
    fn throttle(&mut self, i: usize, page: PageIndex) -> bool {
        if std::mem::take(&mut self.actors[i].throttled) {
            return false;
        }
        let Some((group, pages)) = self.core.beyond_high(page) else {
            return false;
        };
        self.core.throttled(group);
        self.must_reclaim(i, group, pages);
        self.actors[i].throttled = true;
        self.count_group("above its high");
        true
    }
}
