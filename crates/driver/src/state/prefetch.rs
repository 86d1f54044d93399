//! The ranges to prefetch (`prefetch.rs`).

#[cfg(feature = "shuttle")]
use crate::sabotage::{self, Sabotage};
use millpond_core::PageRange;
use millpond_sync::atomic::{AtomicBool, Ordering};
use millpond_sync::{Condvar, Held, OwnThread, Rank, Ranked};
use std::collections::VecDeque;

/// Maximum number of waiting ranges.
pub(crate) const QUEUE: usize = 64;

#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) queue: VecDeque<PageRange>,
    /// The range that the thread is bringing in.
    pub(crate) current: Option<PageRange>,
    pub(crate) thread: Option<OwnThread>,
    pub(crate) stop: bool,
}

/// The queue of ranges to prefetch. See the [module](self).
#[derive(Debug)]
pub struct Prefetcher {
    pub(crate) state: Ranked<State>,
    pub(crate) asked: Condvar,
    /// Whether the thread must release its range.
    pub(crate) called_off: AtomicBool,
    /// Notified when the thread has released its range.
    pub(crate) let_go: Condvar,
}

impl Prefetcher {
    pub(crate) fn new() -> Self {
        Self {
            state: Ranked::new(Rank::Prefetches, State::default()),
            asked: Condvar::new(),
            called_off: AtomicBool::new(false),
            let_go: Condvar::new(),
        }
    }

    pub(crate) fn lock(&self) -> Held<'_, State> {
        self.state.lock()
    }

    /// The next range, when there is one; `None` at the end.
    pub(crate) fn next(&self) -> Option<PageRange> {
        let mut state = self.lock();
        loop {
            if state.stop {
                return None;
            }
            if let Some(range) = state.queue.pop_front() {
                state.current = Some(range);
                self.called_off.store(false, Ordering::Relaxed);
                return Some(range);
            }
            state = state.wait(&self.asked);
        }
    }

    /// Notes that from here on the thread touches nothing of its range.
    pub(crate) fn let_go(&self) {
        self.lock().current = None;
        self.let_go.notify_all();
    }

    pub(crate) fn is_called_off(&self) -> bool {
        self.called_off.load(Ordering::Relaxed)
    }

    /// Removes ranges that overlap `range` from the queue, and waits until the thread brings in none of it.
    pub(crate) fn forget(&self, range: PageRange) {
        let apart = |other: PageRange| other.end() <= range.start || range.end() <= other.start;
        let mut state = self.lock();
        state.queue.retain(|&asked| apart(asked));
        #[cfg(feature = "shuttle")]
        if sabotage::is_out(Sabotage::PrefetchOutlives) {
            return;
        }
        while state.current.is_some_and(|current| !apart(current)) {
            // The flag is cleared under the lock, with the next range.
            self.called_off.store(true, Ordering::Relaxed);
            state = state.wait(&self.let_go);
        }
    }
}
