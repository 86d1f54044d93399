//! Where new huge pages are made: a few slots of 2 MiB of ordinary memory that no other code knows about.
//!
//! The kernel gives a huge page to a fault in an empty, aligned range that may have one. Neither the arena nor the
//! pool can have such faults, because userfaultfd stops them. So the page is made here, by a fault of our own, and
//! moved to its destination; moving an entry of 2 MiB costs as much as moving one of 4 KiB.
//!
//! A caller owns a slot for the time of one move. It takes the slot by setting a bit, and never waits: a caller that
//! finds no free slot does without a huge page. An idle slot is empty and has no page table, or the next fault there
//! would get a small page. Moving out a whole huge page leaves the slot in that state. After anything else the slot
//! is mapped anew, which frees the table on every kernel (`MADV_DONTNEED` only does so from Linux 6.14 on, and only
//! on some machines).
//!
//! Like arena and pool, slots are inherited only by children of an announced fork. A child that shared a slot's page
//! would keep that page from being moved, and any thread can fork at any moment.
//!
//! *When the kernel has no huge pages to give.* Huge pages can be forbidden for the machine or the process, and
//! memory can be fragmented. We do not check beforehand: there are many settings, and they say nothing about
//! fragmentation. A failed attempt costs some 10 µs, next to 370 for the copy that replaces it, but if the kernel may
//! compact memory for a fault (`defrag`), it can cost milliseconds. So after each consecutive failure twice as many
//! requests are refused at once, up to 255, and one success ends that.
//!
//! *When huge pages are expensive.* In a virtual machine the kernel's free memory may be memory that the host has
//! reclaimed. Then clearing a huge page takes 4 ms instead of the usual 0.1, because the host supplies it page by
//! page. Small pages come from memory that was freed a moment ago and cost 0.4 ms for the same amount. A page that
//! took longer than that is used, and counts as several consecutive failures, because the next would be just as slow:
//! a stream of 512 MiB then asks five times instead of 256. But one slow page among many quick ones is no such sign,
//! and refusing requests for it would cost more than the page did. So we keep an account of the time that huge pages
//! have saved, and a slow page that it covers has no consequences.
//!
//! A stream finds its pages already made if another processor had the time (see [`ahead`]).

mod ahead;

use core::ffi::c_void;
use core::mem::ManuallyDrop;
use core::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::fd::BorrowedFd;
use rustix::io::Errno;
use rustix::mm::{Advice, madvise};

use millpond_core::PAGE_SIZE;

use crate::error::MmuError;
use crate::reservation::{HUGE, Reservation};
use crate::sys::pagemap;
use ahead::Ahead;

/// Number of slots, and so of callers that can have one at the same time. Each is used for the time of a fault; more
/// slots than processors would not help.
const SLOTS: u32 = 16;
/// The maximum number of consecutive failures counted: the longest rest is 2 to this power, minus one.
const STRIKES: u32 = 8;
/// The minimum number of failures that a slow page counts as.
const SLOW_STRIKES: u32 = 4;
/// The maximum of the account of saved time: quick pages of long ago say little about the next one.
const SAVED_MOST: Duration = Duration::from_millis(8);

pub(crate) struct Staging {
    memory: Reservation,
    /// One bit for each taken slot.
    taken: AtomicU32,
    /// Number of consecutive failures.
    strikes: AtomicU32,
    /// Number of requests still to be refused.
    resting: AtomicU32,
    /// A page that takes longer than this is slow: twice the time of small pages.
    within: Duration,
    /// Whether the last page took long in wall-clock time. If so, the next is also timed in processor time.
    suspect: AtomicBool,
    /// Nanoseconds that huge pages have saved.
    saved: AtomicI64,
    ahead: Ahead,
}

impl Staging {
    /// Reserves the slots. A page that takes longer than `within` is slow. Returns `None` if the kernel has no huge
    /// pages, or would split each one that arrives, because a fault leaves an empty page table at its leaf.
    pub(crate) fn new(within: Duration, pagemap: BorrowedFd<'_>) -> Result<Option<Self>, MmuError> {
        if offer(Advice::LinuxPopulateRead, pagemap) == Ok(Offer::Once) {
            return Ok(None);
        }
        let memory = Reservation::new("huge pages' slots", SLOTS as usize * HUGE)?;
        let usable = memory.renew_huge(memory.base(), memory.len()).is_ok();
        Ok(usable.then_some(Self {
            memory,
            taken: AtomicU32::new(0),
            strikes: AtomicU32::new(0),
            resting: AtomicU32::new(0),
            within,
            suspect: AtomicBool::new(false),
            saved: AtomicI64::new(0),
            ahead: Ahead::new(),
        }))
    }

    pub(crate) fn memory(&self) -> &Reservation {
        &self.memory
    }

