//! Regions over files: pages come from their place in a file, and need no store.
//!
//! When a program maps a file, the page cache grows with what the program reads: nothing limits it to a budget, and a
//! process in a memory cgroup waits for the kernel to choose what to drop. A region over a file is plain memory within
//! the budget: the core chooses what leaves, by the same rules as for anonymous memory, and each kind gives pages
//! according to the measured cost of its refaults.
//!
//! ```text
//!   touch ─▶ core: Read ─▶ Backing::read ─▶ frame ─▶ mapped       core: WriteBack ─▶ dropped
//!                             (pread)                                (limbo's old end)
//! ```
//!
//! - *Where.* A region's pages are the file's, in the same order ([`Kind::File`]). The table of files
//!   (`state/files.rs`) has the file of each such region; a page's number in its region is its place in the file. The
//!   entry of a page that is not in memory holds nothing, so 60 GB of file need no slot.
//! - *How much.* The order policy decides, as for all pages: a stream's faults double up to 2 MiB, and each folio is
//!   one read; an isolated touch reads 4 KiB.
//! - *A clean page is dropped.* It has been in limbo like any other, so that a second touch costs a rescue and no read.
//!   A read-only region is never written back, whatever is in the frame. Nevertheless its memory stays writable for the
//!   kernel: write-protected pages leave by copying single pages (`mmu/src/uffd/capture_protected.rs`), while others
//!   leave by the leaf. Data that a stray pointer writes there is lost with the page, and never reaches the file.
//! - *Writes to a private region* go to the store. A leaving folio is compared with what was read, by checksums of the
//!   pages in memory (`store/src/sums.rs`): if unchanged it is dropped, otherwise all of it is saved, and is anonymous
//!   from then on. A page that the *store* has lost is lost for good: the file does not have its contents.
//! - *Writes to a shared region* go to their place in the file: when the page leaves, by a sync, and in the background
//!   (`write_back.rs`). A folio is compared page by page with what was read, and runs of changed pages are written. A
//!   sync pins each folio in memory, copies it and writes the copy: so reclaim does not write the folio concurrently,
//!   and the checksum is that of the written data. Pages that are not in memory are already in the file. Data that the
//!   file does not accept stays in memory, and is offered again; other memory is not affected.
//! - *Errors are limited to one page and one moment.* If a read of several pages fails, it is repeated page by page, so
//!   that the pages around a bad one come in. A single page whose read fails is poisoned in the core: the requesting
//!   thread gets SIGBUS, or its call an error. That is not final, because the file may have the page again (a file that
//!   grew, a device that came back): the next touch, or the next call, forgets the poison and reads once more
//!   (`Driver::forget_failure`). If the faulting thread serves itself, the kernel is not told of the poison at all,
//!   since it would raise SIGBUS from then on without asking us; with a handler the kernel must be told, as a sleeping
//!   thread gets its SIGBUS in no other way, and only a call reads again.
//! - *Descriptors.* Service threads of a handler-delivered manager have their own descriptor tables, in which a file
//!   that was opened later is missing. They fetch its descriptor from the program's table for the duration of the call
//!   ([`Descriptors`]).
//!
//! If the guess is wrong, the cost is small: a folio that came along unused cost its part of a read, and is dropped
//! without a write.

use crate::carry_out::{filled_outcome, say};
use crate::driver::Driver;
use crate::memory::Memory;
use crate::signals::SignalsBlocked;
use crate::state::named::Named;
use crate::state::queue::FreedBy;
use millpond_core::{
    Backing, Commands, Descriptors, Event, FileFault, Frame, Kind, LoadError, OrderPolicy, Outcome,
    PAGE_SIZE, PageCount, PageIndex, PageRange, PageState, Refusal, Reply, SaveError, Saved,
};
use millpond_mmu::RealMemory;
use millpond_sync::atomic::Ordering;
use rustix::io::Errno;
use std::sync::Arc;

