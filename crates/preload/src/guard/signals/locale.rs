//! Locales: the C library keeps its loaded locale data outside the space.
//!
//! A new thread reads the process's locale while all signals are still blocked, and its creator cannot hold the
//! memory that the thread reads. The data are loaded once, into memory from `malloc`, and stay. If a program had set
//! its locale and that memory was evicted, the next thread that it created was killed.

use crate::guard;
use crate::guard::children::apart::Apart;
use core::ffi::{c_char, c_int};

exports! {
    real SETLOCALE: unsafe extern "C" fn(c_int, *const c_char) -> *mut c_char = c"setlocale";
    real NEWLOCALE: unsafe extern "C" fn(c_int, *const c_char, libc::locale_t) -> libc::locale_t =
        c"newlocale";

    [none: Thread]
    unsafe extern "C" fn setlocale(category: c_int, name: *const c_char) -> *mut c_char {
        let _apart = (guard::has_signals() && !name.is_null()).then(Apart::begin_blocked);
        // SAFETY: the C library's function of this name has this type; the caller guarantees the rest.
        unsafe { SETLOCALE.must()(category, name) }
    }

    [none: Thread]
    unsafe extern "C" fn newlocale(
        mask: c_int,
        name: *const c_char,
        base: libc::locale_t,
    ) -> libc::locale_t {
        let _apart = guard::has_signals().then(Apart::begin_blocked);
        // SAFETY: the C library's function of this name has this type; the caller guarantees the rest.
        unsafe { NEWLOCALE.must()(mask, name, base) }
    }
}
