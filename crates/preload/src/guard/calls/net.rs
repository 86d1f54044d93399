//! Sockets: sending and receiving, with addresses, and with messages of several parts.
//!
//! A message is looked at as a vector is (`vectors.rs`): its header, its address, its control data and its ranges may
//! each lie in the space, and the filter sees the header's address at most.

use super::vectors::vector_concerns;
use crate::guard::call::{point, with_buffer};
use crate::guard::real::{Find, Real};
use crate::guard::{concerns, is_on};
use core::ffi::{c_int, c_uint, c_void};
use core::mem::MaybeUninit;
use libc::{mmsghdr, msghdr, sockaddr, socklen_t, timespec};
use millpond_mmu::read;

type Send = unsafe extern "C-unwind" fn(c_int, *const c_void, usize, c_int) -> isize;
type Recv = unsafe extern "C-unwind" fn(c_int, *mut c_void, usize, c_int) -> isize;
type SendTo = unsafe extern "C-unwind" fn(
    c_int,
    *const c_void,
    usize,
    c_int,
    *const sockaddr,
    socklen_t,
) -> isize;
type RecvFrom = unsafe extern "C-unwind" fn(
    c_int,
    *mut c_void,
    usize,
    c_int,
    *mut sockaddr,
    *mut socklen_t,
) -> isize;
type SendMsg = unsafe extern "C-unwind" fn(c_int, *const msghdr, c_int) -> isize;
type RecvMsg = unsafe extern "C-unwind" fn(c_int, *mut msghdr, c_int) -> isize;
type SendMany = unsafe extern "C-unwind" fn(c_int, *mut mmsghdr, c_uint, c_int) -> c_int;
type RecvMany =
    unsafe extern "C-unwind" fn(c_int, *mut mmsghdr, c_uint, c_int, *mut timespec) -> c_int;

/// The most messages of one call; the kernel takes no more.
const MOST_MESSAGES: usize = 1024;

// SAFETY: the C library's function has this type.
static SEND: Real<Send> = unsafe { Real::named(c"send") };
// SAFETY: the C library's function has this type.
static RECV: Real<Recv> = unsafe { Real::named(c"recv") };
// SAFETY: the C library's function has this type.
static SENDTO: Real<SendTo> = unsafe { Real::named(c"sendto") };
// SAFETY: the C library's function has this type.
static RECVFROM: Real<RecvFrom> = unsafe { Real::named(c"recvfrom") };
// SAFETY: the C library's function has this type.
static SENDMSG: Real<SendMsg> = unsafe { Real::named(c"sendmsg") };
// SAFETY: the C library's function has this type.
static RECVMSG: Real<RecvMsg> = unsafe { Real::named(c"recvmsg") };
// SAFETY: the C library's function has this type.
static SENDMMSG: Real<SendMany> = unsafe { Real::named(c"sendmmsg") };
// SAFETY: the C library's function has this type.
static RECVMMSG: Real<RecvMany> = unsafe { Real::named(c"recvmmsg") };

pub const FUNCTIONS: &[&dyn Find] = &[
    &SEND, &RECV, &SENDTO, &RECVFROM, &SENDMSG, &RECVMSG, &SENDMMSG, &RECVMMSG,
];

/// Whether a message's header, or memory that it names, must be prepared.
fn message_concerns(message: *const msghdr) -> bool {
    if !is_on() || concerns(message.cast()) {
        return is_on();
    }
    let mut header = MaybeUninit::<msghdr>::uninit();
    // SAFETY: the slice is the header's bytes, which are written and not read.
    let bytes = unsafe {
        header.as_mut_ptr().write_bytes(0, 1);
        core::slice::from_raw_parts_mut(header.as_mut_ptr().cast::<u8>(), size_of::<msghdr>())
    };
    if !read(message as usize, bytes) {
        return false;
    }
    // SAFETY: all of the bytes have been written, and any are valid.
    let header = unsafe { header.assume_init() };
    concerns(header.msg_name)
        || concerns(header.msg_control)
        || vector_concerns(header.msg_iov, header.msg_iovlen)
}

/// Whether one of several messages must be prepared.
fn messages_concern(messages: *const mmsghdr, count: usize) -> bool {
    let concerned = |index| message_concerns(messages.wrapping_add(index).cast());
    is_on() && (0..count.min(MOST_MESSAGES)).any(concerned)
}

/// Replaces the C library's `send`.
///
/// # Safety
/// The conditions are those of the function that this one replaces.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn send(
    fd: c_int,
    from: *const c_void,
    len: usize,
    flags: c_int,
) -> isize {
    match SEND.get() {
        // SAFETY: the caller guarantees it.
        Some(real) if !concerns(from) => unsafe { real(fd, from, len, flags) },
        // SAFETY: the caller guarantees what this call needs.
        _ => unsafe {
            with_buffer(
                libc::SYS_sendto,
                [fd as usize, from as usize, len, flags as usize, 0, 0],
            )
        },
    }
}

/// Replaces the C library's `__send`.
///
/// # Safety
/// The conditions are those of the function that this one replaces.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn __send(
    fd: c_int,
    from: *const c_void,
    len: usize,
    flags: c_int,
) -> isize {
    // SAFETY: the caller guarantees what this call needs.
    unsafe { send(fd, from, len, flags) }
}

/// Replaces the C library's `recv`.
///
/// # Safety
/// The conditions are those of the function that this one replaces.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn recv(
    fd: c_int,
    to: *mut c_void,
    len: usize,
    flags: c_int,
) -> isize {
    match RECV.get() {
        // SAFETY: the caller guarantees it.
        Some(real) if !concerns(to) => unsafe { real(fd, to, len, flags) },
        // SAFETY: the caller guarantees what this call needs.
        _ => unsafe {
            with_buffer(
                libc::SYS_recvfrom,
                [fd as usize, to as usize, len, flags as usize, 0, 0],
            )
        },
    }
}

