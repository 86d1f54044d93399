//! The readers-writer lock with a rank.

use crate::{Rank, RwLock, RwLockReadGuard, RwLockWriteGuard, if_free, witness};
use std::ops::{Deref, DerefMut};
use std::sync::PoisonError;

/// A lock with a place in the order of locks, held by several readers together or by one writer. It is free again when
/// a panic has unwound.
#[derive(Debug)]
pub struct RankedRw<T> {
    rank: Rank,
    lock: RwLock<T>,
}

/// A guard: the thread has the lock, alone or together with others, while the value lives.
#[derive(Debug)]
pub struct HeldRw<G> {
    guard: Option<G>,
    rank: Rank,
    /// Whether this is the second lock of a pair: the witness counts only the first.
    is_second: bool,
}

impl<T> RankedRw<T> {
    /// Makes a lock of this rank around `value`.
    #[track_caller]
    pub const fn new(rank: Rank, value: T) -> Self {
        Self {
            rank,
            lock: RwLock::new(value),
        }
    }

    /// Takes the lock together with other readers.
    pub fn read(&self) -> HeldRw<RwLockReadGuard<'_, T>> {
        witness::before(self.rank);
        self.held(self.lock.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Takes the lock together with other readers, unless a writer has it or waits for it.
    pub fn try_read(&self) -> Option<HeldRw<RwLockReadGuard<'_, T>>> {
        let guard = if_free(self.lock.try_read())?;
        witness::before(self.rank);
        Some(self.held(guard))
    }

    /// Takes the lock alone.
    pub fn write(&self) -> HeldRw<RwLockWriteGuard<'_, T>> {
        witness::before(self.rank);
        self.held(self.lock.write().unwrap_or_else(PoisonError::into_inner))
    }

    /// Takes two locks of the same rank as a writer, the one at the lower address first.
    ///
    /// # Panics
    /// When both are the same one.
    pub fn write_both<'a>(&'a self, other: &'a Self) -> [HeldRw<RwLockWriteGuard<'a, T>>; 2] {
        let is_first = std::ptr::from_ref(self) < std::ptr::from_ref(other);
        assert!(!std::ptr::eq(self, other), "one lock is not taken twice");
        let [low, high] = if is_first {
            [self, other]
        } else {
            [other, self]
        };
        let low = low.write();
        let high = HeldRw {
            guard: Some(high.lock.write().unwrap_or_else(PoisonError::into_inner)),
            rank: high.rank,
            is_second: true,
        };
        if is_first { [low, high] } else { [high, low] }
    }

    /// The value of a lock that nobody else uses.
    pub fn into_inner(self) -> T {
        self.lock
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn held<G>(&self, guard: G) -> HeldRw<G> {
        witness::taken(self.rank);
        HeldRw {
            guard: Some(guard),
            rank: self.rank,
            is_second: false,
        }
    }
}

impl<G: Deref> Deref for HeldRw<G> {
    type Target = G::Target;
    fn deref(&self) -> &G::Target {
        self.guard.as_ref().expect("held until dropped")
    }
}

impl<G: DerefMut> DerefMut for HeldRw<G> {
    fn deref_mut(&mut self) -> &mut G::Target {
        self.guard.as_mut().expect("held until dropped")
    }
}

impl<G> Drop for HeldRw<G> {
    fn drop(&mut self) {
        self.guard = None;
        if !self.is_second {
            witness::released(self.rank);
        }
    }
}
