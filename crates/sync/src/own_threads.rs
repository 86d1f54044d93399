//! The table of Millpond's own threads.
//!
//! Some work is right only while the program has a single thread. The kernel knows how many threads a process has, and
//! this table how many of them are ours and touch no memory of the program's. A thread is in it for a part of its life:
//! it puts itself in when it has begun, and takes itself out before it ends. So the table never has more threads than
//! the kernel, and whoever finds all of the kernel's threads but himself in it is alone, if nothing has changed
//! meanwhile ([`OwnThreads::are_the_same`]).

use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};

/// The most threads that the table has room for. Others count as the program's.
const MOST: usize = 64;

/// The thread pointers of our threads, or 0.
static OWN: [AtomicUsize; MOST] = [const { AtomicUsize::new(0) }; MOST];
/// The number of places that were ever used.
static USED: AtomicUsize = AtomicUsize::new(0);
/// How often a thread has come or gone.
static CHANGES: AtomicUsize = AtomicUsize::new(0);

fn me() -> usize {
    // SAFETY: the call takes nothing and changes nothing; it reads the thread pointer.
    unsafe { libc::pthread_self() as usize }
}

/// The calling thread is in the table while the value lives, if there was room.
pub(crate) struct Noted(Option<&'static AtomicUsize>);

impl Noted {
    pub(crate) fn this_thread() -> Self {
        CHANGES.fetch_add(1, SeqCst);
        let take = |place: &AtomicUsize| place.compare_exchange(0, me(), SeqCst, Relaxed).is_ok();
        let place = OWN.iter().position(take);
        if let Some(place) = place {
            USED.fetch_max(place + 1, SeqCst);
        }
        Self(place.map(|place| &OWN[place]))
    }
}

impl Drop for Noted {
    fn drop(&mut self) {
        CHANGES.fetch_add(1, SeqCst);
        if let Some(place) = self.0 {
            place.store(0, SeqCst);
        }
    }
}

/// The threads of Millpond's at a moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OwnThreads {
    /// How many there are, those aside that are just beginning or ending.
    pub count: usize,
    changes: usize,
}

impl OwnThreads {
    /// Looks at the table.
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

/// Empties the table in a new child, where none of these threads exist.
pub fn forget_own_threads() {
    OWN.iter().for_each(|place| place.store(0, SeqCst));
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use super::*;
    use crate::OwnThread;
    use std::sync::mpsc;

    /// A thread of ours is told from others, and no change goes unnoticed.
    #[test]
    fn own_threads_are_told_from_others() {
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
        let call = OwnThread::start_for_program(NAME, || assert!(!is_own_thread()));
        call.unwrap().join();
    }
}