/// Bytes that are copied out of memory, and written, at a time.
const PIECE: usize = 64 << 10;
pub(crate) const PIECE_PAGES: u32 = (PIECE / PAGE_SIZE) as u32;

/// The descriptor table that the calling thread uses.
fn descriptors() -> Descriptors {
    match millpond_mmu::has_own_descriptors() {
        true => Descriptors::OfThread,
        false => Descriptors::OfProgram,
    }
}

/// Why a file may not hold the changes in memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SyncError {
    /// A page could not be pinned for the write.
    Pin(Refusal),
    /// This page could not be written.
    Write(PageIndex, FileFault),
    /// The device may not have stored the written data.
    Device(FileFault),
}

/// A piece of memory at a page boundary, from which a copy is written.
#[repr(C, align(4096))]
pub(crate) struct Copied([u8; PIECE]);

impl Copied {
    pub(crate) const fn new() -> Self {
        Self([0; PIECE])
    }

    /// Room for this many pages, at most [`PIECE_PAGES`].
    pub(crate) fn pages(&mut self, len: u32) -> &mut [u8] {
        &mut self.0[..len as usize * PAGE_SIZE]
    }
}

impl Driver<RealMemory> {
    /// Writes what has changed in `range` to the file, and waits until the device has it. Pages that are not in memory
    /// have not changed. Two calls for one region exclude each other, and so do a call and the thread that writes back:
    /// if there are two copies of a page, the older must not be written last.
    ///
    /// A page is pinned while it is copied and written, so that reclaim does not write it concurrently; it is copied so
    /// that the written data matches its checksum.
    ///
    /// # Errors
    /// The first page that could not be pinned or written; all others were written. If there is none, the device's
    /// error, once: after it, all pages in memory count as changed.
    pub fn sync_file(&self, range: PageRange) -> Result<(), SyncError> {
        let _quiet = SignalsBlocked::new();
        let Some(shared) = self.files.shared_at(range.start) else {
            return Ok(());
        };
        let mut syncing = shared.sync.lock();
        let (file, first) = (&shared.backing, shared.range.start);
        let mut copy = Box::new(Copied::new());
        let mut result = Ok(());
        let mut page = range.start;
        while let Some(folio) = self.next_in_memory(range.tail(page)) {
            match self.write_folio(&**file, first, folio, &mut copy) {
                // The folio was on its way, in or out, and the file cannot give a page of it: that page has no changes,
                // and is no longer in a folio. The search continues with the others.
                Err(SyncError::Pin(Refusal::Poisoned { .. })) => continue,
                written => result = result.and(written),
            }
            page = folio.end().min(range.end());
        }
        // This call reports an error of the device or, if another error comes first, the next call does.
        syncing.untold = file.sync().err().or(syncing.untold);
        result?;
        match syncing.untold.take() {
            Some(why) => Err(SyncError::Device(why)),
            None => Ok(()),
        }
    }

    /// The first folio in memory that has a page of `range`.
    fn next_in_memory(&self, range: PageRange) -> Option<PageRange> {
        let _quiet = SignalsBlocked::new();
        let _inside = self.gate.enter();
        let core = self.lock();
        let rest = range.tail(core.first_in_use(range)?);
        rest.pages().find_map(|page| core.folio_at(page))
    }

