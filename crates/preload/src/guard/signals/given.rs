//! Threads on stacks that the program gives them, in managed memory.
//!
//! The C library puts a thread's control block and static thread-local storage at the top of its stack. It starts and
//! ends threads with all signals blocked, and meanwhile passes that memory to the kernel: the filter stops such a
//! call, and the blocked SIGSYS kills the thread. Pinning the top is not enough: the filter checks addresses, not
//! residency.
//!
//! So such a thread starts on a stack from the C library, as long as the given one, where its control block stays.
//! From there it switches to the given stack to run the program's function. It comes back when that returns, or is
//! unwound through the switch if the thread ends otherwise. The C library compares the addresses of frames while it
//! unwinds; managed memory lies below its own mappings, so the frames are in the order that it expects. A thread that
//! asks for its own attributes is told the given stack.

use super::thread;
use crate::arch;
use crate::guard::children::apart::Apart;
use crate::space;
use core::ffi::{c_int, c_void};
use core::mem::MaybeUninit;
use core::sync::atomic::Ordering::Relaxed;

type GetMask = unsafe extern "C" fn(*const libc::pthread_attr_t, *mut libc::sigset_t) -> c_int;
type SetMask = unsafe extern "C" fn(*mut libc::pthread_attr_t, *const libc::sigset_t) -> c_int;

/// Room for our own frames below the C library's.
const MORE: usize = 64 << 10;

/// A stack: its lowest address and its length.
#[derive(Clone, Copy)]
pub struct Given {
    pub base: usize,
    pub len: usize,
}

impl Given {
    /// Returns the stack of these attributes, if they have one in managed memory.
    ///
    /// # Safety
    /// The attributes are null or valid.
    pub unsafe fn of(attributes: *const libc::pthread_attr_t) -> Option<Self> {
        if attributes.is_null() {
            return None;
        }
        let (mut base, mut len) = (core::ptr::null_mut(), 0);
        // SAFETY: the caller guarantees the attributes, and the results live here.
        if unsafe { libc::pthread_attr_getstack(attributes, &mut base, &mut len) } != 0 {
            return None;
        }
        let base = base as usize;
        let is_managed = len > 0 && space::contains(base) && space::contains(base + len - 1);
        is_managed.then_some(Self { base, len })
    }
}

/// Attributes of a thread that are destroyed when the value is dropped.
pub struct Attributes(libc::pthread_attr_t);

impl Drop for Attributes {
    fn drop(&mut self) {
        // SAFETY: the attributes were initialised.
        unsafe { libc::pthread_attr_destroy(&mut self.0) };
    }
}

unsafe extern "C" {
    fn pthread_attr_getdetachstate(from: *const libc::pthread_attr_t, state: *mut c_int) -> c_int;
}

impl Attributes {
    /// Returns the same attributes, with a stack from the C library in place of the given one, or `None` if the C
    /// library refuses one of them.
    ///
    /// # Safety
    /// The attributes are valid.
    pub unsafe fn without_stack(from: *const libc::pthread_attr_t, given: Given) -> Option<Self> {
        let mut made = MaybeUninit::uninit();
        // SAFETY: the place lives here.
        if unsafe { libc::pthread_attr_init(made.as_mut_ptr()) } != 0 {
            return None;
        }
        // SAFETY: the attributes were just initialised.
        let mut made = Self(unsafe { made.assume_init() });
        let to = &mut made.0;
        let (mut detached, mut inherits, mut policy, mut guard) = (0, 0, 0, 0);
        let mut parameters = MaybeUninit::<libc::sched_param>::uninit();
        // SAFETY: the caller guarantees `from`; all else lives here, and each value is read after it was written.
        let is_done = unsafe {
            pthread_attr_getdetachstate(from, &mut detached) == 0
                && libc::pthread_attr_setdetachstate(to, detached) == 0
                && libc::pthread_attr_getguardsize(from, &mut guard) == 0
                && libc::pthread_attr_setguardsize(to, guard) == 0
                && libc::pthread_attr_getschedpolicy(from, &mut policy) == 0
                && libc::pthread_attr_setschedpolicy(to, policy) == 0
                && libc::pthread_attr_getschedparam(from, parameters.as_mut_ptr()) == 0
                && libc::pthread_attr_setschedparam(to, parameters.as_ptr()) == 0
                && libc::pthread_attr_getinheritsched(from, &mut inherits) == 0
                && libc::pthread_attr_setinheritsched(to, inherits) == 0
                && libc::pthread_attr_setstacksize(to, given.len + MORE) == 0
        };
        // SAFETY: both are valid.
        (is_done && unsafe { copy_processors(from, to) && copy_mask(from, to) }).then_some(made)
    }

