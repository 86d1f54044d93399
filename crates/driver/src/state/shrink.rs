//! The caches that shrink on request, and the figures of these requests (`shrink.rs`).

use millpond_core::GroupId;
use millpond_core::policy::shrink::Owed;
use millpond_sync::atomic::{AtomicBool, AtomicU64, Ordering};
use millpond_sync::{OwnThread, Rank, Ranked, Word};
use std::sync::Arc;

/// The callbacks of a shrinker. `count` returns how many objects could be given up. `scan` examines the given number,
/// gives up those that it can, and returns how many these were.
pub(crate) struct Callbacks {
    pub(crate) count: Box<dyn Fn() -> usize + Send>,
    pub(crate) scan: Box<dyn Fn(usize) -> usize + Send>,
    pub(crate) owed: Owed,
    /// Pages of the shrinker's group that reclaim had scanned at the last round.
    pub(crate) seen: u64,
}

/// A registered cache. The lock of its callbacks is held while they are called, so that they are not called once the
/// guard is dropped.
pub struct Registered {
    pub(crate) group: GroupId,
    pub(crate) callbacks: Ranked<Option<Callbacks>>,
    pub(crate) gone: AtomicBool,
    pub(crate) scanned: AtomicU64,
    pub(crate) freed: AtomicU64,
}

/// Figures of the requests to a shrinker so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ShrinkerStats {
    /// Objects that the shrinker was asked to examine.
    pub scanned: u64,
    /// Objects that the shrinker gave up.
    pub freed: u64,
}

/// The registered caches, and the thread that asks them to shrink.
pub struct Shrinkers {
    pub(crate) all: Ranked<Vec<Arc<Registered>>>,
    pub(crate) thread: Ranked<Option<OwnThread>>,
    /// Futex word that changes when a thread has reclaimed.
    pub(crate) pokes: Word,
    /// Whether the thread sleeps.
    pub(crate) resting: AtomicBool,
    pub(crate) stop: AtomicBool,
}

impl Shrinkers {
    /// Makes an empty list.
    pub(crate) fn new() -> Self {
        Self {
            all: Ranked::new(Rank::Shrinkers, Vec::new()),
            thread: Ranked::new(Rank::ShrinkerThread, None),
            pokes: Word::new(0),
            resting: AtomicBool::new(false),
            stop: AtomicBool::new(false),
        }
    }

    pub(crate) fn is_own_thread(&self) -> bool {
        self.thread
            .lock()
            .as_ref()
            .is_some_and(OwnThread::is_current)
    }
}

impl Registered {
    /// Figures of the requests to the shrinker so far.
    #[must_use]
    pub fn stats(&self) -> ShrinkerStats {
        ShrinkerStats {
            scanned: self.scanned.load(Ordering::Relaxed),
            freed: self.freed.load(Ordering::Relaxed),
        }
    }
}
