//! Bringing in what somebody will want, by a thread of our own.
//!
//! Whoever asks puts a range into a queue and goes on. The thread is outside of the gate between two pieces of a range,
//! so that a snapshot or a move of memory waits for 2 MiB of it at most. The queue is short: who asks faster than
//! memory comes in wants the latest. Faults never take its lock.
//!
//! *A region that ends* must not have its addresses touched afterwards: pages that came in then would belong to nobody,
//! or to the region that is made there next. So whoever ends one, or moves it, takes its ranges out of the queue, calls
//! off the one that is being brought in, and waits until the thread has let go of it: one page at most.

use crate::driver::Driver;
use crate::fault::Patience;
use crate::signals::SignalsBlocked;
use crate::state::prefetch::QUEUE;
use millpond_core::{Access, Advice, Event, LEAF_PAGES, PageCount, PageIndex, PageRange};
use millpond_mmu::panics::Ours;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Why there is no thread: what the system said.
#[derive(Debug)]
pub struct PrefetchError(pub String);

/// Has `range` brought in by `driver`'s thread, which is started with the first.
pub fn ask(driver: &Arc<Driver>, range: PageRange) -> Result<(), PrefetchError> {
    let _quiet = SignalsBlocked::new();
    let mut state = driver.prefetcher.lock();
    if state.thread.is_none() {
        let worker = Arc::clone(driver);
        let started = std::thread::Builder::new()
            .name("millpond-fetch".into())
            .spawn(move || {
                let _ours = Ours::enter();
                while let Some(range) = worker.prefetcher.next() {
                    #[cfg(feature = "provoke")]
                    crate::provoke::here(crate::provoke::Kind::Prefetcher);
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
    pub fn forget_prefetches(&self, range: PageRange) {
        let _quiet = SignalsBlocked::new();
        self.prefetcher.forget(range);
    }

    /// Ends the thread, when it has brought in the piece that it is at.
    pub fn stop_prefetching(&self) {
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
