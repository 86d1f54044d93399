//! Marking pages so that a touch is a SIGBUS.

use rustix::fd::BorrowedFd;
use rustix::io::Errno;

use millpond_core::PAGE_SIZE;

use super::ioctl;

/// Marks every page of `start..end` that holds nothing, and wakes the threads that wait there.
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
            // The page is not part of the arena any more, and no thread faults there.
            Some(_) => return,
        }
    }
}
