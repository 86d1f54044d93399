//! A panic in our own code ends the process.
//!
//! A service thread that panics unwinds and disappears, and nobody tells the threads that wait for it: a fault that
//! nobody resolves is a program that silently hangs for ever. A panic in the middle of a fault, on the program's own
//! thread, leaves a page in flight that never lands, and the next thread that touches it hangs too. So neither panic
//! may unwind: the process writes one line with the message and its location, and ends by SIGABRT.
//!
//! *Which panics are ours.* In a Rust program that uses the library, its own panics are its own, and so are those
//! that a bad argument to one of our functions raises. Ours are the panics of the threads that we started, and those
//! while a fault is being resolved; these threads are [marked](Ours). The marks are a static table of thread pointers
//! rather than thread-local: in a library that is loaded late, the first use of a thread-local allocates, which a
//! signal handler must not do.
//!
//! *Why a hook.* The standard library's own hook reads the environment and takes the lock of standard error. The
//! thread that waits for the fault may hold that lock: the panicking thread would wait for it before anything
//! unwinds, and a guard that acts on unwinding would never act. [`hook`] therefore installs itself in front of the
//! existing hook, ends the process for a marked thread, and passes every other panic on unchanged. A program that
//! later sets its own hook removes ours; then the guards, which act when a marked thread unwinds, remain. The library
//! of `run` has its own copy of the standard library, in which every panic is ours ([`hook_all`]).
//!
//! *What happens before the hook.* The standard library formats the message first, and allocates for it. If the
//! program's allocator waits for the faulting thread, or was interrupted by the fault, the panic message is lost, and
//! the watchdog for long waits names the fault instead. The library of `run` has its own allocator, which a panicking
//! thread does not wait for (`preload/src/internal_alloc.rs`).

use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering::SeqCst};
use millpond_sync::{ForkOnce, Rank};
use std::panic::PanicHookInfo;

use crate::report;

/// The maximum number of threads marked at the same time. A thread that finds no room is not marked, and stops the
/// process when it unwinds.
const MARKS: usize = 256;
/// Set in a mark while code of the program runs on a thread of ours. Thread pointers are even.
const OUTSIDE: usize = 1;

static MARKED: [AtomicUsize; MARKS] = [const { AtomicUsize::new(0) }; MARKS];

/// Marks the calling thread as ours, or as doing our work, while the value lives: a panic then ends the process.
#[derive(Debug)]
pub struct Ours {
    mark: Option<&'static AtomicUsize>,
    /// Whether the thread was already unwinding at the start. A destructor that runs while the program's own panic
    /// unwinds may fault, and that panic is not ours.
    unwinding_before: bool,
}

/// Removes the mark from a thread of ours while it runs one of the program's callbacks, for as long as the value
/// lives: the callback's panics belong to the program.
#[derive(Debug)]
pub struct Outside(Option<&'static AtomicUsize>);

fn me() -> usize {
    // SAFETY: the call has no arguments and changes nothing; it reads the thread pointer.
    unsafe { libc::pthread_self() as usize }
}

impl Ours {
    /// Marks the calling thread. Takes no lock and allocates nothing, so signal handlers may call it.
    #[must_use]
    pub fn enter() -> Self {
        let me = me();
        // The pointers of two threads differ by the size of their stacks, and by little more.
        let first = (me >> 12) ^ (me >> 6);
        let is_free = |mark: &&AtomicUsize| {
            mark.load(SeqCst) == 0 && mark.compare_exchange(0, me, SeqCst, SeqCst).is_ok()
        };
        let mut marks = (0..MARKS).map(|n| &MARKED[first.wrapping_add(n) % MARKS]);
        Self {
            mark: marks.find(is_free),
            unwinding_before: std::thread::panicking(),
        }
    }
}

impl Drop for Ours {
    fn drop(&mut self) {
        if std::thread::panicking() && !self.unwinding_before {
            stop_unwinding();
        }
        if let Some(mark) = self.mark {
            mark.store(0, SeqCst);
        }
    }
}

impl Outside {
    /// Removes the calling thread's mark, if it has one.
    #[must_use]
    pub fn enter() -> Self {
        let me = me();
        let mark = MARKED.iter().find(|mark| mark.load(SeqCst) == me);
        if let Some(mark) = mark {
            mark.store(me | OUTSIDE, SeqCst);
        }
        Self(mark)
    }
}

impl Drop for Outside {
    fn drop(&mut self) {
        if let Some(mark) = self.0 {
            mark.fetch_and(!OUTSIDE, SeqCst);
        }
    }
}

/// In a new child, removes the marks of other threads: those threads do not exist there, and new ones may get the
/// same pointers.
pub(crate) fn forget_others_in_child() {
    let me = me();
    for mark in MARKED
        .iter()
        .filter(|mark| mark.load(SeqCst) & !OUTSIDE != me)
    {
        mark.store(0, SeqCst);
    }
}

/// Ends the process because one of our panics has started to unwind. The hook that saw the panic has already written
/// its message.
#[cold]
pub fn stop_unwinding() -> ! {
    report::stop(format_args!(
        "a panic inside Millpond, which is a bug in it: stopped"
    ))
}

/// Makes panics of marked threads end the process, and passes all others on to the existing hook. One call is enough.
///
/// A child that was forked while another thread did this keeps the hook that it has: the standard library's lock on the
/// hook may be held for good. (Such a child hung when it built its manager, once in some thousand forks on a slow
/// machine.) The guards remain.
pub fn hook() {
    static HOOKED: ForkOnce = ForkOnce::new(Rank::OncePerProcess);
    // A panicking thread must not change the hook; the next manager does it.
    if std::thread::panicking() || HOOKED.was_interrupted() {
        return;
    }
    HOOKED.call(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            let me = me();
            if MARKED.iter().any(|mark| mark.load(SeqCst) == me) {
                stop(info);
            }
            before(info);
        }));
    });
}

/// Makes every panic end the process: for a library that has a copy of the standard library to itself.
pub fn hook_all() {
    std::panic::set_hook(Box::new(|info| stop(info)));
}

/// The function to call before a panic ends the process, as a pointer to a `fn()`; null if there is none.
static BEFORE: AtomicPtr<()> = AtomicPtr::new(core::ptr::null_mut());

/// Calls `tell` when a panic is about to end the process, before the panic's line is written. `tell` must not
/// allocate, nor take a lock that the panicking thread may hold.
pub fn tell_before(tell: fn()) {
    BEFORE.store(tell as *mut (), SeqCst);
}

fn stop(info: &PanicHookInfo<'_>) -> ! {
    let before = BEFORE.swap(core::ptr::null_mut(), SeqCst);
    if !before.is_null() {
        // SAFETY: only `tell_before` writes the pointer, and it writes a function of this type.
        let tell = unsafe { core::mem::transmute::<*mut (), fn()>(before) };
        tell();
    }
    let payload = info.payload();
    let message = payload
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| payload.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message");
    match info.location() {
        Some(place) => report::stop(format_args!(
            "a bug in Millpond at {}:{}: {message}: stopped",
            place.file(),
            place.line()
        )),
        None => report::stop(format_args!("a bug in Millpond: {message}: stopped")),
    }
}
