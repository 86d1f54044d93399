//! The caches that give way, and what they were asked for (`shrink.rs`).

use millpond_core::GroupId;
use millpond_core::policy::shrink::Owed;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{JoinHandle, ThreadId};

/// How many objects could be given up, and: look at so many, give up what can be, say how many were.
pub(crate) struct Callbacks {
    pub(crate) count: Box<dyn Fn() -> usize + Send>,
    pub(crate) scan: Box<dyn Fn(usize) -> usize + Send>,
    pub(crate) owed: Owed,
    /// Pages of its group that reclaim had scanned at the last round.
    pub(crate) seen: u64,
}

/// One that is registered. The lock is held while it is called, so that it is not called once its guard is gone.
/// A cache that gives way.
pub struct Registered {
    pub(crate) group: GroupId,
    pub(crate) callbacks: Mutex<Option<Callbacks>>,
    pub(crate) gone: AtomicBool,
    pub(crate) scanned: AtomicU64,
    pub(crate) freed: AtomicU64,
}

/// What a shrinker was asked for so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ShrinkerStats {
    /// Objects that it was asked to look at.
    pub scanned: u64,
    /// Objects that it gave up.
    pub freed: u64,
}

/// The caches that give way, and the thread that asks them.
pub struct Shrinkers {
    pub(crate) all: Mutex<Vec<Arc<Registered>>>,
    pub(crate) thread: Mutex<Option<JoinHandle<()>>>,
    /// Futex word: changes when somebody has reclaimed.
    pub(crate) pokes: AtomicU32,
    /// Whether the thread sleeps.
    pub(crate) resting: AtomicBool,
    pub(crate) stop: AtomicBool,
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shrinkers {
    /// There is none.
    pub(crate) fn new() -> Self {
        Self {
            all: Mutex::default(),
            thread: Mutex::default(),
            pokes: AtomicU32::new(0),
            resting: AtomicBool::new(false),
            stop: AtomicBool::new(false),
        }
    }

    pub(crate) fn is_own_thread(&self, me: ThreadId) -> bool {
        lock(&self.thread)
            .as_ref()
            .is_some_and(|thread| thread.thread().id() == me)
    }
}

impl Registered {
    /// What it was asked for so far.
    #[must_use]
    pub fn stats(&self) -> ShrinkerStats {
        ShrinkerStats {
            scanned: self.scanned.load(Ordering::Relaxed),
            freed: self.freed.load(Ordering::Relaxed),
        }
    }
}
