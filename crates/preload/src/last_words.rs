//! Memory that the kernel touches when a thread ends: robust mutexes that it holds, and the word to be cleared.
//!
//! When a thread ends, the kernel walks its list of robust mutexes, marks each as abandoned by its owner and wakes
//! the waiters. It does so however the thread ends, even by SIGKILL. A thread that is ending never waits for a fault:
//! the walk stops at the first mutex whose page is out. Whoever waits for that mutex or a later one then waits
//! forever, even in another process if the mutex is shared. The same goes for the word that `clone` and
//! `set_tid_address` name (`CLONE_CHILD_CLEARTID`).
//!
//! No code of ours runs when a thread is killed. So the memory must be present beforehand and stay for good: that of
//! each mutex initialised as robust, and of each such word. Programs have few of them. If the mutexes would fill more
//! than a sixteenth of the budget's pages, only the first ones are kept.

use crate::dlopen::find_next;
use crate::guard::holds::pages;
use crate::{raw, space, vma};
use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use libc::{pthread_mutex_t, pthread_mutexattr_t};
use rustix::io::Errno;

type Init = unsafe extern "C" fn(*mut pthread_mutex_t, *const pthread_mutexattr_t) -> c_int;

unsafe extern "C" {
    fn pthread_mutexattr_getrobust(attributes: *const pthread_mutexattr_t, is: *mut c_int)
    -> c_int;
}

/// The length of a `struct robust_list_head`.
const HEAD: usize = 24;

static INIT: AtomicUsize = AtomicUsize::new(0);
/// The bytes that may still be kept for this purpose.
static LEFT: AtomicUsize = AtomicUsize::new(0);

/// Looks up the function that is needed later.
pub fn find() {
    INIT.store(find_next(c"pthread_mutex_init").unwrap_or(0), Relaxed);
}

/// Sets how much memory may be kept, based on the budget.
pub fn allow(budget: u64) {
    LEFT.store(budget as usize / 16, Relaxed);
}

/// Keeps the pages of these bytes in memory for good.
pub fn keep(start: usize, len: usize) {
    if start == 0 || !space::overlaps(start, len) {
        return;
    }
    let pages = pages(start, len);
    // If this fails, nothing better can be done: the thread may never end while its page is out.
    let _ = vma::locked(move |vmas| {
        for part in vmas.unpinned(pages) {
            let left = LEFT.load(Relaxed);
            if part.len() <= left && vmas.pin(part.clone()).is_ok() {
                LEFT.store(left - part.len(), Relaxed);
            }
        }
    });
}

/// Makes the call of this number, with which a thread names memory that the kernel is to touch when it ends.
///
/// # Safety
/// The conditions are those of the system call.
pub unsafe fn by_number(number: i64, args: [usize; 6]) -> Result<usize, Errno> {
    let len = if number == libc::SYS_set_robust_list {
        HEAD
    } else {
        size_of::<c_int>()
    };
    keep(args[0], len);
    // SAFETY: the caller guarantees what this call needs.
    unsafe { raw::syscall(number, args) }
}

/// Keeps the word that a `clone` names, if it is to be cleared when the child ends.
pub fn of_clone(flags: c_int, child_tid: *mut c_void) {
    if flags & libc::CLONE_CHILD_CLEARTID != 0 {
        keep(child_tid as usize, size_of::<c_int>());
    }
}

exports! {
    [none: Thread]
    unsafe extern "C" fn pthread_mutex_init(
        mutex: *mut pthread_mutex_t,
        attributes: *const pthread_mutexattr_t,
    ) -> c_int {
        let mut real = INIT.load(Relaxed);
        if real == 0 {
            // The caller is library code that runs before our constructor.
            real = find_next(c"pthread_mutex_init").unwrap_or(0);
            INIT.store(real, Relaxed);
        }
        if real == 0 {
            return libc::ENOSYS;
        }
        // SAFETY: the C library's function of this name has this type; the caller guarantees the rest.
        let answer = unsafe { core::mem::transmute::<usize, Init>(real)(mutex, attributes) };
        let mut robust = libc::PTHREAD_MUTEX_STALLED;
        // SAFETY: the caller promises valid attributes, if any; the result is a variable that lives here.
        let is_robust = !attributes.is_null()
            && unsafe { pthread_mutexattr_getrobust(attributes, &mut robust) } == 0
            && robust == libc::PTHREAD_MUTEX_ROBUST;
        if answer == 0 && is_robust {
            keep(mutex as usize, size_of::<pthread_mutex_t>());
        }
        answer
    }
}
