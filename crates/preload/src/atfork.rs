//! Fork handlers: ours are registered before all others.
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

use crate::dlopen::find_next;
use crate::fork;
use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

type Handler = Option<unsafe extern "C" fn()>;
type Register = unsafe extern "C" fn(Handler, Handler, Handler, *mut c_void) -> c_int;

/// Is set by the thread that registers our handlers. Before our constructor there is one thread; the constructor
/// makes sure that they are registered.
static IS_DONE: AtomicBool = AtomicBool::new(false);

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

/// Replaces the C library's `__register_atfork`, and registers handlers behind ours.
///
/// # Safety
/// The conditions are those of the function that this one replaces.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn __register_atfork(
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
    // SAFETY: the C library's function of this name has this type; the caller guarantees the rest.
    unsafe { core::mem::transmute::<usize, Register>(real)(prepare, parent, child, library) }
}
