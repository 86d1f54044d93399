//! Panics on one of our threads, for tests: each kind of thread checks here once per round whether it should panic.

use std::sync::atomic::{AtomicU8, Ordering::SeqCst};

/// The thread that is to panic.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// The thread that frees.
    Freer = 1,
    /// The thread that prefetches.
    Prefetcher,
    /// The thread that calls shrinkers.
    Shrinker,
    /// The thread that looks for long waits of faults.
    Watchdog,
    /// No thread: the core gets an event that does not fit its state.
    #[cfg(debug_assertions)]
    Core,
    /// No thread: the core's check reports a failure.
    #[cfg(debug_assertions)]
    Check,
}

static WANTED: AtomicU8 = AtomicU8::new(0);

/// Makes the next round of a thread of this kind panic.
pub fn want(kind: Kind) {
    WANTED.store(kind as u8, SeqCst);
}

/// Panics if a test wants this kind of thread to.
pub(crate) fn here(kind: Kind) {
    let count = WANTED.load(SeqCst);
    assert!(count != kind as u8, "lost count of {count}");
}
