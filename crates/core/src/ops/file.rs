//! Pages of files: they are read where they belong, and written back there.
//!
//! An anonymous page that leaves memory needs a slot, a name under which the store keeps it. A page of a file already
//! has its place: the region's pages are the file's, in the same order. So its entry need not say where it is while it
//! is out of memory: an empty entry in such a region, with or without a shadow, represents the file's contents. A leaf
//! from which all pages have left holds only shadows, and these are bounded like all others.
//!
//! User space does not see that a page becomes dirty, just as it does not see its use. Whether the page must be written
//! is determined as for an anonymous folio: when it leaves limbo its bytes are compared with those that were read
//! (`Unchanged`). A clean page is dropped; that costs a hash, and no slot.
//!
//! *A page that could not be written is stranded*: it is known to be dirty from then on, and waits in limbo, without
//! another attempt until an event says that files may accept something again
//! ([`Event::RetryStore`](crate::Event::RetryStore)). Nothing else waits with it: other pages of files are still
//! offered, because they may be clean or belong to another file, and so is everything for the store. A scan skips
//! stranded folios as it skips folios that a full store does not accept. They do not count as limbo when its length is
//! measured, as they are no test of what is in use; otherwise a file of the size of limbo that accepts nothing would
//! keep mapped memory from leaving. When only stranded folios are left, faults are served above the limit
//! ([`store_full`](crate::ops::store_full)).
//!
//! *A private region* reads a file and never writes it. A folio that was read from the file is saved like an anonymous
//! one when it leaves, unless it is unchanged: then it is dropped, and its entry is empty again. If any of its pages
//! was written to, all of it goes to the slot. A page saved as zeros keeps its entry, because an empty one would mean
//! the file's page; so blocks of pages that come in together are all in the file, or all zeros. As long as a folio may
//! be unchanged it counts as a file's memory, whose return costs what a file's page costs.
//!
//! Files cannot be lazily freed, purged, snapshotted or moved here: all of these depend on where else the bytes are,
//! and for a file they are in the file.

use crate::addr::{Order, PageIndex, PageRange};
use crate::command::{Command, Commands};
use crate::event::{Outcome, Reply};
use crate::ids::{FolioId, Kind, ListName};
use crate::machine::Core;
use crate::ops::fault::Coming;
use crate::tables::folio::{Folio, State};
use crate::tables::leaf::Entry;

impl Core {
    /// Brings in an absent page of a file's region: from the file or, if it is a page of a private region that was
    /// written to, from wherever it is now.
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

    /// The order of the largest block around an absent page, up to `most`, that is in the page's region and whose pages
    /// are all like this one: in the file, or zeros.
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

    /// Reads an absent page of a file, with as many pages around it as the pool allows.
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

    /// Whether a folio in limbo is not offered now, because the store or its file recently refused.
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