    pub fn as_ptr(&self) -> *const libc::pthread_attr_t {
        &self.0
    }
}

/// Copies the processors that the thread may run on. Attributes without any report all processors.
unsafe fn copy_processors(
    from: *const libc::pthread_attr_t,
    to: *mut libc::pthread_attr_t,
) -> bool {
    /// Enough for the maximum number of processors of any kernel.
    const BYTES: usize = 8192 / 8;
    let mut set = [0u64; BYTES / 8];
    // SAFETY: the caller guarantees the attributes, and the set lives here.
    unsafe {
        let at = set.as_mut_ptr().cast::<libc::cpu_set_t>();
        if libc::pthread_attr_getaffinity_np(from, BYTES, at) != 0 {
            return false;
        }
        set.iter().all(|&word| word == u64::MAX)
            || libc::pthread_attr_setaffinity_np(to, BYTES, at) == 0
    }
}

/// Copies the mask that the thread is to start with, if the C library supports such masks.
pub unsafe fn copy_mask(from: *const libc::pthread_attr_t, to: *mut libc::pthread_attr_t) -> bool {
    /// `PTHREAD_ATTR_NO_SIGMASK_NP`.
    const NONE: c_int = -1;
    let (Some(get), Some(set)) = (ATTR_GETSIGMASK.get(), ATTR_SETSIGMASK.get()) else {
        return true;
    };
    let mut mask = MaybeUninit::uninit();
    // SAFETY: the C library's functions of these names have these types; the mask is read after it was written.
    unsafe {
        match get(from, mask.as_mut_ptr()) {
            0 => set(to, mask.as_ptr()) == 0,
            answer => answer == NONE,
        }
    }
}

pub use crate::arch::Unwound;

/// Runs a thread's function on the stack that the program has given it.
pub fn run(given: Given, start: Unwound, argument: *mut c_void) -> *mut c_void {
    let words = thread::this();
    words.given_len.store(given.len, Relaxed);
    words.given.store(given.base, Relaxed);
    let top = (given.base + given.len) & !63;
    // SAFETY: the program has given this memory for the thread's stack, so nobody else uses it.
    unsafe { arch::on_given(argument, start, top) }
}

exports! {
    real GETATTR: unsafe extern "C" fn(libc::pthread_t, *mut libc::pthread_attr_t) -> c_int =
        c"pthread_getattr_np";
    real ATTR_GETSIGMASK: GetMask = c"pthread_attr_getsigmask_np";
    real ATTR_SETSIGMASK: SetMask = c"pthread_attr_setsigmask_np";

    /// Go's runtime calls this with all signals blocked by its own instruction, to learn the bounds of the stack on
    /// which C calls it. The C library reads the kernel's list of mappings for the answer, so its allocations come
    /// from outside the space.
    [none: Thread]
    unsafe extern "C" fn pthread_getattr_np(
        of: libc::pthread_t,
        attributes: *mut libc::pthread_attr_t,
    ) -> c_int {
        let has_signals = crate::guard::has_signals();
        let apart = has_signals.then(Apart::begin);
        // SAFETY: the C library's function of this name has this type; the caller guarantees the rest.
        let result = unsafe { GETATTR.must()(of, attributes) };
        drop(apart);
        if result != 0 || !has_signals {
            return result;
        }
        let words = thread::this();
        let (base, len) = (words.given.load(Relaxed), words.given_len.load(Relaxed));
        // SAFETY: the call only asks who the caller is.
        if base == 0 || unsafe { libc::pthread_self() } != of {
            return 0;
        }
        // SAFETY: the attributes were just made.
        unsafe { libc::pthread_attr_setstack(attributes, base as *mut c_void, len) }
    }
}
