//! Fork handlers: ours are registered before all others, and one more of ours behind each.
//!
//! Handlers run in reverse order of registration before a fork. A handler that ran after ours would touch managed
//! memory while the forking thread holds every lock that serves it, and wait for itself. So ours must be the last to
//! run, that is the first to be registered. To be the first constructor (`build.rs`) is not enough for that. The
//! dynamic linker calls the program's `malloc` before any constructor, and a program that brings an allocator of its
//! own, as rustc and Firefox do, registers its handlers there. So does code in the executable's `.preinit_array`.
//!
//! So the function through which all registrations go is ours: `pthread_atfork` is a few instructions in each library
//! that end in it. The first registration registers our handlers before it goes on. They do nothing until there is a
//! space.
//!
//! *Behind the others*: handlers run in order of registration in the child. There the first of ours serves faults, and
//! the threads that a child needs besides must wait: for a new thread the C library takes memory from the program's
//! allocator, which its own handlers have locked and unlock after ours. (Firefox's children waited for ever.) So behind
//! each registration we register a *late* handler, and the last one to run in the child makes the threads. Which one is
//! the last is counted before the fork: of the handlers that are registered meanwhile, by another thread, the C library
//! runs none, and those whose turn came before the fork are those that run after it. Several threads may be about a
//! fork at once, so each counts for itself.

use crate::dlopen::find_next;
use crate::{fork, raw, space};
use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

type Handler = Option<unsafe extern "C" fn()>;
type Register = unsafe extern "C" fn(Handler, Handler, Handler, *mut c_void) -> c_int;

/// Is set by the thread that registers our handlers. Before our constructor there is one thread; the constructor
/// makes sure that they are registered.
static IS_DONE: AtomicBool = AtomicBool::new(false);

/// The most threads that count their late handlers at once. The children of others make their threads at once, as those
/// of a process that registers no handlers do.
const FORKING: usize = 16;

/// A thread that is about a fork: its thread pointer, or 0, and how many late handlers have had their turn.
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

/// The late handler's part before a fork.
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

/// How many late handlers will run in the child of the fork that the calling thread is about. They are counted anew for
/// its next fork.
pub fn take_count() -> usize {
    of_thread(raw::thread_pointer()).map_or(0, |forking| {
        let late = forking.late.swap(0, Relaxed);
        forking.thread.store(0, Relaxed);
        late
    })
}

/// Forgets, in a new child, the other threads of its parent that were about a fork.
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

/// The C library's function. It is looked up by the first registration, which is our own or comes before it: later ones
/// must not wait for the linker's lock, which another thread may hold as long as it loads a library.
fn real() -> Option<usize> {
    static REAL: AtomicUsize = AtomicUsize::new(0);
    let known = REAL.load(Relaxed);
    if known == 0 {
        REAL.store(find_next(c"__register_atfork")?, Relaxed);
    }
    Some(REAL.load(Relaxed))
}

exports! {
    /// The handlers are registered behind ours, and a late one of ours behind them.
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
        // The handlers of a library go when it is closed; those of the process, which is named by null, stay.
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
