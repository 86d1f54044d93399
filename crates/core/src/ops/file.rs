//! Pages of files: they are read where they belong, and written back there.
//!
//! An anonymous page that leaves memory needs a slot, a name under which the store keeps it. A page of a file has its
//! place already: the region's pages are the file's, in their order. So its entry says nothing while it is not in
//! memory: an empty entry in such a region, with or without a shadow, stands for the file's contents. A leaf of which
//! all has left holds shadows only, and these are bounded like all others.
//!
//! A page that becomes dirty is not seen, just as its use is not seen. Whether it must be written is found out where it
//! is for an anonymous folio: when it leaves limbo its bytes are compared with those that were read (`Unchanged`). A
//! clean page is dropped; that costs a hash, and no slot. A page that could not be written is known to be dirty from
//! then on, and waits in limbo, without another try until the store, or the file, is said to take something
//! ([`Event::RetryStore`](crate::Event::RetryStore)).
//!
//! Files cannot be lazily freed, purged, snapshot or moved here: all of these depend on where else the bytes are, and
//! the file has them.

use crate::addr::{Order, PageIndex};
use crate::command::{Command, Commands};
use crate::event::{Outcome, Reply};
use crate::ids::{FolioId, ListName};
use crate::machine::Core;
use crate::tables::folio::{Folio, State};

impl Core {
    /// Reads an absent page of a file, with as much around it as region, neighbours and pool allow.
    pub(crate) fn bring_in_from_file(
        &mut self,
        page: PageIndex,
        most: Order,
        wanted: bool,
        out: &mut Commands,
    ) -> Reply {
        let (_, order, _) = self.largest_blank(page, most);
        let (id, at, frame, fresh) = match self.admit_to_place(page, order, wanted, out) {
            Ok(admitted) => admitted,
            Err(reply) => return reply,
        };
        self.hold(at.start, at.len.0);
        out.push(Command::Read {
            folio: id,
            at,
            frame,
            fresh,
        });
        Reply::Done
    }

    /// Notes that the file holds the folio's contents, or could not be written.
    pub(crate) fn written_back(&mut self, id: FolioId, folio: &Folio, outcome: Outcome) {
        let pages = u64::from(folio.order.pages().0);
        match outcome {
            Outcome::Stored => self.count(folio.group, |stat| stat.pgpgout += pages),
            Outcome::Unchanged => self.stat.pswpout_unchanged += pages,
            Outcome::StoreFailed | Outcome::StoreFull => {
                self.store_blocked = true;
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
