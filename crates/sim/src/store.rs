//! The simulated store: contents by slot, and every way a store can fail.
//!
//! A store is trusted with bytes that exist nowhere else, so the rules here are strict: a slot is written once and
//! released once, and it is read neither before it is written nor after it is released. Failures depend on the weather
//! that the world sets: no room (in addition to the real bound on pages), a failing medium, damaged bytes at load. The
//! core does not distinguish damage from medium errors at load (`LoadFailed`), and neither does the driver.

use std::collections::{BTreeMap, BTreeSet};

use millpond_core::{Outcome, SlotId, SlotPart};

use crate::mmu::{BLANK, Content};
use crate::report::{Check, breach};
use crate::rng::Rng;
use std::ops::Range;

/// The present behaviour of the store; chances are per mille.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Weather {
    /// Every save finds no room.
    pub full: bool,
    /// Saves that fail.
    pub save_errors: u32,
    /// Loads that fail, because of errors of the medium or damaged bytes.
    pub load_errors: u32,
    /// Syncs of a file that fail, after writes that the kernel had accepted.
    pub sync_errors: u32,
}

/// Slots and their contents.
#[derive(Debug)]
pub struct SimStore {
    slots: BTreeMap<SlotId, Vec<Content>>,
    /// Pages that were forgotten while their slots stay.
    forgotten: BTreeSet<(SlotId, usize)>,
    pages: u64,
    /// Pages that fit into the store.
    pub capacity: u64,
    /// The present failures.
    pub weather: Weather,
    /// Sabotage: at this interval of saves, the store keeps what was previously saved under another slot.
    pub stale_every: Option<u32>,
    saves: u32,
    last: Vec<Content>,
}

impl SimStore {
    /// An empty store with room for `capacity` pages.
    #[must_use]
    pub fn new(capacity: u64) -> Self {
        Self {
            slots: BTreeMap::new(),
            forgotten: BTreeSet::new(),
            pages: 0,
            capacity,
            weather: Weather::default(),
            stale_every: None,
            saves: 0,
            last: Vec::new(),
        }
    }

    /// Keeps `data` as `slot`, as [`millpond_core::Slots::save`] says.
    ///
    /// # Errors
    /// `slot` holds something already, or `previous` holds nothing.
    pub fn save(
        &mut self,
        slot: SlotId,
        previous: Option<SlotPart>,
        data: &[Content],
        rng: &mut Rng,
    ) -> Check<Outcome> {
        if self.slots.contains_key(&slot) {
            breach!(
                "save to {slot:?}, which holds {} pages",
                self.slots[&slot].len()
            );
        }
        if previous.is_some_and(|part| part.slot == slot) {
            breach!("save to {slot:?} names itself as the previous slot");
        }
        if let Some(previous) = previous {
            let Some(old) = self.slots.get(&previous.slot) else {
                breach!("save to {slot:?} names {previous:?}, which holds nothing");
            };
            let (first, pages) = (usize::from(previous.first), data.len());
            if previous.order.pages().0 as usize != pages || first + pages > old.len() {
                breach!("save of {pages} pages names {previous:?} of {}", old.len());
            }
            self.expect_known(previous.slot, first..first + pages)?;
            // A store may be unable to recognize an unchanged part, and may move unchanged contents to a better place.
            let moves = Rng::new(rng.clone().word() ^ 8).chance(50);
            let tells = if pages == old.len() {
                !moves
            } else {
                rng.chance(700)
            };
            if tells && old[first..first + pages] == *data {
                return Ok(Outcome::Unchanged);
            }
        }
        if data.iter().all(|page| *page == BLANK) {
            return Ok(Outcome::AllZero);
        }
        if self.weather.full || self.pages + data.len() as u64 > self.capacity {
            return Ok(Outcome::StoreFull);
        }
        if rng.chance(self.weather.save_errors) {
            return Ok(Outcome::StoreFailed);
        }
        self.saves += 1;
        let mut kept = data.to_vec();
        if self
            .stale_every
            .is_some_and(|every| self.saves.is_multiple_of(every))
            && self.last.len() == kept.len()
        {
            kept.copy_from_slice(&self.last);
        }
        self.last = data.to_vec();
        self.pages += data.len() as u64;
        self.slots.insert(slot, kept);
        Ok(Outcome::Stored)
    }

    /// The pages that `part` names, or `None` if the store fails to provide them.
    ///
    /// # Errors
    /// The slot holds nothing, or fewer pages than requested.
    pub fn load(&self, part: SlotPart, rng: &mut Rng) -> Check<Option<Vec<Content>>> {
        self.load_pages(part.slot, part.first, part.order.pages().0 as usize, rng)
    }

    /// `pages` pages of `slot` from its page `first`, or `None` if the store fails to provide them.
    ///
    /// # Errors
    /// The slot holds nothing, or fewer pages than requested.
    pub fn load_pages(
        &self,
        slot: SlotId,
        first: u16,
        pages: usize,
        rng: &mut Rng,
    ) -> Check<Option<Vec<Content>>> {
        let Some(kept) = self.slots.get(&slot) else {
            breach!("load from {slot:?}, which holds nothing");
        };
        let first = usize::from(first);
        let end = first + pages;
        if end > kept.len() {
            breach!(
                "load of pages {first}..{end} from {slot:?}, which has {}",
                kept.len()
            );
        }
        self.expect_known(slot, first..end)?;
        if rng.chance(self.weather.load_errors) {
            return Ok(None);
        }
        Ok(Some(kept[first..end].to_vec()))
    }

