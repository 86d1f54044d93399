//! The table of Millpond's own threads.
//!
//! Some work is correct only while the program has a single thread. The kernel knows how many threads a process has,
//! and this table how many of them are ours and touch no memory of the program. A thread is in the table for a part of
//! its life: it enters after it has begun, and leaves before it ends. So the table never has more threads than the
//! kernel, and a thread that finds all of the kernel's threads except itself in the table is alone, if nothing has
//! changed in the meantime ([`OwnThreads::are_the_same`]).
//!
//! A child of a fork has none of these threads, and would mistake as many of its program's threads for them. So the
//! table records its process: a thread that is about to use or enter the table first empties it if that was another
//! process ([`forget_inherited_threads`]).

use std::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};
use std::sync::atomic::{AtomicI32, AtomicUsize};

/// Maximum number of threads in the table. Others count as the program's.
const MOST: usize = 64;

/// The thread pointers of our threads, or 0.
static OWN: [AtomicUsize; MOST] = [const { AtomicUsize::new(0) }; MOST];
/// Number of places ever used.
static USED: AtomicUsize = AtomicUsize::new(0);
/// The process whose threads these are, or 0.
static PROCESS: AtomicI32 = AtomicI32::new(0);
/// Number of times that a thread has entered or left.
static CHANGES: AtomicUsize = AtomicUsize::new(0);

fn me() -> usize {
    // SAFETY: the call takes nothing and changes nothing; it reads the thread pointer.
    unsafe { libc::pthread_self() as usize }
}

/// A guard: the calling thread is in the table while the value lives, if there was room. (A scheduler's threads are not
/// in the table.)
#[cfg(not(feature = "shuttle"))]
pub(crate) struct Noted(Option<&'static AtomicUsize>);

#[cfg(not(feature = "shuttle"))]
impl Noted {
    pub(crate) fn this_thread() -> Self {
        forget_inherited_threads();
        CHANGES.fetch_add(1, SeqCst);
        let take = |place: &AtomicUsize| place.compare_exchange(0, me(), SeqCst, Relaxed).is_ok();
        let place = OWN.iter().position(take);
        if let Some(place) = place {
            USED.fetch_max(place + 1, SeqCst);
        }
        Self(place.map(|place| &OWN[place]))
    }
}

#[cfg(not(feature = "shuttle"))]
impl Drop for Noted {
    fn drop(&mut self) {
        CHANGES.fetch_add(1, SeqCst);
        if let Some(place) = self.0 {
            place.store(0, SeqCst);
        }
    }
}

/// Millpond's threads at some moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OwnThreads {
    /// Number of threads, except those that are just beginning or ending.
    pub count: usize,
    changes: usize,
}

impl OwnThreads {
    /// Reads the table.
    ///
    /// ```
    /// let now = millpond_sync::OwnThreads::now();
    /// assert!(now.count == 0 && now.are_the_same());
    /// ```
    #[must_use]
    pub fn now() -> Self {
        let changes = CHANGES.load(SeqCst);
        let used = &OWN[..USED.load(SeqCst)];
        let count = used.iter().filter(|place| place.load(SeqCst) != 0).count();
        Self { count, changes }
    }

    /// Whether all of these threads have been there ever since, and no others.
    #[must_use]
    pub fn are_the_same(self) -> bool {
        CHANGES.load(SeqCst) == self.changes
    }
}

/// Whether the calling thread is one of Millpond's.
#[must_use]
pub fn is_own_thread() -> bool {
    let (used, me) = (&OWN[..USED.load(Acquire)], me());
    used.iter().any(|place| place.load(Relaxed) == me)
}

/// Empties the table if it belongs to another process, of which this one is a child. (This may also forget a thread
/// that is just entering the table, which then counts as the program's.)
pub fn forget_inherited_threads() {
    // SAFETY: the call asks.
    let process = unsafe { libc::getpid() };
    if PROCESS.swap(process, SeqCst) != process {
        CHANGES.fetch_add(1, SeqCst);
        OWN.iter().for_each(|place| place.store(0, SeqCst));
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use super::*;
    use crate::OwnThread;
    use std::sync::mpsc;

    /// Our threads are distinguished from others, and every change is noticed.
    #[test]
    fn own_threads_are_distinguished_from_others() {
        const NAME: &std::ffi::CStr = c"millpond-test";
        assert!(!is_own_thread());
        let (say, said) = mpsc::channel();
        let (go, wait) = mpsc::channel::<()>();
        let thread = OwnThread::start(NAME, move || {
            say.send((is_own_thread(), OwnThreads::now())).unwrap();
            let _ = wait.recv();
        });
        let (is_own, now) = said.recv().unwrap();
        assert!(is_own && now.count > 0);
        assert!(!std::thread::spawn(is_own_thread).join().unwrap());
        drop(go);
        thread.unwrap().join();
        assert!(!now.are_the_same(), "a thread has ended");
        // A child has none of them.
        let still = OwnThread::start(NAME, || {
            std::thread::sleep(std::time::Duration::from_secs(3600))
        });
        let _still = still.unwrap();
        while OwnThreads::now().count == 0 {
            std::thread::yield_now();
        }
        // SAFETY: the child leaves by `_exit`, and takes no lock.
        unsafe {
            let pid = libc::fork();
            if pid == 0 {
                forget_inherited_threads();
                libc::_exit(OwnThreads::now().count as i32);
            }
            let mut status = 0;
            assert_eq!(libc::waitpid(pid, &mut status, 0), pid);
            assert_eq!(status, 0, "a child with threads of its parent's");
        }
        let call = OwnThread::start_for_program(NAME, || assert!(!is_own_thread()));
        call.unwrap().join();
    }
}
