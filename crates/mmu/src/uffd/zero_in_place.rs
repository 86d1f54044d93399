//! Zeroes mapped pages in place, and checks whether they are zeros.
//!
//! Both operations touch managed memory, which no other code of ours does. They do not fault: the core holds the
//! folio in flight, so its pages stay mapped until the operation returns.
//!
//! Zeroing bypasses the caches where the processor can (x86's non-temporal stores), because the memory was just given
//! up. In this way, zeroing 64 KiB takes 1.2 µs whatever the size of the working set; plain stores take 0.7 (in the
//! L3 cache) to 2.0.

use millpond_core::PageRange;

use super::UffdMemory;
use crate::arch;
use crate::common::{is_blank, words_seen};

impl UffdMemory {
    /// Implements [`Mmu::zero_in_place`](millpond_core::Mmu::zero_in_place).
    pub(super) fn zero_pages(&self, at: PageRange) {
        // SAFETY: the pages are mapped and stay mapped; the caller guarantees that they are writable and that no
        // reference to them is in use.
        unsafe { arch::zero(self.common.at(at.start) as *mut u8, at.len.bytes() as usize) }
    }

    /// Implements [`Mmu::is_blank`](millpond_core::Mmu::is_blank).
    pub(super) fn pages_are_blank(&self, at: PageRange, glance: bool) -> bool {
        let words = words_seen(glance);
        at.pages().all(|page| {
            // SAFETY: the page is mapped and stays mapped.
            unsafe { is_blank(self.common.at(page) as *const u64, words) }
        })
    }
}
