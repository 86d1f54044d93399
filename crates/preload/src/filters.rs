//! Filters of system calls (seccomp): a program that has forbidden itself calls must not make any for our sake.
//!
//! Sandboxes install a filter when they have opened all that they need, and end a process that makes another call
//! than those on the list. `_exit` is on the list; the calls that we make before it, to publish the last figures, are
//! not. The program would be killed where it ends well without us. So once it has installed a filter, by `prctl` or
//! by `syscall` (there is no function for it in the C library), it ends without last figures, and the figures of a
//! tenth of a second before stand.
//!
//! The work that the program's memory needs is done by the manager's threads, to which a filter does not apply,
//! unless it is installed for all threads at once. A filter that was there before the program began was also there
//! when the manager started, and lets it do what it needs.

use core::sync::atomic::{AtomicBool, Ordering::Relaxed};

static ARE_SET: AtomicBool = AtomicBool::new(false);
static ARE_FOR_ALL: AtomicBool = AtomicBool::new(false);

/// Notes that the program has installed a filter.
pub fn set() {
    ARE_SET.store(true, Relaxed);
}

/// Notes that the program has installed a filter, by `seccomp` with these flags.
pub fn set_with(flags: usize) {
    if flags & libc::SECCOMP_FILTER_FLAG_TSYNC as usize != 0 {
        ARE_FOR_ALL.store(true, Relaxed);
    }
    set();
}

/// Whether a filter applies to all threads, ours among them.
pub fn are_for_all() -> bool {
    ARE_FOR_ALL.load(Relaxed)
}

/// Whether the program has installed a filter.
pub fn are_set() -> bool {
    ARE_SET.load(Relaxed)
}