    /// Forgets the pages of `part`, as [`millpond_core::Slots::forget`] says.
    ///
    /// # Errors
    /// The slot does not hold them, they were already forgotten, or no other page of the slot is needed.
    pub fn forget(&mut self, part: SlotPart) -> Check {
        let pages =
            usize::from(part.first)..usize::from(part.first) + part.order.pages().0 as usize;
        let Some(kept) = self.slots.get(&part.slot) else {
            breach!("{part:?} is to be forgotten, of a slot that holds nothing");
        };
        if pages.end > kept.len() || pages.len() == kept.len() {
            breach!("{part:?} is to be forgotten, of {} pages", kept.len());
        }
        self.expect_known(part.slot, pages.clone())?;
        self.forgotten.extend(pages.map(|page| (part.slot, page)));
        Ok(())
    }

    /// Fails if one of these pages was forgotten.
    fn expect_known(&self, slot: SlotId, mut pages: Range<usize>) -> Check {
        match pages.find(|&page| self.forgotten.contains(&(slot, page))) {
            Some(page) => breach!("page {page} of {slot:?} is wanted, which was forgotten"),
            None => Ok(()),
        }
    }

    /// Forgets `slot`.
    ///
    /// # Errors
    /// `slot` holds nothing.
    pub fn release(&mut self, slot: SlotId) -> Check {
        let Some(kept) = self.slots.remove(&slot) else {
            breach!("release of {slot:?}, which holds nothing");
        };
        self.pages -= kept.len() as u64;
        for page in 0..kept.len() {
            self.forgotten.remove(&(slot, page));
        }
        Ok(())
    }

    /// Slots that hold something.
    #[must_use]
    pub fn slots(&self) -> usize {
        self.slots.len()
    }

    /// Pages that the store holds.
    #[must_use]
    pub fn pages(&self) -> u64 {
        self.pages
    }

    /// The lowest slots that the store holds, for messages about leaks.
    pub fn some_slots(&self) -> impl Iterator<Item = SlotId> + '_ {
        self.slots.keys().copied().take(8)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use millpond_core::Order;

    fn part(slot: u32, first: u16, order: u8) -> SlotPart {
        SlotPart {
            slot: SlotId(slot),
            first,
            order: Order::new(order).unwrap(),
        }
    }

    #[test]
    fn a_slot_returns_what_was_saved() {
        let (mut store, mut rng) = (SimStore::new(100), Rng::new(1));
        let data = [[1; 4], [2; 4]];
        assert_eq!(
            store.save(SlotId(3), None, &data, &mut rng),
            Ok(Outcome::Stored)
        );
        assert_eq!(store.load(part(3, 1, 0), &mut rng), Ok(Some(vec![[2; 4]])));
        assert_eq!(
            store.save(SlotId(4), Some(part(3, 0, 1)), &data, &mut rng),
            Ok(Outcome::Unchanged)
        );
        assert_eq!(
            store.save(SlotId(4), None, &[BLANK], &mut rng),
            Ok(Outcome::AllZero)
        );
        assert_eq!((store.slots(), store.pages()), (1, 2));
    }

    #[test]
    fn misuse_is_a_breach() {
        let (mut store, mut rng) = (SimStore::new(100), Rng::new(1));
        assert!(store.release(SlotId(1)).is_err());
        assert!(store.load(part(1, 0, 0), &mut rng).is_err());
        store.save(SlotId(1), None, &[[1; 4]], &mut rng).unwrap();
        assert!(store.save(SlotId(1), None, &[[1; 4]], &mut rng).is_err());
        assert!(store.load(part(1, 0, 1), &mut rng).is_err());
        assert!(store.forget(part(1, 0, 0)).is_err(), "all of a slot");
        store.release(SlotId(1)).unwrap();
        assert!(store.forget(part(1, 0, 0)).is_err());
        store.save(SlotId(1), None, &[[1; 4]; 4], &mut rng).unwrap();
        store.forget(part(1, 2, 1)).unwrap();
        assert!(store.forget(part(1, 3, 0)).is_err(), "twice");
        assert!(store.load(part(1, 3, 0), &mut rng).is_err());
        assert!(store.load(part(1, 1, 0), &mut rng).is_ok());
        assert!(
            store
                .save(SlotId(2), Some(part(1, 2, 0)), &[[1; 4]], &mut rng)
                .is_err()
        );
        store.release(SlotId(1)).unwrap();
        assert!(store.load(part(1, 0, 0), &mut rng).is_err());
        assert!(
            store
                .save(SlotId(2), Some(part(1, 0, 0)), &[[1; 4]], &mut rng)
                .is_err()
        );
    }

    #[test]
    fn a_store_without_room_keeps_nothing() {
        let (mut store, mut rng) = (SimStore::new(1), Rng::new(1));
        assert_eq!(
            store.save(SlotId(1), None, &[[1; 4]; 2], &mut rng),
            Ok(Outcome::StoreFull)
        );
        store.weather.save_errors = 1000;
        assert_eq!(
            store.save(SlotId(1), None, &[[1; 4]], &mut rng),
            Ok(Outcome::StoreFailed)
        );
        assert_eq!(store.slots(), 0);
    }
}
