//! The arena in parts, so that a leaf that leaves with its page table holds up few faults.
//!
//! The kernel locks mappings one by one. A fault only needs the lock of its own mapping, and so does the call that
//! maps the page; but while a thread changes that mapping, both sleep until the whole address space is free. `mremap`
//! of a leaf (`leaf.rs`) changes the mapping that contains the leaf, and without further measures that is the whole
//! region. We measured random reads of 4 KiB next to a thread that reclaims, where a leaf leaves after 205 faults. In
//! 110,000 faults the faulting thread slept 690 times and the other 800 times, for 20 µs and more. With parts of 16
//! MiB in a region of 512 they sleep 290 times together, and the 99th percentile fell from 37 µs to 25.
//!
//! *The difference between a part and its neighbours* is advice that has no effect where there is no file: every
//! other part is advised to expect random reads. The advice is given when the first leaf leaves a part or its
//! neighbour, so memory whose leaves do not leave with their tables stays one mapping. A process may have 65,530
//! mappings, so parts are counted ([`MOST`]).
//!
//! *A range that is handed over by tables* (`hand_over.rs`) goes by one call for each mapping. So it is joined before:
//! the advice is taken back, and the kernel merges mappings that are alike. The caller guarantees that no thread
//! parts anything off while pages are handed over.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use rustix::mm::Advice;

use crate::reservation::{HUGE, Reservation};
use crate::sys::mm::madvise;

/// Bytes in a part: eight leaves.
const PART: usize = 8 * HUGE;
/// The maximum number of marked parts, enough for 128 GiB. Each adds two mappings.
const MOST: u32 = 4096;

/// The marked parts of an arena.
pub(super) struct Parts {
    /// One bit for each part; only odd ones are marked.
    marked: Box<[AtomicU64]>,
    count: AtomicU32,
}

impl Parts {
    pub(super) fn new(arena: &Reservation) -> Self {
        let words = arena.len().div_ceil(64 * PART);
        Self {
            marked: (0..words).map(|_| AtomicU64::new(0)).collect(),
            count: AtomicU32::new(0),
        }
    }

    /// Splits the part of `addr` off into a mapping of its own, or several, unless there are already too many.
    pub(super) fn part_off(&self, arena: &Reservation, addr: usize) {
        let part = (addr - arena.base()) / PART;
        for odd in [part.saturating_sub(1) | 1, part | 1] {
            let Some(word) = self.marked.get(odd / 64) else {
                continue;
            };
            let bit = 1 << (odd % 64);
            let is_new = word.load(Ordering::Relaxed) & bit == 0;
            if !is_new || self.count.load(Ordering::Relaxed) >= MOST {
                continue;
            }
            if word.fetch_or(bit, Ordering::Relaxed) & bit == 0 {
                self.count.fetch_add(1, Ordering::Relaxed);
                advise(arena, odd, Advice::Random);
            }
        }
    }

    /// Joins all parts of the range with their neighbours.
    pub(super) fn join(&self, arena: &Reservation, start: usize, len: usize) {
        let first = (start - arena.base()) / PART;
        let end = (start + len - arena.base()).div_ceil(PART);
        for odd in ((first | 1)..end).step_by(2) {
            let (word, bit) = (&self.marked[odd / 64], 1 << (odd % 64));
            if word.fetch_and(!bit, Ordering::Relaxed) & bit != 0 {
                self.count.fetch_sub(1, Ordering::Relaxed);
                advise(arena, odd, Advice::Normal);
            }
        }
    }
}

/// Gives advice for one part. Its failure is ignored: a part that cannot be told apart makes faults wait, and a part
/// that cannot be joined is handed over by a call of its own.
fn advise(arena: &Reservation, part: usize, advice: Advice) {
    let start = part * PART;
    if let Some(len) = arena.len().checked_sub(start).filter(|&len| len > 0) {
        let at = (arena.base() + start) as *mut core::ffi::c_void;
        // SAFETY: the advice is about reading ahead and changes no contents.
        let _ = unsafe { madvise(at, len.min(PART), advice) };
    }
}
