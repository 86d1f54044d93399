//! Reading ahead of a stream over a file: several reads are in flight while the program works on the pages that it has.
//!
//! A fault reads its window and waits for it, so a stream that only faults has one read in flight, and none while the
//! program works. A device that answers several requests at a time then delivers a third of its rate. So a fault that
//! has read a large folio in sequence, upwards, requests that the pages after it be read, too. Our threads read them by
//! the same faults that the program would take, so the order policy, reclaim and the rules for streams see the same as
//! without these threads.
//!
//! ```text
//!      the program            readers, each with one read in flight         not asked for
//!   ───────▶│ in memory │ reading │ reading │ reading │ asked for │ . . . . . . . . . . . .
//!          come          next                                    end
//! ```
//!
//! - *How far.* Up to four windows, and at most an eighth of memory: this is a guess like the window itself, and grows
//!   with it.
//! - *How a stream continues.* A program that is faster than the device reaches a page that is being read, and waits:
//!   that fault shows how far the stream has come, and advances the end. A program that is slower than the device finds
//!   all requested pages in memory, and its next fault reads one window by itself. Between two such faults lie four
//!   windows, so it waits for at most a fifth of the reads. (The kernel marks a page in the middle of the pages that it
//!   has read ahead. User space learns of no touches except faults.)
//! - *Who reads.* The threads start with the first file of a manager, because a fault may not allocate. A program
//!   without files has none of them. They are outside the gate between two pieces, so a snapshot or a move waits for at
//!   most 2 MiB. If the kernel gives them rings, each has several parts of its piece in flight
//!   (`store/src/mapped/stream_reads.rs`).
//! - *In which order.* A reader takes its piece once the core has decided what comes in for all of the previous piece,
//!   so that each reader continues the run of the last one. (Without that, most pieces began a run of their own, of one
//!   page, two, four. The program overtook its readers and read nine tenths of a file by itself.)
//! - *A region that ends* removes its streams and waits for the readers, as for prefetches (`prefetch.rs`).
//!
//! If the guess is wrong, a stream that ends has read four windows in vain. They are the first to leave, as the stream
//! has passed them.

use crate::driver::Driver;
use crate::memory::Memory;
use crate::panics::Ours;
use crate::signals::SignalsBlocked;
use crate::state::read_ahead::READERS;
use millpond_core::limits::{LARGE, READ_AHEAD_WINDOWS};
use millpond_core::{LEAF_PAGES, PageCount, PageIndex, PageRange, PageState};
use millpond_sync::OwnThread;
use std::sync::Arc;

/// Starts the threads that read ahead for `driver`, if there are none yet. Each calls `begin` and keeps the result,
/// which its reads need, until it ends. If the system cannot make threads, files are read with fewer, or only by
/// faults.
pub fn start<M: Memory, Kept: 'static>(driver: &Arc<Driver<M>>, begin: fn() -> Kept) {
    let _quiet = SignalsBlocked::new();
    if driver.read_ahead.start() {
        return;
    }
    let start = |number| {
        let worker = Arc::clone(driver);
        OwnThread::start(c"millpond-read", move || {
            let _ours = Ours::enter();
            let _kept = begin();
            while let Some(piece) = worker.read_ahead.next(number) {
                worker.read_piece(number, piece);
                worker.read_ahead.let_go(number);
            }
        })
    };
    let threads: Vec<_> = (0..READERS)
        .map_while(|number| start(number).ok())
        .collect();
    driver.read_ahead.lock().threads = threads;
}

impl<M: Memory> Driver<M> {
    /// Notes that a fault at `page` has read `read`, or that the page was on its way. A stream is read ahead. For
    /// threads inside the gate, without the core's lock.
    pub(crate) fn read_on(&self, page: PageIndex, read: Option<PageRange>) {
        if !self.read_ahead.has_readers() {
            return;
        }
        let (from, window) = match read {
            Some(read) if read.start != page || read.len < LARGE.pages() => return,
            Some(read) => (
                read.end(),
                Some(read.len.0.next_power_of_two().min(LEAF_PAGES)),
            ),
            None if self.read_ahead.covers(page) => (page, None),
            None => return,
        };
        let Some(region) = self.files.region_of(page) else {
            return;
        };
        let most = self.lock().read_ahead_most().0;
        let ahead = (READ_AHEAD_WINDOWS * window.unwrap_or(LEAF_PAGES)).min(most);
        let end = PageIndex((from.0 + ahead).min(region.end().0));
        self.read_ahead.ask(page, from.min(end), end, window);
    }

    /// Brings in the absent pages of a piece of a stream, until the piece is called off.
    fn read_piece(&self, number: usize, piece: PageRange) {
        let _quiet = SignalsBlocked::new();
        let _inside = self.gate.enter();
        let mut rest = piece;
        while rest.len > PageCount::ZERO && !self.read_ahead.is_called_off(number) {
            if self.is_short_of_store() {
                return;
            }
            let Some(page) = self.first_absent(rest) else {
                return;
            };
            let decided = || {
                if self.first_absent(rest).is_none() {
                    self.read_ahead.decided(number);
                }
            };
            // A page that cannot be read is reported to the thread that touches it.
            let _ = self.fault_in_and_say(page, &decided);
            rest = rest.tail(page.plus(1));
        }
    }

    /// Whether memory is short, and the store or files that would make room accept nothing.
    fn is_short_of_store(&self) -> bool {
        let core = self.lock();
        let blocked = core.store_blocked() || core.files_blocked();
        blocked && core.available().0 < LEAF_PAGES
    }

    /// The first page of a range that is neither in memory nor on its way.
    fn first_absent(&self, range: PageRange) -> Option<PageIndex> {
        let core = self.lock();
        let is_absent = |page: &PageIndex| {
            matches!(
                core.page_state(*page),
                PageState::Empty | PageState::Swapped
            )
        };
        range.pages().find(is_absent)
    }

    /// Ends the threads after they have released their pieces.
    pub(crate) fn stop_reading_ahead(&self) {
        for thread in self.read_ahead.stop() {
            thread.join();
        }
    }
}
