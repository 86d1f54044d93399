//! A separate descriptor table for service threads inside a program that does not know about them.
//!
//! Programs close descriptors that they did not open: a daemon closes all it finds, a child closes everything between
//! fork and exec. If that closed the last reference to the userfaultfd, the kernel would drop the registration, and
//! every absent page would silently read as zeros. A service thread therefore leaves the shared table and keeps only
//! the descriptors that it works with. Closing the others in its copy matters just as much: otherwise the reader of
//! one of the program's pipes would wait for an end of file that never comes.

use rustix::thread::{UnshareFlags, unshare_unsafe};
use std::cell::Cell;

thread_local! {
    /// Whether this thread has left the program's descriptor table.
    static IS_ISOLATED: Cell<bool> = const { Cell::new(false) };
}

/// Gives the calling thread its own descriptor table with only the descriptors in `keep` (sorted by this call;
/// negative ones are ignored). If the kernel refuses, the thread stays in the shared table.
pub fn isolate_descriptors(keep: &mut [i32]) {
    // SAFETY: only the calling thread's table changes, and this thread owns no descriptor other than those in `keep`.
    if unsafe { unshare_unsafe(UnshareFlags::FILES) }.is_err() {
        return;
    }
    IS_ISOLATED.set(true);
    keep.sort_unstable();
    let mut from = 0;
    for &fd in keep.iter().filter(|&&fd| fd >= 0) {
        let fd = fd as u32;
        if fd > from {
            close_range(from, fd - 1);
        }
        from = fd + 1;
    }
    close_range(from, u32::MAX);
}

/// Whether the calling thread has its own descriptor table, in which another thread's descriptor numbers mean
/// nothing.
#[must_use]
pub fn has_own_descriptors() -> bool {
    IS_ISOLATED.get()
}

fn close_range(first: u32, last: u32) {
    // SAFETY: the table was unshared: no other thread sees these descriptors close, and this one does not use them.
    // Kernels without the call (before 5.9) keep them open, which at worst delays an end of file.
    unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
}
