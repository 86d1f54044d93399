//! Panics on a thread of ours, for tests: each kind of thread looks here once a round.

use std::sync::atomic::{AtomicU8, Ordering::SeqCst};

/// Which thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// The one that frees.
    Freer = 1,
    /// The one that prefetches.
    Prefetcher,
    /// The one that calls shrinkers.
    Shrinker,
    /// The one that looks for faults that wait.
    Watchdog,
    /// None: the core is told what does not fit.
    #[cfg(debug_assertions)]
    Core,
    /// None: the core is said to make no sense.
    #[cfg(debug_assertions)]
    Check,
}

static WANTED: AtomicU8 = AtomicU8::new(0);

/// The next round of a thread of this kind panics.
pub fn want(kind: Kind) {
    WANTED.store(kind as u8, SeqCst);
}

/// Panics when a test wants this thread to.
pub(crate) fn here(kind: Kind) {
    let count = WANTED.load(SeqCst);
    assert!(count != kind as u8, "lost count of {count}");
}
