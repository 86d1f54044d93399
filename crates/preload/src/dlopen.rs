//! `dlopen` and `dlmopen` without `RTLD_DEEPBIND`.
//!
//! A library that is loaded with that flag looks its symbols up in itself and in the libraries that it needs before
//! it looks anywhere else. The C library is one of those, so the library's `malloc` and `free` become the C library's
//! own, and ours see half of the traffic. Such a library frees blocks that it was given by the program, which the C
//! library does not know, and the process is aborted for it (PHP loads its extensions so). No choice of addresses
//! helps against that, and the C library cannot be told which blocks are whose. So the flag is taken away, as address
//! sanitizers and other preloaded allocators do. The program then loads its libraries as it would without the flag,
//! and all of the process has one `malloc`. What is lost is the purpose of the flag: a library which brings a symbol
//! of its own no longer prefers it to one of the same name in the program.
//!
//! `dlopen` looks at the address that it returns to: the caller's search path (`$ORIGIN`, `DT_RUNPATH`) and its
//! namespace are used. A wrapper in Rust would make this library the caller. So each export here is a few instructions
//! that clear the flag in its register and jump: the real function finds the stack as the program left it.
//!
//! In a namespace of its own (`dlmopen`) a library gets a C library of its own as well, whose memory is the kernel's.
//! Nothing of that memory may be freed outside, with or without us.

use crate::arch;
use core::ffi::{CStr, c_char, c_int, c_long, c_void};
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// The addresses of the functions to jump to. They are written before any other code of this library runs.
static REAL_DLOPEN: AtomicUsize = AtomicUsize::new(0);
static REAL_DLMOPEN: AtomicUsize = AtomicUsize::new(0);

const DEEPBIND: c_int = libc::RTLD_DEEPBIND;

/// Looks the real functions up. No library's constructor runs before ours, so no code can have called one yet.
///
/// # Errors
/// A line for the user.
pub fn find() -> Result<(), String> {
    for (name, place) in [(c"dlopen", &REAL_DLOPEN), (c"dlmopen", &REAL_DLMOPEN)] {
        place.store(next(name)?, Relaxed);
    }
    Ok(())
}

/// The address of the symbol of this name behind this library in the search order, mostly the C library's own. The
/// answer is `None` when there is none.
pub fn find_next(name: &CStr) -> Option<usize> {
    // SAFETY: the name is a C string.
    let found = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) } as usize;
    (found != 0).then_some(found)
}

/// The address of a symbol as [`find_next`] finds it, for symbols that must be there.
///
/// # Errors
/// A line for the user.
pub fn next(name: &CStr) -> Result<usize, String> {
    find_next(name).ok_or_else(|| {
        let name = name.to_string_lossy();
        format!("no {name} in this process: it needs glibc")
    })
}

exports! {
    /// `RTLD_DEEPBIND` is taken out of the flags.
    #[unsafe(naked)]
    [none: Thread]
    unsafe extern "C" fn dlopen(_file: *const c_char, _flags: c_int) -> *mut c_void {
        arch::without_flags_in_second!(DEEPBIND, REAL_DLOPEN)
    }

    /// `RTLD_DEEPBIND` is taken out of the flags.
    #[unsafe(naked)]
    [none: Thread]
    unsafe extern "C" fn dlmopen(
        _space: c_long,
        _file: *const c_char,
        _flags: c_int,
    ) -> *mut c_void {
        arch::without_flags_in_third!(DEEPBIND, REAL_DLMOPEN)
    }
}
