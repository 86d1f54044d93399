//! Deferred splits: a partly freed folio stays whole until memory is needed.
//!
//! An allocator gives back the pages between two objects, and takes them again a moment later. Splitting the folio each
//! time would permanently leave small folios behind, and dropping the part costs a system call, a TLB shootdown, and a
//! fault when it is used again. So if nobody uses the part during the call ([`FreeMode::Exclusive`](crate::FreeMode)),
//! it is zeroed in place, as a whole folio would be, and noted in the folio's record; the folio goes to a queue. The
//! kernel's counterpart is the deferred split queue of large folios.
//!
//! When lazily freed memory is needed and no whole folio of it is left, the queue gives its oldest folio. The folio is
//! split around the part, into pieces as large as alignment allows, and the pieces of the part join the lazily freed.
//! If the program has used the part again, that is detected when the pieces are checked, as with all lazily freed
//! folios.
//!
//! One run of pages is noted for each folio. A second run that adjoins it extends it; any other is split off at once.
//! The queue is a ring of names beside the folios, which are on other lists as well; freeing a whole folio never
//! touches it.

use crate::addr::{PageCount, PageIndex, PageRange};
use crate::command::{Command, Commands};
use crate::event::FreeMode;
use crate::ids::{FolioId, GroupId, ListName};
use crate::limits::{DEFERRED_SPLITS, RECLAIM_SCAN, ZERO_IN_PLACE_PAGES};
use crate::machine::Core;
use crate::tables::folio::{Errand, Part, State};

impl Core {
    /// Starts freeing the part of a mapped folio that lies in `range`, without a split. Returns false if that is
    /// impossible.
    pub(crate) fn free_part(
        &mut self,
        id: FolioId,
        range: PageRange,
        mode: FreeMode,
        out: &mut Commands,
    ) -> bool {
        let Some(part) = self.note_part(id, range, mode, out) else {
            return false;
        };
        self.begin(id, State::Zeroing);
        self.folios.get_mut(id).errand = Errand::FreePart;
        let at = self.at(id);
        out.push(Command::ZeroInPlace {
            folio: id,
            at,
            part,
        });
        true
    }

    /// Takes a mapped folio off its list and notes the part of it that lies in `range` as freed. Returns `None`, and
    /// changes nothing, if that is impossible.
    pub(crate) fn note_part(
        &mut self,
        id: FolioId,
        range: PageRange,
        mode: FreeMode,
        out: &mut Commands,
    ) -> Option<PageRange> {
        let (folio, at) = (*self.folios.get(id), self.at(id));
        let start = at.start.max(range.start);
        let part = PageRange::new(start, PageCount(at.end().min(range.end()).0 - start.0));
        let usable = folio.state == State::Resident && folio.pins == 0 && !folio.immovable;
        let in_place = matches!(
            mode,
            FreeMode::Exclusive | FreeMode::ReadsZeros | FreeMode::AlreadyZeroed
        );
        let fits = in_place
            && part.len.0 <= ZERO_IN_PLACE_PAGES
            && part.len < at.len
            && self.deferred.len() < DEFERRED_SPLITS;
        if !usable || !fits || folio.lazy {
            return None;
        }
        let new = Part {
            first: (part.start.0 - at.start.0) as u16,
            pages: part.len.0 as u16,
        };
        let joined = join(folio.lazy_part, new)?;
        self.unlist(id);
        self.in_one_piece(id);
        self.disown_slot(id, out);
        self.folios.get_mut(id).lazy_part = joined;
        self.count(folio.group, |stat| stat.pglazyfree += u64::from(part.len.0));
        Some(part)
    }

    /// Notes that a part of the folio was zeroed.
    pub(crate) fn part_zeroed(&mut self, id: FolioId) {
        let folio = self.folios.get_mut(id);
        let pages = folio.lazy_part.pages;
        (folio.state, folio.errand) = (State::Resident, Errand::None);
        if u32::from(pages) == folio.order.pages().0 {
            folio.lazy_part = Part::default();
            return self.await_use(id);
        }
        let group = folio.group;
        self.lazy_more(group, u32::from(pages));
        self.lazy_mapped += u32::from(pages);
        self.lazy_parts += u32::from(pages);
        self.stat.deferred_split += 1;
        self.deferred.push_back(id);
        self.list(id, ListName::Inactive);
    }

