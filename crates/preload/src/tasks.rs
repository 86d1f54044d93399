//! The threads of the process, as the kernel lists them. Nothing here allocates.

use crate::raw;
use core::ffi::{CStr, c_int};
use core::mem::MaybeUninit;
use rustix::fd::OwnedFd;
use rustix::fs::{CWD, Mode, OFlags, RawDir};
use rustix::io::Errno;

/// Calls `found` for each thread, with the directory, its name there and its ID, until it returns `None`. Returns
/// `None` as well if the list cannot be read.
pub fn each(mut found: impl FnMut(&OwnedFd, &CStr, i32) -> Option<()>) -> Option<()> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::DIRECTORY;
    let tasks = rustix::fs::openat(CWD, c"/proc/self/task", flags, Mode::empty()).ok()?;
    let mut room = [MaybeUninit::uninit(); 4096];
    let mut entries = RawDir::new(&tasks, &mut room);
    while let Some(entry) = entries.next() {
        let entry = entry.ok()?;
        let name = entry.file_name();
        if let Some(thread) = name.to_str().ok().and_then(|name| name.parse().ok()) {
            found(&tasks, name, thread)?;
        }
    }
    Some(())
}

/// Returns the ID of the first thread, which is the process's.
pub fn first() -> i32 {
    rustix::process::getpid().as_raw_nonzero().get()
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
    let process = first();
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
