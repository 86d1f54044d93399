//! Calls that wait under a mask of their own: `sigsuspend`, `ppoll`, `pselect`, `epoll_pwait`.
//!
//! SIGBUS and SIGSYS are removed from the mask, which the kernel reads from our stack. Everything else that the call
//! names is held while it lasts. The functions are cancellation points; in the C library cancellation takes effect at
//! once while they wait, and so it does here. A cancelled thread keeps its holds until its end.
//!
//! A dormant process has nothing to hold. It waits in the C library's own functions, under the mask that it asked for
//! without the two signals: there its threads can be [parked](crate::park), and at the gate they could not.

use super::actions::{self, SET};
use super::{masks, never_blocked};
use crate::guard::call;
use crate::{c_answer, guard};
use core::ffi::c_int;
use rustix::io::Errno;

pub type Mask = *const libc::sigset_t;

/// Makes one of these calls for the program. Returns `None` for any other call.
///
/// # Safety
/// The conditions are those of the system call.
pub unsafe fn by_number(number: i64, args: [usize; 6]) -> Option<Result<usize, Errno>> {
    // SAFETY: the caller guarantees what these calls need.
    Some(unsafe {
        match number {
            libc::SYS_rt_sigsuspend => suspended(args),
            libc::SYS_ppoll => under_mask(number, args, 3),
            libc::SYS_epoll_pwait | libc::SYS_epoll_pwait2 => under_mask(number, args, 4),
            libc::SYS_pselect6 => selected(args),
            _ => return None,
        }
    })
}

unsafe fn suspended([mask, size, ..]: [usize; 6]) -> Result<usize, Errno> {
    if size != SET {
        return Err(Errno::INVAL);
    }
    let mask = masks::read(mask)? & !never_blocked();
    let args = [&raw const mask as usize, SET, 0, 0, 0, 0];
    // SAFETY: the kernel reads a set that lives here.
    unsafe { call::held(libc::SYS_rt_sigsuspend, args) }
}

/// Makes a call whose argument `at` is a mask, followed by the mask's size.
unsafe fn under_mask(number: i64, mut args: [usize; 6], at: usize) -> Result<usize, Errno> {
    let mask;
    if args[at] != 0 {
        if args[at + 1] != SET {
            return Err(Errno::INVAL);
        }
        mask = masks::read(args[at])? & !never_blocked();
        args[at] = &raw const mask as usize;
    }
    // SAFETY: the caller guarantees what this call needs, and the mask lives here.
    unsafe { call::held(number, args) }
}

/// Makes the call `pselect6`, whose last argument is the address of the mask's address and size.
unsafe fn selected(mut args: [usize; 6]) -> Result<usize, Errno> {
    let mask;
    let mut named: [usize; 2];
    if args[5] != 0 {
        let mut bytes = [0; size_of::<[usize; 2]>()];
        if !millpond_mmu::read(args[5], &mut bytes) {
            return Err(Errno::FAULT);
        }
        // SAFETY: any bytes are two valid numbers.
        named = unsafe { core::mem::transmute::<[u8; size_of::<[usize; 2]>()], [usize; 2]>(bytes) };
        if named[0] != 0 {
            if named[1] != SET {
                return Err(Errno::INVAL);
            }
            mask = masks::read(named[0])? & !never_blocked();
            named[0] = &raw const mask as usize;
        }
        args[5] = &raw const named as usize;
    }
    // SAFETY: the caller guarantees what this call needs, and the mask lives here.
    unsafe { call::held(libc::SYS_pselect6, args) }
}

/// Has `wait` wait under a mask without the signals that are never blocked, if the process is dormant. Returns `None`
/// otherwise.
fn while_dormant(mask: Mask, wait: impl FnOnce(Mask) -> c_int) -> Option<c_int> {
    if guard::is_on() {
        return None;
    }
    let read = (!mask.is_null()).then(|| masks::read(mask as usize));
    Some(match read {
        Some(Ok(mask)) => wait(&actions::set_of(mask & !never_blocked())),
        // The kernel says what is wrong with it.
        Some(Err(_)) | None => wait(mask),
    })
}

unsafe extern "C-unwind" {
    /// A thread that is to be cancelled never returns from this.
    fn pthread_setcanceltype(new: c_int, old: *mut c_int) -> c_int;
}

/// Makes a call for a C library function, during which the thread may be cancelled.
///
/// # Safety
/// The conditions are those of the system call.
unsafe fn waited(number: i64, args: [usize; 6]) -> c_int {
    /// `PTHREAD_CANCEL_ASYNCHRONOUS`.
    const AT_ONCE: c_int = 1;
    let mut before = 0;
    // SAFETY: the place lives here.
    unsafe { pthread_setcanceltype(AT_ONCE, &mut before) };
    // SAFETY: the caller guarantees what this call needs.
    let answer = unsafe { by_number(number, args) }.unwrap_or(Err(Errno::NOSYS));
    // SAFETY: the type is one that the thread had.
    unsafe { pthread_setcanceltype(before, core::ptr::null_mut()) };
    c_answer(answer) as c_int
}

