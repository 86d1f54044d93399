//! Working memory for compression and for direct I/O.
//!
//! Neither the stack (a fault handler may have little) nor thread-local storage (it may not be set
//! up, or allocate) can hold a hash table and a compressed folio. So each store has a fixed number
//! of scratches, and a caller that finds none free waits. A caller holds at most one and takes no
//! other lock that a holder waits for, so the wait ends. The scratch with the lowest number is
//! taken first: its memory is warm in the cache, and the others take no RAM until they are needed.

use crate::image::BLOCK;
use crate::mem::{Mapping, PAGE};
use lz4_flex::block::CompressTable;
use millpond_sync::{Condvar, Rank, Ranked};
use rustix::io::Errno;
use std::mem::size_of;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Number of scratches in a pool.
const COUNT: usize = 8;
const TABLES: usize = size_of::<Tables>().next_multiple_of(PAGE);

/// The compressor's hash tables.
pub(crate) struct Tables {
    /// The table for blocks below 64 Ki - 1 bytes: half as much to clear.
    pub(crate) small: CompressTable,
    /// The table for other blocks.
    pub(crate) large: CompressTable,
}

struct Seats {
    /// One bit for each scratch that is free.
    free: u32,
    /// Number of callers that wait for a scratch.
    waiting: u32,
}

/// The scratches of one store.
pub(crate) struct ScratchPool {
    map: Mapping,
    /// Number of bytes of each scratch's wire.
    wire: usize,
    seats: Ranked<Seats>,
    returned: Condvar,
    /// The longest wire asked of each scratch, 0 when it was never used.
    used: [AtomicUsize; COUNT],
}

impl ScratchPool {
    /// Makes a pool whose wires have `wire` bytes.
    pub(crate) fn new(wire: usize) -> Result<Self, Errno> {
        let wire = wire.next_multiple_of(PAGE);
        let map = Mapping::new(COUNT * (TABLES + BLOCK + wire))?;
        for i in 0..COUNT {
            // SAFETY: this is the start of scratch `i`, page-aligned, with `TABLES` bytes that no one else knows yet.
            unsafe {
                let tables = map
                    .as_ptr()
                    .add(i * (TABLES + BLOCK + wire))
                    .cast::<Tables>();
                (&raw mut (*tables).small).write(CompressTable::small());
                (&raw mut (*tables).large).write(CompressTable::large());
            }
        }
        Ok(Self {
            map,
            wire,
            seats: Ranked::new(
                Rank::Scratches,
                Seats {
                    free: (1 << COUNT) - 1,
                    waiting: 0,
                },
            ),
            returned: Condvar::new(),
            used: [const { AtomicUsize::new(0) }; COUNT],
        })
    }

    /// Takes a scratch whose wire has at least `wire` bytes, and waits until one is free.
    ///
    /// # Panics
    /// When `wire` is more than the pool's.
    pub(crate) fn acquire(&self, wire: usize) -> Scratch<'_> {
        assert!(wire <= self.wire);
        let mut seats = self.seats.lock();
        while seats.free == 0 {
            seats.waiting += 1;
            seats = seats.wait(&self.returned);
            seats.waiting -= 1;
        }
        let index = seats.free.trailing_zeros() as usize;
        seats.free &= seats.free - 1;
        drop(seats);
        self.used[index].fetch_max(wire.max(1), Relaxed);
        Scratch {
            pool: self,
            index,
            wire,
        }
    }

    /// The RAM that the scratches took until now.
    pub(crate) fn ram_bytes(&self) -> u64 {
        let used = self.used.iter().map(|used| used.load(Relaxed));
        let tables = COUNT * TABLES;
        (tables
            + used
                .map(|wire| if wire == 0 { 0 } else { BLOCK + wire })
                .sum::<usize>()) as u64
    }
}

/// A scratch that one caller owns. It holds whatever the last owner left in it.
pub(crate) struct Scratch<'a> {
    pool: &'a ScratchPool,
    index: usize,
    wire: usize,
}

/// The parts of a scratch.
pub(crate) struct Parts<'a> {
    pub(crate) tables: &'a mut Tables,
    /// A page-aligned buffer for bytes on their way to or from the medium.
    pub(crate) wire: &'a mut [u8],
    /// A buffer for a block as the program sees it.
    pub(crate) plain: &'a mut [u8; BLOCK],
}

impl Scratch<'_> {
    pub(crate) fn parts(&mut self) -> Parts<'_> {
        let stride = TABLES + BLOCK + self.pool.wire;
        // SAFETY: the bit that was taken from `free` makes this scratch ours alone until the drop,
        // and `&mut self` hands out its three disjoint parts once at a time. The tables were
        // written by `new`; bytes are always valid, for the mapping is zeroed. The tables own no
        // memory, so nothing is to be dropped.
        unsafe {
            let base = self.pool.map.as_ptr().add(self.index * stride);
            Parts {
                tables: &mut *base.cast(),
                plain: &mut *base.add(TABLES).cast(),
                wire: std::slice::from_raw_parts_mut(base.add(TABLES + BLOCK), self.wire),
            }
        }
    }
}

impl Drop for Scratch<'_> {
    fn drop(&mut self) {
        let mut seats = self.pool.seats.lock();
        seats.free |= 1 << self.index;
        // Waking without a waiter would still be a system call for every save and load.
        if seats.waiting > 0 {
            self.pool.returned.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_callers_than_scratches_take_turns() {
        let pool = ScratchPool::new(PAGE).unwrap();
        std::thread::scope(|scope| {
            for id in 1..=2 * COUNT as u8 {
                let pool = &pool;
                scope.spawn(move || {
                    for _ in 0..200 {
                        let mut scratch = pool.acquire(PAGE);
                        let parts = scratch.parts();
                        parts.wire.fill(id);
                        parts.plain[..64].fill(id);
                        std::thread::yield_now();
                        assert!(
                            parts
                                .wire
                                .iter()
                                .chain(&parts.plain[..64])
                                .all(|byte| *byte == id)
                        );
                    }
                });
            }
        });
        assert_eq!(pool.seats.lock().free, (1 << COUNT) - 1);
    }
}
