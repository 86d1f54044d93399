//! Lines for a person, written where nothing may be allocated: into a buffer on the stack, then to
//! standard error by one `write`.
//!
//! Service threads have a descriptor table of their own (see [`isolate`](crate::isolate_descriptors)), in which there
//! is no standard error. They borrow the process's for the moment, as the same open file: one opened anew by its name
//! would have an offset of its own, and in a plain file whoever writes next would write over the line.

use core::fmt::{self, Write};

use rustix::fd::BorrowedFd;
use rustix::process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};

const STDERR: i32 = 2;

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

/// Writes `millpond: ` and the message as one line to standard error. What does not fit in 512 bytes is cut.
/// Failures to write are ignored.
pub fn line(message: fmt::Arguments<'_>) {
    let mut line = Line {
        bytes: [0; 512],
        len: 0,
    };
    let _ = line.write_str("millpond: ");
    let _ = line.write_fmt(message);
    line.bytes[line.len] = b'\n';
    let text = &line.bytes[..=line.len];
    // SAFETY: descriptor 2 is only borrowed for this call; when it is closed the kernel answers EBADF.
    let own = unsafe { BorrowedFd::borrow_raw(STDERR) };
    if rustix::io::write(own, text).is_err()
        && let Ok(process) = pidfd_open(getpid(), PidfdFlags::empty())
        && let Ok(theirs) = pidfd_getfd(process, STDERR, PidfdGetfdFlags::empty())
    {
        let _ = rustix::io::write(theirs, text);
    }
}

/// Says what is wrong and stops the process at once: for states in which going on would lose data silently.
pub(crate) fn stop(message: fmt::Arguments<'_>) -> ! {
    line(message);
    std::process::abort()
}
