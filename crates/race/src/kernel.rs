//! Threads that sleep in the kernel at an absent page, and the thread that reads their faults (handler delivery).
//!
//! As with userfaultfd: a thread that touches an absent page is put to sleep, unless the page has arrived in the
//! meantime, and a message about it can be read, once. A call that maps pages or wakes a range wakes the threads that
//! sleep there, and they touch the page again. A message that has not been read by then is gone.

use millpond_core::{PageIndex, PageRange};
use millpond_sync::{Condvar, Mutex, MutexGuard};
use std::sync::PoisonError;

#[derive(Default)]
struct Waiting {
    asleep: Vec<Sleeper>,
    faults: u64,
    stop: bool,
}

struct Sleeper {
    page: PageIndex,
    fault: u64,
    is_read: bool,
}

/// The sleeping threads; see the [module](self).
pub struct Kernel {
    waiting: Mutex<Waiting>,
    changed: Condvar,
}

impl Default for Kernel {
    fn default() -> Self {
        Self {
            waiting: Mutex::new(Waiting::default()),
            changed: Condvar::new(),
        }
    }
}

impl Kernel {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, waiting: MutexGuard<'a, Waiting>) -> MutexGuard<'a, Waiting> {
        let waiting = self.changed.wait(waiting);
        waiting.unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts the thread to sleep until it is woken at `page`, if the page is still absent.
    pub fn sleep(&self, page: PageIndex, is_absent: impl FnOnce() -> bool) {
        let mut waiting = self.lock();
        if !is_absent() {
            return;
        }
        waiting.faults += 1;
        let fault = waiting.faults;
        waiting.asleep.push(Sleeper {
            page,
            fault,
            is_read: false,
        });
        self.changed.notify_all();
        while waiting.asleep.iter().any(|other| other.fault == fault) {
            waiting = self.wait(waiting);
        }
    }

    /// Waits for the next fault and returns its page; `None` at the end.
    pub fn next_fault(&self) -> Option<PageIndex> {
        let mut waiting = self.lock();
        loop {
            if let Some(unread) = waiting.asleep.iter_mut().find(|sleeper| !sleeper.is_read) {
                unread.is_read = true;
                return Some(unread.page);
            }
            if waiting.stop {
                return None;
            }
            waiting = self.wait(waiting);
        }
    }

    /// Wakes the threads that sleep in the range.
    pub fn wake(&self, range: PageRange) {
        let mut waiting = self.lock();
        let before = waiting.asleep.len();
        waiting
            .asleep
            .retain(|sleeper| !range.contains(sleeper.page));
        if waiting.asleep.len() < before {
            self.changed.notify_all();
        }
    }

    /// Ends the thread that reads faults.
    pub fn stop(&self) {
        self.lock().stop = true;
        self.changed.notify_all();
    }
}
