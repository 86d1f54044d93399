//! The manager's own threads, and the program's threads on stacks in managed memory.
//!
//! The C library allocates for any thread: the table of its thread-local storage when it is created, destructor
//! records later. If such a block of the thread that serves page faults lay in managed memory, a fault on it would
//! wait for the very thread that faulted. All threads created while the manager starts up, or by one of its threads,
//! belong to the manager. They are recognised by their thread pointer, and `malloc` gives them unmanaged memory.
//!
//! A program may give a thread a stack from `malloc`. The thread control block and static thread-local storage lie at
//! the top, and code that holds the manager's locks reads them. A fault there would wait for the very thread that
//! faulted, so these pages are made resident for good. The rest of the stack comes and goes like any other memory: a
//! thread that takes a lock has left its stack (`stack_switch.rs`), and the kernel's own accesses are served. Under
//! direct delivery they are not, and such threads start elsewhere (`guard/signals/given.rs`).
//!
//! A program may end its first thread by `pthread_exit`; the last of its threads to end then ends the process with
//! status 0. To detect it, the C library counts threads, including ours, which never end. The process would stay
//! forever, deaf even to SIGTERM because ours block all signals. So each of our threads removes itself from the C
//! library's count when it starts, and adds itself again when it returns. Between the two nobody may take one of our
//! threads for the program's last: see `Count`. If the count cannot be found, such a process stays until the
//! manager's tick notices ([`last_thread`](crate::last_thread)). So does a process whose last thread ends by the bare
//! system call, which the C library does not notice.

use crate::dlopen::find_next;
use crate::{
    engage, first_thread, fork, guard, init, internal_alloc, jemalloc, raw, signals, space,
};
use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering::*};

/// The maximum number of threads that the manager may have.
const MAX_SERVICE: usize = 16;

static SERVICE_COUNT: AtomicUsize = AtomicUsize::new(0);
static SERVICE: [AtomicUsize; MAX_SERVICE] = [const { AtomicUsize::new(0) }; MAX_SERVICE];

/// Returns whether the calling thread belongs to the manager.
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
    // The C library counts anew in a child.
    ENDED.store(false, Relaxed);
    first_thread::begin_in_child();
}

/// The thread pointer of a program thread that is creating threads of ours, or 0.
static MAKER: AtomicUsize = AtomicUsize::new(0);

/// Runs `work` on a program thread, while others may run concurrently. The threads that it creates are ours.
pub fn making<R>(work: impl FnOnce() -> R) -> R {
    MAKER.store(raw::thread_pointer(), Relaxed);
    let result = work();
    MAKER.store(0, Relaxed);
    result
}

/// Returns whether the calling thread is creating threads of ours. It may hold a lock of the program's allocator.
#[inline]
fn is_maker() -> bool {
    MAKER.load(Relaxed) == raw::thread_pointer()
}

/// Returns whether the threads and children that the calling thread now creates belong to the manager.
pub fn makes_ours() -> bool {
    init::is_starting() || is_service() || is_maker()
}

pub type Start = extern "C" fn(*mut c_void) -> *mut c_void;
pub type PthreadCreate = unsafe extern "C" fn(
    *mut libc::pthread_t,
    *const libc::pthread_attr_t,
    Start,
    *mut c_void,
) -> c_int;

/// The values that a service thread needs to start. They are passed in unmanaged memory so that the creator need not
/// wait for the thread. (The creator once busy-waited: a forked child that creates several threads on a busy machine
/// took ten times as long.)
struct Beginning {
    start: Start,
    argument: *mut c_void,
    /// Whether the creator has raised the C library's count for this thread ([`Count::hold`]).
    held: bool,
    /// Whether this is one of the threads that the program's first thread waits for.
    awaited: Option<first_thread::Awaited>,
}

extern "C" fn begin(beginning: *mut c_void) -> *mut c_void {
    register();
    // SAFETY: the creating thread gave the box away. Our own allocator takes it back, because this thread is now
    // registered.
    let Beginning {
        start,
        argument,
        held,
        awaited,
    } = *unsafe { Box::from_raw(beginning.cast::<Beginning>()) };
    let count = count();
    if let Some(count) = count {
        count.leave(1 + u32::from(held));
    }
    drop(awaited);
    let result = start(argument);
    if let Some(count) = count {
        count.come_back();
    }
    result
}

/// Whether the program's last thread has ended. It then runs the functions registered with `atexit`.
static ENDED: AtomicBool = AtomicBool::new(false);

/// Returns whether the C library knows that the program's last thread has ended.
pub fn have_ended() -> bool {
    ENDED.load(SeqCst) || count().is_some_and(|count| count.0.load(SeqCst) == 0)
}

