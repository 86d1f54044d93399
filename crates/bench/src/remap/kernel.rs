//! Memory that `mremap` moves between two places of chosen alignment.
//!
//! `mremap` moves a whole page table by one pointer if the two places have the same offset within 2 MiB, and a table
//! of page tables if they have the same offset within a gigabyte; otherwise it moves entry by entry. When it chooses
//! the new place itself it only aligns it to a page, so both places are given to it here.
//!
//! The places are holes in reservations, so that nothing else is mapped there. Before a move the destination is taken
//! out of its reservation, and after the move the old place is reserved again, both off the clock.

use rustix::mm::{Advice, MapFlags, MremapFlags, ProtFlags};
use std::io;

const GIGABYTE: usize = 1 << 30;

/// The alignment of the two places.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Alignment {
    /// The distance from a whole gigabyte to the first place.
    pub here: usize,
    /// The distance from a whole gigabyte to the second place.
    pub there: usize,
}

/// A reserved range of addresses with room for `len` bytes at a chosen alignment.
#[derive(Debug)]
struct Reservation {
    whole: (*mut u8, usize),
    start: *mut u8,
}

/// Memory at one of two places.
#[derive(Debug)]
pub struct Movable {
    here: Reservation,
    there: Reservation,
    len: usize,
}

impl Reservation {
    fn new(len: usize, behind: usize) -> io::Result<Self> {
        let room = len + behind + GIGABYTE;
        // SAFETY: the kernel chooses the address, so no memory of this process is replaced.
        let at = unsafe {
            rustix::mm::mmap_anonymous(
                std::ptr::null_mut(),
                room,
                ProtFlags::empty(),
                MapFlags::PRIVATE | MapFlags::NORESERVE,
            )?
        };
        let at = at.cast::<u8>();
        let start = at.wrapping_add(at.align_offset(GIGABYTE) + behind);
        Ok(Self {
            whole: (at, room),
            start,
        })
    }

    /// Reserves the hole again that the moved memory left.
    fn close(&self, len: usize) -> io::Result<()> {
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED_NOREPLACE;
        // SAFETY: the flag keeps the kernel from replacing anything.
        unsafe {
            rustix::mm::mmap_anonymous(self.start.cast(), len, ProtFlags::empty(), flags)?;
        }
        Ok(())
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let (at, len) = self.whole;
        // SAFETY: this value owns all of it, and nothing refers to it any more.
        let unmapped = unsafe { rustix::mm::munmap(at.cast(), len) };
        debug_assert!(unmapped.is_ok(), "{unmapped:?} of an own reservation");
    }
}

impl Movable {
    /// Maps `len` bytes of zeros, in pages of 4 KiB.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn new(len: usize, alignment: Alignment) -> io::Result<Self> {
        let here = Reservation::new(len, alignment.here)?;
        let there = Reservation::new(len, alignment.there)?;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED;
        // SAFETY: the replaced range is part of the reservation made above.
        unsafe {
            rustix::mm::mmap_anonymous(here.start.cast(), len, protection, flags)?;
            rustix::mm::madvise(here.start.cast(), len, Advice::LinuxNoHugepage)?;
        }
        Ok(Self { here, there, len })
    }

    /// The bytes of the memory.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: the memory is here, readable and initialised (zeros), and the borrow excludes writers.
        unsafe { std::slice::from_raw_parts(self.here.start, self.len) }
    }

    /// The bytes of the memory, for writing.
    #[must_use]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: the memory is here, writable and initialised (zeros), and the borrow is exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.here.start, self.len) }
    }

    /// Moves the memory to the other place. `timed` calls its argument once, which makes the move.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn shift(&mut self, timed: impl FnOnce(&mut dyn FnMut())) -> io::Result<()> {
        let (from, to, len) = (self.here.start, self.there.start, self.len);
        // SAFETY: that part of the reservation holds nothing.
        unsafe { rustix::mm::munmap(to.cast(), len)? };
        let mut moved = Ok(std::ptr::null_mut());
        timed(&mut || {
            // SAFETY: with `&mut self` nobody refers to the bytes, and the destination is the hole just made.
            moved = unsafe {
                let flags = MremapFlags::MAYMOVE;
                rustix::mm::mremap_fixed(from.cast(), len, len, flags, to.cast())
            };
        });
        moved?;
        self.here.close(len)?;
        std::mem::swap(&mut self.here, &mut self.there);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moved_memory_is_at_the_new_place_and_only_there() {
        for (here, there) in [(0, 0), (4096, (2 << 20) + 4096), (0, 4096)] {
            let len = 8 << 20;
            let mut memory = Movable::new(len, Alignment { here, there }).unwrap();
            memory.bytes_mut()[len - 1] = 7;
            let first = memory.bytes().as_ptr();
            assert_eq!(first as usize % GIGABYTE, here);
            let mut calls = 0;
            for _ in 0..3 {
                let before = memory.bytes().as_ptr();
                memory
                    .shift(|moves| {
                        calls += 1;
                        moves();
                    })
                    .unwrap();
                assert_ne!(memory.bytes().as_ptr(), before);
                assert_eq!(memory.bytes()[len - 1], 7);
            }
            assert_eq!(memory.bytes().as_ptr() as usize % GIGABYTE, there);
            assert_eq!(calls, 3);
        }
    }
}
