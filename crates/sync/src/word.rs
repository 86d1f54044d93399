//! A word on which threads wait, for wake-ups without a lock.

use std::time::Duration;

#[cfg(not(feature = "shuttle"))]
use crate::atomic::{AtomicU32, Ordering::SeqCst};
#[cfg(not(feature = "shuttle"))]
use rustix::thread::futex;

/// A futex: a number whose change a thread can wait for. A thread that changes the number wakes the waiting thread by a
/// second call. Neither call takes a lock or allocates.
#[derive(Debug)]
pub struct Word {
    #[cfg(not(feature = "shuttle"))]
    value: AtomicU32,
    #[cfg(feature = "shuttle")]
    value: crate::Mutex<u32>,
    #[cfg(feature = "shuttle")]
    changed: crate::Condvar,
}

#[cfg(not(feature = "shuttle"))]
impl Word {
    /// Makes a word of this value.
    pub const fn new(value: u32) -> Self {
        Self {
            value: AtomicU32::new(value),
        }
    }

    /// The value.
    pub fn load(&self) -> u32 {
        self.value.load(SeqCst)
    }

    /// Sets the value, and wakes nobody.
    pub fn store(&self, value: u32) {
        self.value.store(value, SeqCst);
    }

    /// Adds one to the value, and wakes nobody. It wraps round to zero after the highest number.
    pub fn advance(&self) {
        self.value.fetch_add(1, SeqCst);
    }

    /// Sleeps until another thread wakes this one, unless the value already differs from `seen`. It may return earlier,
    /// and does when `limit` has passed.
    pub fn wait(&self, seen: u32, limit: Option<Duration>) {
        let limit = limit.map(|limit| futex::Timespec {
            tv_sec: limit.as_secs() as i64,
            tv_nsec: i64::from(limit.subsec_nanos()),
        });
        let _ = futex::wait(&self.value, futex::Flags::PRIVATE, seen, limit.as_ref());
    }

    /// Wakes a thread that waits.
    pub fn wake(&self) {
        let _ = futex::wake(&self.value, futex::Flags::PRIVATE, 1);
    }
}

/// The word made of a mutex and a condition variable. No time limit elapses.
#[cfg(feature = "shuttle")]
impl Word {
    /// Makes a word of this value.
    pub const fn new(value: u32) -> Self {
        Self {
            value: crate::Mutex::new(value),
            changed: crate::Condvar::new(),
        }
    }

    fn lock(&self) -> crate::MutexGuard<'_, u32> {
        let value = self.value.lock();
        value.unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// The value.
    pub fn load(&self) -> u32 {
        *self.lock()
    }

    /// Sets the value, and wakes nobody.
    pub fn store(&self, value: u32) {
        *self.lock() = value;
    }

    /// Adds one to the value, and wakes nobody. It wraps round to zero after the highest number.
    pub fn advance(&self) {
        let mut value = self.lock();
        *value = value.wrapping_add(1);
    }

    /// Sleeps until another thread wakes this one, unless the value already differs from `seen`.
    pub fn wait(&self, seen: u32, _limit: Option<Duration>) {
        let value = self.lock();
        if *value == seen {
            drop(self.changed.wait(value));
        }
    }

    /// Wakes a thread that waits.
    pub fn wake(&self) {
        self.changed.notify_one();
    }
}
