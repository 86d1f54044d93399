//! Remap: pages move to other addresses while no thread works on memory.
//!
//! The gate is closed, as for a snapshot: no command is in progress, so the core's tables and the kernel's can be moved
//! one after the other. If a folio has to be brought back first (one in limbo at an end of the range), it is brought
//! back, and the gate is closed again.

use crate::driver::Driver;
use crate::memory::Memory;
use crate::signals::SignalsBlocked;
use crate::state::named::Named;
use millpond_core::{
    Commands, Event, GIGABYTE_PAGES, PageCount, PageIndex, PageRange, Refusal, Reply,
};
use millpond_mmu::MmuError;

/// Number of leaves whose pointers take as long to move as the call that brings back the pages moved along.
const CALL: u32 = 64;

/// Pages before and behind a range that may be moved along and back.
#[derive(Clone, Copy, Default)]
pub struct Beside {
    /// Pages before the range.
    pub lead: PageCount,
    /// Pages behind the range.
    pub trail: PageCount,
}

/// Why nothing was moved.
#[derive(Debug)]
pub enum RemapRefusal {
    /// This page is pinned.
    Pinned(PageIndex),
    /// A range that begins at this page is volatile and only partly in the source.
    Volatile(PageIndex),
    /// The destination is not empty, or the source is only a part of a region that shares pages with a snapshot.
    InUse,
    /// There are no addresses left.
    NoAddressSpace,
    /// This page is lost.
    Lost(PageIndex),
    /// No folio record is left.
    OutOfRecords,
    /// The kernel refuses the move.
    Memory(MmuError),
}

impl<M: Memory> Driver<M> {
    /// Moves the contents of `from` to `to`; [`Event::Remap`] defines which ranges are allowed. Pages beside `from` in
    /// its first and its last gigabyte are moved along and back if that is less work: then both ends move by one
    /// pointer, and the pages beside them come back by one pointer for each leaf that holds something. See
    /// [`Memory::hand_over`].
    ///
    /// # Safety
    /// During the call no thread touches `from`, nor the pages `beside` it; there is nothing beside `to`.
    pub unsafe fn remap(
        &self,
        from: PageRange,
        to: PageRange,
        beside: Beside,
    ) -> Result<(), RemapRefusal> {
        self.remap_by(from, to, &|| {
            let core = self.lock();
            // The core's pages of `from` are in `to` by now.
            let along = |outside: PageRange, inside: PageRange| {
                let cheaper = core.leaves_in_use(outside) + CALL < core.leaves_in_use(inside);
                match cheaper && core.first_pinned(outside).is_none() {
                    true => outside.len,
                    false => PageCount::ZERO,
                }
            };
            let Beside { lead, trail } = beside;
            let rest = |pages: PageCount| to.len.min(PageCount(GIGABYTE_PAGES - pages.0));
            let before = PageRange::new(from.widened(lead, PageCount::ZERO).start, lead);
            let lead = along(before, PageRange::new(to.start, rest(lead)));
            let last = rest(trail);
            let end = PageIndex(to.end().0 - last.0);
            let trail = along(PageRange::new(from.end(), trail), PageRange::new(end, last));
            drop(core);
            // SAFETY: the gate is closed when this is called, so nothing is in progress, and the core has found nothing
            // in `to`; the caller promises the rest.
            unsafe { self.mmu.hand_over(from, to, (lead, trail)) }
        })
    }

    /// Moves the contents of `from` to `to` while threads may touch both. A touch finds the page before the move. After
    /// the move it is a fault, which is SIGSEGV at `from` unless that is to be kept. For an MMU that can do this
    /// ([`RealMemory::can_hand_over_watched`](millpond_mmu::RealMemory::can_hand_over_watched)).
    pub fn remap_watched(
        &self,
        from: PageRange,
        to: PageRange,
        keep: bool,
    ) -> Result<(), RemapRefusal> {
        // SAFETY: the gate is closed when this is called. The thread that reads faults does not wait at the gate
        // (`closed_gate.rs`).
        self.remap_by(from, to, &|| unsafe {
            self.mmu.hand_over_watched(from, to, keep)
        })
    }

