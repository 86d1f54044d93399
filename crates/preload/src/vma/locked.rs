//! Memory that the program locked (`mlock`).
//!
//! Locking is the kernel's: it brings the pages in, and the space finds that it cannot take them out. Nobody here keeps
//! account of it, as there are more ways to lock than functions to watch (`mlockall` for what is mapped later, the
//! system call itself). But locked memory may not be discarded, so the kernel is asked: `msync(MS_INVALIDATE)` looks at
//! mappings only, does nothing to anonymous ones, and answers `EBUSY` when one of them is locked.

use super::{PAGE, Range};
use crate::raw;
use rustix::io::Errno;

fn is_locked(range: &Range) -> bool {
    range.start < range.end
        && raw::msync(
            range.start,
            range.len(),
            libc::MS_ASYNC | libc::MS_INVALIDATE,
        ) == Err(Errno::BUSY)
}

/// The first locked page of `range`, of which all is managed memory.
pub fn first(range: &Range) -> Option<usize> {
    if !is_locked(range) {
        return None;
    }
    // All before `low` is not locked, something before `high` is.
    let (mut low, mut high) = (range.start, range.end);
    while high - low > PAGE {
        let middle = low + (high - low) / PAGE / 2 * PAGE;
        if is_locked(&(low..middle)) {
            high = middle;
        } else {
            low = middle;
        }
    }
    Some(low)
}

/// Locks what continues a locked area: its pages stay once they are touched.
pub fn lock(range: &Range) -> Result<(), Errno> {
    let flags = libc::MLOCK_ONFAULT as usize;
    // SAFETY: changes no contents.
    unsafe { raw::syscall(libc::SYS_mlock2, [range.start, range.len(), flags, 0, 0, 0]) }.map(drop)
}

/// Ends the lock on memory that is being unmapped: the kernel's mapping stays and would keep it. Whether there was one.
pub fn unlock(range: &Range) -> bool {
    let was_locked = is_locked(range);
    if was_locked {
        // SAFETY: changes no contents.
        let _ = unsafe { raw::syscall(libc::SYS_munlock, [range.start, range.len(), 0, 0, 0, 0]) };
    }
    was_locked
}
