//! Swap slots: the names under which the store keeps pages that are not in memory.
//!
//! A slot holds the bytes of one folio at the time when it was saved. Two kinds of holders refer to it, with `live`
//! pages in total:
//!
//! - entries: pages that are swapped out; pages discarded since then do not count;
//! - folios in memory whose bytes it still holds, as far as we know (*backing*): if such a folio goes out again
//!   unchanged, nothing has to be written. A page that was read by itself is backed by a part of its former folio's
//!   slot, and goes back there: random reads leave the slots of a region unchanged.
//!
//! Each page has one reference, and one more for each snapshot that has requested its own.
//!
//! Pages of a large folio come back one by one, and those that are written go out again under slots of their own. Their
//! part of the former slot is then useless, but the slot stays for its other pages. So the store is told to forget the
//! part as soon as the new save is done, if no snapshot ever referred to the slot (`forgets` in
//! [`Command::Save`](crate::Command::Save)). A store in RAM gives the memory back. Before this was done, half of what
//! the store held for a program that changes small objects at random was old copies.
//!
//! A slot whose `live` reaches zero is released: the store is told, and only its answer makes the number available
//! again. Without that, a release still on its way could destroy bytes that were just saved under the same number.

use super::extent::extent;
use crate::addr::Order;
use crate::ids::SlotId;
use std::ops::Range;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SlotState {
    Free,
    /// The slot is named in a save in progress.
    Saving,
    Held,
    /// The store was asked to forget the slot.
    Releasing,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Slot {
    /// Pages that need the slot. While the slot is free it is the next free slot.
    pub(crate) live: u32,
    pub(crate) order: Order,
    pub(crate) state: SlotState,
    /// Whether pages of the slot were ever referred to twice.
    shared: bool,
}

const NO_SLOT: u32 = u32::MAX;

/// All slots.
#[derive(Debug)]
pub(crate) struct Slots {
    slots: Vec<Slot>,
    first_free: u32,
    in_use: u32,
    /// Pages of the slots in use.
    pages: u32,
}

impl Slots {
    /// Makes room for all slots that may be needed. Every page of the arena may have a slot, swapped out or as the
    /// backing of a folio in memory; and all of memory (at most `records` folios) may be saved under new slots before
    /// the old ones go.
    pub(crate) fn new(arena: u32, records: u32) -> Self {
        Self {
            slots: Vec::with_capacity(arena as usize + records as usize),
            first_free: NO_SLOT,
            in_use: 0,
            pages: 0,
        }
    }

    /// Calls `each` with the addresses of each long table.
    pub(crate) fn each_table(&self, each: &mut dyn FnMut(Range<usize>)) {
        each(extent(&self.slots));
    }

    /// Reserves a number under which to save a folio of `order`.
    pub(crate) fn reserve(&mut self, order: Order) -> Option<SlotId> {
        let slot = Slot {
            live: 0,
            order,
            state: SlotState::Saving,
            shared: false,
        };
        let id = if self.first_free != NO_SLOT {
            let id = SlotId(self.first_free);
            self.first_free = self.get(id).live;
            *self.get_mut(id) = slot;
            id
        } else if self.slots.len() < self.slots.capacity() {
            self.slots.push(slot);
            SlotId(self.slots.len() as u32 - 1)
        } else {
            return None;
        };
        self.in_use += 1;
        self.pages += order.pages().0;
        Some(id)
    }

    /// Records that the save under this number was done: all its pages need it.
    pub(crate) fn saved(&mut self, id: SlotId) {
        let slot = self.get_mut(id);
        debug_assert_eq!(slot.state, SlotState::Saving);
        slot.state = SlotState::Held;
        slot.live = slot.order.pages().0;
    }

    /// Records that `pages` more pages need the slot: another holder of the same bytes also names it.
    pub(crate) fn share(&mut self, id: SlotId, pages: u32) {
        let slot = self.get_mut(id);
        debug_assert_eq!(slot.state, SlotState::Held);
        slot.live += pages;
        slot.shared = true;
    }

    /// Whether each page of the slot has only one holder.
    pub(crate) fn is_exclusive(&self, id: SlotId) -> bool {
        !self.get(id).shared
    }

    /// Records that the save under this number did not happen: the store does not know the number.
    pub(crate) fn cancel(&mut self, id: SlotId) {
        debug_assert_eq!(self.get(id).state, SlotState::Saving);
        self.free(id);
    }

    /// Records that `pages` pages no longer need the slot. Returns true if they were the last: then the store must be
    /// told.
    #[must_use]
    pub(crate) fn drop_pages(&mut self, id: SlotId, pages: u32) -> bool {
        let slot = self.get_mut(id);
        debug_assert_eq!(slot.state, SlotState::Held);
        slot.live -= pages;
        if slot.live == 0 {
            slot.state = SlotState::Releasing;
        }
        slot.live == 0
    }

    /// Records that the store has forgotten the slot. Returns false when it had not been asked to.
    pub(crate) fn released(&mut self, id: SlotId) -> bool {
        let asked = self
            .slots
            .get(id.0 as usize)
            .is_some_and(|slot| slot.state == SlotState::Releasing);
        if asked {
            self.free(id);
        }
        asked
    }

    pub(crate) fn get(&self, id: SlotId) -> &Slot {
        &self.slots[id.0 as usize]
    }

    /// An upper bound of all slots' numbers, for checks.
    pub(crate) fn made(&self) -> usize {
        self.slots.len()
    }

    /// Slots that are not free, for checks.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (SlotId, &Slot)> {
        let number = |(i, slot): (usize, _)| (SlotId(i as u32), slot);
        self.slots
            .iter()
            .enumerate()
            .map(number)
            .filter(|(_, slot)| slot.state != SlotState::Free)
    }

    /// How many slots are not free.
    pub(crate) fn in_use(&self) -> u32 {
        self.in_use
    }

    /// Pages of the slots that are not free.
    pub(crate) fn pages(&self) -> u32 {
        self.pages
    }

    pub(crate) fn bytes(&self) -> u64 {
        (self.slots.len() * size_of::<Slot>()) as u64
    }

    fn free(&mut self, id: SlotId) {
        let next = self.first_free;
        let slot = self.get_mut(id);
        slot.state = SlotState::Free;
        slot.live = next;
        let pages = slot.order.pages().0;
        self.first_free = id.0;
        self.in_use -= 1;
        self.pages -= pages;
    }

    fn get_mut(&mut self, id: SlotId) -> &mut Slot {
        &mut self.slots[id.0 as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_not_used_again_before_the_store_has_forgotten_it() {
        let mut slots = Slots::new(2, 2);
        let first = slots.reserve(Order::ZERO).unwrap();
        slots.saved(first);
        assert!(slots.drop_pages(first, 1));
        assert_ne!(slots.reserve(Order::ZERO), Some(first));
        assert!(slots.released(first));
        assert!(!slots.released(first), "released twice");
        assert_eq!(slots.reserve(Order::ZERO), Some(first));
    }

    #[test]
    fn reserving_in_a_full_table_returns_none() {
        let mut slots = Slots::new(1, 0);
        assert!(slots.reserve(Order::ZERO).is_some());
        assert_eq!(slots.reserve(Order::ZERO), None);
    }
}
