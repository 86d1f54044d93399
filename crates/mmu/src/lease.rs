//! Leases record which frames are in use: one bit for each place in the pool.
//!
//! The backend works through `&self` from many threads, and hands out slices into the pool. That is sound only if no
//! two operations use the same frame concurrently. The core promises that (only one operation has a folio in flight),
//! but that promise is made in another crate, in safe code, and a mistake there would be undefined behaviour here. So
//! each operation takes the frame's bit with an atomic swap, and panics with the frame's name if the bit is already
//! taken. The price is two uncontended atomic operations next to system calls that take a microsecond.

use core::sync::atomic::{AtomicU64, Ordering};

use millpond_core::{Frame, LEAF_PAGES};

pub(crate) struct Leases {
    bits: [Box<[AtomicU64]>; 10],
}

impl Leases {
    pub(crate) fn new(frames: &[u32; 10]) -> Self {
        Self {
            bits: frames.map(|n| (0..n.div_ceil(64)).map(|_| AtomicU64::new(0)).collect()),
        }
    }

    /// # Panics
    /// When the frame is in use.
    pub(crate) fn take(&self, frame: Frame) {
        let (word, bit) = self.place(frame);
        let before = word.fetch_or(bit, Ordering::Acquire);
        assert!(
            before & bit == 0,
            "frame {frame} is used by two operations at once"
        );
    }

    pub(crate) fn give_back(&self, frame: Frame) {
        let (word, bit) = self.place(frame);
        word.fetch_and(!bit, Ordering::Release);
    }

    /// Takes the 512 places of order 0 that begin with `first`, which must be the first place of a block.
    ///
    /// # Panics
    /// When one of the places is in use.
    pub(crate) fn take_block(&self, first: Frame) {
        for (n, word) in self.block(first).iter().enumerate() {
            let before = word.swap(u64::MAX, Ordering::Acquire);
            assert!(
                before == 0,
                "frame {} is used by two operations at once",
                Frame::new(
                    first.order(),
                    first.index() + n as u32 * 64 + before.trailing_zeros()
                )
            );
        }
    }

    pub(crate) fn give_back_block(&self, first: Frame) {
        for word in self.block(first) {
            word.store(0, Ordering::Release);
        }
    }

    fn block(&self, first: Frame) -> &[AtomicU64] {
        let word = first.index() as usize / 64;
        &self.bits[0][word..word + LEAF_PAGES as usize / 64]
    }

    pub(crate) fn clear(&self) {
        for word in self.bits.iter().flat_map(|words| words.iter()) {
            word.store(0, Ordering::Relaxed);
        }
    }

    fn place(&self, frame: Frame) -> (&AtomicU64, u64) {
        let words = &self.bits[usize::from(frame.order().get())];
        (
            &words[frame.index() as usize / 64],
            1 << (frame.index() % 64),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use millpond_core::Order;

    #[test]
    fn a_returned_frame_can_be_taken_again() {
        let leases = Leases::new(&[70; 10]);
        let frame = Frame::new(Order::ZERO, 65);
        leases.take(frame);
        leases.take(Frame::new(Order::ZERO, 64));
        leases.give_back(frame);
        leases.take(frame);
    }

    #[test]
    fn a_block_is_taken_whole_and_returned_whole() {
        let leases = Leases::new(&[1536; 10]);
        let first = Frame::new(Order::ZERO, 512);
        leases.take_block(first);
        for outside in [511, 1024] {
            leases.take(Frame::new(Order::ZERO, outside));
        }
        leases.give_back_block(first);
        leases.take(Frame::new(Order::ZERO, 1023));
    }

    #[test]
    #[should_panic(expected = "f0:777 is used by two operations")]
    fn a_block_with_a_place_in_use_panics() {
        let leases = Leases::new(&[1536; 10]);
        leases.take(Frame::new(Order::ZERO, 777));
        leases.take_block(Frame::new(Order::ZERO, 512));
    }

    #[test]
    #[should_panic(expected = "f2:3 is used by two operations")]
    fn a_double_lease_panics() {
        let leases = Leases::new(&[4; 10]);
        let frame = Frame::new(Order::new(2).unwrap(), 3);
        leases.take(frame);
        leases.take(frame);
    }
}
