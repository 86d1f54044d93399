//! The settings that `millpond run` passes in the environment.
//!
//! We read the settings from the environment block that the dynamic linker passes to constructors: the C library's
//! own `environ` is not yet set when this library, the first of all, is initialised. `millpond-settings` defines the
//! variables and reads their values.
//!
//! For the same reason no code here may call `getenv`. The standard library does, for the directory of temporary
//! files and for the stack size of each thread, and found nothing set: `TMPDIR` was never honoured. Worse, a program
//! may define its own `getenv`, as sudo and bash do, which takes precedence over the C library's wherever the name is
//! looked up. sudo's ended the process by SIGSEGV before the program's first instruction. Nobody knows what such a
//! function does, or which locks and memory it touches, when a thread of ours starts or in the child of a fork. So
//! the code linked into this library calls [`__wrap_getenv`] instead.

use core::ffi::{CStr, c_char};
use millpond_settings::Settings;

/// Reads the settings from the environment block.
///
/// # Errors
/// A line for the user that names the variable and its value.
///
/// # Safety
/// As [`strings`].
pub unsafe fn read(environment: *const *const c_char) -> Result<Settings, String> {
    // SAFETY: the caller's contract.
    Settings::read(unsafe { strings(environment) }).map_err(|error| error.to_string())
}

/// The code linked into this library calls this function for `getenv` (`build.rs`). It reports every variable as
/// unset.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub extern "C" fn __wrap_getenv(_: *const c_char) -> *mut c_char {
    core::ptr::null_mut()
}

/// Returns the strings of a null-terminated array of C strings.
///
/// # Safety
/// `array` is such an array, and it lives and does not change during `'a`.
pub unsafe fn strings<'a>(array: *const *const c_char) -> impl Iterator<Item = &'a [u8]> {
    (0..).map_while(move |n| {
        if array.is_null() {
            return None;
        }
        // SAFETY: entries up to the null are readable, and `map_while` ends there.
        let string = unsafe { *array.add(n) };
        // SAFETY: each entry is a C string.
        (!string.is_null()).then(|| unsafe { CStr::from_ptr(string) }.to_bytes())
    })
}
