//! Bringing in what somebody will want, by a thread of our own.
//!
//! Whoever asks puts a range into a queue and goes on. The thread is outside of the gate between two pieces of a range,
//! so that a snapshot or a move of memory waits for 2 MiB of it at most. The queue is short: who asks faster than
//! memory comes in wants the latest. Faults never take its lock.

use super::Driver;
use super::fault::Patience;
use crate::signals::SignalsBlocked;
use millpond_core::{Access, Advice, Event, LEAF_PAGES, PageCount, PageIndex, PageRange};
use std::collections::VecDeque;
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
    thread: Option<JoinHandle<()>>,
    stop: bool,
}

/// See the [module](self).
#[derive(Debug, Default)]
pub(crate) struct Prefetcher {
    state: Mutex<State>,
    asked: Condvar,
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
                return Some(range);
            }
            let waited = self.asked.wait(state);
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
                while let Some(range) = worker.prefetcher.next() {
                    worker.fetch(range);
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
    /// Brings in what is there of `range`. A region that has gone meanwhile has nothing.
    fn fetch(&self, range: PageRange) {
        let advice = Advice::WillNeed;
        let _ = self.operate(range, |range| Event::Advise { range, advice });
        let mut rest = range;
        while rest.len > PageCount::ZERO && !self.prefetcher.lock().stop {
            let end = PageIndex((rest.start.0 / LEAF_PAGES + 1) * LEAF_PAGES);
            let here = PageCount(end.0 - rest.start.0).min(rest.len);
            let here = PageRange::new(rest.start, here);
            let _inside = self.gate.enter();
            for page in here.pages() {
                // A page that cannot be had is told to who touches it.
                let _ = self.bring_in(page, Access::Read, Patience::Wait);
            }
            rest = rest.tail(here.end());
        }
    }

    /// What was asked for of `range` is not wanted any more: another region may lie there next.
    pub(crate) fn forget_prefetches(&self, range: PageRange) {
        let mut state = self.prefetcher.lock();
        state.queue.retain(|asked| !range.covers(*asked));
    }

    /// Ends the thread, when it has brought in the piece that it is at.
    pub(crate) fn stop_prefetching(&self) {
        let thread = {
            let mut state = self.prefetcher.lock();
            state.stop = true;
            state.queue.clear();
            self.prefetcher.asked.notify_one();
            state.thread.take()
        };
        if let Some(thread) = thread {
            // A panic there has been reported by the thread itself.
            let _ = thread.join();
        }
    }
}