    /// Whether `page` of the folio is in its freed part.
    pub(crate) fn is_in_freed_part(&self, id: FolioId, page: PageIndex) -> bool {
        let Part { first, pages } = self.folios.get(id).lazy_part;
        let index = page.0 - self.at(id).start.0;
        (u32::from(first)..u32::from(first + pages)).contains(&index)
    }

    /// Clears the freed part of the folio. Returns how many pages it had.
    pub(crate) fn in_one_piece(&mut self, id: FolioId) -> u32 {
        let folio = self.folios.get_mut(id);
        let pages = u32::from(std::mem::take(&mut folio.lazy_part).pages);
        let group = folio.group;
        if pages > 0 {
            self.lazy_less(group, pages);
            self.lazy_mapped -= pages;
            self.lazy_parts -= pages;
            self.deferred.retain(|&queued| queued != id);
        }
        pages
    }

    /// Splits folios of `scope`, and of the groups below it, from the queue until pieces of one are among the lazily
    /// freed. Returns false when there are none.
    pub(crate) fn split_deferred(&mut self, scope: GroupId, out: &mut Commands) -> bool {
        for _ in 0..RECLAIM_SCAN {
            let Some(id) = self.deferred.pop_front() else {
                return false;
            };
            let folio = self.folios.get(id);
            let inside = self.groups.is_below(folio.group, scope);
            if folio.state != State::Resident || !inside {
                self.deferred.push_back(id);
                continue;
            }
            if self.split_off_freed(id, out) {
                return true;
            }
        }
        false
    }

    /// Splits a mapped folio around the part that was freed. The part's pieces join the lazily freed; they were counted
    /// when they were freed, perhaps for the group that the region was in then. Returns false if there are no records
    /// for the pieces: then the part, which is zeros, no longer counts as freed.
    pub(crate) fn split_off_freed(&mut self, id: FolioId, out: &mut Commands) -> bool {
        let first = self.folios.get(id).lazy_part.first;
        let start = self.at(id).start.plus(u32::from(first));
        let part = PageRange::new(start, PageCount(self.in_one_piece(id)));
        if !self.split_around(part, out) {
            return false;
        }
        self.for_each_folio(part, |core, piece| {
            core.unlist(piece);
            core.await_use(piece);
        });
        true
    }

    fn split_around(&mut self, part: PageRange, out: &mut Commands) -> bool {
        [part.start, part.end()]
            .into_iter()
            .all(|page| match self.straddler(page) {
                Some(id) => self.split_at(id, page, out),
                None => true,
            })
    }

    /// Checks whether the next part in the queue was used again. Returns how many pages the part has; `None` if there
    /// is none.
    pub(crate) fn look_at_deferred(&mut self, out: &mut Commands) -> Option<u32> {
        for _ in 0..self.deferred.len().min(RECLAIM_SCAN) {
            let id = self.deferred.pop_front()?;
            let folio = *self.folios.get(id);
            self.deferred.push_back(id);
            if folio.state != State::Resident {
                continue;
            }
            let at = self.at(id);
            let start = at.start.plus(u32::from(folio.lazy_part.first));
            let part = PageRange::new(start, PageCount(u32::from(folio.lazy_part.pages)));
            self.unlist(id);
            self.begin(id, State::Looking);
            out.push(Command::Look {
                folio: id,
                at,
                part,
            });
            return Some(part.len.0);
        }
        None
    }
}

/// Two parts as one run; `None` when they do not touch.
fn join(old: Part, new: Part) -> Option<Part> {
    if old.pages == 0 {
        return Some(new);
    }
    let (first, end) = (
        old.first.min(new.first),
        (old.first + old.pages).max(new.first + new.pages),
    );
    (end - first <= old.pages + new.pages).then_some(Part {
        first,
        pages: end - first,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adjacent_parts_are_joined() {
        let part = |first, pages| Part { first, pages };
        assert_eq!(join(Part::default(), part(3, 2)), Some(part(3, 2)));
        assert_eq!(join(part(3, 2), part(5, 1)), Some(part(3, 3)));
        assert_eq!(join(part(3, 2), part(0, 4)), Some(part(0, 5)));
        assert_eq!(join(part(3, 2), part(6, 1)), None);
        assert_eq!(join(part(6, 1), part(3, 2)), None);
    }
}
