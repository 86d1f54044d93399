//! Programs started within a run whose memory may not be managed.
//!
//! If the program that the user started cannot be managed, it is refused before it starts. Programs that it starts in
//! turn are another matter. `su`, `runuser`, `setpriv` and daemons become another user and then run a program. As
//! that user the kernel refuses userfaultfd, and `/dev/userfaultfd` is inaccessible. Ending such a program would
//! break a script that works without us. So it runs as it would natively, after one line that says that it has no
//! budget. The programs that *it* starts could not be managed either, so the library removes itself from their
//! environment, and the line is not repeated.
//!
//! We could pass the open device on to them but do not: a program meant to have fewer rights would get one that the
//! administrator denies its user.

use core::ffi::{CStr, c_char};
use millpond::BuildError;
use millpond_board::{Board, BoardError};
use millpond_mmu::MmuError;
use millpond_settings::Settings;
use rustix::io::Errno;

const VARIABLE: &[u8] = b"LD_PRELOAD=";
const LIBRARY: &[u8] = b"libmillpond_preload.so";

/// Returns whether the kernel refuses, or a filter in its place: those of container engines answer `ENOSYS` to
/// unknown calls.
fn is_refusal(errno: Errno) -> bool {
    matches!(errno, Errno::PERM | Errno::ACCESS | Errno::NOSYS)
}

/// Returns whether a start failed for lack of rights that the user who started the run had but this program does not.
pub fn is_below(settings: &Settings, error: &BuildError) -> bool {
    let Some(board) = &settings.board else {
        return false;
    };
    match error {
        // The run made the same request of the kernel before it started anything.
        BuildError::Memory(
            MmuError::NoUserfaultfd { errno, .. } | MmuError::Open { errno, .. },
        ) => is_refusal(*errno),
        // The directory may be inaccessible to this user, as the board is.
        BuildError::Store(_) => {
            matches!(Board::open(board), Err(BoardError::System { errno, .. }) if is_refusal(errno))
        }
        _ => false,
    }
}

/// Returns the line for the user.
pub fn explanation(program: &str, error: &BuildError) -> String {
    let (pid, user) = (
        rustix::process::getpid().as_raw_nonzero(),
        rustix::process::geteuid().as_raw(),
    );
    format!(
        "{program} (process {pid}, user {user}) and what it starts run without a budget: {error}"
    )
}

/// Removes this library from the list of libraries to preload, in the environment block that the program and its
/// children see.
///
/// # Safety
/// `environment` is null or the process's environment block, which no one else uses meanwhile.
pub unsafe fn leave_library_out(environment: *mut *const c_char) {
    if environment.is_null() {
        return;
    }
    let mut n = 0;
    loop {
        // SAFETY: the place is in the block, up to the null that ends it.
        let place = unsafe { environment.add(n) };
        // SAFETY: the place is in the block.
        let variable = unsafe { *place };
        if variable.is_null() {
            return;
        }
        // SAFETY: each entry is a C string.
        let text = unsafe { CStr::from_ptr(variable) }.to_bytes();
        let Some(list) = text.strip_prefix(VARIABLE) else {
            n += 1;
            continue;
        };
        let Some(rest) = without_library(list) else {
            n += 1;
            continue;
        };
        let kept = list.len() - rest;
        if rest == 0 {
            remove(place);
            continue;
        }
        // The name of the variable moves to just before the rest of the list, over the name of the library.
        // SAFETY: the place is inside the entry, whose bytes are the process's own and writable.
        let start = unsafe { variable.add(kept).cast_mut() };
        // SAFETY: the bytes are inside the entry; the two names do not overlap, as the library's is longer than the
        // variable's.
        unsafe { core::ptr::copy_nonoverlapping(VARIABLE.as_ptr().cast(), start, VARIABLE.len()) };
        // SAFETY: the place is in the block, which is writable.
        unsafe { *place = start };
        n += 1;
    }
}

/// Returns the number of bytes of a list that remain after removing this library, which `millpond run` puts first, or
/// `None` if the library is not there.
fn without_library(list: &[u8]) -> Option<usize> {
    let end = list
        .iter()
        .position(|byte| b": ".contains(byte))
        .unwrap_or(list.len());
    let first = &list[..end];
    (first.ends_with(LIBRARY) || is_in_memory(first)).then(|| list.len().saturating_sub(end + 1))
}

/// Returns whether the path is `/proc/PID/fd/N`, which `millpond run` uses for a library that has no file.
fn is_in_memory(path: &[u8]) -> bool {
    let is_number = |text: &[u8]| !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    let mut parts = path.split(|&byte| byte == b'/');
    parts.next() == Some(b"")
        && parts.next() == Some(b"proc")
        && parts.next().is_some_and(is_number)
        && parts.next() == Some(b"fd")
        && parts.next().is_some_and(is_number)
        && parts.next().is_none()
}

/// Moves all entries after `place` up by one.
fn remove(mut place: *mut *const c_char) {
    loop {
        // SAFETY: the caller's place is in the block, and the null that ends the block is the last entry read.
        let next = unsafe { *place.add(1) };
        // SAFETY: the place is in the block, which is writable.
        unsafe { *place = next };
        if next.is_null() {
            return;
        }
        // SAFETY: the next place is in the block, up to the null that ends it.
        place = unsafe { place.add(1) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CString;

    fn left(variables: &[&str]) -> Vec<String> {
        let own: Vec<_> = variables
            .iter()
            .map(|text| CString::new(*text).unwrap().into_raw())
            .collect();
        let mut block: Vec<*const c_char> = own.iter().map(|text| text.cast_const()).collect();
        block.push(core::ptr::null());
        // SAFETY: the block ends with a null, and no one else has it.
        unsafe { leave_library_out(block.as_mut_ptr()) };
        // SAFETY: the remaining entries are parts of the strings, which were never freed.
        let strings = unsafe { crate::settings::strings(block.as_ptr()) };
        strings
            .map(|text| String::from_utf8_lossy(text).into_owned())
            .collect()
    }

    #[test]
    fn only_this_library_is_removed_from_ld_preload() {
        let ours = "LD_PRELOAD=/a path/libmillpond_preload.so";
        assert_eq!(
            left(&["A=1", "LD_PRELOAD=/x/libmillpond_preload.so", "B=2"]),
            ["A=1", "B=2"]
        );
        assert_eq!(
            left(&["LD_PRELOAD=/x/libmillpond_preload.so:b.so c.so"]),
            ["LD_PRELOAD=b.so c.so"]
        );
        assert_eq!(left(&["LD_PRELOAD=other.so"]), ["LD_PRELOAD=other.so"]);
        assert_eq!(left(&["LD_PRELOAD=/x/libmillpond_preload.so:"]), [""; 0]);
        assert_eq!(left(&["LD_PRELOAD=/proc/1/fd/3"]), [""; 0]);
        assert_eq!(left(&["LD_PRELOAD=/proc/1/fd/3:b.so"]), ["LD_PRELOAD=b.so"]);
        // The list cannot name such a path; `millpond run` does not start from there.
        assert_eq!(left(&[ours]), [ours]);
        assert_eq!(left(&[]), [""; 0]);
    }
}
