//! Huge pages made ahead of need.
//!
//! When a stream of touches gets 2 MiB of new memory, three quarters of the cost is the kernel's clearing. None of
//! that depends on where the page will end up, so another thread can do it on another processor while the program
//! uses the previous page. The page stays in its slot, *ready*, and the fault that needs it only has to move it.
//!
//! *How many.* No page is made ready until the third request of a period shows that there is a stream. From then on,
//! each request that finds no page ready doubles the wanted number, up to [`MOST`]. More would just sit there: a
//! program that writes to its memory takes longer for 2 MiB than the kernel takes to clear them, and one that does
//! not write would use up any number. A period without requests ends the stream.
//!
//! Ready pages are memory that nobody uses yet. A caller with a budget counts them ([`Staging::ready`]) and asks for
//! them only where there is room.

use super::{SLOTS, Slot, Staging};
use crate::reservation::HUGE;
use core::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// The maximum number of ready pages.
const MOST: u32 = 4;
/// The number of requests in a period that make a stream.
const STREAM: u32 = 3;

/// The ready pages, and how many are wanted.
pub(super) struct Ahead {
    /// One bit for each slot with a ready page; such a slot is taken.
    ready: AtomicU32,
    /// Microseconds that the page in each slot took.
    took: [AtomicU32; SLOTS as usize],
    /// Number of requests in this period.
    asked: AtomicU32,
    /// Number of pages that should be ready.
    wanted: AtomicU32,
}

impl Ahead {
    pub(super) fn new() -> Self {
        Self {
            ready: AtomicU32::new(0),
            took: [const { AtomicU32::new(0) }; SLOTS as usize],
            asked: AtomicU32::new(0),
            wanted: AtomicU32::new(0),
        }
    }

    /// Takes a ready page. Returns its slot.
    fn take(&self) -> Option<u32> {
        let without_first = |ready: u32| (ready != 0).then(|| ready & (ready - 1));
        let before = self
            .ready
            .fetch_update(Ordering::Acquire, Ordering::Relaxed, without_first);
        before.ok().map(u32::trailing_zeros)
    }
}

impl Staging {
    /// Returns a ready page for a request, if there is one.
    pub(super) fn ready_page(&self) -> Option<Slot<'_>> {
        let ahead = &self.ahead;
        let asked = ahead.asked.fetch_add(1, Ordering::Relaxed) + 1;
        let Some(index) = ahead.take() else {
            if asked >= STREAM {
                let more = (2 * ahead.wanted.load(Ordering::Relaxed)).clamp(1, MOST);
                ahead.wanted.store(more, Ordering::Relaxed);
            }
            return None;
        };
        let took = ahead.took[index as usize].load(Ordering::Relaxed);
        Some(Slot {
            staging: self,
            index,
            took: Duration::from_micros(took.into()),
        })
    }

    /// Returns the number of ready pages.
    pub(crate) fn ready(&self) -> u32 {
        self.ahead.ready.load(Ordering::Relaxed).count_ones()
    }

    /// Whether more pages should be made ready now. Returns false while requests are refused: otherwise each fault
    /// would wake a thread that can do nothing.
    pub(crate) fn wants_ready(&self) -> bool {
        self.ready() < self.ahead.wanted.load(Ordering::Relaxed)
            && self.resting.load(Ordering::Relaxed) == 0
    }

    /// Makes one more page ready. Returns false if none is wanted, or none is available now.
    pub(crate) fn make_ready(&self) -> bool {
        if !self.wants_ready() {
            return false;
        }
        let Some(slot) = self.new_page() else {
            return false;
        };
        let micros = u32::try_from(slot.took.as_micros()).unwrap_or(u32::MAX);
        self.ahead.took[slot.index as usize].store(micros, Ordering::Relaxed);
        let index = slot.keep();
        self.ahead.ready.fetch_or(1 << index, Ordering::Release);
        true
    }

    /// Frees all ready pages.
    pub(crate) fn drop_ready(&self) {
        while let Some(index) = self.ahead.take() {
            self.renew(index);
        }
    }

    /// Ends a period. A period without a request ends the stream, and the ready pages are freed.
    pub(crate) fn end_period(&self) {
        if self.ahead.asked.swap(0, Ordering::Relaxed) == 0 {
            self.ahead.wanted.store(0, Ordering::Relaxed);
            self.drop_ready();
        }
    }

    /// Maps a slot anew and returns it. A slot that cannot be mapped anew stays taken for good.
    pub(super) fn renew(&self, index: u32) {
        if self.memory.renew_huge(self.addr_of(index), HUGE).is_ok() {
            self.give_back(index);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn staging() -> Option<Staging> {
        crate::staging::tests::staging(Duration::MAX)
    }

    fn ask(staging: &Staging) {
        staging.page().unwrap().gone();
    }

    #[test]
    fn pages_are_prepared_only_for_a_stream() {
        let Some(staging) = staging() else { return };
        ask(&staging);
        ask(&staging);
        assert!(!staging.make_ready(), "two requests are no stream");
        ask(&staging);
        assert!(staging.make_ready());
        assert!(!staging.make_ready(), "one is wanted");
        assert_eq!(staging.ready(), 1);
        ask(&staging);
        assert_eq!(staging.ready(), 0, "the request took it");
        for most in [2, MOST, MOST] {
            ask(&staging);
            while staging.make_ready() {}
            assert_eq!(staging.ready(), most);
            while staging.ready() > 0 {
                ask(&staging);
            }
        }
    }

    #[test]
    fn a_period_without_requests_gives_all_prepared_pages_back() {
        let Some(staging) = staging() else { return };
        for _ in 0..4 {
            ask(&staging);
        }
        while staging.make_ready() {}
        assert!(staging.ready() > 0);
        staging.end_period();
        assert!(staging.ready() > 0, "there were requests");
        staging.end_period();
        assert_eq!(staging.ready(), 0);
        assert!(!staging.make_ready());
        let all: Vec<_> = (0..SLOTS).map(|_| staging.page().unwrap()).collect();
        all.into_iter().for_each(Slot::gone);
    }

    /// Guards against a bug with a stream that had filled a gigabyte: it wanted four pages, and the last of them had
    /// been slow, so no page could be made for the rest of the period. Each fault woke the background thread just to
    /// find that out, at half the cost of a snapshot's pages.
    #[test]
    fn no_pages_are_prepared_while_requests_are_refused() {
        let Some(staging) = staging() else { return };
        (0..STREAM).for_each(|_| ask(&staging));
        assert!(staging.wants_ready());
        drop(staging.page());
        assert!(!staging.wants_ready(), "the next request is refused");
        assert!(!staging.make_ready());
        assert!(staging.page().is_none());
        assert!(staging.wants_ready(), "and the one after it is not");
        assert!(staging.make_ready());
    }

    /// A ready page, which the kernel made and nobody has used, contains zeros, even after it was once given back.
    #[test]
    fn prepared_pages_hold_zeros() {
        let Some(staging) = staging() else { return };
        for round in 0..3 {
            for _ in 0..STREAM {
                ask(&staging);
            }
            assert!(staging.make_ready(), "round {round}");
            let slot = staging.page().unwrap();
            // SAFETY: the slot is mapped and this test's own; its first byte is present.
            unsafe {
                let first = slot.addr() as *mut u8;
                assert_eq!(first.read(), 0);
                first.write(1);
            }
            // The page was not moved away, so it is mapped anew, and one request is refused.
            drop(slot);
            assert!(staging.page().is_none());
            staging.end_period();
            staging.end_period();
        }
    }
}
