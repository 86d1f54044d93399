//! The end of a program's first thread, while others remain.
//!
//! The last thread that the C library counts runs the functions registered with `atexit`. A new thread of ours is
//! counted until it has begun ([`threads`](crate::threads)), so it may be that one: the program's last thread ends just
//! then, sees that it is not the last, and goes quietly. Threads that our own threads make have a descriptor table of
//! their own, because the program may close every descriptor that it finds. What the program's functions wrote there
//! went nowhere: of 1,200 runs of a program of four threads, on a busy machine, 49 ended with status 0 and without
//! their output.
//!
//! As long as the first thread is there, the program's last thread cannot end. So the first thread has all threads of
//! ours made before it ends, waits until they have begun, and from then on our threads make no others. It notices its
//! end in `pthread_exit` and `thrd_exit`, after its function has returned if it is the thread that forked, and in
//! `pthread_cancel`, by whichever thread that is called. Where threads do not start in a function of ours, that is with
//! a handler, a child that another than the first thread has forked has its threads made at once. A thread that ends by
//! the bare system call is not counted at all.

use crate::{engage, guard, raw, space};
use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering::*};

/// The first thread: the one that the process started with, or that forked.
static FIRST: AtomicUsize = AtomicUsize::new(0);
/// Whether it has ended, or is about to end.
static HAS_ENDED: AtomicBool = AtomicBool::new(false);
/// Whether it ended while the process was dormant.
static ENDED_DORMANT: AtomicBool = AtomicBool::new(false);
/// Whether its end will not be seen.
static ENDS_UNSEEN: AtomicBool = AtomicBool::new(false);
/// Number of threads that our threads have made and that have not begun.
static BEGINNING: AtomicUsize = AtomicUsize::new(0);
/// Time between two looks of a thread that waits for them, in nanoseconds.
const LOOK: u64 = 20_000;

/// A thread that one of our threads makes, until it has begun.
pub struct Awaited;

impl Awaited {
    /// Returns `None` if no such thread may be made any more.
    pub fn new() -> Option<Self> {
        BEGINNING.fetch_add(1, SeqCst);
        let awaited = Self;
        (!HAS_ENDED.load(SeqCst)).then_some(awaited)
    }
}

impl Drop for Awaited {
    fn drop(&mut self) {
        BEGINNING.fetch_sub(1, SeqCst);
    }
}

fn me() -> libc::pthread_t {
    // SAFETY: the call takes nothing and changes nothing.
    unsafe { libc::pthread_self() }
}

/// Records the calling thread as the first.
pub fn begin() {
    FIRST.store(me() as usize, Relaxed);
}

/// Records the calling thread, which has forked, as the first of a child, where no thread is just beginning.
pub fn begin_in_child() {
    if me() as usize != FIRST.load(Relaxed) && !guard::has_signals() {
        ENDS_UNSEEN.store(true, Relaxed);
    }
    begin();
    BEGINNING.store(0, Relaxed);
    HAS_ENDED.store(false, Relaxed);
    ENDED_DORMANT.store(false, Relaxed);
}

/// Called by a thread that ends, or whose function has returned.
pub fn thread_ends() {
    before_end(me());
}

/// Called when `thread` ends, or before it is cancelled.
pub fn before_end(thread: libc::pthread_t) {
    if thread as usize == FIRST.load(Relaxed) {
        ends();
    }
}

/// Called when a child has what serves it.
pub fn child_is_ready() {
    if ENDS_UNSEEN.load(Relaxed) {
        ends();
    }
}

/// Called when a process that was dormant has its first thread of ours.
pub fn has_threads_of_ours() {
    if ENDED_DORMANT.load(Relaxed) {
        ends();
    }
}

/// Returns whether the first thread has ended in a dormant process.
pub fn ended_dormant() -> bool {
    ENDED_DORMANT.load(Relaxed)
}

/// Called when the first thread is about to end. A dormant process has none of ours.
fn ends() {
    let Some(space) = space::get() else { return };
    engage::before_first_thread_ends();
    if engage::is_dormant() {
        ENDED_DORMANT.store(true, Relaxed);
        return;
    }
    if HAS_ENDED.load(SeqCst) {
        return;
    }
    space.make_threads_now();
    HAS_ENDED.store(true, SeqCst);
    while BEGINNING.load(SeqCst) > 0 {
        raw::sleep(LOOK);
    }
}

exports! {
    real EXIT: unsafe extern "C-unwind" fn(*mut c_void) -> ! = c"pthread_exit";
    real C11_EXIT: unsafe extern "C-unwind" fn(c_int) -> ! = c"thrd_exit";

    [exit: Numbers]
    unsafe extern "C-unwind" fn pthread_exit(result: *mut c_void) -> ! {
        thread_ends();
        // SAFETY: the caller guarantees this.
        unsafe { EXIT.must()(result) }
    }

    [exit: Numbers]
    unsafe extern "C-unwind" fn thrd_exit(result: c_int) -> ! {
        thread_ends();
        // SAFETY: the caller guarantees this.
        unsafe { C11_EXIT.must()(result) }
    }
}