exports! {
    real SIGSUSPEND: unsafe extern "C-unwind" fn(Mask) -> c_int = c"sigsuspend";

    [rt_sigsuspend: Held]
    unsafe extern "C-unwind" fn sigsuspend(mask: Mask) -> c_int {
        let real = SIGSUSPEND.must();
        if !guard::has_signals() {
            // SAFETY: the caller guarantees what this call needs.
            return unsafe { real(mask) };
        }
        // SAFETY: the caller guarantees a set.
        let mask = actions::set_of(unsafe { actions::word(mask) } & !never_blocked());
        // SAFETY: the set lives here.
        unsafe { real(&mask) }
    }

    [rt_sigsuspend: Held]
    unsafe extern "C-unwind" fn __sigsuspend(mask: Mask) -> c_int = sigsuspend;

    [ppoll: Held]
    unsafe extern "C-unwind" fn ppoll(
        fds: *mut libc::pollfd,
        count: libc::nfds_t,
        timeout: *const libc::timespec,
        mask: Mask,
    ) -> c_int
        = PPOLL.must() if !guard::has_signals(), else unsafe {
            let real = PPOLL.must();
            if let Some(answer) = while_dormant(mask, |mask| real(fds, count, timeout, mask)) {
                return answer;
            }
            // The kernel writes the remaining time, which the program does not expect.
            let left = timeout.as_ref().copied();
            let left = left
                .as_ref()
                .map_or(0, |left| core::ptr::from_ref(left) as usize);
            let args = [fds as usize, count as usize, left, mask as usize, SET, 0];
            waited(libc::SYS_ppoll, args)
        }

    /// The caller passes the length of the array. The C library's function ends a process whose array is too short.
    [ppoll: Held]
    unsafe extern "C-unwind" fn __ppoll_chk(
        fds: *mut libc::pollfd,
        count: libc::nfds_t,
        timeout: *const libc::timespec,
        mask: Mask,
        len: usize,
    ) -> c_int
        = PPOLL_CHK.must() if is_too_short(len, count) || !guard::has_signals(), else unsafe {
            ppoll(fds, count, timeout, mask)
        }

    [pselect6: Held]
    unsafe extern "C-unwind" fn pselect(
        count: c_int,
        reads: *mut libc::fd_set,
        writes: *mut libc::fd_set,
        exceptions: *mut libc::fd_set,
        timeout: *const libc::timespec,
        mask: Mask,
    ) -> c_int
        = PSELECT.must() if !guard::has_signals(), else unsafe {
            let real = PSELECT.must();
            if let Some(answer) = while_dormant(mask, |mask| real(count, reads, writes, exceptions, timeout, mask)) {
                return answer;
            }
            // The kernel writes the remaining time, which the program does not expect.
            let left = timeout.as_ref().copied();
            let left = left
                .as_ref()
                .map_or(0, |left| core::ptr::from_ref(left) as usize);
            let named = [mask as usize, SET];
            let sets = [reads, writes, exceptions].map(|set| set as usize);
            let args = [
                count as usize,
                sets[0],
                sets[1],
                sets[2],
                left,
                named.as_ptr() as usize,
            ];
            waited(libc::SYS_pselect6, args)
        }

    [epoll_pwait: Held]
    unsafe extern "C-unwind" fn epoll_pwait(
        epoll: c_int,
        events: *mut libc::epoll_event,
        count: c_int,
        timeout: c_int,
        mask: Mask,
    ) -> c_int
        = EPOLL_PWAIT.must() if !guard::has_signals(), else unsafe {
            let real = EPOLL_PWAIT.must();
            if let Some(answer) = while_dormant(mask, |mask| real(epoll, events, count, timeout, mask)) {
                return answer;
            }
            let args = [
                epoll as usize,
                events as usize,
                count as usize,
                timeout as usize,
                mask as usize,
                SET,
            ];
            waited(libc::SYS_epoll_pwait, args)
        }

    [epoll_pwait2: Held]
    unsafe extern "C-unwind" fn epoll_pwait2(
        epoll: c_int,
        events: *mut libc::epoll_event,
        count: c_int,
        timeout: *const libc::timespec,
        mask: Mask,
    ) -> c_int
        = EPOLL_PWAIT2.must() if !guard::has_signals(), else unsafe {
            let real = EPOLL_PWAIT2.must();
            if let Some(answer) = while_dormant(mask, |mask| real(epoll, events, count, timeout, mask)) {
                return answer;
            }
            let args = [
                epoll as usize,
                events as usize,
                count as usize,
                timeout as usize,
                mask as usize,
                SET,
            ];
            waited(libc::SYS_epoll_pwait2, args)
        }
}

/// Returns whether an array of `len` bytes is too short for `count` descriptors.
fn is_too_short(len: usize, count: libc::nfds_t) -> bool {
    ((len / size_of::<libc::pollfd>()) as u64) < count
}
