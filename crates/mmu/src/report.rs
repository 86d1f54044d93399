//! Lines for a person, written where nothing may be allocated: into a buffer on the stack, then to
//! descriptor 2 by one `write`.

use core::fmt::{self, Write};

struct Line {
    bytes: [u8; 256],
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

/// Writes `millpond: ` and the message as one line to standard error. What does not fit in 256 bytes is cut.
pub(crate) fn line(message: fmt::Arguments<'_>) {
    let mut line = Line {
        bytes: [0; 256],
        len: 0,
    };
    let _ = line.write_str("millpond: ");
    let _ = line.write_fmt(message);
    line.bytes[line.len] = b'\n';
    // SAFETY: descriptor 2 is only borrowed for this call; when it is closed the kernel answers EBADF.
    let stderr = unsafe { rustix::fd::BorrowedFd::borrow_raw(2) };
    let _ = rustix::io::write(stderr, &line.bytes[..=line.len]);
}

/// Says what is wrong and stops the process at once: for states in which going on would lose data silently.
pub(crate) fn stop(message: fmt::Arguments<'_>) -> ! {
    line(message);
    std::process::abort()
}
