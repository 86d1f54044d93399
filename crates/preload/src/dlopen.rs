//! `dlopen` and `dlmopen` without `RTLD_DEEPBIND`.
//!
//! A library loaded with that flag resolves its symbols in itself and in the libraries it needs before it looks
//! anywhere else. The C library is one of those, so the library's `malloc` and `free` become the C library's own, and
//! ours see half of the traffic. Such a library then frees blocks that the program gave it. The C library does not
//! know these and aborts the process. (PHP loads its extensions this way.) No choice of addresses helps, and the C
//! library cannot be told which blocks belong to whom. So we remove the flag, as address sanitizers and other
//! preloaded allocators do. The program then loads its libraries as it would without the flag, and the whole process
//! has one `malloc`. The cost is the flag's purpose: a library's own symbol no longer takes precedence over one of
//! the same name in the program.
//!
//! `dlopen` examines its return address, because it uses the caller's search path (`$ORIGIN`, `DT_RUNPATH`) and
//! namespace. A wrapper in Rust would make this library the caller. So each export here is a few instructions that
//! clear the flag in its register and jump: the real function finds the stack as the program left it.
//!
//! In a namespace of its own (`dlmopen`) a library also gets its own C library, whose memory comes from the kernel.
//! None of that memory may be freed outside the namespace, with or without us.

use crate::arch;
use core::ffi::{CStr, c_char, c_int, c_long, c_void};
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// The addresses of the functions to jump to, written before any other code of this library runs.
static REAL_DLOPEN: AtomicUsize = AtomicUsize::new(0);
static REAL_DLMOPEN: AtomicUsize = AtomicUsize::new(0);

const DEEPBIND: c_int = libc::RTLD_DEEPBIND;

/// Looks up the real functions. No library's constructor runs before ours, so no code can have called one yet.
///
/// # Errors
/// A line for the user.
pub fn find() -> Result<(), String> {
    for (name, place) in [(c"dlopen", &REAL_DLOPEN), (c"dlmopen", &REAL_DLMOPEN)] {
        place.store(next(name)?, Relaxed);
    }
    Ok(())
}

/// Returns the address of the next symbol of this name after this library in the search order, usually the C
/// library's own, or `None` if there is none.
pub fn find_next(name: &CStr) -> Option<usize> {
    // SAFETY: the name is a C string.
    let found = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) } as usize;
    (found != 0).then_some(found)
}

/// Returns the address of a symbol as [`find_next`] does, for symbols that must exist.
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
    /// Removes `RTLD_DEEPBIND` from the flags.
    #[unsafe(naked)]
    [none: Thread]
    unsafe extern "C" fn dlopen(_file: *const c_char, _flags: c_int) -> *mut c_void {
        arch::without_flags_in_second!(DEEPBIND, REAL_DLOPEN)
    }

    /// Removes `RTLD_DEEPBIND` from the flags.
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
