//! Working memory for compression and for direct I/O.
//!
//! Neither the stack (a fault handler may have little) nor thread-local storage (it may not be set
//! up, or allocate) can hold a hash table and a compressed folio. So each store has a fixed number
//! of scratches, and a caller that finds none free waits. A caller holds at most one and takes no
//! other lock that a holder waits for, so the wait ends. The scratch with the lowest number is
//! taken first: its memory is warm in the cache, and the others take no RAM until they are needed. Even
//! the hash tables of a scratch are written when it is first taken: most processes end without one, and
//! writing the tables of all of them would be a fifth of the page faults of a process's start.

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

/// The source from which the tables of a scratch are copied when it is first taken: tables made at run time would be
/// built on the stack.
static FRESH: Tables = Tables {
    small: CompressTable::small(),
    large: CompressTable::large(),
};

/// A fixed number of places, each held by one caller at a time.
pub(crate) struct Seats {
    state: Ranked<Taken>,
    returned: Condvar,
}

struct Taken {
    /// One bit for each place that is free.
    free: u32,
    /// Number of callers that wait for a place.
    waiting: u32,
}

impl Seats {
    /// The number of places.
    pub(crate) const COUNT: usize = COUNT;

    pub(crate) fn new() -> Self {
        Self {
            state: Ranked::new(
                Rank::Scratches,
                Taken {
                    free: (1 << COUNT) - 1,
                    waiting: 0,
                },
            ),
            returned: Condvar::new(),
        }
    }

    /// Takes the free place with the lowest number, and waits until there is one.
    pub(crate) fn take(&self) -> usize {
        let mut seats = self.state.lock();
        while seats.free == 0 {
            seats.waiting += 1;
            seats = seats.wait(&self.returned);
            seats.waiting -= 1;
        }
        let index = seats.free.trailing_zeros() as usize;
        seats.free &= seats.free - 1;
        index
    }

    /// Gives back the place `index`, which [`Seats::take`] gave to the caller.
    pub(crate) fn give_back(&self, index: usize) {
        let mut seats = self.state.lock();
        seats.free |= 1 << index;
        // Waking without a waiter would still be a system call for every save and load.
        if seats.waiting > 0 {
            self.returned.notify_one();
        }
    }
}

/// The scratches of one store.
pub(crate) struct ScratchPool {
    map: Mapping,
    /// Number of bytes of each scratch's wire.
    wire: usize,
    seats: Seats,
    /// The longest wire asked of each scratch, 0 when it was never used.
    used: [AtomicUsize; COUNT],
}

impl ScratchPool {
    /// Makes a pool whose wires have `wire` bytes.
    pub(crate) fn new(wire: usize) -> Result<Self, Errno> {
        let wire = wire.next_multiple_of(PAGE);
        let map = Mapping::new(COUNT * (TABLES + BLOCK + wire))?;
        Ok(Self {
            map,
            wire,
            seats: Seats::new(),
            used: [const { AtomicUsize::new(0) }; COUNT],
        })
    }

    /// Takes a scratch whose wire has at least `wire` bytes, and waits until one is free.
    ///
    /// # Panics
    /// When `wire` is more than the pool's.
    pub(crate) fn acquire(&self, wire: usize) -> Scratch<'_> {
        assert!(wire <= self.wire);
        let index = self.seats.take();
        if self.used[index].fetch_max(wire.max(1), Relaxed) == 0 {
            // SAFETY: the bit that was taken from `free` makes this scratch ours alone. Its tables are at its start,
            // page-aligned; they own no memory, so a copy is as good as the original, and nothing is dropped.
            unsafe {
                self.at(index)
                    .cast::<Tables>()
                    .copy_from_nonoverlapping(&raw const FRESH, 1)
            };
        }
        Scratch {
            pool: self,
            index,
            wire,
        }
    }

    /// Keeps a scratch taken without its guard, until [`take_back`](Self::take_back) with its number.
    pub(crate) fn lend(scratch: Scratch<'_>) {
        std::mem::forget(scratch);
    }

    /// The wire of a scratch that was lent.
    pub(crate) fn lent(&self, index: usize) -> *const u8 {
        self.wire_at(index)
    }

    /// Takes back a scratch that was lent.
    pub(crate) fn take_back(&self, index: usize) {
        self.seats.give_back(index);
    }

    fn wire_at(&self, index: usize) -> *mut u8 {
        // SAFETY: a scratch's wire follows its tables and its block, within the mapping.
        unsafe { self.at(index).add(TABLES + BLOCK) }
    }

    /// The start of a scratch.
    fn at(&self, index: usize) -> *mut u8 {
        // SAFETY: the mapping has room for `COUNT` scratches, and `index` is below that.
        unsafe { self.map.as_ptr().add(index * (TABLES + BLOCK + self.wire)) }
    }

    /// The RAM that the scratches took until now.
    pub(crate) fn ram_bytes(&self) -> u64 {
        let used = self.used.iter().map(|used| used.load(Relaxed));
        used.filter(|wire| *wire > 0)
            .map(|wire| (TABLES + BLOCK + wire) as u64)
            .sum()
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
    /// The scratch's number in its pool.
    pub(crate) fn number(&self) -> usize {
        self.index
    }

    pub(crate) fn parts(&mut self) -> Parts<'_> {
        // SAFETY: the bit that was taken from `free` makes this scratch ours alone until the drop, and `&mut self`
        // hands out its three disjoint parts once at a time. The tables were written by the first `acquire` of this
        // scratch; bytes are always valid, for the mapping is zeroed. The tables own no memory, so nothing is to be
        // dropped.
        unsafe {
            let base = self.pool.at(self.index);
            Parts {
                tables: &mut *base.cast(),
                plain: &mut *base.add(TABLES).cast(),
                wire: std::slice::from_raw_parts_mut(self.pool.wire_at(self.index), self.wire),
            }
        }
    }
}

impl Drop for Scratch<'_> {
    fn drop(&mut self) {
        self.pool.seats.give_back(self.index);
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
        assert_eq!(pool.seats.state.lock().free, (1 << COUNT) - 1);
    }
    /// Covers tables that were all written when the pool was made: 97 page faults of every process's start.
    #[test]
    fn a_scratch_takes_no_ram_before_it_is_taken() {
        let pool = ScratchPool::new(PAGE).unwrap();
        assert_eq!(pool.ram_bytes(), 0);
        let one = (TABLES + BLOCK + PAGE) as u64;
        for _ in 0..3 {
            let mut scratch = pool.acquire(PAGE);
            assert!(matches!(
                scratch.parts().tables.small,
                CompressTable::Small(_)
            ));
            assert!(matches!(
                scratch.parts().tables.large,
                CompressTable::Large(_)
            ));
            assert_eq!(pool.ram_bytes(), one);
        }
        let (_first, _second) = (pool.acquire(PAGE), pool.acquire(1));
        assert_eq!(pool.ram_bytes(), 2 * one - PAGE as u64 + 1);
    }
}