    /// Returns a slot with a new page of zeros at its start. If the kernel had a huge page, the whole slot is one
    /// page; the caller finds that out. Returns `None` if all slots are taken, during the rest after failures, or if
    /// there is no memory.
    pub(crate) fn page(&self) -> Option<Slot<'_>> {
        if let Some(ready) = self.ready_page() {
            return Some(ready);
        }
        let less = |n: u32| n.checked_sub(1);
        if self
            .resting
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, less)
            .is_ok()
        {
            return None;
        }
        self.new_page()
    }

    fn addr_of(&self, index: u32) -> usize {
        self.memory.base() + index as usize * HUGE
    }

    fn new_page(&self) -> Option<Slot<'_>> {
        let mut slot = self.take()?;
        let suspect = self.suspect.load(Ordering::Relaxed);
        let since = (Instant::now(), suspect.then(processor_time));
        // SAFETY: the slot is ours and empty; writing to its first page makes the kernel give it a huge one.
        let page = unsafe {
            madvise(
                slot.addr() as *mut c_void,
                PAGE_SIZE,
                Advice::LinuxPopulateWrite,
            )
        };
        let took = since.0.elapsed();
        self.suspect.store(took > self.within, Ordering::Relaxed);
        slot.took = match since.1 {
            Some(since) if took > self.within => processor_time().saturating_sub(since),
            _ => took.min(self.within),
        };
        page.is_ok().then_some(slot)
    }

    fn take(&self) -> Option<Slot<'_>> {
        let free = |taken: u32| {
            let index = taken.trailing_ones();
            (index < SLOTS).then_some(taken | 1 << index)
        };
        let before = self
            .taken
            .fetch_update(Ordering::Acquire, Ordering::Relaxed, free)
            .ok()?;
        Some(Slot {
            staging: self,
            index: before.trailing_ones(),
            took: Duration::ZERO,
        })
    }

    /// Enters into the account that a page took this long. Returns whether the account covers that.
    fn afford(&self, took: Duration) -> bool {
        let nanos = |time: Duration| i64::try_from(time.as_nanos()).unwrap_or(i64::MAX);
        let more = nanos(self.within / 2).saturating_sub(nanos(took));
        let sum = |saved: i64| saved.saturating_add(more).min(nanos(SAVED_MOST));
        let settle = |saved: i64| Some(sum(saved).max(0));
        let before = self
            .saved
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, settle);
        before.is_ok_and(|saved| sum(saved) >= 0)
    }

    /// Counts one more consecutive failure, or `strikes` failures if that is more.
    fn strike(&self, strikes: u32) {
        let strikes = (self.strikes.load(Ordering::Relaxed) + 1).clamp(strikes, STRIKES);
        self.strikes.store(strikes, Ordering::Relaxed);
        self.resting.store((1 << strikes) - 1, Ordering::Relaxed);
    }

    fn give_back(&self, index: u32) {
        self.taken.fetch_and(!(1 << index), Ordering::Release);
    }
}

/// One slot, owned until its page is [`gone`](Self::gone). Dropping the slot before that means that it was useless:
/// its contents are lost, and the next requests are refused.
pub(crate) struct Slot<'a> {
    staging: &'a Staging,
    index: u32,
    /// Processor time that the page took.
    took: Duration,
}

impl Slot<'_> {
    pub(crate) fn addr(&self) -> usize {
        self.staging.addr_of(self.index)
    }

    /// Notes that the slot's page was moved away as a whole.
    pub(crate) fn gone(self) {
        let this = ManuallyDrop::new(self);
        let slow = this.took > this.staging.within;
        if !this.staging.afford(this.took) && slow {
            this.staging.strike(SLOW_STRIKES);
        } else if this.staging.strikes.load(Ordering::Relaxed) > 0 {
            this.staging.strikes.store(0, Ordering::Relaxed);
        }
        this.staging.give_back(this.index);
    }

    /// Keeps the slot taken, with its page.
    fn keep(self) -> u32 {
        ManuallyDrop::new(self).index
    }
}

impl Drop for Slot<'_> {
    fn drop(&mut self) {
        self.staging.strike(1);
        self.staging.renew(self.index);
    }
}

/// Returns the processor time that this thread has used: on a busy machine, elapsed time says little about a page.
/// Asking costs a system call, so a page is first timed by the wall clock, and processor time is only used after a
/// page that was slow by that clock.
#[must_use]
pub fn processor_time() -> Duration {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the call writes to `time`, which is ours. It is safe in a signal handler.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// How the kernel responds to requests for huge pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Offer {
    /// The kernel never gives any.
    Nothing,
    /// The kernel only gives huge pages where there was nothing before.
    Once,
    /// The kernel also gives huge pages in place of small pages that were dropped: it frees empty page tables.
    Always,
}

