//! `open` and its relatives, and `fopen`. The opened file is exchanged if it reports how much memory there is.
//!
//! The last argument of `open` is present only for some flags. It is passed on as it came, since the C library's own
//! function reads it only for those flags.

use super::files::exchange;
use crate::guard::call::point;
use crate::guard::concerns;
use core::ffi::{c_char, c_int, c_uint};

type Open = unsafe extern "C-unwind" fn(*const c_char, c_int, c_uint) -> c_int;
type OpenAt = unsafe extern "C-unwind" fn(c_int, *const c_char, c_int, c_uint) -> c_int;
type OpenChecked = unsafe extern "C-unwind" fn(*const c_char, c_int) -> c_int;
type OpenAtChecked = unsafe extern "C-unwind" fn(c_int, *const c_char, c_int) -> c_int;
type OpenStream = unsafe extern "C-unwind" fn(*const c_char, *const c_char) -> *mut libc::FILE;

exports! {
    /// The last parameter of this type is variadic in the C function.
    real OPEN: Open = c"open64";
    /// The last parameter of this type is variadic in the C function.
    real OPEN_AT: OpenAt = c"openat64";
    real OPEN_CHECKED: OpenChecked = c"__open64_2";
    real OPEN_AT_CHECKED: OpenAtChecked = c"__openat64_2";
    real OPEN_STREAM: OpenStream = c"fopen64";

    [openat: Held]
    unsafe extern "C-unwind" fn open(
        path: *const c_char,
        flags: c_int,
        mode: c_uint,
    ) -> c_int = unsafe {
        let fd = match OPEN.get() {
            Some(real) if !concerns(path.cast()) => real(path, flags, mode),
            _ => by_call(libc::AT_FDCWD, path, flags, mode),
        };
        exchange(fd, path)
    }

    [openat: Held]
    unsafe extern "C-unwind" fn openat(
        at: c_int,
        path: *const c_char,
        flags: c_int,
        mode: c_uint,
    ) -> c_int = unsafe {
        let fd = match OPEN_AT.get() {
            Some(real) if !concerns(path.cast()) => real(at, path, flags, mode),
            _ => by_call(at, path, flags, mode),
        };
        exchange(fd, path)
    }

    [openat: Held]
    unsafe extern "C-unwind" fn fopen(
        path: *const c_char,
        mode: *const c_char,
    ) -> *mut libc::FILE = unsafe {
        // A stream that was just opened has read nothing.
        let stream = OPEN_STREAM.must()(path, mode);
        if !stream.is_null() {
            exchange(libc::fileno(stream), path);
        }
        stream
    }

    [openat: Held]
    unsafe extern "C-unwind" fn open64(
        path: *const c_char,
        flags: c_int,
        mode: c_uint,
    ) -> c_int = open;

    [openat: Held]
    unsafe extern "C-unwind" fn __open(
        path: *const c_char,
        flags: c_int,
        mode: c_uint,
    ) -> c_int = open;

    [openat: Held]
    unsafe extern "C-unwind" fn __open64(
        path: *const c_char,
        flags: c_int,
        mode: c_uint,
    ) -> c_int = open;

    [openat: Held]
    unsafe extern "C-unwind" fn openat64(
        at: c_int,
        path: *const c_char,
        flags: c_int,
        mode: c_uint,
    ) -> c_int = openat;

    [openat: Held]
    unsafe extern "C-unwind" fn fopen64(
        path: *const c_char,
        mode: *const c_char,
    ) -> *mut libc::FILE = fopen;

    [openat: Held]
    unsafe extern "C-unwind" fn __open_2(path: *const c_char, flags: c_int) -> c_int = open_checked;

    [openat: Held]
    unsafe extern "C-unwind" fn __open64_2(
        path: *const c_char,
        flags: c_int,
    ) -> c_int = open_checked;

    [openat: Held]
    unsafe extern "C-unwind" fn __openat_2(
        at: c_int,
        path: *const c_char,
        flags: c_int,
    ) -> c_int = openat_checked;

    [openat: Held]
    unsafe extern "C-unwind" fn __openat64_2(
        at: c_int,
        path: *const c_char,
        flags: c_int,
    ) -> c_int = openat_checked;
}

/// # Safety
/// The conditions are those of the system call `openat`.
unsafe fn by_call(at: c_int, path: *const c_char, flags: c_int, mode: c_uint) -> c_int {
    let args = [
        at as usize,
        path as usize,
        (flags | libc::O_LARGEFILE) as usize,
        mode as usize,
        0,
        0,
    ];
    // SAFETY: the caller guarantees what this call needs.
    unsafe { point(libc::SYS_openat, args) as c_int }
}

/// `open` in a program compiled with checks: the function ends a program that creates a file without giving a mode.
///
/// # Safety
/// The conditions are those of the C library's `__open_2`.
unsafe fn open_checked(path: *const c_char, flags: c_int) -> c_int {
    // SAFETY: the caller guarantees what these need.
    unsafe {
        let fd = match OPEN_CHECKED.get() {
            Some(real) if !concerns(path.cast()) || makes(flags) => real(path, flags),
            _ => by_call(libc::AT_FDCWD, path, flags, 0),
        };
        exchange(fd, path)
    }
}

/// `openat` in such a program.
///
/// # Safety
/// The conditions are those of the C library's `__openat_2`.
unsafe fn openat_checked(at: c_int, path: *const c_char, flags: c_int) -> c_int {
    // SAFETY: the caller guarantees what these need.
    unsafe {
        let fd = match OPEN_AT_CHECKED.get() {
            Some(real) if !concerns(path.cast()) || makes(flags) => real(at, path, flags),
            _ => by_call(at, path, flags, 0),
        };
        exchange(fd, path)
    }
}

/// Returns whether an open with these flags may create a file, which needs a mode. The flag for an unnamed file
/// includes the bit for a directory, which alone creates nothing.
fn makes(flags: c_int) -> bool {
    flags & libc::O_CREAT != 0 || flags & libc::O_TMPFILE == libc::O_TMPFILE
}
