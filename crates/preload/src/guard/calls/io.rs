//! `read` and `write`, with and without a place in the file.
//!
//! The names with two underscores are the C library's own for the same functions, which other libraries are linked
//! with. Those that end in `_chk` come from programs that are compiled with checks of their buffers' sizes.

use crate::guard::call::with_buffer;
use crate::guard::concerns;
use crate::guard::real::{Find, Real};
use core::ffi::{c_int, c_void};

type Read = unsafe extern "C-unwind" fn(c_int, *mut c_void, usize) -> isize;
type Write = unsafe extern "C-unwind" fn(c_int, *const c_void, usize) -> isize;
type ReadAt = unsafe extern "C-unwind" fn(c_int, *mut c_void, usize, i64) -> isize;
type WriteAt = unsafe extern "C-unwind" fn(c_int, *const c_void, usize, i64) -> isize;

// SAFETY: the C library's function has this type.
static READ: Real<Read> = unsafe { Real::named(c"read") };
// SAFETY: the C library's function has this type.
static WRITE: Real<Write> = unsafe { Real::named(c"write") };
// SAFETY: the C library's function has this type.
static READ_AT: Real<ReadAt> = unsafe { Real::named(c"pread64") };
// SAFETY: the C library's function has this type.
static WRITE_AT: Real<WriteAt> = unsafe { Real::named(c"pwrite64") };

pub const FUNCTIONS: &[&dyn Find] = &[&READ, &WRITE, &READ_AT, &WRITE_AT];

/// Replaces the C library's `read`.
///
/// # Safety
/// The conditions are those of the function that this one replaces.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn read(fd: c_int, to: *mut c_void, len: usize) -> isize {
    match READ.get() {
        // SAFETY: the caller guarantees it.
        Some(real) if !concerns(to) => unsafe { real(fd, to, len) },
        // SAFETY: the caller guarantees what this call needs.
        _ => unsafe { with_buffer(libc::SYS_read, [fd as usize, to as usize, len, 0, 0, 0]) },
    }
}

/// Replaces the C library's `__read`.
///
/// # Safety
/// The conditions are those of the function that this one replaces.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn __read(fd: c_int, to: *mut c_void, len: usize) -> isize {
    // SAFETY: the caller guarantees what this call needs.
    unsafe { read(fd, to, len) }
}

/// Replaces the C library's `__read_chk`.
///
/// # Safety
/// The conditions are those of the function that this one replaces.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn __read_chk(
    fd: c_int,
    to: *mut c_void,
    len: usize,
    size: usize,
) -> isize {
    if len > size {
        super::overflow();
    }
    // SAFETY: the caller guarantees what this call needs.
    unsafe { read(fd, to, len) }
}

/// Replaces the C library's `write`.
///
/// # Safety
/// The conditions are those of the function that this one replaces.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn write(fd: c_int, from: *const c_void, len: usize) -> isize {
    match WRITE.get() {
        // SAFETY: the caller guarantees it.
        Some(real) if !concerns(from) => unsafe { real(fd, from, len) },
        // SAFETY: the caller guarantees what this call needs.
        _ => unsafe { with_buffer(libc::SYS_write, [fd as usize, from as usize, len, 0, 0, 0]) },
    }
}

/// Replaces the C library's `__write`.
///
/// # Safety
/// The conditions are those of the function that this one replaces.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn __write(fd: c_int, from: *const c_void, len: usize) -> isize {
    // SAFETY: the caller guarantees what this call needs.
    unsafe { write(fd, from, len) }
}

/// Replaces the C library's `pread64`.
///
/// # Safety
/// The conditions are those of the function that this one replaces.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn pread64(fd: c_int, to: *mut c_void, len: usize, at: i64) -> isize {
    match READ_AT.get() {
        // SAFETY: the caller guarantees it.
        Some(real) if !concerns(to) => unsafe { real(fd, to, len, at) },
        // SAFETY: the caller guarantees what this call needs.
        _ => unsafe {
            with_buffer(
                libc::SYS_pread64,
                [fd as usize, to as usize, len, at as usize, 0, 0],
            )
        },
    }
}

/// Replaces the C library's `pread`.
///
/// # Safety
/// The conditions are those of the function that this one replaces.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn pread(fd: c_int, to: *mut c_void, len: usize, at: i64) -> isize {
    // SAFETY: the caller guarantees what this call needs.
    unsafe { pread64(fd, to, len, at) }
}

/// Replaces the C library's `__pread64`.
///
/// # Safety
/// The conditions are those of the function that this one replaces.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn __pread64(
    fd: c_int,
    to: *mut c_void,
    len: usize,
    at: i64,
) -> isize {
    // SAFETY: the caller guarantees what this call needs.
    unsafe { pread64(fd, to, len, at) }
}

/// Replaces the C library's `__pread_chk`.
///
/// # Safety
/// The conditions are those of the function that this one replaces.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn __pread_chk(
    fd: c_int,
    to: *mut c_void,
    len: usize,
    at: i64,
    size: usize,
) -> isize {
    if len > size {
        super::overflow();
    }
    // SAFETY: the caller guarantees what this call needs.
    unsafe { pread64(fd, to, len, at) }
}

/// Replaces the C library's `__pread64_chk`.
///
/// # Safety
/// The conditions are those of the function that this one replaces.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn __pread64_chk(
    fd: c_int,
    to: *mut c_void,
    len: usize,
    at: i64,
    size: usize,
) -> isize {
    if len > size {
        super::overflow();
    }
    // SAFETY: the caller guarantees what this call needs.
    unsafe { pread64(fd, to, len, at) }
}

/// Replaces the C library's `pwrite64`.
///
/// # Safety
/// The conditions are those of the function that this one replaces.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn pwrite64(
    fd: c_int,
    from: *const c_void,
    len: usize,
    at: i64,
) -> isize {
    match WRITE_AT.get() {
        // SAFETY: the caller guarantees it.
        Some(real) if !concerns(from) => unsafe { real(fd, from, len, at) },
        // SAFETY: the caller guarantees what this call needs.
        _ => unsafe {
            with_buffer(
                libc::SYS_pwrite64,
                [fd as usize, from as usize, len, at as usize, 0, 0],
            )
        },
    }
}

/// Replaces the C library's `pwrite`.
///
/// # Safety
/// The conditions are those of the function that this one replaces.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn pwrite(
    fd: c_int,
    from: *const c_void,
    len: usize,
    at: i64,
) -> isize {
    // SAFETY: the caller guarantees what this call needs.
    unsafe { pwrite64(fd, from, len, at) }
}

/// Replaces the C library's `__pwrite64`.
///
/// # Safety
/// The conditions are those of the function that this one replaces.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn __pwrite64(
    fd: c_int,
    from: *const c_void,
    len: usize,
    at: i64,
) -> isize {
    // SAFETY: the caller guarantees what this call needs.
    unsafe { pwrite64(fd, from, len, at) }
}
