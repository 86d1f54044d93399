//! Messages for a person, written where nothing may be allocated: each line is built in a buffer on the stack and
//! goes to standard error in one `write`.
//!
//! Service threads have their own descriptor table (see [`isolate`](crate::isolate_descriptors)), which has no
//! standard error. They borrow the process's for the moment, as the same open file. A file opened anew by its name
//! would have its own offset, and in a plain file the next writer would overwrite the line.
//!
//! *Last words.* The program may have closed its standard error, or its reader may be gone, or may never read. We
//! keep no copy of the descriptor permanently: it would keep one of the program's pipes open for its reader. So the
//! line that says why the process stops goes to a [keeper](set_keeper) first. Under `run`, the keeper is memory
//! shared with the supervisor. Standard error also gets the line, if it accepts it within half a second.
//!
//! *The end* is SIGABRT with its default action, whatever action the program had set: a handler of the program may
//! touch memory that nobody serves any more. The C library's `abort` would call that handler.

use core::fmt::{self, Write};
use core::sync::atomic::{AtomicPtr, Ordering};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, BorrowedFd};
use rustix::process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};

const STDERR: i32 = 2;
const PREFIX: &str = "millpond: ";

struct Line {
    bytes: [u8; 512],
    len: usize,
}

impl Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = self.bytes.len() - 1 - self.len;
        let take = text.len().min(room);
        self.bytes[self.len..self.len + take].copy_from_slice(&text.as_bytes()[..take]);
        self.len += take;
        Ok(())
    }
}

impl Line {
    fn new(message: fmt::Arguments<'_>) -> Self {
        let mut line = Self {
            bytes: [0; 512],
            len: 0,
        };
        let _ = line.write_str(PREFIX);
        let _ = line.write_fmt(message);
        // The result is a single line, whatever characters the message contains.
        for byte in &mut line.bytes[..line.len] {
            if byte.is_ascii_control() {
                *byte = b' ';
            }
        }
        line.bytes[line.len] = b'\n';
        line
    }

    fn text(&self) -> &[u8] {
        &self.bytes[..=self.len]
    }
}

/// Writes `millpond: ` and the message as one line to standard error, truncated to 512 bytes. Write errors are
/// ignored.
pub fn line(message: fmt::Arguments<'_>) {
    let line = Line::new(message);
    to_stderr(|stderr| rustix::io::write(stderr, line.text()).is_ok());
}

/// Passes the calling thread's standard error to `write` and, if that fails, the process's.
fn to_stderr(write: impl Fn(BorrowedFd<'_>) -> bool) {
    // SAFETY: descriptor 2 is only borrowed for this call; if it is closed, the kernel returns EBADF.
    let own = unsafe { BorrowedFd::borrow_raw(STDERR) };
    if !write(own)
        && let Ok(process) = pidfd_open(getpid(), PidfdFlags::empty())
        && let Ok(theirs) = pidfd_getfd(process, STDERR, PidfdGetfdFlags::empty())
    {
        write(theirs.as_fd());
    }
}

/// The keeper of last words, as a pointer to a `fn(&[u8])`; null if there is none.
static KEEPER: AtomicPtr<()> = AtomicPtr::new(core::ptr::null_mut());

/// Sets `keep` as the keeper of last words. It receives the line that says why the process stops, without prefix and
/// newline. It may be called on any thread and in signal handlers.
pub fn set_keeper(keep: fn(&[u8])) {
    KEEPER.store(keep as *mut (), Ordering::Release);
}

/// Says what is wrong and stops the process at once: for states in which continuing would silently lose data, or
/// hang.
pub fn stop(message: fmt::Arguments<'_>) -> ! {
    // The mask keeps the program's signal handlers and SIGPIPE out until the end.
    mask(libc::SIG_BLOCK, u64::MAX);
    let line = Line::new(message);
    let keeper = KEEPER.load(Ordering::Acquire);
    if !keeper.is_null() {
        // SAFETY: only `set_keeper` writes the pointer, and it writes a function of this type.
        let keep = unsafe { core::mem::transmute::<*mut (), fn(&[u8])>(keeper) };
        keep(&line.bytes[PREFIX.len()..line.len]);
    }
    to_stderr(|stderr| {
        let patience = Timespec {
            tv_sec: 0,
            tv_nsec: 500_000_000,
        };
        let mut asked = [PollFd::new(&stderr, PollFlags::OUT)];
        // A filter that forbids `poll` says nothing about the pipe.
        let ready = poll(&mut asked, Some(&patience)).map_or(true, |ready| ready > 0);
        let is_open = !asked[0].revents().contains(PollFlags::NVAL);
        // A pipe that is full stays full: the line is not worth the wait, and the process's own descriptor leads to
        // the same full pipe.
        is_open && (!ready || rustix::io::write(stderr, line.text()).is_ok())
    });
    abort()
}

/// Ends the process by SIGABRT, without running any code of the program.
pub fn abort() -> ! {
    // These zeros are the kernel's `sigaction`: the default action, no flags, an empty mask.
    let default = [0u64; 4];
    // SAFETY: the kernel reads the action, which is as long as its own structure and lives here.
    unsafe {
        libc::syscall(
            libc::SYS_rt_sigaction,
            libc::SIGABRT,
            default.as_ptr(),
            core::ptr::null_mut::<u64>(),
            size_of::<u64>(),
        )
    };
    let (process, thread) = (getpid(), rustix::thread::gettid());
    // SAFETY: the call sends a signal to this thread.
    unsafe {
        libc::syscall(
            libc::SYS_tgkill,
            process.as_raw_nonzero().get(),
            thread.as_raw_nonzero().get(),
            libc::SIGABRT,
        )
    };
    mask(libc::SIG_UNBLOCK, 1 << (libc::SIGABRT - 1));
    // Where signals cannot be sent (a seccomp filter forbids it), the process exits with the status that a shell
    // reports for SIGABRT.
    loop {
        // SAFETY: the call ends the process.
        unsafe { libc::syscall(libc::SYS_exit_group, 128 + libc::SIGABRT) };
    }
}

/// Changes which signals the calling thread blocks: bit N - 1 stands for signal N, as in the kernel.
fn mask(how: i32, signals: u64) {
    // SAFETY: the kernel reads eight bytes that live here; the mask is the calling thread's own.
    unsafe {
        libc::syscall(
            libc::SYS_rt_sigprocmask,
            how,
            &raw const signals,
            core::ptr::null_mut::<u64>(),
            size_of::<u64>(),
        )
    };
}
