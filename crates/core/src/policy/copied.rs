//! Remembers which orders leave their frames behind when they come in: those that are copied (`ops/gather_copied.rs`).

use crate::addr::Order;

/// The weight of one copy, in folios that left no frame.
const COPY_WEIGHT: u16 = 16;
/// Most copies in a row that are remembered.
const COPIES_MOST: u16 = 64;

/// Whether the folios of each order leave their frames behind.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CopiedFrames([u16; 10]);

impl CopiedFrames {
    /// Notes that a folio came in from a frame, which is spare now if `kept`, or else a hole.
    pub(crate) fn came_in(&mut self, order: Order, kept: bool) {
        let balance = &mut self.0[usize::from(order.get())];
        *balance = if kept {
            (*balance + COPY_WEIGHT).min(COPIES_MOST * COPY_WEIGHT)
        } else {
            balance.saturating_sub(1)
        };
    }

    pub(crate) fn is_copied(self, order: Order) -> bool {
        self.0[usize::from(order.get())] > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share_collected(kept: impl Fn(u32) -> bool) -> u32 {
        let mut left = CopiedFrames::default();
        let mut collected = 0;
        for n in 0..1000 {
            left.came_in(Order::ZERO, kept(n));
            collected += u32::from(left.is_copied(Order::ZERO));
        }
        collected
    }

    #[test]
    fn moved_frames_are_not_collected_except_in_trials() {
        assert!(share_collected(|n| n % 64 == 0) < 300);
    }

    #[test]
    fn frames_that_are_copied_are_collected_though_most_loads_leave_none() {
        assert_eq!(share_collected(|n| n % 12 == 0), 1000);
    }

    #[test]
    fn old_copies_are_forgotten() {
        assert_eq!(share_collected(|n| n < 500), 1000);
        assert_eq!(share_collected(|n| n < 10), 9 + 10 * 16);
    }

    #[test]
    fn orders_are_independent() {
        let mut left = CopiedFrames::default();
        left.came_in(Order::ZERO, true);
        assert!(!left.is_copied(Order::MAX));
    }
}
