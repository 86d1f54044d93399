//! The frame pool: one area for each order, each aligned to 2 MiB, so that a frame's address is plain arithmetic.
//!
//! A frame's place is either a *hole* (no pages) or *populated*. The core knows which; this file only knows
//! addresses. The pool is registered with userfaultfd, because the target of a `UFFDIO_MOVE` must be. So a hole gets
//! its pages by a `UFFDIO_COPY` from zeros, or by moving a huge page in, and never by a touch: that would be a fault
//! of our own that nobody serves.
//!
//! A *block* is 512 places of order 0 that fill an aligned 2 MiB. A block that received a leaf with its page table is
//! a separate mapping from then on (`uffd/leaf.rs`), and no `UFFDIO_MOVE` may cross its border. So runs of places of
//! order 0 end at their block's end, whether or not a leaf was moved there. A process has a limited number of
//! mappings, so such blocks are counted.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use millpond_core::limits::SINGLE_PLACES_MOST;
use millpond_core::{Frame, LEAF_PAGES, Order, PoolLayout};

use crate::error::MmuError;
use crate::lease::Leases;
use crate::reservation::{HUGE, Reservation};

/// The maximum number of blocks that may become separate mappings: 32 GiB of places. Each adds at most two mappings,
/// and a process may have 65,530 of them unless its administrator says otherwise.
const MOST_SEPARATE: u32 = 16_384;

const _: () = assert!(SINGLE_PLACES_MOST == MOST_SEPARATE * LEAF_PAGES);

pub(crate) struct Pool {
    memory: Reservation,
    offset: [usize; 10],
    frames: [u32; 10],
    leases: Leases,
    /// One bit for each block: whether it is a separate mapping.
    separate: Box<[AtomicU64]>,
    /// The number of bits set.
    separated: AtomicU32,
}

impl Pool {
    /// Reserves the areas, readable and writable, all holes, with room after them for the bell.
    pub(crate) fn new(layout: &PoolLayout) -> Result<Self, MmuError> {
        let mut offset = [0; 10];
        let mut len = 0;
        for order in Order::all() {
            let o = usize::from(order.get());
            offset[o] = len;
            len += (layout.frames[o] as usize * order.bytes()).next_multiple_of(HUGE);
        }
        let memory = Reservation::new("frame pool", len + HUGE)?;
        memory
            .protect(memory.base(), memory.len(), true)
            .map_err(|errno| MmuError::Reserve {
                what: "frame pool",
                bytes: len,
                errno,
            })?;
        Ok(Self {
            memory,
            offset,
            frames: layout.frames,
            leases: Leases::new(&layout.frames),
            separate: (0..layout.frames[0].div_ceil(LEAF_PAGES * 64))
                .map(|_| AtomicU64::new(0))
                .collect(),
            separated: AtomicU32::new(0),
        })
    }

    pub(crate) fn memory(&self) -> &Reservation {
        &self.memory
    }

    /// Returns the address of a page of the pool that no frame covers: the bell that stops the handler thread.
    pub(crate) fn bell(&self) -> usize {
        self.memory.base() + self.memory.len() - HUGE
    }

    /// Returns the address of the frame's first byte.
    ///
    /// # Panics
    /// When the pool has no such frame.
    pub(crate) fn addr(&self, frame: Frame) -> usize {
        let o = usize::from(frame.order().get());
        assert!(
            frame.index() < self.frames[o],
            "frame {frame} is beyond the pool's {} of its order",
            self.frames[o]
        );
        self.memory.base() + self.offset[o] + frame.index() as usize * frame.order().bytes()
    }

