//! Waiting for descriptors. (Those of these calls that change the signal mask belong to [`crate::guard::signals`].)

use crate::guard::call::{point, with_range};
use crate::guard::concerns;
use core::ffi::{c_int, c_ulong};

/// The address of a signal mask where the program gives none.
const NO_MASK: usize = 0;

exports! {
    [poll: Held]
    unsafe extern "C-unwind" fn poll(
        fds: *mut libc::pollfd,
        count: c_ulong,
        timeout: c_int,
    ) -> c_int
        = POLL if !concerns(fds.cast()), else unsafe {
            let args = [fds as usize, count as usize, timeout as usize, 0, 0, 0];
            let len = (count as usize).saturating_mul(size_of::<libc::pollfd>());
            sys::poll(args, len) as c_int
        }

    [poll: Held]
    unsafe extern "C-unwind" fn __poll(
        fds: *mut libc::pollfd,
        count: c_ulong,
        timeout: c_int,
    ) -> c_int = poll;

    [poll: Held]
    unsafe extern "C-unwind" fn __poll_chk(
        fds: *mut libc::pollfd,
        count: c_ulong,
        timeout: c_int,
        size: usize,
    ) -> c_int = unsafe {
        if (size / size_of::<libc::pollfd>()) < count as usize {
            super::overflow();
        }
        poll(fds, count, timeout)
    }

    [select: Held]
    unsafe extern "C-unwind" fn select(
        count: c_int,
        reads: *mut libc::fd_set,
        writes: *mut libc::fd_set,
        exceptions: *mut libc::fd_set,
        timeout: *mut libc::timeval,
    ) -> c_int
        = SELECT if !super::concern(&[reads.cast(), writes.cast(), exceptions.cast()])
            && !concerns(timeout.cast()),
        else unsafe {
            let sets = [reads, writes, exceptions].map(|set| set as usize);
            let args = [count as usize, sets[0], sets[1], sets[2], timeout as usize, 0];
            sys::select(args) as c_int
        }

    [select: Held]
    unsafe extern "C-unwind" fn __select(
        count: c_int,
        reads: *mut libc::fd_set,
        writes: *mut libc::fd_set,
        exceptions: *mut libc::fd_set,
        timeout: *mut libc::timeval,
    ) -> c_int = select;

    [epoll_pwait: Held]
    unsafe extern "C-unwind" fn epoll_wait(
        fd: c_int,
        events: *mut libc::epoll_event,
        most: c_int,
        timeout: c_int,
    ) -> c_int
        = EPOLL_WAIT if !concerns(events.cast()), else unsafe {
            let args = [
                fd as usize,
                events as usize,
                most as usize,
                timeout as usize,
                NO_MASK,
                0,
            ];
            let len = (most.max(0) as usize).saturating_mul(size_of::<libc::epoll_event>());
            with_range(libc::SYS_epoll_pwait, args, args[1], len) as c_int
        }
}

/// The two calls by the names that x86-64 has for them.
#[cfg(target_arch = "x86_64")]
mod sys {
    use super::{point, with_range};

    /// # Safety
    /// The arguments are those of `poll`, whose list has `len` bytes.
    pub(super) unsafe fn poll(args: [usize; 6], len: usize) -> isize {
        // SAFETY: the caller guarantees it.
        unsafe { with_range(libc::SYS_poll, args, args[0], len) }
    }

    /// # Safety
    /// The arguments are those of `select`.
    pub(super) unsafe fn select(args: [usize; 6]) -> isize {
        // SAFETY: the caller guarantees it.
        unsafe { point(libc::SYS_select, args) }
    }
}

/// Architectures that came later have only the calls that take a signal mask and a time in nanoseconds.
#[cfg(not(target_arch = "x86_64"))]
mod sys {
    use super::{NO_MASK, point, with_range};
    use libc::{c_int, timespec, timeval};

    /// # Safety
    /// The arguments are those of `poll`, whose list has `len` bytes.
    pub(super) unsafe fn poll([list, count, timeout, ..]: [usize; 6], len: usize) -> isize {
        let milliseconds = timeout as c_int;
        let mut limit = timespec {
            tv_sec: i64::from(milliseconds / 1000),
            tv_nsec: i64::from(milliseconds % 1000) * 1_000_000,
        };
        // A time below zero is none at all.
        let limit = if milliseconds < 0 {
            0
        } else {
            &raw mut limit as usize
        };
        let args = [list, count, limit, NO_MASK, 0, 0];
        // SAFETY: the caller guarantees it; the time lives here.
        unsafe { with_range(libc::SYS_ppoll, args, list, len) }
    }

    /// # Safety
    /// The arguments are those of `select`.
    pub(super) unsafe fn select(
        [count, reads, writes, exceptions, timeout, _]: [usize; 6],
    ) -> isize {
        let given = timeout as *mut timeval;
        if given.is_null() {
            // SAFETY: the caller guarantees it.
            return unsafe {
                point(
                    libc::SYS_pselect6,
                    [count, reads, writes, exceptions, 0, NO_MASK],
                )
            };
        }
        // SAFETY: the caller passes a time, which the program's thread can read.
        let time = unsafe { given.read() };
        // More microseconds than a second has are allowed here, and no such nanoseconds below.
        let mut limit = timespec {
            tv_sec: time
                .tv_sec
                .saturating_add(time.tv_usec.div_euclid(1_000_000)),
            tv_nsec: time.tv_usec.rem_euclid(1_000_000) * 1000,
        };
        let at = &raw mut limit as usize;
        // SAFETY: the caller guarantees it; the time lives here.
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
        // SAFETY: as above. Linux tells how much of the time is left.
        unsafe { given.write(left) };
        ready
    }
}
