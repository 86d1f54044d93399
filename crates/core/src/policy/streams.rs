//! Streams: the pages that a stream leaves behind leave memory first.
//!
//! A stream over more than memory uses each of its pages once in a period that memory cannot span. Until such a page
//! has been idle for all that time it is indistinguishable from one that will be used again soon, and by then it has
//! occupied another's place for a whole turn of memory: a scan of ten budgets repeatedly evicted half of a hot set of
//! half a budget. The active list protects pages that have proved themselves before; it does not help a set that is
//! only just forming.
//!
//! But two things are known about a passing stream. The first is which pages are behind it: the run of faults shows
//! them ([`order`](crate::policy::order)). The second is when they were used last: the page that the stream now
//! requests has a shadow, and a stream that repeats its path needs that page's neighbours again when it needs the page.
//! So
//!
//! ```text
//!     pages that have come in since  ≥  pages in memory
//! ```
//!
//! means for all of them that memory, managed by last use alone, would not have kept them until now. The pages behind
//! such a stream are therefore treated as older than all others, as if advice had called them cold. In a loop longer
//! than memory this keeps the part that was there first, which is the best that can be kept; a list by last use keeps
//! nothing of the loop.
//!
//! Pages of a file that come in for the first time have no shadow, but the file has a length: if that is more than
//! memory, a stream over it cannot come round before memory has given its pages up. So its pages are also dropped
//! behind it. (A first scan of a file of 512 MiB in 64 repeatedly evicted a hot set of half of memory: 65 in a hundred
//! of its accesses hit.) The program may want all of a shorter file to stay.
//!
//! A stream over a file is read ahead, by the driver's own faults. The program has yet to use the pages between its
//! position and such a fault, so the part behind the stream begins at the maximum distance of reading ahead. (It once
//! began right behind the fault: when reclaim was faster than the program, it took pages that had just been read, and
//! the program read them again, page by page.)
//!
//! Randomly used pages also have far shadows when a program turns to other data. They imply nothing about their
//! neighbours, and the data may stay in use, so these pages are left alone. So is a stream over new memory, which has
//! no shadows, and so are pages that are brought in because advice says that they will be needed. Pages that come in
//! one per fault, because no larger window is allowed, are also left alone: runs are recognized by their windows.
//!
//! # What a wrong guess costs
//! The program may go on using the pages that the stream has brought in (it goes through an array that was long in the
//! store, and then works on it; or it turns round at the end). Then pages come back that would not have left: for an
//! inactive page with a near shadow there can be no other reason. So there is an account (`Streams`): pages that pass
//! are credited, up to a quarter of memory, and pages that come back in this way are charged fourfold. While the
//! account is overdrawn, only one stretch in sixteen is still dropped, on trial, until twice the size of memory has
//! passed without a charge; twice as long after each further failure. At most a memory's worth of pages is read once
//! more before the mistake is detected, and after that a sixteenth of the pages that would have been.
//!
//! A page that was used a second time before it left, in limbo, is not touched.
//!
//! # What it costs
//! With each fault that continues a long run, as many folios are examined as one fault brings in. Linux drops pages
//! behind a stream only if advice or a file's readahead state says so; its active list protects the other pages.

use crate::addr::PageIndex;
use crate::policy::sample::hash;

/// Pages that must pass on trial after the first failure before all are dropped again, in sizes of memory.
/// [`PROBATION_MOST`] is the maximum after further failures.
const PROBATION: i64 = 2;
const PROBATION_MOST: i64 = 32;
/// The charge for one page that should have stayed, in pages that passed.
const CHARGE: i64 = 4;
/// On trial one stretch in this many is dropped.
const TRIAL: u32 = 16;
/// Number of pages in a stretch.
const STRETCH: u32 = 64;

/// The account of one lruvec, in pages.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Streams {
    /// Pages that passed, less the charges for pages that should have stayed. Below zero there is a trial.
    balance: i64,
    /// How far below zero the last failure went, in sizes of memory. The next one goes twice as far.
    probation: i64,
    /// Pages that have passed without a failure. When they are `probation` sizes of memory, `probation` is halved.
    proved: i64,
}

impl Streams {
    /// Notes that a stream passes with `pages` pages from `at` on, in a memory of `room`. Returns whether the pages
    /// behind them should be dropped.
    pub(crate) fn passed(&mut self, at: PageIndex, pages: u32, room: u32) -> bool {
        let (pages, room) = (i64::from(pages), i64::from(room));
        if self.balance >= 0 {
            self.proved += pages;
            if self.proved >= self.probation * room {
                self.proved = 0;
                self.probation /= 2;
            }
        }
        self.balance = (self.balance + pages).min(room / 4);
        self.balance >= 0 || hash(at.0 / STRETCH).is_multiple_of(TRIAL)
    }

    /// Notes that pages came back that memory would have kept, had they not been dropped.
    pub(crate) fn missed(&mut self, pages: u32, room: u32) {
        let (charge, room) = (CHARGE * i64::from(pages), i64::from(room));
        if self.balance < 0 {
            let charge = i64::from(TRIAL) * charge;
            self.balance = (self.balance - charge).max(-PROBATION_MOST * room);
            return;
        }
        self.balance -= charge;
        if self.balance < 0 {
            self.probation = (2 * self.probation).clamp(PROBATION, PROBATION_MOST);
            self.balance = -self.probation * room;
            self.proved = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOM: u32 = 1600;

    /// Passes `pages` pages in eights, and returns how many of them are dropped.
    fn pass(streams: &mut Streams, pages: u32) -> u32 {
        let eights = (0..pages).step_by(8);
        8 * eights
            .filter(|&at| streams.passed(PageIndex(at), 8, ROOM))
            .count() as u32
    }

    #[test]
    fn pages_behind_streams_without_refaults_are_dropped() {
        let mut streams = Streams::default();
        assert_eq!(pass(&mut streams, 16_000), 16_000);
        // The account pays for a few errors.
        streams.missed(ROOM / 20, ROOM);
        assert_eq!(pass(&mut streams, 16_000), 16_000);
    }

    #[test]
    fn after_refaults_only_a_sample_is_dropped_behind_streams() {
        let mut streams = Streams::default();
        pass(&mut streams, 16_000);
        // More pages come back than a quarter of memory pays for.
        streams.missed(ROOM / 16, ROOM);
        streams.missed(1, ROOM);
        let trial = pass(&mut streams, 2 * ROOM);
        assert!(trial > 0 && trial < ROOM / 2, "{trial}");
        // The trial ends when nothing comes back for as long.
        assert_eq!(pass(&mut streams, ROOM), ROOM);
        // After another failure it takes twice as long.
        streams.missed(ROOM, ROOM);
        let trial = pass(&mut streams, 4 * ROOM);
        assert!(trial < ROOM, "{trial}");
        assert_eq!(pass(&mut streams, ROOM), ROOM);
    }

    #[test]
    fn refaults_of_the_sample_lengthen_the_trial_up_to_a_limit() {
        let mut streams = Streams::default();
        streams.missed(1, ROOM);
        for _ in 0..100 {
            streams.missed(ROOM, ROOM);
        }
        let most = PROBATION_MOST as u32 * ROOM;
        pass(&mut streams, most);
        assert_eq!(pass(&mut streams, 800), 800);
    }
}