/// The C library's count of threads.
///
/// The thread that lowers the count from one ends the process with status 0. It is one of ours if the program's last
/// thread ended while ours was counted. When the count is zero, some thread is ending the process already, and none of
/// ours may do that again: the second call of `exit` formerly ended the process while the first was still running the
/// program's functions, if the manager created a thread meanwhile.
///
/// The C library itself raises the count for each thread that it creates, and does not look whether it was zero. So
/// the creator raises it first, unless it is zero, and the new thread takes off both.
#[derive(Clone, Copy)]
struct Count(&'static AtomicU32);

impl Count {
    /// Raises the count by one, so that the program's last thread cannot end the process. Returns false if it has.
    fn hold(self) -> bool {
        // The C library raises the count from zero only for threads that are created after `ENDED` was set.
        let raised = self.0.fetch_update(SeqCst, SeqCst, |count| {
            (count != 0 && !ENDED.load(SeqCst)).then(|| count.wrapping_add(1))
        });
        if raised.is_err() {
            ENDED.store(true, SeqCst);
        }
        raised.is_ok()
    }

    /// Takes `by` off the count, and ends the process if the program's last thread ended while it was raised.
    fn leave(self, by: u32) {
        if self.0.fetch_sub(by, SeqCst) == by && !ENDED.load(SeqCst) {
            // SAFETY: the C library does this when its count reaches zero.
            unsafe { libc::exit(0) };
        }
    }

    /// Adds the calling thread, which the C library is about to take off. After the program's last thread the count
    /// may wrap around: only a count that falls from one to zero means something to the C library.
    fn come_back(self) {
        self.hold();
    }
}

/// Symbols that are looked up before the program runs: the next `pthread_create` after ours, the C library's count of
/// threads, and its function that knows the size of thread-local storage.
///
/// A look-up takes the linker's lock. A thread that loads a library holds that lock while the library's constructors
/// run, and a child that one of them creates by a bare system call inherits it locked forever. In such a child a
/// thread of ours that looked something up at its start never started, and the child waited for it.
static REAL: AtomicUsize = AtomicUsize::new(0);
static COUNTED: AtomicUsize = AtomicUsize::new(0);
static STORAGE: AtomicUsize = AtomicUsize::new(0);

/// Looks up the symbols that are needed later.
pub fn find() {
    real();
    guard::real::find(first_thread::FUNCTIONS);
    first_thread::begin();
    COUNTED.store(find_next(c"__nptl_nthreads").unwrap_or(0), Relaxed);
    // SAFETY: the name is a C string.
    let storage = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"_dl_get_tls_static_info".as_ptr()) };
    STORAGE.store(storage as usize, Relaxed);
}

/// Returns the C library's count of threads that should not outlive the program.
fn count() -> Option<Count> {
    // SAFETY: the C library's variable of this name is an unsigned int that stays. Once there are several threads,
    // the C library changes it only by atomic operations.
    unsafe { (COUNTED.load(Relaxed) as *const AtomicU32).as_ref() }.map(Count)
}

/// Returns the next `pthread_create` in the search order. A constructor that runs before ours may also need it.
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
            let awaited = match is_service().then(first_thread::Awaited::new) {
                Some(None) => return libc::EAGAIN,
                awaited => awaited.flatten(),
            };
            let held = count().is_some_and(Count::hold);
            let beginning = Box::into_raw(Box::new(Beginning {
                start,
                argument,
                held,
                awaited,
            }));
            // The program's signal handlers must not run on our threads.
            let _blocked = signals::Blocked::new();
            // SAFETY: the caller guarantees this; the box belongs to the new thread.
            let result = unsafe { real()(thread, attributes, begin, beginning.cast()) };
            if result != 0 {
                // SAFETY: no thread was created that could have taken the box.
                drop(unsafe { Box::from_raw(beginning) });
                if let Some(count) = count().filter(|_| held) {
                    count.leave(1);
                }
            }
            return result;
        }
        // SAFETY: the caller promises valid attributes, if any.
        let attributes = unsafe { guard::children::attributes::fit(attributes) };
        // SAFETY: these are valid, if any.
        let _growing = engage::before_own_thread(|| unsafe { stack_len(attributes.get()) });
        fork::finish_child();
        jemalloc::before_thread();
        if guard::has_signals() {
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

/// Returns the maximum number of bytes that the C library takes from the top of a stack, for the control block and
/// static thread-local storage.
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

/// Returns the length of the stack that the C library maps for a thread with these attributes.
///
/// # Safety
/// The attributes are null or valid.
unsafe fn stack_len(attributes: *const libc::pthread_attr_t) -> usize {
    let mut usual = core::mem::MaybeUninit::uninit();
    let mut len = 0;
    // SAFETY: the caller guarantees the attributes; the others are initialised before they are read.
    unsafe {
        if attributes.is_null() {
            if libc::pthread_attr_init(usual.as_mut_ptr()) == 0 {
                libc::pthread_attr_getstacksize(usual.as_ptr(), &mut len);
                libc::pthread_attr_destroy(usual.as_mut_ptr());
            }
        } else {
            libc::pthread_attr_getstacksize(attributes, &mut len);
        }
    }
    len
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
    // If this fails, nothing better can be done: the thread may run for a long time without a fault in these pages.
    let _ = crate::vma::locked(move |vmas| vmas.pin(start..end));
}

/// Returns whether this allocation must be unmanaged although the manager is up.
#[inline]
pub fn wants_internal() -> bool {
    !init::is_ready() || is_service() || is_maker() || guard::children::apart::is_this_thread()
}

/// Allocates a block for the calling thread from the internal allocator, and sets `errno` if there is no memory.
pub fn internal_block(size: usize, align: usize) -> *mut c_void {
    let block = internal_alloc::allocate(size, align);
    if block.is_null() {
        raw::set_errno(rustix::io::Errno::NOMEM);
    }
    block.cast()
}
