//! A lock for threads that may use neither thread-local storage nor an allocator nor signals.
//!
//! The standard library's mutex keeps a poison flag and asks a thread-local counter whether the thread is panicking.
//! Ours is one word and a futex. It can also be held across `fork`: the child's only thread is the one that took it
//! in the parent, and it releases the lock a second time in the child.

use crate::raw;
use core::sync::atomic::{AtomicU32, Ordering::*};
use millpond_sync::{Rank, witness};

const FREE: u32 = 0;
const HELD: u32 = 1;
/// The lock is held, and a thread sleeps until it is free.
const AWAITED: u32 = 2;

/// Number of attempts before sleeping; most holders finish within a microsecond.
const SPINS: u32 = 100;

/// A lock of one word, with its place in the order of locks. The thread that changes the word from free holds it.
pub struct RawLock(AtomicU32, Rank);

impl RawLock {
    pub const fn new(rank: Rank) -> Self {
        Self(AtomicU32::new(FREE), rank)
    }

    pub fn lock(&self) {
        witness::before(self.1);
        self.wait();
        witness::taken(self.1);
    }

    fn wait(&self) {
        for _ in 0..SPINS {
            if self
                .0
                .compare_exchange_weak(FREE, HELD, Acquire, Relaxed)
                .is_ok()
            {
                return;
            }
            core::hint::spin_loop();
        }
        while self.0.swap(AWAITED, Acquire) != FREE {
            raw::futex_wait(&self.0, AWAITED);
        }
    }

    /// Takes the lock if it becomes free soon (within a tenth of a second, more on a busy machine).
    pub fn lock_soon(&self) -> bool {
        let is_mine = || {
            self.0
                .compare_exchange(FREE, HELD, Acquire, Relaxed)
                .is_ok()
        };
        let taken = (0..1000).any(|_| {
            is_mine() || {
                raw::sleep(100_000);
                false
            }
        });
        if taken {
            witness::taken(self.1);
        }
        taken
    }

    /// Returns whether nobody holds the lock. That lasts only as long as nobody else runs.
    pub fn is_free(&self) -> bool {
        self.0.load(Acquire) == FREE
    }

    /// Frees the lock in a new child, where the thread that may hold it does not exist.
    pub fn reset(&self) {
        self.0.store(FREE, Release);
    }

    /// Releases the lock. Only the holder may call this or, in a new child process, the thread that held it when it
    /// was forked.
    pub fn unlock(&self) {
        witness::released(self.1);
        if self.0.swap(FREE, Release) == AWAITED {
            raw::futex_wake(&self.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::cell::UnsafeCell;

    struct Counter(RawLock, UnsafeCell<u64>);
    // SAFETY: the cell is only used with the lock held.
    unsafe impl Sync for Counter {}

    #[test]
    fn threads_that_take_the_lock_exclude_each_other() {
        let counter = Counter(RawLock::new(Rank::Vma), UnsafeCell::new(0));
        let shared = &counter;
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(move || {
                    for _ in 0..20_000 {
                        shared.0.lock();
                        // SAFETY: the lock is held.
                        unsafe { *shared.1.get() += 1 };
                        shared.0.unlock();
                    }
                });
            }
        });
        assert_eq!(counter.1.into_inner(), 80_000);
    }
}
