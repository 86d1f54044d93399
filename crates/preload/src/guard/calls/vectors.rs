//! Reading and writing with vectors.
//!
//! The filter sees the vector's address, which mostly is on the stack, and nothing of the memory that it names. So each
//! vector is looked at here. It may lie in the space itself, or be no memory at all: then the kernel's answer is
//! right.

use crate::guard::call::point;
use crate::guard::pieces::entry;
use crate::guard::real::{Find, Real};
use crate::guard::{concerns, is_on};
use crate::raw::MAX_RANGES;
use core::ffi::{c_int, c_void};

type Plain = unsafe extern "C-unwind" fn(c_int, *const libc::iovec, c_int) -> isize;
type At = unsafe extern "C-unwind" fn(c_int, *const libc::iovec, c_int, i64) -> isize;
type With = unsafe extern "C-unwind" fn(c_int, *const libc::iovec, c_int, i64, c_int) -> isize;

// SAFETY: the C library's function has this type.
static READV: Real<Plain> = unsafe { Real::named(c"readv") };
// SAFETY: the C library's function has this type.
static WRITEV: Real<Plain> = unsafe { Real::named(c"writev") };
// SAFETY: the C library's function has this type.
static PREADV: Real<At> = unsafe { Real::named(c"preadv64") };
// SAFETY: the C library's function has this type.
static PWRITEV: Real<At> = unsafe { Real::named(c"pwritev64") };
// SAFETY: the C library's function has this type.
static PREADV2: Real<With> = unsafe { Real::named(c"preadv64v2") };
// SAFETY: the C library's function has this type.
static PWRITEV2: Real<With> = unsafe { Real::named(c"pwritev64v2") };

pub const FUNCTIONS: &[&dyn Find] = &[&READV, &WRITEV, &PREADV, &PWRITEV, &PREADV2, &PWRITEV2];

/// Whether a vector, or memory that it names, must be prepared.
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

/// Replaces the C library's `readv`.
///
/// # Safety
/// The conditions are those of the function that this one replaces.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn readv(
    fd: c_int,
    vector: *const libc::iovec,
    count: c_int,
) -> isize {
    match READV.get() {
        // SAFETY: the caller guarantees it.
        Some(real) if !vector_concerns(vector, count as usize) => unsafe {
            real(fd, vector, count)
        },
        _ => {
            let args = [fd as usize, vector as usize, count as usize, 0, 0, 0];
            // SAFETY: the caller guarantees what this call needs.
            unsafe { point(libc::SYS_readv, args) }
        }
    }
}

/// Replaces the C library's `writev`.
///
/// # Safety
/// The conditions are those of the function that this one replaces.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn writev(
    fd: c_int,
    vector: *const libc::iovec,
    count: c_int,
) -> isize {
    match WRITEV.get() {
        // SAFETY: the caller guarantees it.
        Some(real) if !vector_concerns(vector, count as usize) => unsafe {
            real(fd, vector, count)
        },
        _ => {
            let args = [fd as usize, vector as usize, count as usize, 0, 0, 0];
            // SAFETY: the caller guarantees what this call needs.
            unsafe { point(libc::SYS_writev, args) }
        }
    }
}

/// Replaces the C library's `preadv64`.
///
/// # Safety
/// The conditions are those of the function that this one replaces.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn preadv64(
    fd: c_int,
    vector: *const libc::iovec,
    count: c_int,
    at: i64,
) -> isize {
    match PREADV.get() {
        // SAFETY: the caller guarantees it.
        Some(real) if !vector_concerns(vector, count as usize) => unsafe {
            real(fd, vector, count, at)
        },
        _ => {
            let args = [
                fd as usize,
                vector as usize,
                count as usize,
                at as usize,
                0,
                0,
            ];
            // SAFETY: the caller guarantees what this call needs.
            unsafe { point(libc::SYS_preadv, args) }
        }
    }
}

/// Replaces the C library's `preadv`.
///
/// # Safety
/// The conditions are those of the function that this one replaces.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn preadv(
    fd: c_int,
    vector: *const libc::iovec,
    count: c_int,
    at: i64,
) -> isize {
    // SAFETY: the caller guarantees what this call needs.
    unsafe { preadv64(fd, vector, count, at) }
}

/// Replaces the C library's `preadv64v2`.
///
/// # Safety
/// The conditions are those of the function that this one replaces.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn preadv64v2(
    fd: c_int,
    vector: *const libc::iovec,
    count: c_int,
    at: i64,
    flags: c_int,
) -> isize {
    match PREADV2.get() {
        // SAFETY: the caller guarantees it.
        Some(real) if !vector_concerns(vector, count as usize) => unsafe {
            real(fd, vector, count, at, flags)
        },
        _ => {
            let args = [
                fd as usize,
                vector as usize,
                count as usize,
                at as usize,
                0,
                flags as usize,
            ];
            // SAFETY: the caller guarantees what this call needs.
            unsafe { point(libc::SYS_preadv2, args) }
        }
    }
}

/// Replaces the C library's `preadv2`.
///
/// # Safety
/// The conditions are those of the function that this one replaces.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn preadv2(
    fd: c_int,
    vector: *const libc::iovec,
    count: c_int,
    at: i64,
    flags: c_int,
) -> isize {
    // SAFETY: the caller guarantees what this call needs.
    unsafe { preadv64v2(fd, vector, count, at, flags) }
}

/// Replaces the C library's `pwritev64`.
///
/// # Safety
/// The conditions are those of the function that this one replaces.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn pwritev64(
    fd: c_int,
    vector: *const libc::iovec,
    count: c_int,
    at: i64,
) -> isize {
    match PWRITEV.get() {
        // SAFETY: the caller guarantees it.
        Some(real) if !vector_concerns(vector, count as usize) => unsafe {
            real(fd, vector, count, at)
        },
        _ => {
            let args = [
                fd as usize,
                vector as usize,
                count as usize,
                at as usize,
                0,
                0,
            ];
            // SAFETY: the caller guarantees what this call needs.
            unsafe { point(libc::SYS_pwritev, args) }
        }
    }
}

/// Replaces the C library's `pwritev`.
///
/// # Safety
/// The conditions are those of the function that this one replaces.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn pwritev(
    fd: c_int,
    vector: *const libc::iovec,
    count: c_int,
    at: i64,
) -> isize {
    // SAFETY: the caller guarantees what this call needs.
    unsafe { pwritev64(fd, vector, count, at) }
}

/// Replaces the C library's `pwritev64v2`.
///
/// # Safety
/// The conditions are those of the function that this one replaces.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn pwritev64v2(
    fd: c_int,
    vector: *const libc::iovec,
    count: c_int,
    at: i64,
    flags: c_int,
) -> isize {
    match PWRITEV2.get() {
        // SAFETY: the caller guarantees it.
        Some(real) if !vector_concerns(vector, count as usize) => unsafe {
            real(fd, vector, count, at, flags)
        },
        _ => {
            let args = [
                fd as usize,
                vector as usize,
                count as usize,
                at as usize,
                0,
                flags as usize,
            ];
            // SAFETY: the caller guarantees what this call needs.
            unsafe { point(libc::SYS_pwritev2, args) }
        }
    }
}

/// Replaces the C library's `pwritev2`.
///
/// # Safety
/// The conditions are those of the function that this one replaces.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn pwritev2(
    fd: c_int,
    vector: *const libc::iovec,
    count: c_int,
    at: i64,
    flags: c_int,
) -> isize {
    // SAFETY: the caller guarantees what this call needs.
    unsafe { pwritev64v2(fd, vector, count, at, flags) }
}
