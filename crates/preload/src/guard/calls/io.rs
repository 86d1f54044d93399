//! `read` and `write`, with and without a file offset.
//!
//! The names with two underscores are the C library's own names for the same functions, used by other libraries.
//! Those that end in `_chk` come from programs compiled with buffer size checks.

use crate::guard::call::with_buffer;
use crate::guard::concerns;
use core::ffi::{c_int, c_void};

exports! {
    [read: Held]
    unsafe extern "C-unwind" fn read(fd: c_int, to: *mut c_void, len: usize) -> isize
        = READ if !concerns(to), else unsafe {
            with_buffer(libc::SYS_read, [fd as usize, to as usize, len, 0, 0, 0])
        }

    [read: Held]
    unsafe extern "C-unwind" fn __read(fd: c_int, to: *mut c_void, len: usize) -> isize = read;

    [read: Held]
    unsafe extern "C-unwind" fn __read_chk(
        fd: c_int,
        to: *mut c_void,
        len: usize,
        size: usize,
    ) -> isize = unsafe {
        if len > size {
            super::overflow();
        }
        read(fd, to, len)
    }

    [write: Held]
    unsafe extern "C-unwind" fn write(fd: c_int, from: *const c_void, len: usize) -> isize
        = WRITE if !concerns(from), else unsafe {
            with_buffer(libc::SYS_write, [fd as usize, from as usize, len, 0, 0, 0])
        }

    [write: Held]
    unsafe extern "C-unwind" fn __write(
        fd: c_int,
        from: *const c_void,
        len: usize,
    ) -> isize = write;

    [pread64: Held]
    unsafe extern "C-unwind" fn pread64(fd: c_int, to: *mut c_void, len: usize, at: i64) -> isize
        = READ_AT if !concerns(to), else unsafe {
            with_buffer(
                libc::SYS_pread64,
                [fd as usize, to as usize, len, at as usize, 0, 0],
            )
        }

    [pread64: Held]
    unsafe extern "C-unwind" fn pread(
        fd: c_int,
        to: *mut c_void,
        len: usize,
        at: i64,
    ) -> isize = pread64;

    [pread64: Held]
    unsafe extern "C-unwind" fn __pread64(
        fd: c_int,
        to: *mut c_void,
        len: usize,
        at: i64,
    ) -> isize = pread64;

    [pread64: Held]
    unsafe extern "C-unwind" fn __pread_chk(
        fd: c_int,
        to: *mut c_void,
        len: usize,
        at: i64,
        size: usize,
    ) -> isize = unsafe {
        if len > size {
            super::overflow();
        }
        pread64(fd, to, len, at)
    }

    [pread64: Held]
    unsafe extern "C-unwind" fn __pread64_chk(
        fd: c_int,
        to: *mut c_void,
        len: usize,
        at: i64,
        size: usize,
    ) -> isize = unsafe {
        if len > size {
            super::overflow();
        }
        pread64(fd, to, len, at)
    }

    [pwrite64: Held]
    unsafe extern "C-unwind" fn pwrite64(
        fd: c_int,
        from: *const c_void,
        len: usize,
        at: i64,
    ) -> isize
        = WRITE_AT if !concerns(from), else unsafe {
            with_buffer(
                libc::SYS_pwrite64,
                [fd as usize, from as usize, len, at as usize, 0, 0],
            )
        }

    [pwrite64: Held]
    unsafe extern "C-unwind" fn pwrite(
        fd: c_int,
        from: *const c_void,
        len: usize,
        at: i64,
    ) -> isize = pwrite64;

    [pwrite64: Held]
    unsafe extern "C-unwind" fn __pwrite64(
        fd: c_int,
        from: *const c_void,
        len: usize,
        at: i64,
    ) -> isize = pwrite64;
}
