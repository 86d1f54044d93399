//! Prefetching: one of our threads brings in memory that will be needed.
//!
//! The requesting thread puts a range into a queue and continues. The prefetching thread is outside the gate between
//! two pieces of a range, so a snapshot or a move of memory waits for at most 2 MiB of it. The queue is short: a
//! program that requests memory faster than it comes in needs the latest ranges. Faults never take the queue's lock.
//!
//! *After a region has ended*, its addresses must not be touched: pages that came in then would belong to no region, or
//! to the next region made there. So a thread that ends or moves a region removes its ranges from the queue, calls off
//! the range that is being brought in, and waits until the prefetching thread has released it: one page at most.

use crate::driver::Driver;
use crate::fault::Patience;
use crate::memory::Memory;
use crate::panics::Ours;
use crate::signals::SignalsBlocked;
use crate::state::prefetch::QUEUE;
use millpond_core::{Advice, Event, LEAF_PAGES, PageCount, PageIndex, PageRange};
use millpond_sync::OwnThread;
use millpond_sync::atomic::Ordering;
use std::sync::Arc;

/// The text of the system's error when the prefetching thread could not be started.
#[derive(Debug)]
pub struct PrefetchError(pub String);

/// Asks `driver`'s prefetching thread, which the first call starts, to bring in `range`.
pub fn ask<M: Memory>(driver: &Arc<Driver<M>>, range: PageRange) -> Result<(), PrefetchError> {
    let _quiet = SignalsBlocked::new();
    let mut state = driver.prefetcher.lock();
    if state.thread.is_none() {
        let worker = Arc::clone(driver);
        let started = OwnThread::start(c"millpond-fetch", move || {
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

impl<M: Memory> Driver<M> {
    /// Brings in the pages of `range`, until the range is called off.
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
                // A page that cannot be brought in is reported to the thread that touches it.
                let _ = self.fault_in(page, Patience::Wait);
            }
            rest = rest.tail(here.end());
        }
    }

    /// Forgets the requests in `range`, and the streams there, as another region may lie there next. When this returns,
    /// no page of it is brought in any longer.
    pub fn forget_prefetches(&self, range: PageRange) {
        let _quiet = SignalsBlocked::new();
        self.prefetcher.forget(range);
        self.read_ahead.forget(range);
    }

    /// Ends the prefetching thread after its current piece, and the threads that read ahead.
    pub fn stop_prefetching(&self) {
        self.stop_reading_ahead();
        let thread = {
            let mut state = self.prefetcher.lock();
            state.stop = true;
            state.queue.clear();
            self.prefetcher.called_off.store(true, Ordering::Relaxed);
            self.prefetcher.asked.notify_one();
            state.thread.take()
        };
        if let Some(thread) = thread {
            thread.join();
        }
    }
}
