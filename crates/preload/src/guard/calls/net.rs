//! Sockets: sending and receiving, with addresses and with multi-part messages.
//!
//! Messages are checked like vectors (`vectors.rs`): the header, the address, the control data and the ranges may
//! each lie in the space, and the filter sees at most the header's address.

use super::vectors::vector_concerns;
use crate::guard::call::{point, with_buffer};
use crate::guard::{concerns, is_on};
use core::ffi::{c_int, c_uint, c_void};
use core::mem::MaybeUninit;
use libc::{mmsghdr, msghdr, sockaddr, socklen_t, timespec};
use millpond_mmu::read;

/// The maximum number of messages in one call; the kernel accepts no more.
const MOST_MESSAGES: usize = 1024;

/// Returns whether a message's header, or memory that it names, must be prepared.
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

/// Returns whether one of several messages must be prepared.
fn messages_concern(messages: *const mmsghdr, count: usize) -> bool {
    let concerned = |index| message_concerns(messages.wrapping_add(index).cast());
    is_on() && (0..count.min(MOST_MESSAGES)).any(concerned)
}

exports! {
    [sendto: Held]
    unsafe extern "C-unwind" fn send(
        fd: c_int,
        from: *const c_void,
        len: usize,
        flags: c_int,
    ) -> isize
        = SEND if !concerns(from), else unsafe {
            with_buffer(
                libc::SYS_sendto,
                [fd as usize, from as usize, len, flags as usize, 0, 0],
            )
        }

    [sendto: Held]
    unsafe extern "C-unwind" fn __send(
        fd: c_int,
        from: *const c_void,
        len: usize,
        flags: c_int,
    ) -> isize = send;

    [recvfrom: Held]
    unsafe extern "C-unwind" fn recv(fd: c_int, to: *mut c_void, len: usize, flags: c_int) -> isize
        = RECV if !concerns(to), else unsafe {
            with_buffer(
                libc::SYS_recvfrom,
                [fd as usize, to as usize, len, flags as usize, 0, 0],
            )
        }

    [recvfrom: Held]
    unsafe extern "C-unwind" fn __recv_chk(
        fd: c_int,
        to: *mut c_void,
        len: usize,
        size: usize,
        flags: c_int,
    ) -> isize = unsafe {
        if len > size {
            super::overflow();
        }
        recv(fd, to, len, flags)
    }

    [sendto: Held]
    unsafe extern "C-unwind" fn sendto(
        fd: c_int,
        from: *const c_void,
        len: usize,
        flags: c_int,
        address: *const sockaddr,
        address_len: socklen_t,
    ) -> isize
        = SENDTO if !super::concern(&[from, address.cast()]), else unsafe {
            let [fd, flags, address_len] = [fd as usize, flags as usize, address_len as usize];
            let args = [fd, from as usize, len, flags, address as usize, address_len];
            point(libc::SYS_sendto, args)
        }

    [recvfrom: Held]
    unsafe extern "C-unwind" fn recvfrom(
        fd: c_int,
        to: *mut c_void,
        len: usize,
        flags: c_int,
        address: *mut sockaddr,
        address_len: *mut socklen_t,
    ) -> isize
        = RECVFROM if !super::concern(&[to, address.cast(), address_len.cast()]), else unsafe {
            let [to, address, address_len] = [to as usize, address as usize, address_len as usize];
            let args = [fd as usize, to, len, flags as usize, address, address_len];
            point(libc::SYS_recvfrom, args)
        }

    [recvfrom: Held]
    unsafe extern "C-unwind" fn __recvfrom_chk(
        fd: c_int,
        to: *mut c_void,
        len: usize,
        size: usize,
        flags: c_int,
        address: *mut sockaddr,
        address_len: *mut socklen_t,
    ) -> isize = unsafe {
        if len > size {
            super::overflow();
        }
        recvfrom(fd, to, len, flags, address, address_len)
    }

    [sendmsg: Held]
    unsafe extern "C-unwind" fn sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> isize
        = SENDMSG if !message_concerns(message), else unsafe {
            let args = [fd as usize, message as usize, flags as usize, 0, 0, 0];
            point(libc::SYS_sendmsg, args)
        }

    [recvmsg: Held]
    unsafe extern "C-unwind" fn recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> isize
        = RECVMSG if !message_concerns(message), else unsafe {
            let args = [fd as usize, message as usize, flags as usize, 0, 0, 0];
            point(libc::SYS_recvmsg, args)
        }

    [sendmmsg: Held]
    unsafe extern "C-unwind" fn sendmmsg(
        fd: c_int,
        messages: *mut mmsghdr,
        count: c_uint,
        flags: c_int,
    ) -> c_int
        = SENDMMSG if !messages_concern(messages, count as usize), else unsafe {
            let args = [
                fd as usize,
                messages as usize,
                count as usize,
                flags as usize,
                0,
                0,
            ];
            point(libc::SYS_sendmmsg, args) as c_int
        }

    [recvmmsg: Held]
    unsafe extern "C-unwind" fn recvmmsg(
        fd: c_int,
        messages: *mut mmsghdr,
        count: c_uint,
        flags: c_int,
        timeout: *mut timespec,
    ) -> c_int
        = RECVMMSG if !concerns(timeout.cast()) && !messages_concern(messages, count as usize),
        else unsafe {
            let [count, flags, timeout] = [count as usize, flags as usize, timeout as usize];
            let args = [fd as usize, messages as usize, count, flags, timeout, 0];
            point(libc::SYS_recvmmsg, args) as c_int
        }
}
