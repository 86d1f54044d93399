//! Bringing in what somebody will want, by a thread of our own.
//!
//! Whoever asks puts a range into a queue and goes on. The thread is outside of the gate between two pieces of a range,
//! so that a snapshot or a move of memory waits for 2 MiB of it at most. The queue is short: who asks faster than
//! memory comes in wants the latest. Faults never take its lock.
//!
//! *A region that ends* must not have its addresses touched afterwards: pages that came in then would belong to nobody,
//! or to the region that is made there next. So whoever ends one, or moves it, takes its ranges out of the queue, calls
//! off the one that is being brought in, and waits until the thread has let go of it: one page at most.

use super::Driver;
use super::fault::Patience;
use crate::signals::SignalsBlocked;
use millpond_core::{Access, Advice, Event, LEAF_PAGES, PageCount, PageIndex, PageRange};
use millpond_mmu::panics::Ours;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

/// Ranges that wait.
const QUEUE: usize = 64;

/// Why there is no thread: what the system said.
#[derive(Debug)]
pub(crate) struct PrefetchError(pub(crate) String);

#[derive(Debug, Default)]
struct State {
    queue: VecDeque<PageRange>,
    /// What the thread is at.
    current: Option<PageRange>,
    thread: Option<JoinHandle<()>>,
    stop: bool,
}

/// See the [module](self).
#[derive(Debug, Default)]
pub(crate) struct Prefetcher {
    state: Mutex<State>,
    asked: Condvar,
    /// The thread is to let go of what it is at.
    called_off: AtomicBool,
    /// It has.
    let_go: Condvar,
}

impl Prefetcher {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next range, when there is one; `None` at the end.
    fn next(&self) -> Option<PageRange> {
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
            let waited = self.asked.wait(state);
            state = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// The thread touches nothing of its range from here on.
    fn let_go(&self) {
        self.lock().current = None;
        self.let_go.notify_all();
    }

    fn is_called_off(&self) -> bool {
        self.called_off.load(Ordering::Relaxed)
    }

    /// Takes what overlaps `range` out of the queue, and waits until the thread is at none of it.
    fn forget(&self, range: PageRange) {
        let apart = |other: PageRange| other.end() <= range.start || range.end() <= other.start;
        let mut state = self.lock();
        state.queue.retain(|&asked| apart(asked));
        while state.current.is_some_and(|current| !apart(current)) {
            // Cleared under the lock, with the next range.
            self.called_off.store(true, Ordering::Relaxed);
            let waited = self.let_go.wait(state);
            state = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// Has `range` brought in by `driver`'s thread, which is started with the first.
pub(crate) fn ask(driver: &Arc<Driver>, range: PageRange) -> Result<(), PrefetchError> {
    let _quiet = SignalsBlocked::new();
    let mut state = driver.prefetcher.lock();
    if state.thread.is_none() {
        let worker = Arc::clone(driver);
        let started = std::thread::Builder::new()
            .name("millpond-fetch".into())
            .spawn(move || {
                let _ours = Ours::enter();
                while let Some(range) = worker.prefetcher.next() {
                    #[cfg(test)]
                    super::provoke::here(super::provoke::Kind::Prefetcher);
                    worker.fetch(range);
                    worker.prefetcher.let_go();
                }
            });
        state.thread = Some(started.map_err(|error| PrefetchError(error.to_string()))?);
    }
    if state.queue.len() == QUEUE {
        state.queue.pop_front();
    }
    state.queue.push_back(range);
    driver.prefetcher.asked.notify_one();
    Ok(())
}

impl Driver {
    /// Brings in what is there of `range`, until it is called off.
    fn fetch(&self, range: PageRange) {
        let advice = Advice::WillNeed;
        let _ = self.operate(range, |range| Event::Advise { range, advice });
        let mut rest = range;
        while rest.len > PageCount::ZERO {
            let end = PageIndex((rest.start.0 / LEAF_PAGES + 1) * LEAF_PAGES);
            let here = PageCount(end.0 - rest.start.0).min(rest.len);
            let here = PageRange::new(rest.start, here);
            let _inside = self.gate.enter();
            for page in here.pages() {
                if self.prefetcher.is_called_off() {
                    return;
                }
                // A page that cannot be had is told to who touches it.
                let _ = self.bring_in(page, Access::Read, Patience::Wait);
            }
            rest = rest.tail(here.end());
        }
    }

    /// What was asked for of `range` is not wanted any more: another region may lie there next. When this returns,
    /// nothing of it is brought in any more.
    pub(crate) fn forget_prefetches(&self, range: PageRange) {
        let _quiet = SignalsBlocked::new();
        self.prefetcher.forget(range);
    }

    /// Ends the thread, when it has brought in the piece that it is at.
    pub(crate) fn stop_prefetching(&self) {
        let thread = {
            let mut state = self.prefetcher.lock();
            state.stop = true;
            state.queue.clear();
            self.prefetcher.called_off.store(true, Ordering::Relaxed);
            self.prefetcher.asked.notify_one();
            state.thread.take()
        };
        if let Some(thread) = thread {
            // A panic there has ended the process.
            let _ = thread.join();
        }
    }
}
