//! What copies leave behind goes to the kernel before a fault has to see to it.
//!
//! A folio can come in by moving its frame's pages or by copying them ([`Placed`](crate::Placed)); which is cheaper,
//! the driver measures. What is moved leaves a hole. What is copied leaves a spare frame, and at the limit the new page
//! is one too many: the fault itself gives spare frames back, [`TRIM_BATCH`](crate::limits::TRIM_BATCH) at once. That
//! is a system call which interrupts the other processors, 25 to 60 µs; where everything is copied, one fault in 24
//! pays for it, and the 99th percentile is what that takes.
//!
//! So whoever reclaims ahead of need gives back ahead of need, too: [`Core::gather_left_behind`] collects spare frames
//! until the frames in use leave as much below the limit as background reclaim wants available. Where frames are moved
//! that would be work for nothing, as each spare frame serves the next load. A balance for each order tells the one
//! from the other: it goes up when a frame was kept, down when none was, and only orders that are not even have their
//! frames collected. A load into new memory leaves no frame either and says nothing, so the balance goes up faster than
//! it comes down: of folios that are copied, one in [`COPY_WEIGHT`] + 1 that still finds a spare frame keeps it up, of
//! folios that are moved, one in [`COPY_WEIGHT`] may be copied on trial.

use crate::addr::Order;
use crate::gather::Gather;
use crate::limits::LEFT_BATCH;
use crate::machine::Core;

/// A copy weighs as much as so many folios that left no frame.
const COPY_WEIGHT: u16 = 16;
/// So many copies in a row are remembered.
const COPIES_MOST: u16 = 64;

/// Whether the frames of each order are left behind.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LeftBehind([u16; 10]);

impl LeftBehind {
    /// A folio came in from a frame, which is spare now, or a hole.
    pub(crate) fn came_in(&mut self, order: Order, kept: bool) {
        let balance = &mut self.0[usize::from(order.get())];
        *balance = if kept {
            (*balance + COPY_WEIGHT).min(COPIES_MOST * COPY_WEIGHT)
        } else {
            balance.saturating_sub(1)
        };
    }

    fn is_copied(self, order: Order) -> bool {
        self.0[usize::from(order.get())] > 0
    }
}

impl Core {
    /// Collects a batch of what copies have left behind, if that much is between the frames in use and the room that
    /// faults should find. It is to be given back, and [`Core::gathered`] to be told. An empty batch says that there is
    /// no more.
    ///
    /// # Panics
    /// When `gather` is not empty.
    pub fn gather_left_behind(&mut self, gather: &mut Gather) {
        assert!(
            gather.is_empty(),
            "a batch is given back before it is used again"
        );
        let left = self.left_behind;
        let copied = || Order::all().filter(|&order| left.is_copied(order));
        let spare: u32 = copied()
            .map(|order| self.frames.spare_pages_of(order))
            .sum();
        let used = self.frames_that_stay();
        let high = self.high_mark().0;
        if spare.min((used + high).saturating_sub(self.limit)) < LEFT_BATCH {
            return;
        }
        for order in copied() {
            while gather.room() > 0
                && gather.frames < LEFT_BATCH
                && let Some(frame) = self.frames.drain_any_of(order)
            {
                self.gather_frame(frame, gather);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share_collected(kept: impl Fn(u32) -> bool) -> u32 {
        let mut left = LeftBehind::default();
        let mut collected = 0;
        for n in 0..1000 {
            left.came_in(Order::ZERO, kept(n));
            collected += u32::from(left.is_copied(Order::ZERO));
        }
        collected
    }

    #[test]
    fn frames_that_are_moved_but_for_trials_are_not_collected() {
        assert!(share_collected(|n| n % 64 == 0) < 300);
    }

    #[test]
    fn frames_that_are_copied_are_collected_though_most_loads_leave_none() {
        assert_eq!(share_collected(|n| n % 12 == 0), 1000);
    }

    #[test]
    fn what_was_copied_once_is_forgotten() {
        assert_eq!(share_collected(|n| n < 500), 1000);
        assert_eq!(share_collected(|n| n < 10), 9 + 10 * 16);
    }

    #[test]
    fn orders_are_independent() {
        let mut left = LeftBehind::default();
        left.came_in(Order::ZERO, true);
        assert!(!left.is_copied(Order::MAX));
    }
}
