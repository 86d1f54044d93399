//! The arena in parts, so that a leaf that leaves by its table holds up few faults.
//!
//! The kernel locks mappings one by one. A fault needs the lock of its own mapping only, and so does the call that maps
//! the page; only where somebody changes that one, both sleep until the whole address space is free. `mremap` of a leaf
//! (`leaf.rs`) changes the mapping that the leaf is in, and without more ado that is the whole region. Random reads of
//! 4 KiB beside a thread that reclaims: a leaf leaves after 205 faults, and in 110,000 faults the faulting thread slept
//! 690 times and the other 800 times, for 20 µs and more. With parts of 16 MiB in a region of 512 they sleep 290 times
//! together, and the 99th percentile went from 37 µs to 25.
//!
//! *What tells a part from its neighbours* is advice that nobody looks at where there is no file: every other part is
//! said to be read at random. It is given when the first leaf leaves a part or a neighbour, so memory whose leaves do
//! not leave so stays one mapping. A process may have 65,530 mappings, hence parts are counted ([`MOST`]).
//!
//! *What is handed over by tables* (`hand_over.rs`) goes as one mapping, by one call. So it is joined before: the
//! advice is taken back, and the kernel makes one of what is alike. Nobody parts anything off while pages are handed
//! over; that is the caller's word there.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use rustix::mm::{Advice, madvise};

use crate::reservation::{HUGE, Reservation};

/// Bytes of a part: eight leaves.
const PART: usize = 8 * HUGE;
/// Parts that are marked at most: all of 128 GiB. Each makes two more mappings.
const MOST: u32 = 4096;

/// Which parts of an arena are marked.
pub(super) struct Parts {
    /// A bit for each part; only odd ones are marked.
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

    /// The part of `addr` is a mapping of its own from now on, or several, if there may be more of them.
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

    /// Nothing of the range is told apart any more.
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

/// What the kernel makes of it is its affair: a part that cannot be told apart makes faults wait, and one that cannot
/// be joined is handed over by an error, as any range of several mappings.
fn advise(arena: &Reservation, part: usize, advice: Advice) {
    let start = part * PART;
    if let Some(len) = arena.len().checked_sub(start).filter(|&len| len > 0) {
        let at = (arena.base() + start) as *mut core::ffi::c_void;
        // SAFETY: the advice is about reading ahead and changes no contents.
        let _ = unsafe { madvise(at, len.min(PART), advice) };
    }
}
