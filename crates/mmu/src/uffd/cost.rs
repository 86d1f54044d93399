//! Chooses between moving and copying a frame, based on costs measured at run time.
//!
//! A frame can be mapped by moving its pages or by copying its bytes. Moving a page clears a page-table entry that
//! another processor may have cached, so the kernel interrupts every processor that runs the process: about 10 µs if
//! there is one, nothing if there is none. Copying never does that, but costs 0.2 µs per KiB:
//!
//! | µs, alone/with another thread running | 4 KiB | 16 KiB | 64 KiB | 2 MiB |
//! | --- | --- | --- | --- | --- |
//! | move | 0.8/10 | 1.1/10.3 | 2.5/12 | 39/50 |
//! | copy | 0.9/0.9 | 2.6/2.7 | 12.5/12.5 | 371/389 |
//!
//! So the break-even is between 4 and 64 KiB and depends on the machine and on whether other threads are running. No
//! fixed table would be right everywhere; a moving average for each order is. Every eighth decision is timed, and
//! every sixty-fourth takes the method that looks worse, to detect changes. If that method costs several times as
//! much, it is tried as many times less often, down to every 1,024th decision: a trial is a slower fault, and one in
//! sixty-four of these would make up all of the slowest hundredth. A copy leaves a populated frame behind, which must
//! be given back some day: its cost, measured where frames are freed, is added to the copy's.
//!
//! Folios of 2 MiB are not measured and always moved. A huge page moves in 1 µs and 512 small pages in 47. No
//! shootdown is expensive enough to make a copy of 370 µs the better way; trying one each sixty-fourth time would
//! cost more than all the moves in between, and would break a huge page into small ones. Only a move that has to
//! split a huge page takes as long as a copy (410 µs). We do what we can to prevent that beforehand (`huge.rs`), and
//! an average of both kinds would describe neither.
//!
//! When the guess is wrong, the loss is a few microseconds per fault until the next sixty-four decisions are over,
//! and never correctness. A sample taken while the thread was preempted would distort the average, so a sample counts
//! as at most four times the present average.

use core::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use millpond_core::Order;

/// One in this many decisions is timed.
const TIMED: u32 = 8;
/// One in this many decisions tries the other method, if that does not cost more.
const EXPLORED: u32 = 64;
/// The maximum factor for `EXPLORED` when the other method costs more.
const RARER: u32 = 16;
/// The divisor of an average: the past counts 7/8, a sample 1/8.
const PAST: u32 = 8;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Method {
    Move,
    Copy,
}

/// The method to use now, and whether to time it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Choice {
    pub(super) method: Method,
    pub(super) timed: bool,
}

/// Averages in nanoseconds, 0 while unknown. Concurrent updates may lose a sample, which does not matter.
pub(super) struct Costs {
    orders: [PerOrder; 10],
    free_page: AtomicU32,
}

struct PerOrder {
    decisions: AtomicU32,
    move_ns: AtomicU32,
    copy_ns: AtomicU32,
}

impl Costs {
    pub(super) fn new() -> Self {
        let fresh = |_| PerOrder {
            decisions: AtomicU32::new(0),
            move_ns: AtomicU32::new(0),
            copy_ns: AtomicU32::new(0),
        };
        Self {
            orders: [0; 10].map(fresh),
            free_page: AtomicU32::new(0),
        }
    }

    /// Chooses the method for the next frame of this order.
    pub(super) fn choose(&self, order: Order) -> Choice {
        if order == Order::MAX {
            return Choice {
                method: Method::Move,
                timed: false,
            };
        }
        let one = &self.orders[usize::from(order.get())];
        let n = one.decisions.fetch_add(1, Ordering::Relaxed);
        let moving = one.move_ns.load(Ordering::Relaxed);
        let copying = one.copy_ns.load(Ordering::Relaxed);
        if moving == 0 {
            return Choice {
                method: Method::Move,
                timed: true,
            };
        }
        if copying == 0 {
            return Choice {
                method: Method::Copy,
                timed: true,
            };
        }
        let freeing = self
            .free_page
            .load(Ordering::Relaxed)
            .saturating_mul(order.pages().0);
        let copying = copying.saturating_add(freeing);
        let (cheaper, other, times) = if moving <= copying {
            (Method::Move, Method::Copy, copying / moving)
        } else {
            (Method::Copy, Method::Move, moving / copying)
        };
        let explore = n.is_multiple_of(EXPLORED * times.clamp(1, RARER));
        Choice {
            method: if explore { other } else { cheaper },
            timed: explore || n.is_multiple_of(TIMED),
        }
    }

    /// Notes that the method took from `since` until now for a frame of this order.
    pub(super) fn took(&self, order: Order, method: Method, since: Instant) {
        let one = &self.orders[usize::from(order.get())];
        let average = if method == Method::Move {
            &one.move_ns
        } else {
            &one.copy_ns
        };
        update(average, nanos(since));
    }

    /// Notes that freeing `pages` pages of frames took from `since` until now.
    pub(super) fn freed(&self, pages: u32, since: Instant) {
        if let Some(each) = nanos(since).checked_div(pages) {
            update(&self.free_page, each);
        }
    }
}

fn nanos(since: Instant) -> u32 {
    u32::try_from(since.elapsed().as_nanos()).unwrap_or(u32::MAX)
}

fn update(average: &AtomicU32, sample: u32) {
    let old = average.load(Ordering::Relaxed);
    let new = if old == 0 {
        sample.max(1)
    } else {
        let sample = sample.min(old.saturating_mul(4));
        (old - old / PAST)
            .saturating_add(sample.div_ceil(PAST))
            .max(1)
    };
    average.store(new, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settle(costs: &Costs, order: Order, move_ns: u32, copy_ns: u32) -> u32 {
        let one = &costs.orders[usize::from(order.get())];
        let mut moves = 0;
        for _ in 0..1000 {
            let choice = costs.choose(order);
            let (average, ns) = match choice.method {
                Method::Move => (&one.move_ns, move_ns),
                Method::Copy => (&one.copy_ns, copy_ns),
            };
            moves += u32::from(choice.method == Method::Move);
            if choice.timed {
                update(average, ns);
            }
        }
        moves
    }

    #[test]
    fn the_cheaper_method_is_chosen_and_the_other_still_tried() {
        let costs = Costs::new();
        let moves = settle(&costs, Order::ZERO, 10_000, 900);
        assert!((1..=30).contains(&moves), "{moves} moves");
    }

    #[test]
    fn a_change_of_costs_switches_the_method() {
        let costs = Costs::new();
        settle(&costs, Order::ZERO, 10_000, 2_000);
        for _ in 0..5 {
            settle(&costs, Order::ZERO, 800, 2_000);
        }
        assert!(settle(&costs, Order::ZERO, 800, 2_000) > 900);
    }

    #[test]
    fn two_mib_are_always_moved_and_never_timed() {
        let costs = Costs::new();
        assert_eq!(settle(&costs, Order::MAX, 410_000, 1_000), 1000);
        assert_eq!(
            costs.orders[9].move_ns.load(Ordering::Relaxed),
            0,
            "measured all the same"
        );
    }

    #[test]
    fn a_copy_pays_for_the_frame_that_it_leaves() {
        let costs = Costs::new();
        costs.free_page.store(500, Ordering::Relaxed);
        assert!(settle(&costs, Order::ZERO, 1_000, 900) > 900);
    }
}
