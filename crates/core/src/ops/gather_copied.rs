//! Frames that copies leave behind go to the kernel before a fault has to return them.
//!
//! A folio can come in by moving its frame's pages or by copying them ([`Placed`](crate::Placed)); the driver measures
//! which is cheaper. A moved folio leaves a hole. A copied folio leaves a spare frame, and at the limit the new page is
//! one too many: the fault itself gives spare frames back, [`TRIM_BATCH`](crate::limits::TRIM_BATCH) at once. That
//! takes a system call that interrupts the other processors, 25 to 60 µs; if everything is copied, one fault in 24 pays
//! for it, which determines the 99th percentile.
//!
//! So the thread that reclaims ahead of need also gives frames back ahead of need: [`Core::gather_copied`] collects
//! spare frames until the frames in use are as far below the limit as background reclaim wants. If folios are moved,
//! this would be wasted work, as each spare frame serves the next load. A balance for each order tells the two cases
//! apart: it goes up when a frame was kept, and down when none was; frames are collected only from orders with a
//! balance above zero. A load into new memory also leaves no frame, but proves nothing, so the balance rises faster
//! than it falls: if folios are copied, one in [`COPY_WEIGHT`] + 1 that still finds a spare frame keeps it up; if
//! folios are moved, one in [`COPY_WEIGHT`] may be copied on trial.

use crate::addr::Order;
use crate::gather::Gather;
use crate::limits::LEFT_BATCH;
use crate::machine::Core;

impl Core {
    /// Collects a batch of frames that copies have left behind, if there is a batch's worth between the frames in use
    /// and the room that faults should find. The caller gives the batch back, and calls [`Core::gathered`]. An empty
    /// batch means that there are no more frames to collect.
    ///
    /// # Panics
    /// When `gather` is not empty.
    pub fn gather_copied(&mut self, gather: &mut Gather) {
        assert!(
            gather.is_empty(),
            "a batch is given back before it is used again"
        );
        let left = self.copied;
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
