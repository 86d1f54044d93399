//! Splitting: a folio becomes several, so that a boundary lies between two of them.
//!
//! Only records change: mapped pages stay mapped, and each piece is backed by its part of the slot. An unmapped folio
//! cannot be split, because it has one frame; it has to come back first.

use crate::addr::{PageIndex, PageRange};
use crate::command::Commands;
use crate::event::{Refusal, Reply};
use crate::ids::FolioId;
use crate::machine::Core;
use crate::policy::order::OrderPolicy;
use crate::tables::folio::State;
use crate::tables::leaf::Entry;

impl Core {
    /// Splits a resident folio so that no piece straddles `page`, into pieces as large as alignment allows. Returns
    /// false, without any change, if there are no records for the pieces.
    pub(crate) fn split_at(&mut self, id: FolioId, page: PageIndex, out: &mut Commands) -> bool {
        let (folio, at) = (*self.folios.get(id), self.at(id));
        debug_assert_eq!(folio.state, State::Resident);
        if !at.contains(page) || page == at.start {
            return true;
        }
        if folio.lazy_part.pages > 0 {
            // The freed part is split off first, so that it is not forgotten; that may already suffice.
            self.split_off_freed(id, out);
            return match self.straddler(page) {
                Some(id) => self.split_at(id, page, out),
                None => true,
            };
        }
        // Halving down to the page's own alignment makes one new piece per level.
        if !self.folios.room(u32::from(folio.order.get())) {
            return false;
        }
        let list = self.unlist(id);
        let mut straddling = id;
        loop {
            let piece = *self.folios.get(straddling);
            let half = piece
                .order
                .smaller()
                .expect("a straddled folio has two pages or more");
            let half_pages = half.pages().0;
            let middle = self.at(straddling).start.plus(half_pages);
            let upper = self
                .folios
                .alloc(piece.entry.plus(half_pages), half, State::Resident)
                .expect("room was checked");
            self.folios.get_mut(straddling).order = half;
            let record = self.folios.get_mut(upper);
            (record.group, record.node) = (piece.group, piece.node);
            record.used_like(&piece);
            record.pins = piece.pins;
            record.immovable = piece.immovable;
            record.lazy = piece.lazy;
            record.set_slot(piece.slot());
            record.slot_first = piece.slot_first + half_pages as u16;
            self.keeps_slot(upper);
            self.leaves
                .fill(PageRange::new(middle, half.pages()), Entry::Folio(upper));
            self.pins += u32::from(piece.pins);
            self.stat.folio_split += 1;
            let whole = if page < middle { upper } else { straddling };
            if page == middle {
                self.list(straddling, list);
                self.list(upper, list);
                return true;
            }
            straddling = if page < middle { straddling } else { upper };
            self.list(whole, list);
        }
    }

    /// [`Core::split_at`] for the edges of a range: afterwards every folio is inside or outside. Returns `None` when
    /// that holds, or a reply when something must happen first.
    pub(crate) fn split_edges(&mut self, range: PageRange, out: &mut Commands) -> Option<Reply> {
        for page in [range.start, range.end()] {
            let Some(id) = self.straddler(page) else {
                continue;
            };
            let folio = self.folios.get_mut(id);
            if folio.in_flight() {
                folio.waited_for = true;
                return Some(Reply::Wait {
                    page: self.at(id).start,
                });
            }
            if folio.state == State::Limbo {
                return Some(Reply::NeedsResident { page });
            }
            if !self.split_at(id, page, out) {
                return Some(Reply::Refused(Refusal::OutOfRecords));
            }
        }
        None
    }

    /// Whether reclaim may split folios of the region that has `page`: their orders are adaptive.
    pub(crate) fn may_split(&self, page: PageIndex) -> bool {
        let region = self.regions.of(page);
        region.is_some_and(|region| matches!(region.order, OrderPolicy::Adaptive { .. }))
    }

    /// The folio that has pages on both sides of the start of `page`.
    pub(crate) fn straddler(&self, page: PageIndex) -> Option<FolioId> {
        if page.0 >= self.config.arena.0 {
            return None;
        }
        match self.leaves.get(page) {
            Entry::Folio(id) if self.at(id).start < page => Some(id),
            _ => None,
        }
    }
}
