//! Threads that temporarily allocate outside the space.
//!
//! `popen` and `wordexp` allocate the memory that their child reads with all signals blocked, and create the child in
//! the same call. Nothing can be held in between. So `malloc` treats a thread that makes such a call like one of the
//! manager's own.

use crate::raw;
use core::sync::atomic::{AtomicUsize, Ordering::*};

/// The maximum number of such threads at once. Others wait.
const MOST: usize = 64;

static COUNT: AtomicUsize = AtomicUsize::new(0);
/// The threads, identified by their thread pointers.
static THREADS: [AtomicUsize; MOST] = [const { AtomicUsize::new(0) }; MOST];

/// Returns whether the calling thread currently allocates outside the space.
#[inline]
pub fn is_this_thread() -> bool {
    COUNT.load(Relaxed) > 0 && is_listed()
}

#[cold]
fn is_listed() -> bool {
    let own = raw::thread_pointer();
    THREADS.iter().any(|thread| thread.load(Relaxed) == own)
}

/// Makes the calling thread allocate outside the space while the value lives.
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
