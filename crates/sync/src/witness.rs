//! Checks the order of locks, in builds with debug assertions and under shuttle.
//!
//! The ranks that each thread holds are kept in a small static table and not in thread-local storage. In a preloaded
//! library, access to thread-local storage goes through memory from the program's allocator. That is managed memory,
//! which must not be touched under these locks. (Shuttle's threads have their own storage, which is empty at the start
//! of each execution.)
//!
//! The functions here are for locks that are not of this crate's types. They allocate nothing, and signal handlers may
//! call them.

use crate::Rank;

/// Panics if the thread may not take a lock of this rank now. In other builds this does nothing.
#[inline]
pub fn before(rank: Rank) {
    if let Some(held) = obstacle(rank) {
        panic!("taking {rank:?} while holding {held:?}: see docs/LOCKS.md");
    }
}

/// Notes that the thread has taken a lock of this rank.
#[inline]
pub fn taken(rank: Rank) {
    chosen::taken(rank);
}

/// Notes that the thread has released its lock of this rank.
#[inline]
pub fn released(rank: Rank) {
    chosen::released(rank);
}

/// A guard: records that the thread holds a lock of this rank, defined elsewhere, while the value lives.
#[derive(Debug)]
pub struct Mark(Rank);

impl Mark {
    /// Notes that a lock was taken which is only ever tried, whatever other locks the thread holds.
    pub fn tried(rank: Rank) -> Self {
        taken(rank);
        Self(rank)
    }
}

impl Drop for Mark {
    fn drop(&mut self) {
        released(self.0);
    }
}

/// The owner of locks across a fork: the child has another thread number, and holds the locks of the thread that
/// forked.
#[derive(Debug)]
pub struct LocksOf(u64);

impl LocksOf {
    /// The locks that this thread holds.
    pub fn this_thread() -> Self {
        Self(chosen::me())
    }

    /// Transfers the forking thread's locks to the child's only thread: no other thread holds a lock there. A second
    /// call changes nothing.
    pub fn inherit(&self) {
        chosen::inherit(self.0);
    }
}

/// The highest lock that this thread holds, if it prevents the thread from taking one of this rank.
pub(crate) fn obstacle(rank: Rank) -> Option<Rank> {
    let held = chosen::held();
    let is_held = |other: &&Rank| held >> **other as u8 & 1 == 1;
    (held >> rank as u8 != 0)
        .then(|| Rank::ALL.iter().rfind(is_held).copied())
        .flatten()
}

#[cfg(all(debug_assertions, not(feature = "shuttle")))]
mod chosen {
    use crate::Rank;
    use std::sync::atomic::{AtomicU64, Ordering};

    /// Thread number and a bit for each rank that the thread holds. All managers share the tables; a thread that holds
    /// locks of two managers at once would violate the order anyway. A word has no room for all ranks, so the higher
    /// ones are in a second table.
    static HELD: [Table; 2] = [Table::new(0), Table::new(BITS)];
    /// Number of bits for ranks in a word. Thread numbers are below 2^22 (the kernel's `PID_MAX_LIMIT`).
    const BITS: u32 = 42;
    const RANKS: u64 = (1 << BITS) - 1;
    const _: () = assert!(Rank::ALL.len() <= 64);

    /// The ranks from number `first` on, for all threads that hold one of them.
    struct Table {
        first: u32,
        seats: [AtomicU64; 256],
    }

    impl Table {
        const fn new(first: u32) -> Self {
            Self {
                first,
                seats: [const { AtomicU64::new(0) }; 256],
            }
        }

        fn seat_of(&self, thread: u64) -> Option<&AtomicU64> {
            let mut seats = self.seats.iter();
            seats.find(|seat| seat.load(Ordering::Relaxed) & !RANKS == thread)
        }

        /// All ranks that the thread holds.
        fn held_by(&self, thread: u64) -> u64 {
            let held = |seat: &AtomicU64| seat.load(Ordering::Relaxed) & RANKS;
            self.seat_of(thread).map_or(0, held) << self.first
        }

        /// Notes the ranks of this table among `ranks`.
        fn take(&self, me: u64, ranks: u64) {
            let ranks = ranks >> self.first & RANKS;
            if ranks == 0 {
                return;
            }
            if let Some(seat) = self.seat_of(me) {
                seat.fetch_or(ranks, Ordering::Relaxed);
                return;
            }
            // If there are more threads than seats, threads without a seat are not checked.
            let _ = self.seats.iter().find(|seat| {
                seat.compare_exchange(0, me | ranks, Ordering::Relaxed, Ordering::Relaxed)
                    .is_ok()
            });
        }

        fn release(&self, me: u64, ranks: u64) {
            let ranks = ranks >> self.first & RANKS;
            if let Some(seat) = self.seat_of(me).filter(|_| ranks != 0) {
                let left = seat.load(Ordering::Relaxed) & !ranks;
                seat.store(if left & RANKS == 0 { 0 } else { left }, Ordering::Relaxed);
            }
        }
    }

    pub fn me() -> u64 {
        (rustix::thread::gettid().as_raw_nonzero().get() as u64) << BITS
    }

    fn held_by(thread: u64) -> u64 {
        HELD.iter()
            .fold(0, |held, table| held | table.held_by(thread))
    }

    pub fn held() -> u64 {
        held_by(me())
    }

    pub fn taken(rank: Rank) {
        let me = me();
        HELD.iter()
            .for_each(|table| table.take(me, 1 << rank as u8));
    }

    pub fn inherit(from: u64) {
        let me = me();
        let held = held_by(from) | held_by(me);
        for table in &HELD {
            for seat in &table.seats {
                seat.store(0, Ordering::Relaxed);
            }
            table.take(me, held);
        }
    }

    pub fn released(rank: Rank) {
        let me = me();
        HELD.iter()
            .for_each(|table| table.release(me, 1 << rank as u8));
    }
}

#[cfg(feature = "shuttle")]
mod chosen {
    use crate::Rank;
    use std::cell::Cell;

    shuttle::thread_local! {
        static HELD: Cell<u64> = Cell::new(0);
    }

    /// The ranks that this thread holds, changed by `change`. While an execution is torn down no rank counts as held: a
    /// lock dropped at that time is not dropped by the thread that took it.
    fn change(change: impl FnOnce(u64) -> u64) -> u64 {
        if std::thread::panicking() || shuttle::current::try_get_current_task().is_none() {
            return 0;
        }
        let before = HELD.try_with(|held| held.replace(change(held.get())));
        before.unwrap_or(0)
    }

    pub fn me() -> u64 {
        0
    }

    /// There is no real fork under shuttle: the forking thread keeps its locks.
    pub fn inherit(_: u64) {}

    pub fn held() -> u64 {
        change(|held| held)
    }

    pub fn taken(rank: Rank) {
        change(|held| held | 1 << rank as u8);
    }

    pub fn released(rank: Rank) {
        change(|held| held & !(1 << rank as u8));
    }
}

#[cfg(not(any(debug_assertions, feature = "shuttle")))]
mod chosen {
    use crate::Rank;
    pub fn me() -> u64 {
        0
    }
    pub fn inherit(_: u64) {}
    #[inline]
    pub fn held() -> u64 {
        0
    }
    pub fn taken(_: Rank) {}
    pub fn released(_: Rank) {}
}
