//! The manager's own threads, and the program's threads on stacks in managed memory.
//!
//! The C library allocates for any thread: the table of its thread-local storage when it is created, destructor
//! records later. If such a block of the thread that serves page faults lay in managed memory, a fault on it would
//! wait for the very thread that faulted. All threads that are created while the manager starts up, or by one of its
//! threads, are its own. They are known by their thread pointer, and `malloc` gives them unmanaged memory.
//!
//! A program may give a thread a stack from `malloc`. Its thread control block and static thread-local storage, at
//! the top, are read by code that holds the manager's locks, where a fault would wait for the very thread that
//! faulted. So these pages are made resident for good. The rest of the stack comes and goes like any other memory: a
//! thread that takes a lock has left its stack (`stack_switch.rs`), and the kernel's own accesses are served. Under
//! direct delivery they are not, and such threads begin elsewhere (`guard/signals/given.rs`).
//!
//! A program may end its first thread by `pthread_exit`; the last of its threads to end then ends the process with
//! status 0. The C library counts threads for that, ours among them, which never end: the process would stay for
//! ever, deaf to SIGTERM too, as ours block all signals. So each of our threads takes itself off the C library's
//! count when it begins, and puts itself back on when it returns. Where the count cannot be found, such a process
//! stays until the manager's tick notices ([`last_thread`](crate::last_thread)). So does a process whose last thread
//! ends by the bare system call, which the C library does not hear of.

use crate::dlopen::find_next;
use crate::{fork, guard, init, internal_alloc, jemalloc, raw, signals, space};
use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering::*};

/// The most threads of its own that the manager may have.
const MAX_SERVICE: usize = 16;

static SERVICE_COUNT: AtomicUsize = AtomicUsize::new(0);
static SERVICE: [AtomicUsize; MAX_SERVICE] = [const { AtomicUsize::new(0) }; MAX_SERVICE];

/// Whether the calling thread is one of the manager's.
#[inline]
pub fn is_service() -> bool {
    let count = SERVICE_COUNT.load(Relaxed).min(MAX_SERVICE);
    let own = raw::thread_pointer();
    SERVICE[..count]
        .iter()
        .any(|thread| thread.load(Relaxed) == own)
}

fn register() {
    let number = SERVICE_COUNT.fetch_add(1, Relaxed);
    if number >= MAX_SERVICE {
        crate::exit::fail("millpond: the manager has more threads of its own than expected");
    }
    SERVICE[number].store(raw::thread_pointer(), Relaxed);
}

/// Forgets the manager's threads in a new child, where they do not exist.
pub fn forget_service() {
    SERVICE_COUNT.store(0, Release);
    for thread in &SERVICE {
        thread.store(0, Relaxed);
    }
}

/// The thread pointer of a thread of the program's that makes threads of ours, or 0.
static MAKER: AtomicUsize = AtomicUsize::new(0);

/// Runs `work` on a thread of the program's beside which others may run. The threads that it makes are ours.
pub fn making<R>(work: impl FnOnce() -> R) -> R {
    MAKER.store(raw::thread_pointer(), Relaxed);
    let result = work();
    MAKER.store(0, Relaxed);
    result
}

/// Whether the threads and children that the calling thread makes now are the manager's.
pub fn makes_ours() -> bool {
    init::is_starting() || is_service() || MAKER.load(Relaxed) == raw::thread_pointer()
}

pub type Start = extern "C" fn(*mut c_void) -> *mut c_void;
pub type PthreadCreate = unsafe extern "C" fn(
    *mut libc::pthread_t,
    *const libc::pthread_attr_t,
    Start,
    *mut c_void,
) -> c_int;

/// The values that a service thread needs to start. They are handed over in unmanaged memory, so that its maker need
/// not wait for it. (The maker once waited, awake: a forked child that makes several threads on a busy machine took
/// ten times as long.)
struct Beginning {
    start: Start,
    argument: *mut c_void,
}

extern "C" fn begin(beginning: *mut c_void) -> *mut c_void {
    register();
    // SAFETY: the creating thread gave the box away. Our own allocator takes it back, as this thread is known now.
    let Beginning { start, argument } = *unsafe { Box::from_raw(beginning.cast::<Beginning>()) };
    let counted = counted();
    let is_last = counted.is_some_and(|count| count.fetch_sub(1, AcqRel) == 1);
    if is_last {
        // The program's last thread ended while this thread, made by another of ours, was still counted.
        // SAFETY: the C library does this when its count comes to nothing.
        unsafe { libc::exit(0) };
    }
    let result = start(argument);
    if let Some(count) = counted {
        count.fetch_add(1, AcqRel);
    }
    result
}

/// What is looked up before the program runs: `pthread_create` behind ours, the C library's count of threads, and its
/// function that knows how large thread-local storage is.
///
/// A look-up takes the linker's lock. A thread that loads a library holds that lock as long as the library's
/// constructors run, and a child that one of them makes by a bare system call inherits it taken, for ever: there, a
/// thread of ours that looked something up when it begins never began, and the child waited for it.
static REAL: AtomicUsize = AtomicUsize::new(0);
static COUNTED: AtomicUsize = AtomicUsize::new(0);
static STORAGE: AtomicUsize = AtomicUsize::new(0);

