//! Folding up: one folio comes in from several slots.
//!
//! Random accesses leave a region in pieces: pages that came in alone are saved alone. When a stream passes later, its
//! window is full of slots of one page, and bringing them in one by one would cost a fault's work for each, now and
//! every time after they are saved again. So pages in one aligned block that is entirely out of memory come in as one
//! folio, whatever slots they are spread over. Pages that were never touched, or were zeros, are zeros in it. From then
//! on it is one folio, and is saved as one slot. The kernel's counterpart is khugepaged, which copies resident pages
//! together; here nothing is copied that would not have been read anyway.
//!
//! The entries name the folio while it is on its way, so their former contents are kept here until it has arrived. If
//! it cannot be mapped in one piece, or one of the slots cannot be read, all entries are restored and their pages come
//! in one by one: a lost page must not take its neighbours with it.

use crate::addr::{PageCount, PageIndex, PageRange};
use crate::ids::{FoldId, SlotId};
use crate::limits::{FOLD_PARTS, FOLDS};

/// A run of pages of a folio that is being folded up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FoldPart {
    /// The slot that holds the pages; `None` for zeros.
    pub slot: Option<SlotId>,
    /// The first of the pages, counted from the slot's start.
    pub first: u16,
    /// How many pages the run has.
    pub pages: u16,
}

impl FoldPart {
    pub(crate) const NONE: Self = Self {
        slot: None,
        first: 0,
        pages: 0,
    };
}

/// The parts of one folio, in the order of its pages.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Parts {
    list: [FoldPart; FOLD_PARTS],
    len: usize,
}

impl Parts {
    pub(crate) fn new() -> Self {
        Self {
            list: [FoldPart::NONE; FOLD_PARTS],
            len: 0,
        }
    }

    /// Adds one more page. Returns false if that would need one part too many.
    pub(crate) fn add(&mut self, slot: Option<SlotId>, index: u16) -> bool {
        if let Some(last) = self.list[..self.len].last_mut()
            && last.slot == slot
            && (slot.is_none() || last.first + last.pages == index)
        {
            last.pages += 1;
            return true;
        }
        if self.len == FOLD_PARTS {
            return false;
        }
        self.list[self.len] = FoldPart {
            slot,
            first: index,
            pages: 1,
        };
        self.len += 1;
        true
    }

    pub(crate) fn as_slice(&self) -> &[FoldPart] {
        &self.list[..self.len]
    }

    /// Each part with the pages of `range` that it fills.
    pub(crate) fn places(&self, range: PageRange) -> impl Iterator<Item = (FoldPart, PageRange)> {
        let mut at: PageIndex = range.start;
        self.list.into_iter().take(self.len).map(move |part| {
            let place = PageRange::new(at, PageCount(u32::from(part.pages)));
            at = place.end();
            (part, place)
        })
    }
}

/// All folds in progress. Nothing here allocates after the table was made.
#[derive(Debug)]
pub(crate) struct Folds {
    seats: Vec<Option<Parts>>,
}

impl Folds {
    pub(crate) fn new() -> Self {
        Self {
            seats: vec![None; FOLDS],
        }
    }

    /// Keeps `parts` until [`Folds::take`]. Returns `None` if too many folds are in progress.
    pub(crate) fn keep(&mut self, parts: Parts) -> Option<FoldId> {
        let seat = self.seats.iter().position(Option::is_none)?;
        self.seats[seat] = Some(parts);
        Some(FoldId(seat as u8))
    }

    pub(crate) fn get(&self, id: FoldId) -> &Parts {
        self.seats[usize::from(id.0)]
            .as_ref()
            .expect("a fold is kept until it is taken")
    }

    pub(crate) fn take(&mut self, id: FoldId) -> Parts {
        self.seats[usize::from(id.0)]
            .take()
            .expect("a fold is kept until it is taken")
    }

    /// Number of folds in progress.
    pub(crate) fn len(&self) -> usize {
        self.seats.iter().flatten().count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbouring_pages_of_a_slot_are_one_part() {
        let mut parts = Parts::new();
        let slot = |n| Some(SlotId(n));
        for (slot, index) in [
            (slot(7), 4),
            (slot(7), 5),
            (None, 0),
            (None, 0),
            (slot(7), 6),
        ] {
            assert!(parts.add(slot, index));
        }
        let part = |slot, first, pages| FoldPart { slot, first, pages };
        let three = [part(slot(7), 4, 2), part(None, 0, 2), part(slot(7), 6, 1)];
        assert_eq!(parts.as_slice(), three);
        let range = PageRange::new(PageIndex(8), PageCount(5));
        let starts: Vec<_> = parts.places(range).map(|(_, at)| at.start.0).collect();
        assert_eq!(starts, [8, 10, 12]);
    }

    #[test]
    fn a_range_in_too_many_parts_is_not_folded() {
        let mut parts = Parts::new();
        for n in 0..FOLD_PARTS as u32 {
            assert!(parts.add(Some(SlotId(n)), 0));
        }
        assert!(!parts.add(Some(SlotId(99)), 0));
        assert_eq!(parts.as_slice().len(), FOLD_PARTS);
    }
}
