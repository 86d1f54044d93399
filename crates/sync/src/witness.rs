//! Checks the order of locks, in builds with debug assertions and under shuttle.
//!
//! The ranks that each thread holds are kept in a small static table and not in thread-local storage. In a preloaded
//! library, thread-local storage is found by way of memory that the program's allocator gave out. That is managed
//! memory, which must not be touched under these locks. (Shuttle's threads have a storage of their own, which is empty
//! at the start of each execution.)

pub(crate) use chosen::{before, released, taken};

/// The owner of locks across a fork: the child has another thread number, and holds the locks of the thread that
/// forked.
#[derive(Debug)]
pub struct LocksOf(u64);

impl LocksOf {
    /// The locks that this thread holds.
    pub fn this_thread() -> Self {
        Self(chosen::me())
    }

    /// Takes over the forking thread's locks in the child, which has only this thread: no other thread holds a lock
    /// there.
    pub fn inherit(&self) {
        chosen::inherit(self.0);
    }
}

#[cfg(any(debug_assertions, feature = "shuttle"))]
fn check(rank: crate::Rank, held: u64) {
    assert!(
        held >> rank as u8 == 0,
        "taking {rank:?} while holding ranks {held:#b}: see docs/LOCKS.md"
    );
}

#[cfg(all(debug_assertions, not(feature = "shuttle")))]
mod chosen {
    use crate::Rank;
    use std::sync::atomic::{AtomicU64, Ordering};

    /// Thread number and a bit for each rank that the thread holds. All managers share the table; a thread that holds
    /// locks of two managers at once would be out of order anyway.
    static HELD: [AtomicU64; 256] = [const { AtomicU64::new(0) }; 256];
    const RANKS: u64 = 0xff;

    pub fn me() -> u64 {
        (rustix::thread::gettid().as_raw_nonzero().get() as u64) << 8
    }

    fn mine() -> Option<&'static AtomicU64> {
        let me = me();
        HELD.iter()
            .find(|seat| seat.load(Ordering::Relaxed) & !RANKS == me)
    }

    pub fn before(rank: Rank) {
        let held = mine().map_or(0, |seat| seat.load(Ordering::Relaxed) & RANKS);
        super::check(rank, held);
    }

    pub fn taken(rank: Rank) {
        let bit = 1 << rank as u8;
        if let Some(seat) = mine() {
            seat.fetch_or(bit, Ordering::Relaxed);
            return;
        }
        // If there are more threads than seats, the check leaves out the threads that find none.
        let _ = HELD.iter().find(|seat| {
            seat.compare_exchange(0, me() | bit, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
        });
    }

    pub fn inherit(from: u64) {
        for seat in &HELD {
            let held = seat.load(Ordering::Relaxed);
            let held = (held & !RANKS == from).then_some(me() | (held & RANKS));
            seat.store(held.unwrap_or(0), Ordering::Relaxed);
        }
    }

    pub fn released(rank: Rank) {
        if let Some(seat) = mine() {
            let left = seat.load(Ordering::Relaxed) & !(1 << rank as u8);
            seat.store(if left & RANKS == 0 { 0 } else { left }, Ordering::Relaxed);
        }
    }
}

#[cfg(feature = "shuttle")]
mod chosen {
    use crate::Rank;
    use std::cell::Cell;

    shuttle::thread_local! {
        static HELD: Cell<u64> = Cell::new(0);
    }

    /// The ranks that this thread holds, changed by `change`. None is held while an execution is torn down: what is
    /// dropped then is not dropped by the thread that took it.
    fn held(change: impl FnOnce(u64) -> u64) -> u64 {
        if std::thread::panicking() || shuttle::current::try_get_current_task().is_none() {
            return 0;
        }
        let before = HELD.try_with(|held| held.replace(change(held.get())));
        before.unwrap_or(0)
    }

    pub fn me() -> u64 {
        0
    }

    /// There is no real fork under shuttle: the forking thread goes on with what it holds.
    pub fn inherit(_: u64) {}

    pub fn before(rank: Rank) {
        super::check(rank, held(|held| held));
    }

    pub fn taken(rank: Rank) {
        held(|held| held | 1 << rank as u8);
    }

    pub fn released(rank: Rank) {
        held(|held| held & !(1 << rank as u8));
    }
}

#[cfg(not(any(debug_assertions, feature = "shuttle")))]
mod chosen {
    use crate::Rank;
    pub fn me() -> u64 {
        0
    }
    pub fn inherit(_: u64) {}
    pub fn before(_: Rank) {}
    pub fn taken(_: Rank) {}
    pub fn released(_: Rank) {}
}
