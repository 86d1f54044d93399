//! Marks pages so that a touch raises SIGBUS.

use rustix::fd::BorrowedFd;
use rustix::io::Errno;

use millpond_core::PAGE_SIZE;

use super::ioctl;

/// Marks every empty page of `start..end`, and wakes the threads that wait there.
pub(crate) fn mark(fd: BorrowedFd<'_>, mut start: usize, end: usize) {
    while start < end {
        let (marked, error) = ioctl::poison(fd, start, end - start);
        start += marked;
        match error {
            None => return,
            Some(_) if marked > 0 => {}
            Some(Errno::AGAIN) => rustix::thread::sched_yield(),
            // The page is there, or was marked before.
            Some(Errno::EXIST) => start += PAGE_SIZE,
            // The page is no longer part of the arena, and no thread faults there.
            Some(_) => return,
        }
    }
}
