//! Streams: the pages that a stream leaves behind go first.
//!
//! A stream over more than memory uses each of its pages once in a time that memory cannot span. Until such a page has
//! been idle for all that time it cannot be told from one that will be used again soon, and by then it has had
//! another's place for a whole turn of memory: a scan of ten budgets put half of a hot set of half a budget out, again
//! and again. The active list protects pages that have proved themselves before; it does not help a set that is only
//! just becoming one.
//!
//! But two things are known of a stream when it passes. The first is which pages are behind it: the run of faults says
//! so ([`order`](crate::policy::order)). The second is when they were used last: the page that the stream wants now has
//! a shadow, and a stream that goes where it went before needs its neighbours again when it needs this one. So
//!
//! ```text
//!     pages that have come in since  ≥  pages in memory
//! ```
//!
//! says of all of them that memory, were it given by last use alone, would not have kept them until now. The pages
//! behind such a stream are therefore taken for older than all others, as if advice had said that they are cold. Of a
//! loop that is longer than memory this keeps the part that was there first, which is the best that can be kept; a list
//! by last use keeps nothing of it.
//!
//! Pages of a file that come in for the first time have no shadow, but the file has a length: when that is more than
//! memory, a stream over it cannot come round before memory has given its pages up. So it is dropped behind, too. (A
//! first scan of a file of 512 MiB in 64 put out a hot set of half of memory again and again: of its accesses 65 in a
//! hundred hit.) Of a file that is shorter the program may want all to stay.
//!
//! A stream over a file is read ahead, by faults of the driver's own. The program has yet to use what lies between it
//! and such a fault, so what is behind the stream begins as far back as it is read ahead at most. (It once began right
//! behind the fault: where reclaim was faster than the program, it took what had just been read, and the program read
//! it again, page by page.)
//!
//! Pages that are used at random have far shadows too, when a program turns to other data. They say nothing about their
//! neighbours, and the data may stay in use, so these pages are left alone. So is a stream over new memory, which has
//! no shadows, and so are pages that are brought in because advice says that they will be needed. Pages that come one a
//! fault, because no larger window is allowed, are left alone as well: runs are known by their windows.
//!
//! # What a wrong guess costs
//! The program may stay with the pages that the stream has brought (it goes through an array that was long in the
//! store, and then works on it; or it turns round at the end). Then pages come back that would not have left: of an
//! inactive page with a shadow that is near, nothing else can be the reason. So there is an account (`Streams`): pages
//! that pass are credited, up to a quarter of memory, and pages that come back that way are charged fourfold. While the
//! account is overdrawn, only one stretch in sixteen is still dropped, on trial, until twice as much as memory holds
//! has passed without a charge; twice as long after each further failure. At most a memory's worth of pages is read
//! once more before the mistake is known, and after that a sixteenth of the pages that would have been.
//!
//! A page that was used a second time before it left, in limbo, is not touched.
//!
//! # What it costs
//! The cost is a look at as many folios as one fault brings in, with each fault that continues a long run. Linux drops
//! behind a stream only where advice or a file's readahead state say so; its active list is what protects others.

use crate::addr::PageIndex;
use crate::policy::sample::hash;

/// Pages that must have passed on trial after the first failure before all are dropped again, in sizes of memory.
/// [`PROBATION_MOST`] is the most after further failures.
const PROBATION: i64 = 2;
const PROBATION_MOST: i64 = 32;
/// The charge for one page that should have stayed, in pages that passed.
const CHARGE: i64 = 4;
/// On trial one stretch in this many is dropped.
const TRIAL: u32 = 16;
/// Pages of a stretch.
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
    fn streams_that_nobody_turns_back_to_are_dropped() {
        let mut streams = Streams::default();
        assert_eq!(pass(&mut streams, 16_000), 16_000);
        // The account pays for a few errors.
        streams.missed(ROOM / 20, ROOM);
        assert_eq!(pass(&mut streams, 16_000), 16_000);
    }

    #[test]
    fn who_turns_back_is_not_dropped_any_more_but_for_a_sample() {
        let mut streams = Streams::default();
        pass(&mut streams, 16_000);
        // More pages come back than a quarter of memory has paid for.
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
    fn what_comes_back_of_a_sample_makes_the_trial_longer_but_not_for_ever() {
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
