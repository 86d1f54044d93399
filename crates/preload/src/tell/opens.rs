//! `open` and its relatives, and `fopen`. What is opened is exchanged if it says how much memory there is.
//!
//! The last argument of `open` is there only for some flags. It is passed on as it came, as the C library's own
//! function looks at it only then.

use super::files::exchange;
use crate::guard::call::point;
use crate::guard::concerns;
use crate::guard::real::{Find, Real};
use core::ffi::{c_char, c_int, c_uint};

type Open = unsafe extern "C-unwind" fn(*const c_char, c_int, c_uint) -> c_int;
type OpenAt = unsafe extern "C-unwind" fn(c_int, *const c_char, c_int, c_uint) -> c_int;
type OpenChecked = unsafe extern "C-unwind" fn(*const c_char, c_int) -> c_int;
type OpenAtChecked = unsafe extern "C-unwind" fn(c_int, *const c_char, c_int) -> c_int;
type OpenStream = unsafe extern "C-unwind" fn(*const c_char, *const c_char) -> *mut libc::FILE;

// SAFETY: the C library's function has this type; the last argument is one of a variable number.
static OPEN: Real<Open> = unsafe { Real::named(c"open64") };
// SAFETY: the C library's function has this type; the last argument is one of a variable number.
static OPEN_AT: Real<OpenAt> = unsafe { Real::named(c"openat64") };
// SAFETY: the C library's function has this type.
static OPEN_CHECKED: Real<OpenChecked> = unsafe { Real::named(c"__open64_2") };
// SAFETY: the C library's function has this type.
static OPEN_AT_CHECKED: Real<OpenAtChecked> = unsafe { Real::named(c"__openat64_2") };
// SAFETY: the C library's function has this type.
static OPEN_STREAM: Real<OpenStream> = unsafe { Real::named(c"fopen64") };

pub const FUNCTIONS: &[&dyn Find] = &[
    &OPEN,
    &OPEN_AT,
    &OPEN_CHECKED,
    &OPEN_AT_CHECKED,
    &OPEN_STREAM,
];

/// Replaces the C library's `open`.
///
/// # Safety
/// The conditions are those of the function that this one replaces.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn open(path: *const c_char, flags: c_int, mode: c_uint) -> c_int {
    // SAFETY: the caller guarantees what these need.
    unsafe {
        let fd = match OPEN.get() {
            Some(real) if !concerns(path.cast()) => real(path, flags, mode),
            _ => by_call(libc::AT_FDCWD, path, flags, mode),
        };
        exchange(fd, path)
    }
}

/// Replaces the C library's `openat`.
///
/// # Safety
/// The conditions are those of the function that this one replaces.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn openat(
    at: c_int,
    path: *const c_char,
    flags: c_int,
    mode: c_uint,
) -> c_int {
    // SAFETY: the caller guarantees what these need.
    unsafe {
        let fd = match OPEN_AT.get() {
            Some(real) if !concerns(path.cast()) => real(at, path, flags, mode),
            _ => by_call(at, path, flags, mode),
        };
        exchange(fd, path)
    }
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

/// Replaces the C library's `fopen`.
///
/// # Safety
/// The conditions are those of the function that this one replaces.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn fopen(path: *const c_char, mode: *const c_char) -> *mut libc::FILE {
    // SAFETY: the caller guarantees what these need. A stream that was opened just now has read nothing.
    unsafe {
        let stream = OPEN_STREAM.must()(path, mode);
        if !stream.is_null() {
            exchange(libc::fileno(stream), path);
        }
        stream
    }
}

/// Makes a function of the C library's another name of one of these.
macro_rules! same {
    ($($name:ident is $of:ident($($argument:ident: $type:ty),*) -> $answer:ty;)*) => {
        $(
            #[doc = concat!("Replaces the C library's `", stringify!($name), "`.")]
            ///
            /// # Safety
            /// The conditions are those of the function that this one replaces.
            #[cfg_attr(not(test), unsafe(no_mangle))]
            pub unsafe extern "C-unwind" fn $name($($argument: $type),*) -> $answer {
                // SAFETY: the caller guarantees what this call needs.
                unsafe { $of($($argument),*) }
            }
        )*
    };
}

same! {
    open64 is open(path: *const c_char, flags: c_int, mode: c_uint) -> c_int;
    __open is open(path: *const c_char, flags: c_int, mode: c_uint) -> c_int;
    __open64 is open(path: *const c_char, flags: c_int, mode: c_uint) -> c_int;
    openat64 is openat(at: c_int, path: *const c_char, flags: c_int, mode: c_uint) -> c_int;
    fopen64 is fopen(path: *const c_char, mode: *const c_char) -> *mut libc::FILE;
    __open_2 is open_checked(path: *const c_char, flags: c_int) -> c_int;
    __open64_2 is open_checked(path: *const c_char, flags: c_int) -> c_int;
    __openat_2 is openat_checked(at: c_int, path: *const c_char, flags: c_int) -> c_int;
    __openat64_2 is openat_checked(at: c_int, path: *const c_char, flags: c_int) -> c_int;
}

/// `open` in a program that is compiled with checks: the function ends a program that makes a file and gives no mode.
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

/// Whether an open with these flags may make a file, which needs a mode. The flag of a file without a name has the bit
/// of a directory in it, which alone makes nothing.
fn makes(flags: c_int) -> bool {
    flags & libc::O_CREAT != 0 || flags & libc::O_TMPFILE == libc::O_TMPFILE
}