    /// Writes the changes of a folio in memory.
    pub(crate) fn write_folio(
        &self,
        file: &dyn Backing,
        first: PageIndex,
        folio: PageRange,
        copy: &mut Copied,
    ) -> Result<(), SyncError> {
        self.pin_in_any_case(folio).map_err(SyncError::Pin)?;
        let mut result = Ok(());
        let mut at = folio.start;
        while at < folio.end() {
            let len = (folio.end().0 - at.0).min(PIECE_PAGES);
            let bytes = copy.pages(len);
            // SAFETY: the pages are pinned, and therefore mapped, and the copy is not part of the arena. A thread of
            // the program that writes there concurrently does so before or after the copy of each byte.
            unsafe {
                let from = self.mmu.addr_of(at).cast_const();
                std::ptr::copy_nonoverlapping(from, bytes.as_mut_ptr(), bytes.len());
            }
            let written = file.write_back(at.0 - first.0, bytes, Descriptors::OfProgram);
            let written =
                written.map_err(|fault| SyncError::Write(first.plus(fault.page), fault.why));
            result = result.and(written.map(drop));
            at = at.plus(len);
        }
        let unpinned = self.unpin(folio);
        debug_assert!(unpinned.is_ok(), "{folio} was pinned");
        result
    }
}

impl<M: Memory> Driver<M> {
    /// Allocates addresses for a region of this kind whose pages are those of `backing`. No thread can touch it yet.
    /// Returns `None` if there is no free run that long.
    pub fn new_file_region(
        &self,
        pages: PageCount,
        order: OrderPolicy,
        kind: Kind,
        backing: Arc<dyn Backing>,
    ) -> Option<Named> {
        let region = self.new_region_of(pages, order, kind)?;
        let _quiet = SignalsBlocked::new();
        self.files.insert(region.1, backing, kind);
        // Memory that the file takes in addition to its pages is subtracted from the budget before the first page is
        // read.
        let _inside = self.gate.enter();
        self.adjust_limit();
        Some(region)
    }

    /// Why a page of a file could not be read, if that was recent.
    pub fn file_fault(&self, page: PageIndex) -> Option<FileFault> {
        let _quiet = SignalsBlocked::new();
        self.files.why(page)
    }

    /// The first page of `range` that recently could not be read from its file. Also `None` if the answer would require
    /// a wait.
    pub fn first_failed(&self, range: PageRange) -> Option<PageIndex> {
        let _quiet = SignalsBlocked::new();
        let _inside = self.gate.try_enter()?;
        let core = self.lock();
        let failed = |page: &PageIndex| core.page_state(*page) == PageState::Poisoned;
        range.pages().find(failed)
    }

    /// Forgets the file of a region that has ended, if it had one.
    pub(crate) fn forget_file(&self, range: PageRange) {
        let _quiet = SignalsBlocked::new();
        self.files.remove(range);
    }

    /// Reads a folio of a file's pages and maps it. If several pages cannot be read at once, they are read page by
    /// page.
    pub(crate) fn read_and_install(&self, at: PageRange, frame: Frame, fresh: bool) -> Outcome {
        let read = &mut |bytes: &mut [u8]| self.read_file(at, bytes);
        match filled_outcome(self.mmu.fill_and_install(frame, fresh, at, read)) {
            Outcome::LoadFailed { frame_kept } if at.len > PageCount(1) => {
                Outcome::InstallSplit { frame_kept }
            }
            outcome => outcome,
        }
    }

    fn read_file(&self, at: PageRange, bytes: &mut [u8]) -> Result<(), LoadError> {
        let (file, first) = self.files.of(at.start).ok_or(LoadError::Missing)?;
        let bytes = &mut bytes[..at.len.bytes() as usize];
        let read = match self.mmu.is_in_one_piece(bytes) {
            true => file.read_in_one_piece(first, bytes, descriptors()),
            false => file.read(first, bytes, descriptors()),
        };
        let Err(why) = read else {
            self.files.had(at);
            return Ok(());
        };
        if at.len == PageCount(1) {
            self.files.failed(at.start, why);
        }
        Err(match why {
            FileFault::Ended => LoadError::Missing,
            FileFault::Io(errno) => LoadError::Io(errno),
            FileFault::Changed => LoadError::Io(Errno::STALE.raw_os_error()),
        })
    }