    /// Returns the address and length of part number `part` of each order's area, divided into `of` equal parts.
    pub(crate) fn parts(&self, part: u8, of: u8) -> impl Iterator<Item = (usize, usize)> + '_ {
        Order::all().map(move |order| {
            let o = usize::from(order.get());
            let len = (self.frames[o] / u32::from(of)) as usize * order.bytes();
            let start = self.memory.base() + self.offset[o] + usize::from(part) * len;
            (start, len)
        })
    }

    /// Takes the frame for one operation. [`Leases`] explains why.
    pub(crate) fn lease(&self, frame: Frame) -> Lease<'_> {
        let addr = self.addr(frame);
        self.leases.take(frame);
        Lease {
            pool: self,
            frame,
            addr,
        }
    }

    /// Takes the block whose first place is `first` for one operation. Returns `None` if no block begins there, or if
    /// the block would be one mapping too many.
    pub(crate) fn lease_block(&self, first: Frame) -> Option<BlockLease<'_>> {
        let whole = first.order() == Order::ZERO
            && first.index().is_multiple_of(LEAF_PAGES)
            && first.index() + LEAF_PAGES <= self.frames[0];
        if !whole || !self.may_separate(first.index() / LEAF_PAGES) {
            return None;
        }
        let addr = self.addr(first);
        debug_assert!(addr.is_multiple_of(HUGE));
        self.leases.take_block(first);
        Some(BlockLease {
            pool: self,
            first,
            addr,
        })
    }

    /// Whether the block is, or may become, a separate mapping. If so, it counts as one from now on.
    fn may_separate(&self, block: u32) -> bool {
        let (word, bit) = (&self.separate[block as usize / 64], 1 << (block % 64));
        if word.load(Ordering::Relaxed) & bit != 0 {
            return true;
        }
        if self.separated.fetch_add(1, Ordering::Relaxed) >= MOST_SEPARATE {
            self.separated.fetch_sub(1, Ordering::Relaxed);
            return false;
        }
        word.fetch_or(bit, Ordering::Relaxed);
        true
    }

    /// Whether one call may cover both `first`, which begins a run of neighbours, and `next`.
    pub(crate) fn same_mapping(first: Frame, next: Frame) -> bool {
        first.order() > Order::ZERO || first.index() / LEAF_PAGES == next.index() / LEAF_PAGES
    }

    /// Forgets all leases in a new child, where the threads that held them do not exist.
    pub(crate) fn forget_leases(&self) {
        self.leases.clear();
    }
}

/// The exclusive right to use one frame's place until this value is dropped.
pub(crate) struct Lease<'a> {
    pool: &'a Pool,
    frame: Frame,
    addr: usize,
}

impl Lease<'_> {
    pub(crate) fn addr(&self) -> usize {
        self.addr
    }

    pub(crate) fn len(&self) -> usize {
        self.frame.order().bytes()
    }

    /// The frame's bytes.
    ///
    /// # Safety
    /// The frame is populated: reading a hole would be a fault that nobody serves.
    pub(crate) unsafe fn bytes(&self) -> &[u8] {
        // SAFETY: the place lies in the pool's mapping and is populated (the caller guarantees it), and the lease
        // keeps every other operation away from it while the slice lives.
        unsafe { core::slice::from_raw_parts(self.addr as *const u8, self.len()) }
    }

    /// The frame's bytes, for writing.
    ///
    /// # Safety
    /// The frame is populated.
    pub(crate) unsafe fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as for `bytes`; `&mut self` prevents a second slice.
        unsafe { core::slice::from_raw_parts_mut(self.addr as *mut u8, self.len()) }
    }
}

impl Drop for Lease<'_> {
    fn drop(&mut self) {
        self.pool.leases.give_back(self.frame);
    }
}

/// The exclusive right to use all places of a block until this value is dropped.
pub(crate) struct BlockLease<'a> {
    pool: &'a Pool,
    first: Frame,
    addr: usize,
}

impl BlockLease<'_> {
    pub(crate) fn addr(&self) -> usize {
        self.addr
    }
}

impl Drop for BlockLease<'_> {
    fn drop(&mut self) {
        self.pool.leases.give_back_block(self.first);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_blocks_with_their_own_mapping_is_limited() {
        let mut frames = [4; 10];
        frames[0] = (MOST_SEPARATE + 1) * LEAF_PAGES + 7;
        let pool = Pool::new(&PoolLayout { frames }).unwrap();
        let first = |block| Frame::new(Order::ZERO, block * LEAF_PAGES);
        for block in 0..MOST_SEPARATE {
            assert!(pool.lease_block(first(block)).is_some());
        }
        assert!(pool.lease_block(first(MOST_SEPARATE)).is_none());
        assert!(pool.lease_block(first(77)).is_some());
        // The first of these starts an incomplete block, the second is not the start of a block.
        for wrong in [first(MOST_SEPARATE + 1), Frame::new(Order::ZERO, 64)] {
            assert!(pool.lease_block(wrong).is_none());
        }
        assert!(Pool::same_mapping(first(1), Frame::new(Order::ZERO, 1023)));
        assert!(!Pool::same_mapping(first(1), first(2)));
    }
}
