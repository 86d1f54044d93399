//! Reading and writing with vectors.
//!
//! The filter sees the vector's address, usually on the stack, and nothing of the memory that the vector names. So we
//! check each vector here. It may itself lie in the space, or be no memory at all, in which case the kernel's answer
//! is correct.

use crate::guard::call::point;
use crate::guard::pieces::entry;
use crate::guard::{concerns, is_on};
use crate::raw::MAX_RANGES;
use core::ffi::{c_int, c_void};

/// Returns whether a vector, or memory that it names, must be prepared.
pub fn vector_concerns(vector: *const libc::iovec, count: usize) -> bool {
    if !is_on() || count > MAX_RANGES {
        return false;
    }
    let names_some = |index: usize| {
        let at = (vector as usize).wrapping_add(index * size_of::<libc::iovec>());
        entry(at).is_some_and(|entry| concerns(entry.base as *const c_void))
    };
    concerns(vector.cast()) || (0..count).any(names_some)
}

/// Returns the arguments of the system call. The upper half of the offset is a register that x86-64 ignores.
fn words(fd: c_int, vector: *const libc::iovec, count: c_int, at: i64, flags: c_int) -> [usize; 6] {
    [
        fd as usize,
        vector as usize,
        count as usize,
        at as usize,
        0,
        flags as usize,
    ]
}

exports! {
    [readv: Held]
    unsafe extern "C-unwind" fn readv(
        fd: c_int,
        vector: *const libc::iovec,
        count: c_int,
    ) -> isize
        = READV if !vector_concerns(vector, count as usize), else unsafe {
            point(libc::SYS_readv, words(fd, vector, count, 0, 0))
        }

    [writev: Held]
    unsafe extern "C-unwind" fn writev(
        fd: c_int,
        vector: *const libc::iovec,
        count: c_int,
    ) -> isize
        = WRITEV if !vector_concerns(vector, count as usize), else unsafe {
            point(libc::SYS_writev, words(fd, vector, count, 0, 0))
        }

    [preadv: Held]
    unsafe extern "C-unwind" fn preadv64(
        fd: c_int,
        vector: *const libc::iovec,
        count: c_int,
        at: i64,
    ) -> isize
        = PREADV if !vector_concerns(vector, count as usize), else unsafe {
            point(libc::SYS_preadv, words(fd, vector, count, at, 0))
        }

    [preadv: Held]
    unsafe extern "C-unwind" fn preadv(
        fd: c_int,
        vector: *const libc::iovec,
        count: c_int,
        at: i64,
    ) -> isize = preadv64;

    [preadv2: Held]
    unsafe extern "C-unwind" fn preadv64v2(
        fd: c_int,
        vector: *const libc::iovec,
        count: c_int,
        at: i64,
        flags: c_int,
    ) -> isize
        = PREADV2 if !vector_concerns(vector, count as usize), else unsafe {
            point(libc::SYS_preadv2, words(fd, vector, count, at, flags))
        }

    [preadv2: Held]
    unsafe extern "C-unwind" fn preadv2(
        fd: c_int,
        vector: *const libc::iovec,
        count: c_int,
        at: i64,
        flags: c_int,
    ) -> isize = preadv64v2;

    [pwritev: Held]
    unsafe extern "C-unwind" fn pwritev64(
        fd: c_int,
        vector: *const libc::iovec,
        count: c_int,
        at: i64,
    ) -> isize
        = PWRITEV if !vector_concerns(vector, count as usize), else unsafe {
            point(libc::SYS_pwritev, words(fd, vector, count, at, 0))
        }

    [pwritev: Held]
    unsafe extern "C-unwind" fn pwritev(
        fd: c_int,
        vector: *const libc::iovec,
        count: c_int,
        at: i64,
    ) -> isize = pwritev64;

    [pwritev2: Held]
    unsafe extern "C-unwind" fn pwritev64v2(
        fd: c_int,
        vector: *const libc::iovec,
        count: c_int,
        at: i64,
        flags: c_int,
    ) -> isize
        = PWRITEV2 if !vector_concerns(vector, count as usize), else unsafe {
            point(libc::SYS_pwritev2, words(fd, vector, count, at, flags))
        }

    [pwritev2: Held]
    unsafe extern "C-unwind" fn pwritev2(
        fd: c_int,
        vector: *const libc::iovec,
        count: c_int,
        at: i64,
        flags: c_int,
    ) -> isize = pwritev64v2;
}
