//! Fork handlers: we register ours before all others, and another of ours behind each of the program's.
//!
//! Before a fork, handlers run in reverse order of registration. A handler that ran after ours would touch managed
//! memory while the forking thread holds every lock needed to serve it, and deadlock. So ours must run last, which
//! means that they must be registered first. Being the first constructor (`build.rs`) is not enough: the dynamic
//! linker calls the program's `malloc` before any constructor, and a program with its own allocator, such as rustc
//! and Firefox, registers its handlers there. Code in the executable's `.preinit_array` can do the same.
//!
//! So we replace the function through which all registrations go. (`pthread_atfork` is a few instructions in each
//! library that end in it.) The first registration registers our handlers before it proceeds. They do nothing until
//! there is a space.
//!
//! *Behind the others*: in the child, handlers run in order of registration. Our first handler serves faults there,
//! but the other threads that a child needs must wait: to create a thread the C library takes memory from the
//! program's allocator, whose own handlers have locked it and unlock it only after ours has run. (Firefox's children
//! hung forever.) So behind each registration we register a *late* handler, and the last one to run in the child
//! creates the threads. We count before the fork to know which one is last: the C library runs no handler that
//! another thread registers during the fork, and exactly the handlers that ran before the fork run again after it.
//! Several threads may fork at once, so each counts separately.

use crate::dlopen::find_next;
use crate::{fork, raw, space};
use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

type Handler = Option<unsafe extern "C" fn()>;
type Register = unsafe extern "C" fn(Handler, Handler, Handler, *mut c_void) -> c_int;

/// Set by the thread that registers our handlers. Until our constructor runs there is only one thread; the
/// constructor makes sure that the handlers are registered.
static IS_DONE: AtomicBool = AtomicBool::new(false);

/// The maximum number of threads that count their late handlers at once. The children of any further threads create
/// their threads immediately, like those of a process that registers no handlers.
const FORKING: usize = 16;

/// A forking thread: its thread pointer, or 0, and how many of its late handlers have run.
struct Forking {
    thread: AtomicUsize,
    late: AtomicUsize,
}

static UNDERWAY: [Forking; FORKING] = [const {
    Forking {
        thread: AtomicUsize::new(0),
        late: AtomicUsize::new(0),
    }
}; FORKING];

fn of_thread(thread: usize) -> Option<&'static Forking> {
    UNDERWAY
        .iter()
        .find(|one| one.thread.load(Relaxed) == thread)
}

/// The late handler that runs before a fork.
extern "C" fn count() {
    if space::get().is_none() {
        return;
    }
    let own = raw::thread_pointer();
    let take = |one: &&Forking| {
        one.thread
            .compare_exchange(0, own, Relaxed, Relaxed)
            .is_ok()
    };
    if let Some(forking) = of_thread(own).or_else(|| UNDERWAY.iter().find(take)) {
        forking.late.fetch_add(1, Relaxed);
    }
}

/// Returns how many late handlers will run in the child that the calling thread is about to fork, and resets the
/// count for its next fork.
pub fn take_count() -> usize {
    of_thread(raw::thread_pointer()).map_or(0, |forking| {
        let late = forking.late.swap(0, Relaxed);
        forking.thread.store(0, Relaxed);
        late
    })
}

/// Forgets, in a new child, the other threads of the parent that were forking.
pub fn forget_others_in_child() {
    for forking in &UNDERWAY {
        forking.late.store(0, Relaxed);
        forking.thread.store(0, Relaxed);
    }
}

/// Registers our handlers, if no earlier registration has done so.
///
/// # Errors
/// The C library's error number.
pub fn register() -> Result<(), c_int> {
    if IS_DONE.swap(true, Relaxed) {
        return Ok(());
    }
    let (prepare, in_parent, in_child) = fork::HANDLERS;
    // SAFETY: the functions stay in memory as long as the process.
    match unsafe { libc::pthread_atfork(Some(prepare), Some(in_parent), Some(in_child)) } {
        0 => Ok(()),
        error => Err(error),
    }
}

/// Returns the address of the C library's function. The first registration looks it up, which is ours or precedes
/// ours. Later ones must not wait for the linker's lock, which another thread may hold for as long as it loads a
/// library.
fn real() -> Option<usize> {
    static REAL: AtomicUsize = AtomicUsize::new(0);
    let known = REAL.load(Relaxed);
    if known == 0 {
        REAL.store(find_next(c"__register_atfork")?, Relaxed);
    }
    Some(REAL.load(Relaxed))
}

exports! {
    /// Registers the handlers behind ours, and a late handler of ours behind them.
    [none: Thread]
    unsafe extern "C" fn __register_atfork(
        prepare: Handler,
        parent: Handler,
        child: Handler,
        library: *mut c_void,
    ) -> c_int {
        if let Err(error) = register() {
            return error;
        }
        let Some(real) = real() else {
            return libc::ENOSYS;
        };
        // SAFETY: the C library's function of this name has this type.
        let real = unsafe { core::mem::transmute::<usize, Register>(real) };
        // SAFETY: the caller guarantees what this call needs.
        let error = unsafe { real(prepare, parent, child, library) };
        if error != 0 {
            return error;
        }
        // A library's handlers are removed when it is closed; those of the process, which null stands for, remain.
        // SAFETY: our functions stay in memory as long as the process.
        unsafe {
            real(
                Some(count),
                None,
                Some(fork::late_in_child),
                core::ptr::null_mut(),
            )
        }
    }
}
