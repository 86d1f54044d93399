//! A program that has forbidden itself system calls (seccomp) is not made to make any for our sake.
//!
//! Sandboxes install a filter when they have opened all that they need, and end whoever makes another call than those
//! on the list. `_exit` is on it; what we do before it, to publish the last figures, is not. The program would be
//! killed where it ends well without us. So once it has installed a filter, by `prctl` or by `syscall` (there is no
//! function for it in the C library), it ends without last figures, and those of a tenth of a second before stand.
//!
//! What its memory needs is done by the manager's threads, which a filter is not for, unless it is installed for all
//! threads at once. A filter that was there before the program began was there when the manager started, and lets
//! it do what it needs.

use core::sync::atomic::{AtomicBool, Ordering::Relaxed};

static ARE_SET: AtomicBool = AtomicBool::new(false);
static ARE_FOR_ALL: AtomicBool = AtomicBool::new(false);

/// The program has installed one.
pub fn set() {
    ARE_SET.store(true, Relaxed);
}

/// The program has installed one, by `seccomp` with these flags.
pub fn set_with(flags: usize) {
    if flags & libc::SECCOMP_FILTER_FLAG_TSYNC as usize != 0 {
        ARE_FOR_ALL.store(true, Relaxed);
    }
    set();
}

/// Whether one is for all threads, ours among them.
pub fn are_for_all() -> bool {
    ARE_FOR_ALL.load(Relaxed)
}

/// Whether it has.
pub fn are_set() -> bool {
    ARE_SET.load(Relaxed)
}