/// Requests two huge pages in a mapping made for the purpose, by populating it for reads or for writes. A read gets
/// the kernel's single huge page of zeros, under the same rules as a page of its own. No 2 MiB have to be found and
/// cleared, and a starting process has better things to do. But a read does not show whether such pages are free.
pub(crate) fn offer(by: Advice, pagemap: BorrowedFd<'_>) -> Result<Offer, Errno> {
    let memory = Reservation::new("huge page to try", HUGE).map_err(|_| Errno::NOMEM)?;
    let (start, end) = (memory.base(), memory.base() + HUGE);
    // SAFETY: the mapping belongs to this function, and its contents do not matter.
    let advise = |len, advice| unsafe { madvise(start as *mut c_void, len, advice) };
    let touch = || -> Result<bool, Errno> {
        advise(PAGE_SIZE, by)?;
        Ok(pagemap::huge_bytes(pagemap, start, end)? == HUGE)
    };
    match memory.renew_huge(start, HUGE) {
        Err(Errno::INVAL) => return Ok(Offer::Nothing),
        other => other?,
    }
    if !touch()? {
        return Ok(Offer::Nothing);
    }
    advise(HUGE, Advice::LinuxDontNeed)?;
    advise(HUGE, Advice::LinuxNoHugepage)?;
    touch()?;
    advise(HUGE, Advice::LinuxDontNeed)?;
    advise(HUGE, Advice::LinuxHugepage)?;
    Ok(if touch()? { Offer::Always } else { Offer::Once })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fd::AsFd;

    const WITHIN: Duration = Duration::from_micros(800);

    /// Makes slots where a page that takes longer than `within` is slow. Returns `None` if there are no huge pages to
    /// test with.
    pub(super) fn staging(within: Duration) -> Option<Staging> {
        let pagemap = pagemap::open().unwrap();
        let staging = Staging::new(within, pagemap.as_fd()).unwrap();
        if staging.is_none() {
            eprintln!("skipped: the kernel has no huge pages");
        }
        staging
    }

    #[test]
    fn reads_and_writes_detect_huge_pages_alike() {
        let pagemap = pagemap::open().unwrap();
        let by_write = offer(Advice::LinuxPopulateWrite, pagemap.as_fd()).unwrap();
        if by_write == Offer::Nothing {
            eprintln!("skipped: the kernel has no huge pages");
            return;
        }
        let by_read = offer(Advice::LinuxPopulateRead, pagemap.as_fd());
        assert_eq!(by_read, Ok(by_write));
    }

    #[test]
    fn each_caller_gets_its_own_slot_without_waiting() {
        let Some(staging) = staging(Duration::MAX) else {
            return;
        };
        let slots: Vec<_> = (0..SLOTS).map(|_| staging.page().unwrap()).collect();
        for (n, slot) in slots.iter().enumerate() {
            assert_eq!(slot.addr(), staging.memory.base() + n * HUGE);
        }
        assert!(staging.page().is_none());
        for slot in slots {
            slot.gone();
        }
        assert!(staging.page().is_some());
    }

    #[test]
    fn a_slow_page_is_followed_by_a_long_rest() {
        let Some(staging) = staging(WITHIN) else {
            return;
        };
        for rest in [15, 31, 63, 127, 255, 255] {
            let mut slot = staging.page().unwrap();
            slot.took = 2 * WITHIN;
            slot.gone();
            for n in 0..rest {
                assert!(staging.page().is_none(), "{n} of {rest}");
            }
        }
        staging.page().unwrap().gone();
        assert!(staging.page().is_some());
    }

    /// Guards against a gigabyte of first touches in which one page in a hundred was slow, and made the kernel give
    /// small pages for fifteen others.
    #[test]
    fn a_slow_page_among_quick_ones_has_no_consequences() {
        let Some(staging) = staging(WITHIN) else {
            return;
        };
        let page = |took| {
            let mut slot = staging.page()?;
            slot.took = took;
            slot.gone();
            Some(())
        };
        for _ in 0..1000 {
            page(WITHIN / 4).unwrap();
        }
        // The account holds 8 ms, ten times as long as a page may take; each slow page uses one and a half times
        // that.
        for n in 0..5 {
            assert!(page(2 * WITHIN).is_some(), "slow page {n}");
        }
        assert!(page(10 * WITHIN).is_some());
        assert!(page(WITHIN / 4).is_none(), "that was too much");
    }

    #[test]
    fn failures_lengthen_the_rest_and_a_success_ends_it() {
        let Some(staging) = staging(Duration::MAX) else {
            return;
        };
        for rest in [1, 3, 7, 15, 31, 63, 127, 255, 255] {
            drop(staging.page().unwrap());
            for n in 0..rest {
                assert!(staging.page().is_none(), "{n} of {rest}");
            }
        }
        let slot = staging.page().unwrap();
        // SAFETY: the slot is mapped and belongs to this test. It was mapped anew, so nothing is left of earlier
        // pages.
        unsafe { assert_eq!((slot.addr() as *const u8).read(), 0) };
        slot.gone();
        staging.page().unwrap().gone();
        drop(staging.page().unwrap());
        assert!(staging.page().is_none());
        assert!(staging.page().is_some());
    }
}
