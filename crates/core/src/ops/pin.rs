//! Pins: pages that stay mapped until they are unpinned.
//!
//! A pin is exact to the page: folios that straddle an end of the range are split there, so that unpinning covers the
//! same pages however the folios were split in between (pieces inherit the count). All pages must be mapped first;
//! pinning is all or nothing.

use crate::addr::{PageIndex, PageRange};
use crate::command::Commands;
use crate::event::{Refusal, Reply};
use crate::ids::{FolioId, ListName};
use crate::limits::MAX_PINS;
use crate::machine::Core;
use crate::tables::folio::State;
use crate::tables::leaf::Entry;

impl Core {
    pub(crate) fn pin(&mut self, range: PageRange, out: &mut Commands) -> Reply {
        if !self.range_ok(range) {
            return Reply::Refused(Refusal::BadRange);
        }
        for page in range.pages() {
            match self.leaves.get(page) {
                Entry::Poisoned => return Reply::Refused(Refusal::Poisoned { page }),
                Entry::Empty | Entry::Zero | Entry::Swapped { .. } => {
                    return Reply::NeedsResident { page };
                }
                Entry::Folio(id) => {
                    let folio = self.folios.get_mut(id);
                    if folio.in_flight() {
                        folio.waited_for = true;
                        return Reply::Wait {
                            page: self.at(id).start,
                        };
                    }
                    if folio.state == State::Limbo {
                        return Reply::NeedsResident { page };
                    }
                    if folio.pins == MAX_PINS {
                        return Reply::Refused(Refusal::PinOverflow { page });
                    }
                }
            }
        }
        if let Some(reply) = self.split_edges(range, out) {
            return reply;
        }
        self.for_each_folio(range, |core, id| {
            core.unlist(id);
            core.in_use_again(id);
            core.folios.get_mut(id).pins += 1;
            core.pins += 1;
            core.list(id, ListName::Unevictable);
        });
        Reply::Done
    }

    pub(crate) fn unpin(&mut self, range: PageRange, out: &mut Commands) -> Reply {
        if !self.range_ok(range) {
            return Reply::Refused(Refusal::BadRange);
        }
        for page in range.pages() {
            match self.leaves.get(page) {
                Entry::Folio(id) if self.folios.get(id).pins > 0 => {}
                _ => return Reply::Refused(Refusal::NotPinned { page }),
            }
        }
        if let Some(reply) = self.split_edges(range, out) {
            return reply;
        }
        self.for_each_folio(range, |core, id| {
            core.unlist(id);
            core.folios.get_mut(id).pins -= 1;
            core.pins -= 1;
            core.list(id, ListName::Inactive);
        });
        Reply::Done
    }

    /// Calls `act` for every folio that starts in `range`.
    pub(crate) fn for_each_folio(
        &mut self,
        range: PageRange,
        mut act: impl FnMut(&mut Self, FolioId),
    ) {
        let mut page = range.start;
        while page < range.end() {
            let next = match self.leaves.get(page) {
                Entry::Folio(id) => {
                    let end = self.at(id).end();
                    act(self, id);
                    end
                }
                _ => PageIndex(page.0 + 1),
            };
            page = next;
        }
    }
}
