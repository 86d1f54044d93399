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

/// Makes a call by the C library's function, or with its memory held.
#[inline]
unsafe fn transfer(
    real: &Real<Plain>,
    number: i64,
    fd: c_int,
    vector: *const libc::iovec,
    count: c_int,
) -> isize {
    match real.get() {
        // SAFETY: the caller guarantees it.
        Some(real) if !vector_concerns(vector, count as usize) => unsafe {
            real(fd, vector, count)
        },
        // SAFETY: the caller guarantees what this call needs.
        _ => unsafe { point(number, words(fd, vector, count, 0, 0)) },
    }
}

/// As [`transfer`], at a place in the file.
#[inline]
unsafe fn transfer_at(
    real: &Real<At>,
    number: i64,
    fd: c_int,
    vector: *const libc::iovec,
    count: c_int,
    at: i64,
) -> isize {
    match real.get() {
        // SAFETY: the caller guarantees it.
        Some(real) if !vector_concerns(vector, count as usize) => unsafe {
            real(fd, vector, count, at)
        },
        // SAFETY: the caller guarantees what this call needs.
        _ => unsafe { point(number, words(fd, vector, count, at, 0)) },
    }
}

/// As [`transfer_at`], with flags.
#[inline]
unsafe fn transfer_with(
    real: &Real<With>,
    number: i64,
    fd: c_int,
    vector: *const libc::iovec,
    count: c_int,
    at: i64,
    flags: c_int,
) -> isize {
    match real.get() {
        // SAFETY: the caller guarantees it.
        Some(real) if !vector_concerns(vector, count as usize) => unsafe {
            real(fd, vector, count, at, flags)
        },
        // SAFETY: the caller guarantees what this call needs.
        _ => unsafe { point(number, words(fd, vector, count, at, flags)) },
    }
}

/// The arguments of the system call. The upper half of the place is a register that x86-64 does not look at.
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
    // SAFETY: the caller guarantees what this call needs.
    unsafe { transfer(&READV, libc::SYS_readv, fd, vector, count) }
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
    // SAFETY: the caller guarantees what this call needs.
    unsafe { transfer(&WRITEV, libc::SYS_writev, fd, vector, count) }
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
    // SAFETY: the caller guarantees what this call needs.
    unsafe { transfer_at(&PREADV, libc::SYS_preadv, fd, vector, count, at) }
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
    // SAFETY: the caller guarantees what this call needs.
    unsafe { transfer_with(&PREADV2, libc::SYS_preadv2, fd, vector, count, at, flags) }
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
    // SAFETY: the caller guarantees what this call needs.
    unsafe { transfer_at(&PWRITEV, libc::SYS_pwritev, fd, vector, count, at) }
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
    // SAFETY: the caller guarantees what this call needs.
    unsafe { transfer_with(&PWRITEV2, libc::SYS_pwritev2, fd, vector, count, at, flags) }
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
