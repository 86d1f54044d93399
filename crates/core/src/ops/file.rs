//! Pages of files: they are read where they belong, and written back there.
//!
//! An anonymous page that leaves memory needs a slot, a name under which the store keeps it. A page of a file has its
//! place already: the region's pages are the file's, in their order. So its entry says nothing while it is not in
//! memory: an empty entry in such a region, with or without a shadow, stands for the file's contents. A leaf of which
//! all has left holds shadows only, and these are bounded like all others.
//!
//! A page that becomes dirty is not seen, just as its use is not seen. Whether it must be written is found out where it
//! is for an anonymous folio: when it leaves limbo its bytes are compared with those that were read (`Unchanged`). A
//! clean page is dropped; that costs a hash, and no slot.
//!
//! *A page that could not be written is stranded*: it is known to be dirty from then on, and waits in limbo, without
//! another try until files are said to take something ([`Event::RetryStore`](crate::Event::RetryStore)). Nothing else
//! waits with it: other pages of files are asked for, because they may be clean or another file's, and the store is. A
//! scan passes over stranded folios as it does over folios that a full store does not take. They do not count as limbo
//! where its length is judged, as they are no test of what is in use; otherwise a file of the size of limbo that takes
//! nothing would keep mapped memory from leaving. When nothing but stranded folios is left, faults are served above the
//! limit ([`store_full`](crate::ops::store_full)).
//!
//! *A private region* reads a file and never writes it. A folio that was read there is saved like an anonymous one when
//! it leaves, unless it still is what was read: then it is dropped, and its entry is empty again. Whichever of its
//! pages was written to, all of it goes to the slot. What was saved as zeros keeps its entry, because an empty one
//! would be the file's; so blocks of pages that come in together are all in the file, or all zeros. As long as a folio
//! may be as it was read it counts as a file's memory, which costs what files cost when it comes back.
//!
//! Files cannot be lazily freed, purged, snapshot or moved here: all of these depend on where else the bytes are, and
//! the file has them.

use crate::addr::{Order, PageIndex, PageRange};
use crate::command::{Command, Commands};
use crate::event::{Outcome, Reply};
use crate::ids::{FolioId, Kind, ListName};
use crate::machine::Core;
use crate::ops::fault::Coming;
use crate::tables::folio::{Folio, State};
use crate::tables::leaf::Entry;

impl Core {
    /// Brings in an absent page of a file's region: from the file, or from where a page of a private region is since it
    /// was written to.
    pub(crate) fn bring_in_of_file(&mut self, coming: Coming, out: &mut Commands) -> Reply {
        let Coming {
            page,
            zeros: most,
            wanted,
            ..
        } = coming;
        match self.leaves.get(page) {
            Entry::Swapped { slot, index } => self.bring_in_swapped(coming, slot, index, out),
            Entry::Zero => self.bring_in_blank(page, self.largest_alike(page, most), wanted, out),
            _ => self.bring_in_from_file(page, self.largest_alike(page, most), wanted, out),
        }
    }

    /// The order of the largest block around an absent page, up to `most`, that is in the page's region and of which
    /// all pages are as this one is: in the file, or zeros.
    fn largest_alike(&self, page: PageIndex, most: Order) -> Order {
        let bounds = self.regions.of(page).expect("a fault is in a region").range;
        let is_zero = self.leaves.get(page) == Entry::Zero;
        let alike = |&order: &Order| {
            let block = PageRange::block(page, order);
            let zeros = if is_zero { block.len.0 } else { 0 };
            bounds.covers(block) && self.blank(block) == Some(zeros)
        };
        Order::up_to(most).rev().find(alike).unwrap_or(Order::ZERO)
    }

    /// Reads an absent page of a file, with as much around it as the pool allows.
    fn bring_in_from_file(
        &mut self,
        page: PageIndex,
        order: Order,
        wanted: bool,
        out: &mut Commands,
    ) -> Reply {
        let (id, at, frame, fresh) = match self.admit_to_place(page, order, wanted, out) {
            Ok(admitted) => admitted,
            Err(reply) => return reply,
        };
        self.hold(at.start, at.len.0);
        if self.folios.get(id).kind() == Kind::Private {
            self.folios.get_mut(id).set_as_read();
        }
        out.push(Command::Read {
            folio: id,
            at,
            frame,
            fresh,
        });
        Reply::Done
    }

    /// Whether a folio in limbo is not offered now, because the store or its file has taken nothing of late.
    pub(crate) fn waits_for_room(&self, folio: &Folio) -> bool {
        let blocked = match folio.is_in_file() {
            true => self.files_blocked,
            false => self.store_blocked,
        };
        blocked && folio.must_be_written()
    }

    /// Notes that the file holds the folio's contents, or could not be written.
    pub(crate) fn written_back(&mut self, id: FolioId, folio: &Folio, outcome: Outcome) {
        let pages = u64::from(folio.order.pages().0);
        self.writing_back -= folio.order.pages().0;
        match outcome {
            Outcome::Stored => self.count(folio.group, |stat| stat.pgpgout += pages),
            Outcome::Unchanged => self.stat.pswpout_unchanged += pages,
            Outcome::StoreFailed | Outcome::StoreFull => {
                self.files_blocked = true;
                self.stat.store_failed += 1;
                let record = self.folios.get_mut(id);
                record.set_dirty();
                record.state = State::Limbo;
                self.list_old(id, ListName::Limbo);
                return;
            }
            outcome => {
                panic!("{outcome:?} for {id:?}, which is written back: the driver lost count")
            }
        }
        self.forget(self.at(id));
        self.gone(id, folio);
    }
}
