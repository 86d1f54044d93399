//! The kernel's interface, and nothing else: ioctls, the page map, vectored advice.
//!
//! All calls go straight to the kernel, so the interrupted program's `errno` is not changed, and each returns its
//! error as a value.

pub(crate) mod advise;
pub(crate) mod descriptor;
pub mod gate;
pub(crate) mod ioctl;
pub(crate) mod mempolicy;
pub(crate) mod mm;
pub(crate) mod own_memory;
pub(crate) mod pagemap;
pub(crate) mod poison;
pub(crate) mod remap;

use core::sync::atomic::{AtomicI32, Ordering};

use rustix::fd::{BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use rustix::io::Errno;

use crate::report;

/// Stops the process because a filter of the program answers `call` in the kernel's place: absent memory could never
/// come in again.
pub(crate) fn stop_as_forbidden(call: &str, errno: Errno) -> ! {
    report::stop(format_args!(
        "a filter of system calls (seccomp) forbids {call}, by which memory comes in and goes out ({errno}): stopped; \
         docs/INTERFACE.md lists the calls that a program's own filter must allow"
    ))
}

/// A descriptor that can be replaced through `&self`: a forked child needs its own in place of each.
pub(crate) struct FdCell(AtomicI32);

impl FdCell {
    pub(crate) fn new(fd: Option<OwnedFd>) -> Self {
        Self(AtomicI32::new(fd.map_or(-1, into_high)))
    }

    /// Returns the descriptor, if there is one.
    pub(crate) fn get(&self) -> Option<BorrowedFd<'_>> {
        let fd = self.0.load(Ordering::Acquire);
        // SAFETY: a value of 0 or more is a descriptor that this cell owns; it is only closed by `replace`, which
        // runs in the only thread of a new child, and by drop.
        (fd >= 0).then(|| unsafe { BorrowedFd::borrow_raw(fd) })
    }

    /// Closes the current descriptor and puts `fd` in its place. No other thread may use the cell meanwhile.
    pub(crate) fn replace(&self, fd: Option<OwnedFd>) {
        let old = self.0.swap(fd.map_or(-1, into_high), Ordering::AcqRel);
        close(old);
    }
}

impl Drop for FdCell {
    fn drop(&mut self) {
        close(*self.0.get_mut());
    }
}

fn close(fd: RawFd) {
    if fd >= 0 {
        // SAFETY: the descriptor came out of a cell that owned it and no longer refers to it.
        drop(unsafe { OwnedFd::from_raw_fd(fd) });
    }
}

/// Moves a descriptor up and out of the way: programs that close "all" low descriptors, or expect the next one to be
/// 3, are common. The descriptor stays where it is if the limit does not allow more.
fn into_high(fd: OwnedFd) -> RawFd {
    match rustix::io::fcntl_dupfd_cloexec(&fd, 512) {
        Ok(high) => high.into_raw_fd(),
        Err(_) => fd.into_raw_fd(),
    }
}
