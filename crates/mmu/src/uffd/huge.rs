//! Folios of 2 MiB as huge pages: one entry in one page table, moved in one piece.
//!
//! A huge page pays three times. The kernel clears it in one go and makes one entry, whereas 512 pages copied from
//! zeros take 370 µs. It travels between arena and pool in 1 µs, small pages in 45. And the program's TLB needs only
//! one entry for it. All of that holds only while the page stays whole. `UFFDIO_MOVE` moves the entry if source and
//! destination are aligned to 2 MiB, the call covers all of it, and *the destination has no page table*. Otherwise it
//! splits the page and moves 512 small ones. The times in the table are in µs, measured alone (with another thread
//! running, add the interrupt, 10):
//!
//! | | |
//! | --- | --- |
//! | a new huge page by a touch: memory in the cache / of the last GiB | 30 / 100 |
//! | 512 small pages copied from zeros / by touches | 365 / 710 |
//! | move a huge page where there is no table / into an empty table: of data / of zeros | 1.1–2.2 / 410 / 860 |
//! | move 512 small pages | 47 |
//! | zero a huge page of cold memory past the caches / through them | 26 / 52 |
//! | zero it in that way, plus the program's first touch of each line after it | 102 / 71 |
//! | copy 2 MiB of cold memory | 110 |
//! | check whether a leaf is empty + drop it: no table / empty table | 0.5 + 1.0 / 2.2 + 2.6 |
//!
//! *The table in the way.* A leaf that ever contained a small page has a table, empty or not. So does a leaf where a
//! fault happened: the kernel makes the table before it asks userfaultfd. `MADV_DONTNEED` of a whole leaf frees it
//! (Linux 6.14, x86), even if the leaf is already empty. Nothing in user space distinguishes an empty table from no
//! table, and if there is none the call costs a microsecond. So the call precedes each move of a huge page. A leaf of
//! the arena is examined first: a page that is there against all expectation (see `install.rs`) must not be dropped.
//! A kernel that keeps its tables would split each huge page at the price of two copies; there, nothing is tried
//! (`staging.rs`). A second thread that faults at the leaf between the drop and the move creates a table there again,
//! and this one page is split. Letting the arena's own faults get huge pages does not help: then the kernel makes and
//! clears a huge page before it asks userfaultfd, and throws it away (such a fault takes 35 µs, an ordinary one 4).
//!
//! *Zeroing a used frame* goes through the caches: a program that asks for 2 MiB usually writes to them next.
//!
//! *Pages that the kernel splits by itself*: it splits a huge page if a part of it is dropped, protected or moved, or
//! if it is written to while a forked child shares it. The contents stay right and the page becomes slow: it is 512
//! small pages from then on, the next take-out moves them one by one, and the frame consists of small pages until it
//! is freed. One kind of page cannot be taken out meanwhile: a part of a page that a pipe or a device holds is busy
//! until the holder releases it, because the kernel cannot split a page that others refer to.

use super::UffdMemory;
use crate::reservation::HUGE;
use crate::staging::Slot;
use crate::sys::advise::{self, Span};
use crate::sys::{ioctl, pagemap};

/// The maximum number of leaves of zeros that are put in place together.
pub(super) const LEAVES: usize = 4;

impl UffdMemory {
    /// Puts new zeros at a leaf of the arena, which is held in flight, as one huge page. Returns how many bytes from
    /// the start are mapped: all if the kernel had a huge page, a few if it had small ones.
    pub(super) fn place_zeros(&self, leaf: usize) -> usize {
        let mut placed = [0];
        self.place_zeros_at_all(leaf, &mut placed);
        placed[0]
    }

    /// Puts new zeros at neighbouring leaves from `first` on, as [`place_zeros`](Self::place_zeros) does at one, and
    /// stores in `placed` how many bytes are mapped at each. The check and the drop cover all of them at once, after
    /// the pages are ready, so that no other thread has time to put a table in the way.
    pub(super) fn place_zeros_at_all(&self, first: usize, placed: &mut [usize]) {
        let mut slots = [const { None }; LEAVES];
        for slot in slots.iter_mut().take(placed.len()) {
            *slot = self.new_page();
            if slot.is_none() {
                break;
            }
        }
        self.make_room(first, slots.iter().flatten().count() * HUGE);
        let leaves = (first..).step_by(HUGE);
        for ((placed, slot), leaf) in placed.iter_mut().zip(slots).zip(leaves) {
            *placed = slot.map_or(0, |slot| self.send(slot, leaf, 0));
        }
    }

    /// Puts new zeros into a leased frame that is a hole, as [`place_zeros`](Self::place_zeros) does at a leaf.
    pub(super) fn place_zeros_in_frame(&self, frame: usize) -> usize {
        let Some(slot) = self.new_page() else {
            return 0;
        };
        self.drop_tables(frame, HUGE);
        self.send(slot, frame, ioctl::DONT_WAKE)
    }

    /// Puts a copy of a leased, populated frame at a leaf of the arena, which is held in flight, as one huge page.
    /// Returns how many bytes from the start are mapped.
    pub(super) fn place_copy(&self, leaf: usize, frame: usize) -> usize {
        let Some(slot) = self.new_page() else {
            return 0;
        };
        let (from, to) = (frame as *const u8, slot.addr());
        if pagemap::huge_bytes(self.common.pagemap(), to, to + HUGE) != Ok(HUGE) {
            return 0;
        }
        // SAFETY: the slot is ours and mapped as a whole, the frame is leased and populated (the caller guarantees
        // it), and the two are different mappings.
        unsafe { core::ptr::copy_nonoverlapping(from, to as *mut u8, HUGE) };
        self.make_room(leaf, HUGE);
        self.send(slot, leaf, 0)
    }

    fn new_page(&self) -> Option<Slot<'_>> {
        self.staging.as_ref()?.page()
    }

    fn send(&self, slot: Slot<'_>, to: usize, mode: u64) -> usize {
        let moved = self.move_some(to, slot.addr(), HUGE, mode).0;
        if moved == HUGE {
            slot.gone();
        }
        moved
    }

    /// Frees the page tables of leaves of the arena that are held in flight, if the leaves are empty.
    pub(super) fn make_room(&self, start: usize, len: usize) {
        if len == 0 {
            return;
        }
        let mut empty = true;
        let looked = pagemap::runs(self.common.pagemap(), start, start + len, &mut |_, _| {
            empty = false;
        });
        if looked.is_ok() && empty {
            self.drop_tables(start, len);
        } else if len > HUGE {
            for leaf in (start..start + len).step_by(HUGE) {
                self.make_room(leaf, HUGE);
            }
        }
    }

    /// Frees the page tables of empty leaves, if the kernel can do that.
    pub(super) fn drop_tables(&self, start: usize, len: usize) {
        // SAFETY: the caller holds the range, and nothing there could be lost.
        unsafe { advise::discard(None, &[Span { start, len }]) };
    }
}
