//! Writing back in the background: changes to shared regions go to their files before anything requires it.
//!
//! A changed page goes to its file when it leaves, and by a sync. Without more, both would pay for all earlier writes:
//! a sync for a gigabyte at once, and a reclaiming fault for the writes before its read. So one of our threads goes
//! over the shared regions, every five seconds like the kernel's flusher, and writes what it finds changed: in the
//! order of the file, runs of pages at a time, and at most `WRITTEN` in a tenth of a second. A sync then finds only the
//! changes of the last seconds, and most leaving pages are simply dropped.
//!
//! - *Finding the changes* requires reading every byte: user space has no dirty bit. The thread copies a piece of a
//!   folio without a fault, and compares the checksums of its pages with those of what was read or written last
//!   (`store/src/mapped/sums.rs`). That takes 0.1 ms per MiB, for at most `LOOKED` pages in a tenth of a second. Only
//!   mapped folios are checked: a folio in limbo is on its way out, and is written when it leaves.
//! - *Writing* works as in a sync (`file.rs`): the folio is pinned, copied, compared and written from the copy, so that
//!   the checksum is that of the written data. A page that the program writes to in the meantime differs from the
//!   checksum, and so stays changed. A sync and this thread exclude each other by the file's lock, because if there are
//!   two copies of a page, the older must not be written last.
//! - *No wait for the device.* Written data is not durable before a sync succeeds: only a sync calls `fdatasync`, so
//!   the program gets an error of the device, and not this thread.
//! - *A write that fails* leaves the page changed. A sync reports it, reclaim keeps the page, and this thread tries
//!   again at its next round.
//! - *A region that ends* is synced, and marked as ended under its lock: from then on the thread pins none of its
//!   pages.

use crate::driver::Driver;
use crate::file::{Copied, PIECE_PAGES};
use crate::memory::Memory;
use crate::panics::Ours;
use crate::signals::SignalsBlocked;
use crate::state::files::Shared;
use millpond_core::{LEAF_PAGES, PageCount, PageIndex, PageRange, PageState};
use millpond_mmu::RealMemory;
use millpond_sync::OwnThread;
use millpond_sync::time::Instant;
use std::sync::Arc;
use std::time::Duration;

/// Time between two looks.
const LOOK: Duration = Duration::from_millis(100);
/// Maximum number of pages compared at one look: 80 MiB a second.
const LOOKED: u32 = 2048;
/// Maximum number of pages written at one look, except for the rest of a folio: 40 MiB a second.
const WRITTEN: u32 = 1024;
/// The number of compared pages for which a leaf with nothing in memory counts.
const EMPTY: u32 = 8;
/// Time between the beginnings of two rounds over all regions (the kernel's `dirty_writeback_centisecs`).
const ROUND: Duration = Duration::from_secs(5);

/// Starts the thread that writes back for `driver`, if there is none yet. Where the system has no thread to give,
/// changes are written when they leave and by a sync.
pub fn start(driver: &Arc<Driver<RealMemory>>) {
    let _quiet = SignalsBlocked::new();
    if driver.writer.start() {
        return;
    }
    let worker = Arc::clone(driver);
    let thread = OwnThread::start(c"millpond-write", move || {
        let _ours = Ours::enter();
        let mut copy = Box::new(Copied::new());
        let (mut next, mut began) = (PageIndex(0), Instant::now());
        while worker.writer.rest(LOOK) {
            if next == PageIndex(0) {
                if began.elapsed() < ROUND {
                    continue;
                }
                began = Instant::now();
            }
            next = worker.write_some(next, &mut copy).unwrap_or(PageIndex(0));
        }
    });
    driver.writer.keep(thread.ok());
}

impl Driver<RealMemory> {
    /// Writes what has changed of all shared regions, as far as it is mapped, without a wait for the device.
    pub fn write_back_now(&self) {
        let mut copy = Box::new(Copied::new());
        let mut next = Some(PageIndex(0));
        while let Some(from) = next {
            next = self.write_some(from, &mut copy);
        }
    }

    /// Checks some of the shared regions' pages from `next` on, and writes the changes. Returns where to continue;
    /// `None` at the end of a round.
    fn write_some(&self, mut next: PageIndex, copy: &mut Copied) -> Option<PageIndex> {
        let (mut looked, mut written) = (0, 0);
        while looked < LOOKED && written < WRITTEN {
            let shared = self.files.shared_from(next)?;
            let from = next.max(shared.range.start);
            let leaf_end = PageIndex((from.0 / LEAF_PAGES + 1) * LEAF_PAGES);
            let here = PageCount(leaf_end.0 - from.0).min(shared.range.tail(from).len);
            let here = PageRange::new(from, here);
            next = here.end();
            // A leaf with nothing in memory counts a little, so that a long file does not cause a long look.
            looked += EMPTY;
            if let Some(folio) = self.next_mapped(here) {
                next = folio.end();
                looked += folio.len.0;
                written += self.write_if_changed(&shared, folio, copy);
            }
        }
        Some(next)
    }

    /// The first mapped folio that begins in `range`.
    fn next_mapped(&self, range: PageRange) -> Option<PageRange> {
        let _quiet = SignalsBlocked::new();
        let _inside = self.gate.enter();
        let core = self.lock();
        let mut folios = range.pages().filter_map(|page| core.folio_at(page));
        folios.find(|folio| {
            range.contains(folio.start) && core.page_state(folio.start) == PageState::Resident
        })
    }

    /// Writes a folio of a region that has not ended, if it has changed. Returns how many pages were written, or tried.
    fn write_if_changed(&self, shared: &Shared, folio: PageRange, copy: &mut Copied) -> u32 {
        let syncing = shared.sync.lock();
        if syncing.has_ended || !self.has_changed(shared, folio, copy) {
            return 0;
        }
        // Pages that could not be written stay changed, and the next sync reports them.
        let _ = self.write_folio(&*shared.backing, shared.range.start, folio, copy);
        folio.len.0
    }

    /// Whether a folio differs from what was last read from the file or written to it. With a handler's thread a page
    /// that has left since it was found comes back for the check; otherwise it counts as unchanged.
    fn has_changed(&self, shared: &Shared, folio: PageRange, copy: &mut Copied) -> bool {
        let mut at = folio.start;
        while at < folio.end() {
            let len = (folio.end().0 - at.0).min(PIECE_PAGES);
            let bytes = copy.pages(len);
            let from = self.mmu.addr_of(at).cast_const();
            // SAFETY: the pages belong to a region that cannot end during the call, and the copy is not part of the
            // arena.
            let is_there = unsafe {
                match self.delivery.is_by_signal() {
                    true => self.mmu.copy_nofault(from, bytes.as_mut_ptr(), bytes.len()),
                    false => {
                        std::ptr::copy_nonoverlapping(from, bytes.as_mut_ptr(), bytes.len());
                        true
                    }
                }
            };
            if !is_there {
                return false;
            }
            if !shared
                .backing
                .is_as_read(at.0 - shared.range.start.0, bytes)
            {
                return true;
            }
            at = at.plus(len);
        }
        false
    }
}

impl<M: Memory> Driver<M> {
    /// Stops the writing thread from touching the pages of a shared region from here on, as the region ends.
    pub fn end_write_back(&self, range: PageRange) {
        let _quiet = SignalsBlocked::new();
        if let Some(shared) = self.files.shared_at(range.start) {
            shared.sync.lock().has_ended = true;
        }
    }

    /// Ends the thread after it has written its current folio.
    pub fn stop_writing_back(&self) {
        self.writer.stop();
    }
}