    /// Saves a folio of a private region that was read from the pages `at`, unless it is unchanged.
    pub(crate) fn save_if_changed(
        &self,
        at: PageRange,
        bytes: &[u8],
        save: impl FnOnce() -> Result<Saved, SaveError>,
    ) -> Result<Saved, SaveError> {
        let Some((file, first)) = self.files.of(at.start) else {
            return save();
        };
        let saved = match file.is_as_read(first, bytes) {
            true => Ok(Saved::Unchanged),
            false => save(),
        };
        if saved.is_ok() {
            file.forget(first..first + at.len.0);
        }
        saved
    }

    /// Releases a folio of a file's pages, once the file has all writes to them.
    pub(crate) fn write_back(&self, at: PageRange, frame: Frame) -> Outcome {
        let Some((file, first)) = self.files.of(at.start) else {
            unreachable!("{at} is no file's");
        };
        let mut written = Ok(false);
        self.mmu.read_frame(frame, &mut |bytes| {
            written = file.write_back(first, bytes, descriptors());
        });
        let why = match written {
            Ok(written) => {
                file.forget(first..first + at.len.0);
                return match written {
                    true => Outcome::Stored,
                    false => Outcome::Unchanged,
                };
            }
            Err(fault) => match fault.why {
                FileFault::Ended => Errno::FBIG,
                FileFault::Io(errno) => Errno::from_raw_os_error(errno),
                FileFault::Changed => Errno::STALE,
            },
        };
        if self.store_failures.fetch_add(1, Ordering::Relaxed) == 0 {
            say(format_args!(
                "a file cannot be written back ({why}): what was written to it stays in RAM, above the budget if need \
                 be, and is tried again"
            ));
        }
        Outcome::StoreFailed
    }

    /// Marks pages as lost. If threads that touch a file's page serve their own faults, the kernel is told nothing, and
    /// the message is written when a thread touches the page. Otherwise the message comes first: a thread that sleeps
    /// at the page gets SIGBUS at once.
    pub(crate) fn poison(&self, at: PageRange) {
        match self.files.may_have_again(at.start) {
            true if self.delivery.is_by_signal() => return,
            true => self.say_unread(at.start),
            false => self.say_lost(at),
        }
        self.mmu.poison(at);
    }

    /// Writes a line that says why a thread that has touched `page` gets SIGBUS, if the page is a file's.
    pub(crate) fn say_unread(&self, page: PageIndex) {
        let at = self.mmu.address(page);
        match self.files.why(page) {
            Some(FileFault::Ended) => say(format_args!(
                "the page at {at:#x} is not in its file any more: the file has become shorter"
            )),
            Some(FileFault::Io(errno)) => say(format_args!(
                "the page at {at:#x} cannot be read from its file ({})",
                Errno::from_raw_os_error(errno)
            )),
            Some(FileFault::Changed) => say(format_args!(
                "the page at {at:#x} is of an object that has changed since it was mapped"
            )),
            None => {}
        }
    }

    /// Clears the poison of an unreadable file page, so the next fault reads it again. Returns false if the file cannot
    /// have the page. For threads inside the gate.
    pub(crate) fn forget_failure(&self, page: PageIndex, commands: &mut Commands) -> bool {
        if !self.files.may_have_again(page) {
            return false;
        }
        let range = PageRange::new(page, PageCount(1));
        loop {
            let mut core = self.lock();
            // Another thread may have brought the page in since, and the program may have written to it: a discard
            // would lose that.
            if core.page_state(page) != PageState::Poisoned {
                return true;
            }
            let reply = core.handle(Event::Discard { range }, commands);
            let gathered = !commands.batch().is_empty();
            if matches!(reply, Reply::Wait { .. }) && commands.is_empty() && !gathered {
                drop(self.wait_settled(core));
                continue;
            }
            drop(core);
            self.carry_out(commands);
            if gathered {
                self.give_back(commands.batch(), FreedBy::Owner);
            }
            match reply {
                Reply::More { .. } | Reply::Wait { .. } => {}
                // The poison is gone, or no record is left: the fault determines which.
                _ => return true,
            }
        }
    }
}
