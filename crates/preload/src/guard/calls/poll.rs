//! Waiting for descriptors. (Those of these calls that change the signal mask belong to [`crate::guard::signals`].)

use crate::guard::call::{point, with_range};
use crate::guard::concerns;
use crate::guard::real::{Find, Real};
use core::ffi::{c_int, c_ulong};

type Poll = unsafe extern "C-unwind" fn(*mut libc::pollfd, c_ulong, c_int) -> c_int;
type Select = unsafe extern "C-unwind" fn(
    c_int,
    *mut libc::fd_set,
    *mut libc::fd_set,
    *mut libc::fd_set,
    *mut libc::timeval,
) -> c_int;
type EpollWait = unsafe extern "C-unwind" fn(c_int, *mut libc::epoll_event, c_int, c_int) -> c_int;

// SAFETY: the C library's function has this type.
static POLL: Real<Poll> = unsafe { Real::named(c"poll") };
// SAFETY: the C library's function has this type.
static SELECT: Real<Select> = unsafe { Real::named(c"select") };
// SAFETY: the C library's function has this type.
static EPOLL_WAIT: Real<EpollWait> = unsafe { Real::named(c"epoll_wait") };

pub const FUNCTIONS: &[&dyn Find] = &[&POLL, &SELECT, &EPOLL_WAIT];

/// Replaces the C library's `poll`.
///
/// # Safety
/// The conditions are those of the function that this one replaces.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn poll(
    fds: *mut libc::pollfd,
    count: c_ulong,
    timeout: c_int,
) -> c_int {
    match POLL.get() {
        // SAFETY: the caller guarantees it.
        Some(real) if !concerns(fds.cast()) => unsafe { real(fds, count, timeout) },
        _ => {
            let args = [fds as usize, count as usize, timeout as usize, 0, 0, 0];
            let len = (count as usize).saturating_mul(size_of::<libc::pollfd>());
            // SAFETY: the caller guarantees what this call needs.
            unsafe { with_range(libc::SYS_poll, args, args[0], len) as c_int }
        }
    }
}

/// Replaces the C library's `__poll`.
///
/// # Safety
/// The conditions are those of the function that this one replaces.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn __poll(
    fds: *mut libc::pollfd,
    count: c_ulong,
    timeout: c_int,
) -> c_int {
    // SAFETY: the caller guarantees what this call needs.
    unsafe { poll(fds, count, timeout) }
}

/// Replaces the C library's `__poll_chk`.
///
/// # Safety
/// The conditions are those of the function that this one replaces.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn __poll_chk(
    fds: *mut libc::pollfd,
    count: c_ulong,
    timeout: c_int,
    size: usize,
) -> c_int {
    if (size / size_of::<libc::pollfd>()) < count as usize {
        super::overflow();
    }
    // SAFETY: the caller guarantees what this call needs.
    unsafe { poll(fds, count, timeout) }
}

/// Replaces the C library's `select`.
///
/// # Safety
/// The conditions are those of the function that this one replaces.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn select(
    count: c_int,
    reads: *mut libc::fd_set,
    writes: *mut libc::fd_set,
    exceptions: *mut libc::fd_set,
    timeout: *mut libc::timeval,
) -> c_int {
    let touched = [
        reads.cast_const().cast(),
        writes.cast_const().cast(),
        exceptions.cast_const().cast(),
        timeout.cast_const().cast(),
    ];
    match SELECT.get() {
        // SAFETY: the caller guarantees it.
        Some(real) if !super::concern(&touched) => unsafe {
            real(count, reads, writes, exceptions, timeout)
        },
        _ => {
            let [reads, writes, exceptions, timeout] = touched.map(|at| at as usize);
            let args = [count as usize, reads, writes, exceptions, timeout, 0];
            // SAFETY: the caller guarantees what this call needs.
            unsafe { point(libc::SYS_select, args) as c_int }
        }
    }
}

/// Replaces the C library's `__select`.
///
/// # Safety
/// The conditions are those of the function that this one replaces.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn __select(
    count: c_int,
    reads: *mut libc::fd_set,
    writes: *mut libc::fd_set,
    exceptions: *mut libc::fd_set,
    timeout: *mut libc::timeval,
) -> c_int {
    // SAFETY: the caller guarantees what this call needs.
    unsafe { select(count, reads, writes, exceptions, timeout) }
}

/// Replaces the C library's `epoll_wait`.
///
/// # Safety
/// The conditions are those of the function that this one replaces.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn epoll_wait(
    fd: c_int,
    events: *mut libc::epoll_event,
    most: c_int,
    timeout: c_int,
) -> c_int {
    match EPOLL_WAIT.get() {
        // SAFETY: the caller guarantees it.
        Some(real) if !concerns(events.cast()) => unsafe { real(fd, events, most, timeout) },
        _ => {
            let args = [
                fd as usize,
                events as usize,
                most as usize,
                timeout as usize,
                0,
                0,
            ];
            let len = (most.max(0) as usize).saturating_mul(size_of::<libc::epoll_event>());
            // SAFETY: the caller guarantees what this call needs.
            unsafe { with_range(libc::SYS_epoll_wait, args, args[1], len) as c_int }
        }
    }
}
