//! Files that report how much memory there is: an open one is exchanged for one with different contents.

use super::{budget, cgroup, count, left, meminfo};
use crate::words::{self, Text};
use core::ffi::{CStr, c_char, c_int};
use rustix::fd::{BorrowedFd, OwnedFd};
use rustix::fs::{MemfdFlags, Mode, OFlags, SealFlags};
use std::os::fd::FromRawFd;

/// File system types (`f_type` of `statfs`).
const PROC: u64 = 0x9fa0;
const CGROUP: u64 = 0x0027_e0eb;
const CGROUP2: u64 = 0x6367_7270;

/// The maximum length of a path that is considered.
const MOST_PATH: usize = 512;

/// Exchanges the file that was just opened as `path` under the descriptor `fd`, if it reports how much memory there
/// is. The descriptor keeps its number. If anything fails, the descriptor stays as it is. Returns `fd`.
///
/// # Safety
/// `path` is a string that the kernel has read.
#[inline]
pub unsafe fn exchange(fd: c_int, path: *const c_char) -> c_int {
    // SAFETY: the caller guarantees this.
    if fd >= 0 && unsafe { may_say(path) } && budget().is_some() {
        said_anew(fd);
    }
    fd
}

/// Returns whether a path starts like that of a file that reports how much memory there is. That is true of few
/// files, and reads few bytes.
///
/// # Safety
/// `path` is a string.
#[inline]
unsafe fn may_say(path: *const c_char) -> bool {
    // SAFETY: the comparison ends at the first byte that differs, which is the string's end at the latest.
    let begins = |with: &[u8]| unsafe {
        (0..with.len()).all(|at| path.add(at).cast::<u8>().read() == with[at])
    };
    begins(b"/proc/m") || begins(b"/sys/fs/cgroup/")
}

#[cold]
fn said_anew(fd: c_int) -> Option<()> {
    let budget = budget()?;
    // SAFETY: the descriptor was just opened for the program, which has not received it yet.
    let open = unsafe { BorrowedFd::borrow_raw(fd) };
    let text = anew(open, budget)?;
    count();
    let cloexec = rustix::io::fcntl_getfd(open).ok()?;
    let made = read_only(text.bytes())?;
    let flags = match cloexec.contains(rustix::io::FdFlags::CLOEXEC) {
        true => rustix::io::DupFlags::CLOEXEC,
        false => rustix::io::DupFlags::empty(),
    };
    // SAFETY: the descriptor is the program's and stays open; it is not closed here.
    let mut theirs = core::mem::ManuallyDrop::new(unsafe { OwnedFd::from_raw_fd(fd) });
    rustix::io::dup3(&made, &mut theirs, flags).ok()
}

/// Returns what an open file says about the budget, or `None` if the file does not report memory.
fn anew(open: BorrowedFd<'_>, budget: u64) -> Option<Text<{ meminfo::MOST }>> {
    let flags = rustix::fs::fcntl_getfl(open).ok()?;
    if flags.contains(OFlags::PATH) || flags & (OFlags::WRONLY | OFlags::RDWR) != OFlags::empty() {
        return None;
    }
    let kind = rustix::fs::fstatfs(open).ok()?.f_type as u64;
    let mut path = [0; MOST_PATH];
    let len = words::path_of(open, &mut path)?;
    let path = &path[..len];
    let slash = path.iter().rposition(|&byte| byte == b'/')?;
    let (directory, name) = (&path[..slash], &path[slash + 1..]);
    let mut text = Text::new();
    match kind {
        PROC if name == b"meminfo" => {
            let mut read = [0; meminfo::MOST];
            meminfo::rewrite(
                words::read(open, &mut read)?,
                budget,
                left(budget),
                &mut text,
            );
        }
        CGROUP | CGROUP2 => {
            let file = cgroup::File::named(name)?;
            cgroup::is_above_us(below_mount(directory, kind)?).then_some(())?;
            let mut read = [0; 64];
            let says = file.says(words::read(open, &mut read)?, budget, left(budget));
            text.add_number(says);
            text.add(b"\n");
        }
        _ => return None,
    }
    Some(text)
}

/// Returns the part of a directory's path that lies below the mount of its file system.
fn below_mount(directory: &[u8], kind: u64) -> Option<&[u8]> {
    let mut mount = directory.len();
    while let Some(slash) = directory[..mount].iter().rposition(|&byte| byte == b'/') {
        let mut above = Text::<MOST_PATH>::new();
        above.add(if slash == 0 {
            b"/"
        } else {
            &directory[..slash]
        });
        above.add(b"\0");
        let above = CStr::from_bytes_with_nul(above.bytes()).ok()?;
        if rustix::fs::statfs(above).ok()?.f_type as u64 != kind {
            return Some(&directory[mount..]);
        }
        mount = slash;
    }
    None
}

/// Creates a file in memory that contains `text`, open only for reading.
fn read_only(text: &[u8]) -> Option<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = rustix::fs::memfd_create(c"millpond-told", flags).ok()?;
    (rustix::io::write(&file, text).ok()? == text.len()).then_some(())?;
    let seals = SealFlags::SEAL | SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE;
    rustix::fs::fcntl_add_seals(&file, seals).ok()?;
    let name = words::name_of(&file);
    let name = CStr::from_bytes_with_nul(name.bytes()).ok()?;
    rustix::fs::open(name, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_paths_that_may_tell_of_memory_are_examined() {
        // SAFETY: these are strings.
        let may = |path: &CStr| unsafe { may_say(path.as_ptr()) };
        assert!(may(c"/proc/meminfo") && may(c"/sys/fs/cgroup/memory.max"));
        for path in [
            c"",
            c"/",
            c"/proc/self/maps",
            c"/sys/fs/cgroup",
            c"meminfo",
            c"/etc/passwd",
        ] {
            assert!(!may(path), "{path:?}");
        }
    }

    #[test]
    fn a_made_file_has_its_text_and_is_read_only() {
        let file = read_only(b"12345\n").unwrap();
        let mut text = [0; 64];
        assert_eq!(words::read(&file, &mut text), Some(&b"12345\n"[..]));
        assert_eq!(rustix::io::write(&file, b"x"), Err(rustix::io::Errno::BADF));
    }
}
