//! Writing back in the background: what was written to shared regions goes to their files while nothing asks for it.
//!
//! A changed page goes to its file when it leaves, and by a sync. Both then pay for all that was written since: a sync
//! for a gigabyte at once, and a fault that reclaims for the writes before its read. So a thread of ours goes over the
//! shared regions, every five seconds as the kernel's flusher does, and writes what it finds changed: in the order of
//! the file, runs of pages at a time, and not more than `WRITTEN` in a tenth of a second. A sync then finds what was
//! written in the last seconds, and what leaves is mostly dropped.
//!
//! - *Finding what has changed* needs a look at every byte: user space has no dirty bit. The thread copies a piece of a
//!   folio without a fault, and compares the checksums of its pages with those of what was read or written last
//!   (`store/src/mapped/sums.rs`). That is 0.1 ms a MiB, of `LOOKED` at most in a tenth of a second. Only mapped
//!   folios are looked at: one in limbo is on its way out, and whoever takes it out writes it.
//! - *Writing* is a sync's way (`file.rs`): the folio is pinned, copied, compared and written from the copy, so that
//!   the checksum is of what was written. A page that the program writes to meanwhile differs from the checksum, and so
//!   stays changed. A sync and this thread exclude each other by the file's lock, as of two copies of a page the older
//!   must not be written last.
//! - *No wait for the device.* What is written is not durable before a sync says so: only a sync calls `fdatasync`, so
//!   an error of the device is told to the program, and not to this thread.
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
/// Pages that are compared at one look, at most: 80 MiB a second.
const LOOKED: u32 = 2048;
/// Pages that are written at one look, at most, but for the rest of a folio: 40 MiB a second.
const WRITTEN: u32 = 1024;
/// What a leaf of which nothing is in memory counts as, in pages that are compared.
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

    /// Looks at some of the shared regions' pages from `next` on, and writes what has changed. Answers where to go on;
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
            // A leaf of which nothing is in memory counts a little, so that a long file does not make a long look.
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

    /// Writes a folio of a region that has not ended, if it has changed. Answers how many pages were written, or tried.
    fn write_if_changed(&self, shared: &Shared, folio: PageRange, copy: &mut Copied) -> u32 {
        let syncing = shared.sync.lock();
        if syncing.has_ended || !self.has_changed(shared, folio, copy) {
            return 0;
        }
        // What could not be written stays as it is, and the next sync says so.
        let _ = self.write_folio(&*shared.backing, shared.range.start, folio, copy);
        folio.len.0
    }

    /// Whether a folio differs from what was read of the file or written to it last. With a handler's thread a page
    /// that has left since the look comes back for it; else it counts as unchanged.
    fn has_changed(&self, shared: &Shared, folio: PageRange, copy: &mut Copied) -> bool {
        let mut at = folio.start;
        while at < folio.end() {
            let len = (folio.end().0 - at.0).min(PIECE_PAGES);
            let bytes = copy.pages(len);
            let from = self.mmu.addr_of(at).cast_const();
            // SAFETY: the pages are a region's that cannot end meanwhile, and the copy is no part of the arena.
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
    /// Has the thread that writes back leave the pages of a shared region alone from here on, as the region ends.
    pub fn end_write_back(&self, range: PageRange) {
        let _quiet = SignalsBlocked::new();
        if let Some(shared) = self.files.shared_at(range.start) {
            shared.sync.lock().has_ended = true;
        }
    }

    /// Ends the thread, when it has written its current folio.
    pub fn stop_writing_back(&self) {
        self.writer.stop();
    }
}