/// Looks up what is needed later.
pub fn find() {
    real();
    COUNTED.store(find_next(c"__nptl_nthreads").unwrap_or(0), Relaxed);
    // SAFETY: the name is a C string.
    let storage = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"_dl_get_tls_static_info".as_ptr()) };
    STORAGE.store(storage as usize, Relaxed);
}

/// The C library's count of threads that should not outlive the program.
fn counted() -> Option<&'static AtomicU32> {
    // SAFETY: the C library's variable of this name is an unsigned int that stays. The C library changes it by atomic
    // operations alone once there are several threads.
    unsafe { (COUNTED.load(Relaxed) as *const AtomicU32).as_ref() }
}

/// The next `pthread_create` in the search order. A constructor that runs before ours may ask for it, too.
fn real() -> PthreadCreate {
    let mut found = REAL.load(Relaxed);
    if found == 0 {
        found = find_next(c"pthread_create")
            .unwrap_or_else(|| crate::exit::fail("millpond: no pthread_create in this process"));
        REAL.store(found, Relaxed);
    }
    // SAFETY: the C library's function of this name has this type.
    unsafe { core::mem::transmute::<usize, PthreadCreate>(found) }
}

exports! {
    [clone3: Child]
    unsafe extern "C" fn pthread_create(
        thread: *mut libc::pthread_t,
        attributes: *const libc::pthread_attr_t,
        start: Start,
        argument: *mut c_void,
    ) -> c_int {
        if makes_ours() {
            let beginning = Box::into_raw(Box::new(Beginning { start, argument }));
            // The program's signal handlers must not run on our threads.
            let _blocked = signals::Blocked::new();
            // SAFETY: the caller guarantees it; the box belongs to the new thread.
            let result = unsafe { real()(thread, attributes, begin, beginning.cast()) };
            if result != 0 {
                // SAFETY: no thread was made that could have taken the box.
                drop(unsafe { Box::from_raw(beginning) });
            }
            return result;
        }
        fork::finish_child();
        jemalloc::before_thread();
        // SAFETY: the caller promises valid attributes, if any.
        let attributes = unsafe { guard::children::attributes::fit(attributes) };
        if guard::is_on() {
            // SAFETY: the caller guarantees what this call needs.
            return unsafe {
                guard::signals::create_thread(real(), thread, attributes.get(), start, argument)
            };
        }
        if !attributes.get().is_null() {
            // SAFETY: the caller promises valid attributes.
            unsafe { pin_stack(attributes.get()) };
        }
        // SAFETY: the caller guarantees what this call needs.
        unsafe { real()(thread, attributes.get(), start, argument) }
    }
}

/// The most bytes that the C library takes off a stack's top, for control block and static thread-local storage.
fn static_storage() -> usize {
    type Info = unsafe extern "C" fn(*mut usize, *mut usize);
    static BYTES: AtomicUsize = AtomicUsize::new(0);
    let known = BYTES.load(Relaxed);
    if known != 0 {
        return known;
    }
    let (mut size, mut align) = (64 << 10, 4096);
    let found = STORAGE.load(Relaxed);
    if found != 0 {
        // SAFETY: the C library's function of this name has this type, and writes the two results.
        unsafe { core::mem::transmute::<usize, Info>(found)(&mut size, &mut align) };
    }
    let bytes = size + align + 4096;
    BYTES.store(bytes, Relaxed);
    bytes
}

unsafe fn pin_stack(attributes: *const libc::pthread_attr_t) {
    let mut base = core::ptr::null_mut();
    let mut len = 0;
    // SAFETY: the attributes are valid, the two results are ours.
    if unsafe { libc::pthread_attr_getstack(attributes, &mut base, &mut len) } != 0 {
        return;
    }
    let (base, end) = (base as usize, (base as usize).saturating_add(len));
    if len == 0 || !space::contains(base) || !space::contains(end - 1) {
        return;
    }
    let end = end.next_multiple_of(4096);
    let top = (end - static_storage()) & !(4096 - 1);
    let start = top.max(base & !(4096 - 1));
    // If this fails, nothing better can be done: the thread may run for long without a fault in these pages.
    let _ = crate::vma::locked(move |vmas| vmas.pin(start..end));
}

/// Whether this allocation must be unmanaged although the manager is up.
#[inline]
pub fn wants_internal() -> bool {
    !init::is_ready() || is_service() || guard::children::apart::is_this_thread()
}

/// Allocates a block for the calling thread from the internal allocator, and sets `errno` when there is no memory.
pub fn internal_block(size: usize, align: usize) -> *mut c_void {
    let block = internal_alloc::allocate(size, align);
    if block.is_null() {
        raw::set_errno(rustix::io::Errno::NOMEM);
    }
    block.cast()
}
