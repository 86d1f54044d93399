//! System call filters (seccomp): a program that has restricted its own calls must not make any on our behalf.
//!
//! Sandboxes install a filter once they have opened everything they need, and end a process that makes a call outside
//! the list. `_exit` is on the list; the calls that we make before it, to publish the last figures, are not. The
//! program would be killed where it ends normally without us. So once it has installed a filter, by `prctl` or by
//! `syscall` (the C library has no function for it), it ends without publishing last figures; those from up to a
//! tenth of a second earlier remain.
//!
//! The manager's threads do the work that the program's memory needs, and a filter does not apply to them unless it
//! is installed for all threads at once. A filter that was in place before the program started already applied when
//! the manager started, and permits what the manager needs.

use core::sync::atomic::{AtomicBool, Ordering::Relaxed};

static ARE_SET: AtomicBool = AtomicBool::new(false);
static ARE_FOR_ALL: AtomicBool = AtomicBool::new(false);

/// Records that the program has installed a filter.
pub fn set() {
    ARE_SET.store(true, Relaxed);
}

/// Records that the program has installed a filter with `seccomp` and these flags.
pub fn set_with(flags: usize) {
    if flags & libc::SECCOMP_FILTER_FLAG_TSYNC as usize != 0 {
        ARE_FOR_ALL.store(true, Relaxed);
    }
    set();
}

/// Returns whether a filter applies to all threads, including ours.
pub fn are_for_all() -> bool {
    ARE_FOR_ALL.load(Relaxed)
}

/// Returns whether the program has installed a filter.
pub fn are_set() -> bool {
    ARE_SET.load(Relaxed)
}
