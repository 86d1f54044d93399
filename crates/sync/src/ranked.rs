//! The mutex with a rank.
//!
//! A thread that finds a lock of the work on memory taken tries for a while before it sleeps. The core is held for a
//! microsecond, and for ten or twenty while the results of a batch go in. A sleep takes longer, and the thread that
//! releases the lock has to wake the sleeper, which on a virtual machine costs another 30 to 50 µs if the sleeper's
//! processor has halted. A fault pays this for the reclaim thread as often as the other way round. Of the faults that
//! took more than 30 µs while that thread ran, half waited for the core or woke the other thread; with patience (then
//! fifty microseconds) one in thirty did. Twenty microseconds cover nearly every batch; ten did not.

use crate::{Condvar, Mutex, MutexGuard, Rank, if_free, witness};
use std::sync::PoisonError;
use std::time::Duration;

/// Time for which a thread tries before it sleeps: longer than nearly every use of the core.
#[cfg(not(feature = "shuttle"))]
const SPIN: Duration = Duration::from_micros(20);
/// Pauses between two tries.
#[cfg(not(feature = "shuttle"))]
const TRIES: u32 = 8;

/// A mutex with a place in the order of locks. A panic while a lock of the work on memory is held ends the process;
/// other locks are free again when a panic has unwound.
#[derive(Debug)]
pub struct Ranked<T> {
    rank: Rank,
    mutex: Mutex<T>,
}

/// A guard: the lock is held while the value lives.
#[derive(Debug)]
pub struct Held<'a, T> {
    guard: Option<MutexGuard<'a, T>>,
    lock: &'a Ranked<T>,
}

impl<T> Ranked<T> {
    /// Makes a lock of this rank around `value`.
    #[track_caller]
    pub const fn new(rank: Rank, value: T) -> Self {
        Self {
            rank,
            mutex: Mutex::new(value),
        }
    }

    /// Takes the lock.
    pub fn lock(&self) -> Held<'_, T> {
        witness::before(self.rank);
        let guard = self
            .try_for_a_while()
            .unwrap_or_else(|| self.mutex.lock().unwrap_or_else(PoisonError::into_inner));
        self.held(guard)
    }

    /// Takes the lock if no thread has it.
    pub fn try_lock(&self) -> Option<Held<'_, T>> {
        let guard = self.try_once()?;
        witness::before(self.rank);
        Some(self.held(guard))
    }

    /// Takes the lock if no thread has it, whatever locks this thread holds: a thread that does not wait cannot
    /// deadlock. Until the lock is released, only locks of higher ranks may be taken.
    pub fn try_out_of_order(&self) -> Option<Held<'_, T>> {
        self.try_once().map(|guard| self.held(guard))
    }

    /// The value of a lock that nobody else uses.
    pub fn into_inner(self) -> T {
        self.mutex
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn held<'a>(&'a self, guard: MutexGuard<'a, T>) -> Held<'a, T> {
        witness::taken(self.rank);
        Held {
            guard: Some(guard),
            lock: self,
        }
    }

    fn try_once(&self) -> Option<MutexGuard<'_, T>> {
        if_free(self.mutex.try_lock())
    }

    /// Tries until the lock is taken or [`SPIN`] has passed, or only once.
    #[cfg(not(feature = "shuttle"))]
    fn try_for_a_while(&self) -> Option<MutexGuard<'_, T>> {
        let mut begun = None;
        loop {
            if let Some(guard) = self.try_once() {
                return Some(guard);
            }
            let begun = begun.get_or_insert_with(std::time::Instant::now);
            if !self.rank.is_of_work() || begun.elapsed() >= SPIN {
                return None;
            }
            for _ in 0..TRIES {
                std::hint::spin_loop();
            }
        }
    }

    /// Does not try: shuttle's scheduler decides who has the lock next.
    #[cfg(feature = "shuttle")]
    fn try_for_a_while(&self) -> Option<MutexGuard<'_, T>> {
        None
    }
}

impl<'a, T> Held<'a, T> {
    /// Releases the lock until `signal` is notified, and takes it again.
    pub fn wait(self, signal: &Condvar) -> Self {
        self.let_go(|guard| signal.wait(guard).unwrap_or_else(PoisonError::into_inner))
    }

    /// Releases the lock until `signal` is notified or `limit` has passed, and takes it again.
    pub fn wait_timeout(self, signal: &Condvar, limit: Duration) -> Self {
        self.let_go(|guard| {
            let waited = signal.wait_timeout(guard, limit);
            waited.unwrap_or_else(PoisonError::into_inner).0
        })
    }

    fn let_go(mut self, wait: impl FnOnce(MutexGuard<'a, T>) -> MutexGuard<'a, T>) -> Self {
        let guard = self.guard.take().expect("held until dropped");
        witness::released(self.lock.rank);
        // The lock is taken again at the end, whatever other locks are held then.
        witness::before(self.lock.rank);
        let guard = wait(guard);
        witness::taken(self.lock.rank);
        self.guard = Some(guard);
        self
    }
}

impl<T> std::ops::Deref for Held<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        self.guard.as_ref().expect("held until dropped")
    }
}

impl<T> std::ops::DerefMut for Held<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.guard.as_mut().expect("held until dropped")
    }
}

impl<T> Drop for Held<'_, T> {
    fn drop(&mut self) {
        if self.guard.take().is_some() {
            witness::released(self.lock.rank);
            #[cfg(not(feature = "shuttle"))]
            if self.lock.rank.is_of_work() && self.lock.mutex.is_poisoned() {
                crate::end::end();
            }
        }
    }
}
