//! Threads whose allocations come from outside of the space for a moment.
//!
//! `popen` and `wordexp` allocate what their child reads with all signals blocked, and make the child in the same call.
//! Nothing can be held in between. So `malloc` serves a thread that makes such a call as it serves the manager's own.

use crate::raw;
use core::sync::atomic::{AtomicUsize, Ordering::*};

/// The most threads at once. Others wait.
const MOST: usize = 64;

static COUNT: AtomicUsize = AtomicUsize::new(0);
/// The threads, by their thread pointers.
static THREADS: [AtomicUsize; MOST] = [const { AtomicUsize::new(0) }; MOST];

/// Whether the calling thread allocates outside of the space now.
#[inline]
pub fn is_this_thread() -> bool {
    COUNT.load(Relaxed) > 0 && is_listed()
}

#[cold]
fn is_listed() -> bool {
    let own = raw::thread_pointer();
    THREADS.iter().any(|thread| thread.load(Relaxed) == own)
}

/// The calling thread allocates outside of the space while the value lives.
pub struct Apart(&'static AtomicUsize);

impl Apart {
    pub fn begin() -> Self {
        COUNT.fetch_add(1, Relaxed);
        let own = raw::thread_pointer();
        loop {
            for thread in &THREADS {
                if thread.compare_exchange(0, own, Relaxed, Relaxed).is_ok() {
                    return Self(thread);
                }
            }
            rustix::thread::sched_yield();
        }
    }
}

impl Drop for Apart {
    fn drop(&mut self) {
        self.0.store(0, Relaxed);
        COUNT.fetch_sub(1, Relaxed);
    }
}