    fn remap_by(
        &self,
        from: PageRange,
        to: PageRange,
        hand_over: &dyn Fn() -> Result<(), MmuError>,
    ) -> Result<(), RemapRefusal> {
        let _quiet = SignalsBlocked::new();
        // The book is locked to the end, so that no purge takes a range by its old name. Changing the book may
        // allocate, and so fault: it is not changed while the gate is closed.
        let mut book = self.volatile();
        if let Some(page) = book.straddler(from) {
            return Err(RemapRefusal::Volatile(page));
        }
        let mut commands = Commands::new();
        loop {
            let alone = self.close_gate();
            let reply = self.lock().handle(Event::Remap { from, to }, &mut commands);
            let result = match reply {
                Reply::Done => self.move_pages(from, to, hand_over),
                Reply::NeedsResident { .. } => Ok(()),
                Reply::Refused(refusal) => Err(match refusal {
                    Refusal::Pinned { page } => RemapRefusal::Pinned(page),
                    Refusal::OutOfRecords => RemapRefusal::OutOfRecords,
                    Refusal::RegionInUse => RemapRefusal::InUse,
                    other => unreachable!("{other:?} for a remap of {from} to {to}"),
                }),
                other => unreachable!("{other:?} is no answer to a remap"),
            };
            drop(alone);
            let inside = self.gate.enter();
            self.carry_out(&mut commands);
            match (reply, result) {
                (Reply::NeedsResident { page }, Ok(())) => {
                    self.make_resident(page)
                        .map_err(|_| RemapRefusal::Lost(page))?;
                }
                (_, Ok(())) => {
                    drop(inside);
                    book.relocate(from, to.start);
                    return Ok(());
                }
                (_, refused) => return refused,
            }
        }
    }

    /// Moves the kernel's tables after the core has moved its own.
    fn move_pages(
        &self,
        from: PageRange,
        to: PageRange,
        hand_over: &dyn Fn() -> Result<(), MmuError>,
    ) -> Result<(), RemapRefusal> {
        if let Err(error) = hand_over() {
            let back = Event::Remap { from: to, to: from };
            let reply = self.lock().handle(back, &mut Commands::new());
            assert_eq!(reply, Reply::Done, "what was just moved can be moved back");
            return Err(RemapRefusal::Memory(error));
        }
        Ok(())
    }

    /// Makes a region longer: in place, if the addresses behind it are free, or somewhere else. Returns its new name
    /// and place.
    ///
    /// # Safety
    /// No thread touches the region during the call.
    pub unsafe fn grow(&self, region: Named, pages: PageCount) -> Result<Named, RemapRefusal> {
        if let Some(longer) = self.grow_in_place(region, pages)? {
            return Ok(longer);
        }
        let old = region.1;
        let new = self.addresses(pages).ok_or(RemapRefusal::NoAddressSpace)?;
        let opened = self.mmu.open(new.1).map_err(RemapRefusal::Memory);
        let front = PageRange::new(new.1.start, old.len);
        let moved = opened.and_then(|()| {
            loop {
                // SAFETY: the caller's promise; no thread uses the new region yet.
                match unsafe { self.remap(old, front, Beside::default()) } {
                    Err(RemapRefusal::InUse) if self.discard_strays(new) => {}
                    moved => return moved,
                }
            }
        });
        self.take_back(if moved.is_ok() { region } else { new });
        moved.map(|()| new)
    }

    /// Makes a region longer in place. Returns `None`, without any change, if the addresses behind it are taken.
    /// Threads may keep using the region.
    pub fn grow_in_place(
        &self,
        (id, old): Named,
        pages: PageCount,
    ) -> Result<Option<Named>, RemapRefusal> {
        let Reply::Region { region, range } = self.tell(Event::Resize { region: id, pages }) else {
            return Ok(None);
        };
        let added = range.tail(old.end());
        if let Err(error) = self.mmu.open(added) {
            let pages = old.len;
            self.tell(Event::Resize { region, pages });
            return Err(RemapRefusal::Memory(error));
        }
        Ok(Some((region, range)))
    }

    /// Gives back the region's addresses from `pages` on, which must be discarded. Returns false if the region keeps
    /// the addresses.
    pub fn shrink(&self, region: Named, pages: PageCount) -> bool {
        let (region, old) = region;
        let rest = old.tail(old.start.plus(pages.0));
        self.mmu.close(rest).is_ok()
            && match self.tell(Event::Resize { region, pages }) {
                Reply::Region { .. } => true,
                _ => {
                    // The addresses are still the region's: they become readable again.
                    let _ = self.mmu.open(rest);
                    false
                }
            }
    }
}
