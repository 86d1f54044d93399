//! Threads that temporarily allocate outside the space.
//!
//! `popen` and `wordexp` allocate the memory that their child reads with all signals blocked, and create the child in
//! the same call. Nothing can be held in between. So `malloc` treats a thread that makes such a call like one of the
//! manager's own.
//!
//! `setlocale` allocates a hundred blocks and more. The internal allocator blocks signals for each, two calls of the
//! kernel, so such a thread blocks them once for the whole call ([`Apart::begin_blocked`]): 560 of the 900 calls that
//! `expr` made.

use crate::raw;
use crate::signals::Blocked;
use core::sync::atomic::{AtomicUsize, Ordering::*};

/// The maximum number of such threads at once. Others wait.
const MOST: usize = 64;

static COUNT: AtomicUsize = AtomicUsize::new(0);
/// The threads, identified by their thread pointers. [`HAS_BLOCKED`] is set in those of threads that block signals.
static THREADS: [AtomicUsize; MOST] = [const { AtomicUsize::new(0) }; MOST];
/// A bit that no thread pointer has, as each is aligned.
const HAS_BLOCKED: usize = 1;

/// Returns whether the calling thread currently allocates outside the space.
#[inline]
pub fn is_this_thread() -> bool {
    COUNT.load(Relaxed) > 0 && (is_listed(0) || is_listed(HAS_BLOCKED))
}

/// Returns whether the calling thread is listed with this bit.
#[cold]
fn is_listed(bit: usize) -> bool {
    let own = raw::thread_pointer() | bit;
    THREADS.iter().any(|thread| thread.load(Relaxed) == own)
}

/// Returns whether the calling thread is one that has blocked all signals ([`Apart::begin_blocked`]).
#[inline]
pub fn has_blocked() -> bool {
    COUNT.load(Relaxed) > 0 && is_listed(HAS_BLOCKED)
}

/// Forgets the threads that a new child does not have. Otherwise a thread of its own with such a pointer would allocate
/// outside the space for good, without blocking signals.
pub fn after_fork_in_child() {
    let others = forget_others(&THREADS, raw::thread_pointer());
    COUNT.fetch_sub(others, Relaxed);
}

/// Clears the places of all threads but `own`, and returns how many there were.
fn forget_others(threads: &[AtomicUsize], own: usize) -> usize {
    let is_other = |thread: &&AtomicUsize| {
        let listed = thread.load(Relaxed);
        listed != 0 && listed & !HAS_BLOCKED != own
    };
    let others = threads.iter().filter(is_other);
    others.map(|thread| thread.store(0, Relaxed)).count()
}

/// Makes the calling thread allocate outside the space while the value lives.
pub struct Apart {
    place: &'static AtomicUsize,
    /// The signals are unblocked when the thread is no longer listed.
    _blocked: Option<Blocked>,
}

impl Apart {
    pub fn begin() -> Self {
        Self::list(0, None)
    }

    /// The same for a call that does not wait, and that allocates much. No signal handler runs meanwhile.
    pub fn begin_blocked() -> Self {
        Self::list(HAS_BLOCKED, Some(Blocked::new()))
    }

    fn list(bit: usize, blocked: Option<Blocked>) -> Self {
        COUNT.fetch_add(1, Relaxed);
        let own = raw::thread_pointer() | bit;
        loop {
            for place in &THREADS {
                if place.compare_exchange(0, own, Relaxed, Relaxed).is_ok() {
                    return Self {
                        place,
                        _blocked: blocked,
                    };
                }
            }
            rustix::thread::sched_yield();
        }
    }
}

impl Drop for Apart {
    fn drop(&mut self) {
        self.place.store(0, Relaxed);
        COUNT.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether a signal is blocked in this thread.
    fn is_blocked(signal: i32) -> bool {
        let mut set = core::mem::MaybeUninit::<libc::sigset_t>::zeroed();
        // SAFETY: the set is this function's own; with a null set nothing changes.
        unsafe {
            libc::pthread_sigmask(libc::SIG_BLOCK, core::ptr::null(), set.as_mut_ptr());
            libc::sigismember(set.as_ptr(), signal) == 1
        }
    }

    #[test]
    fn a_thread_is_listed_and_blocks_signals_while_the_value_lives() {
        assert!(!is_this_thread() && !has_blocked());
        let apart = Apart::begin();
        assert!(is_this_thread() && !has_blocked() && !is_blocked(libc::SIGUSR1));
        drop(apart);
        let apart = Apart::begin_blocked();
        assert!(is_this_thread() && has_blocked() && is_blocked(libc::SIGUSR1));
        let other = std::thread::spawn(|| is_this_thread() || has_blocked());
        assert!(!other.join().unwrap());
        drop(apart);
        assert!(!is_this_thread() && !has_blocked() && !is_blocked(libc::SIGUSR1));
    }

    #[test]
    fn a_child_forgets_the_threads_that_it_does_not_have() {
        let threads = [0, 0x1000, 0x2000 | HAS_BLOCKED, 0x3000].map(AtomicUsize::new);
        assert_eq!(forget_others(&threads, 0x2000), 2);
        let left = threads.map(AtomicUsize::into_inner);
        assert_eq!(left, [0, 0, 0x2000 | HAS_BLOCKED, 0]);
    }
}
