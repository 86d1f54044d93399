//! Destructors at the end of a thread: our own threads register none.
//!
//! The C library keeps the list of a thread's destructors in blocks from `malloc`. If the program has its own
//! allocator, the blocks come from there, and the forking thread holds its locks until the program's fork handlers
//! have run in the child. They run after ours, which start the threads that serve the child. When such a thread
//! registered the destructors of Rust's thread-local values, it waited for the allocator, and the child waited for
//! the thread. Our threads end with the process, so nothing is lost if they have no destructors.

use crate::dlopen::find_next;
use crate::threads;
use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};

type Destructor = unsafe extern "C" fn(*mut c_void);
type Register = unsafe extern "C" fn(Destructor, *mut c_void, *mut c_void) -> c_int;

exports! {
    /// Serves only threads of the program.
    [none: Thread]
    unsafe extern "C" fn __cxa_thread_atexit_impl(
        destructor: Destructor,
        object: *mut c_void,
        library: *mut c_void,
    ) -> c_int {
        static REAL: AtomicUsize = AtomicUsize::new(0);
        if threads::is_service() {
            return 0;
        }
        let mut real = REAL.load(Relaxed);
        if real == 0 {
            let Some(found) = find_next(c"__cxa_thread_atexit_impl") else {
                return libc::ENOSYS;
            };
            real = found;
            REAL.store(real, Relaxed);
        }
        // SAFETY: the C library's function of this name has this type; the caller guarantees the rest.
        unsafe { core::mem::transmute::<usize, Register>(real)(destructor, object, library) }
    }
}