/// Replaces the C library's `__recv_chk`.
///
/// # Safety
/// The conditions are those of the function that this one replaces.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn __recv_chk(
    fd: c_int,
    to: *mut c_void,
    len: usize,
    size: usize,
    flags: c_int,
) -> isize {
    if len > size {
        super::overflow();
    }
    // SAFETY: the caller guarantees what this call needs.
    unsafe { recv(fd, to, len, flags) }
}

/// Replaces the C library's `sendto`.
///
/// # Safety
/// The conditions are those of the function that this one replaces.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn sendto(
    fd: c_int,
    from: *const c_void,
    len: usize,
    flags: c_int,
    address: *const sockaddr,
    address_len: socklen_t,
) -> isize {
    match SENDTO.get() {
        // SAFETY: the caller guarantees it.
        Some(real) if !super::concern(&[from, address.cast()]) => unsafe {
            real(fd, from, len, flags, address, address_len)
        },
        _ => {
            let [fd, flags, address_len] = [fd as usize, flags as usize, address_len as usize];
            let args = [fd, from as usize, len, flags, address as usize, address_len];
            // SAFETY: the caller guarantees what this call needs.
            unsafe { point(libc::SYS_sendto, args) }
        }
    }
}

/// Replaces the C library's `recvfrom`.
///
/// # Safety
/// The conditions are those of the function that this one replaces.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn recvfrom(
    fd: c_int,
    to: *mut c_void,
    len: usize,
    flags: c_int,
    address: *mut sockaddr,
    address_len: *mut socklen_t,
) -> isize {
    let touched = [to.cast_const(), address.cast(), address_len.cast()];
    match RECVFROM.get() {
        // SAFETY: the caller guarantees it.
        Some(real) if !super::concern(&touched) => unsafe {
            real(fd, to, len, flags, address, address_len)
        },
        _ => {
            let [to, address, address_len] = touched.map(|at| at as usize);
            let args = [fd as usize, to, len, flags as usize, address, address_len];
            // SAFETY: the caller guarantees what this call needs.
            unsafe { point(libc::SYS_recvfrom, args) }
        }
    }
}

/// Replaces the C library's `__recvfrom_chk`.
///
/// # Safety
/// The conditions are those of the function that this one replaces.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn __recvfrom_chk(
    fd: c_int,
    to: *mut c_void,
    len: usize,
    size: usize,
    flags: c_int,
    address: *mut sockaddr,
    address_len: *mut socklen_t,
) -> isize {
    if len > size {
        super::overflow();
    }
    // SAFETY: the caller guarantees what this call needs.
    unsafe { recvfrom(fd, to, len, flags, address, address_len) }
}

/// Replaces the C library's `sendmsg`.
///
/// # Safety
/// The conditions are those of the function that this one replaces.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> isize {
    match SENDMSG.get() {
        // SAFETY: the caller guarantees it.
        Some(real) if !message_concerns(message) => unsafe { real(fd, message, flags) },
        _ => {
            let args = [fd as usize, message as usize, flags as usize, 0, 0, 0];
            // SAFETY: the caller guarantees what this call needs.
            unsafe { point(libc::SYS_sendmsg, args) }
        }
    }
}

/// Replaces the C library's `recvmsg`.
///
/// # Safety
/// The conditions are those of the function that this one replaces.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> isize {
    match RECVMSG.get() {
        // SAFETY: the caller guarantees it.
        Some(real) if !message_concerns(message) => unsafe { real(fd, message, flags) },
        _ => {
            let args = [fd as usize, message as usize, flags as usize, 0, 0, 0];
            // SAFETY: the caller guarantees what this call needs.
            unsafe { point(libc::SYS_recvmsg, args) }
        }
    }
}

/// Replaces the C library's `sendmmsg`.
///
/// # Safety
/// The conditions are those of the function that this one replaces.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn sendmmsg(
    fd: c_int,
    messages: *mut mmsghdr,
    count: c_uint,
    flags: c_int,
) -> c_int {
    match SENDMMSG.get() {
        // SAFETY: the caller guarantees it.
        Some(real) if !messages_concern(messages, count as usize) => unsafe {
            real(fd, messages, count, flags)
        },
        _ => {
            let args = [
                fd as usize,
                messages as usize,
                count as usize,
                flags as usize,
                0,
                0,
            ];
            // SAFETY: the caller guarantees what this call needs.
            unsafe { point(libc::SYS_sendmmsg, args) as c_int }
        }
    }
}

/// Replaces the C library's `recvmmsg`.
///
/// # Safety
/// The conditions are those of the function that this one replaces.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn recvmmsg(
    fd: c_int,
    messages: *mut mmsghdr,
    count: c_uint,
    flags: c_int,
    timeout: *mut timespec,
) -> c_int {
    let is_concerned = concerns(timeout.cast()) || messages_concern(messages, count as usize);
    match RECVMMSG.get() {
        // SAFETY: the caller guarantees it.
        Some(real) if !is_concerned => unsafe { real(fd, messages, count, flags, timeout) },
        _ => {
            let [count, flags, timeout] = [count as usize, flags as usize, timeout as usize];
            let args = [fd as usize, messages as usize, count, flags, timeout, 0];
            // SAFETY: the caller guarantees what this call needs.
            unsafe { point(libc::SYS_recvmmsg, args) as c_int }
        }
    }
}
