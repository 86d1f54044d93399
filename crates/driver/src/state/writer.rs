//! The thread that writes back in the background, and its sleep (`write_back.rs`).

use millpond_sync::atomic::{AtomicBool, Ordering};
use millpond_sync::{Condvar, OwnThread, Rank, Ranked};
use std::time::Duration;

/// The thread, and whether it must end. See the [module](self).
#[derive(Debug)]
pub struct Writer {
    started: AtomicBool,
    thread: Ranked<Option<OwnThread>>,
    stop: Ranked<bool>,
    stopped: Condvar,
}

impl Writer {
    pub(crate) const fn new() -> Self {
        Self {
            started: AtomicBool::new(false),
            thread: Ranked::new(Rank::Writer, None),
            stop: Ranked::new(Rank::Writer, false),
            stopped: Condvar::new(),
        }
    }

    /// Notes that there is a thread from here on. Returns whether there was one before.
    pub(crate) fn start(&self) -> bool {
        self.started.swap(true, Ordering::SeqCst)
    }

    /// Keeps the thread's handle, if the system had one.
    pub(crate) fn keep(&self, thread: Option<OwnThread>) {
        *self.thread.lock() = thread;
    }

    /// Sleeps for `time`. Returns false when the thread must end.
    pub(crate) fn rest(&self, time: Duration) -> bool {
        let stop = self.stop.lock();
        !*stop && !*stop.wait_timeout(&self.stopped, time)
    }

    /// Tells the thread to end, and waits for it.
    pub(crate) fn stop(&self) {
        *self.stop.lock() = true;
        self.stopped.notify_all();
        let thread = self.thread.lock().take();
        if let Some(thread) = thread {
            thread.join();
        }
    }
}
