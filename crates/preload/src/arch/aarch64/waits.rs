//! `poll` and `select`. Newer processors have only the calls that take a signal mask and a time in nanoseconds.

use crate::guard::call::{point, with_range};
use libc::{c_int, timespec, timeval};

/// The address of a signal mask if the program passes none.
const NO_MASK: usize = 0;

/// # Safety
/// The arguments are those of `poll`, whose list has `len` bytes.
pub unsafe fn poll([list, count, timeout, ..]: [usize; 6], len: usize) -> isize {
    let milliseconds = timeout as c_int;
    let mut limit = timespec {
        tv_sec: i64::from(milliseconds / 1000),
        tv_nsec: i64::from(milliseconds % 1000) * 1_000_000,
    };
    // A negative time means no limit.
    let limit = if milliseconds < 0 {
        0
    } else {
        &raw mut limit as usize
    };
    let args = [list, count, limit, NO_MASK, 0, 0];
    // SAFETY: the caller guarantees this; the time lives here.
    unsafe { with_range(libc::SYS_ppoll, args, list, len) }
}

/// # Safety
/// The arguments are those of `select`.
pub unsafe fn select([count, reads, writes, exceptions, timeout, _]: [usize; 6]) -> isize {
    let given = timeout as *mut timeval;
    if given.is_null() {
        // SAFETY: the caller guarantees this.
        return unsafe {
            point(
                libc::SYS_pselect6,
                [count, reads, writes, exceptions, 0, NO_MASK],
            )
        };
    }
    // SAFETY: the caller passes a time that the program's thread can read.
    let time = unsafe { given.read() };
    // This call accepts a second or more of microseconds, but the one below does not accept that many nanoseconds.
    let mut limit = timespec {
        tv_sec: time
            .tv_sec
            .saturating_add(time.tv_usec.div_euclid(1_000_000)),
        tv_nsec: time.tv_usec.rem_euclid(1_000_000) * 1000,
    };
    let at = &raw mut limit as usize;
    // SAFETY: the caller guarantees this; the time lives here.
    let ready = unsafe {
        point(
            libc::SYS_pselect6,
            [count, reads, writes, exceptions, at, NO_MASK],
        )
    };
    let left = timeval {
        tv_sec: limit.tv_sec,
        tv_usec: limit.tv_nsec / 1000,
    };
    // SAFETY: as above. Linux reports how much of the time is left.
    unsafe { given.write(left) };
    ready
}
