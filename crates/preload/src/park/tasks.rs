//! The threads of the process, as the kernel lists them. Nothing here allocates.

use crate::raw;
use core::ffi::c_int;
use core::mem::MaybeUninit;
use rustix::fd::OwnedFd;
use rustix::fs::{CWD, Mode, OFlags, RawDir};
use rustix::io::Errno;

/// Calls `found` for each thread but the caller, until it returns `None`. Returns `None` as well if the list cannot be
/// read.
pub fn each_other(mut found: impl FnMut(i32) -> Option<()>) -> Option<()> {
    let own = rustix::thread::gettid().as_raw_nonzero().get();
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::DIRECTORY;
    let tasks: OwnedFd = rustix::fs::openat(CWD, c"/proc/self/task", flags, Mode::empty()).ok()?;
    let mut room = [MaybeUninit::uninit(); 4096];
    let mut entries = RawDir::new(&tasks, &mut room);
    while let Some(entry) = entries.next() {
        let name = entry.ok()?;
        let number = name
            .file_name()
            .to_str()
            .ok()
            .and_then(|name| name.parse().ok());
        if let Some(thread) = number.filter(|&thread: &i32| thread != own) {
            found(thread)?;
        }
    }
    Some(())
}

/// Returns whether this is a first thread that has ended: it stays in the list as long as others run.
pub fn has_ended(thread: i32) -> bool {
    if thread != rustix::process::getpid().as_raw_nonzero().get() {
        return false;
    }
    let mut text = [0u8; 512];
    let line = crate::words::read_path(c"/proc/self/stat", &mut text).unwrap_or_default();
    // The name, in parentheses, may contain any bytes.
    let state = line
        .iter()
        .rposition(|&byte| byte == b')')
        .and_then(|at| line.get(at + 2));
    matches!(state, Some(b'Z' | b'X'))
}

/// Sends a thread SIGSYS with a value.
pub fn signal(thread: i32, value: usize) -> Result<(), Errno> {
    /// The beginning of the kernel's `siginfo_t` for a signal that was queued.
    #[repr(C)]
    struct Queued {
        signal: c_int,
        errno: c_int,
        code: c_int,
        _unused: c_int,
        process: libc::pid_t,
        user: libc::uid_t,
        value: usize,
        _rest: [u64; 12],
    }
    const _: () = assert!(size_of::<Queued>() == size_of::<libc::siginfo_t>());
    let process = rustix::process::getpid().as_raw_nonzero().get();
    let info = Queued {
        signal: libc::SIGSYS,
        errno: 0,
        code: libc::SI_QUEUE,
        _unused: 0,
        process,
        user: rustix::process::getuid().as_raw(),
        value,
        _rest: [0; 12],
    };
    let to = [
        process as usize,
        thread as usize,
        libc::SIGSYS as usize,
        &raw const info as usize,
        0,
        0,
    ];
    // SAFETY: the kernel reads a structure that lives here. The signal's handler is ours.
    unsafe { raw::syscall(libc::SYS_rt_tgsigqueueinfo, to) }.map(drop)
}
