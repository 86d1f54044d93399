//! Waiting for descriptors. (The calls that also change the signal mask belong to [`crate::guard::signals`].)

use crate::arch::waits;
use crate::guard::call::with_range;
use crate::guard::concerns;
use core::ffi::{c_int, c_ulong};

/// The address of a signal mask if the program passes none.
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
            waits::poll(args, len) as c_int
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
            waits::select(args) as c_int
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
