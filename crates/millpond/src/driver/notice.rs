//! One clear line to the user, from places that may not use standard I/O.
//!
//! Service threads have a file-descriptor table of their own (see `millpond_mmu::delivery`), so the line goes to
//! the *process's* standard error, opened anew by its name in `/proc`; where that cannot be opened (a
//! socket, say), to descriptor 2.

use rustix::fs::{Mode, OFlags};

/// Longest line; more is cut.
const LINE: usize = 512;

/// A line in a buffer on the stack.
struct Line {
    text: [u8; LINE],
    len: usize,
}

impl std::fmt::Write for Line {
    fn write_str(&mut self, s: &str) -> std::fmt::Result {
        let n = s.len().min(LINE - 1 - self.len);
        self.text[self.len..self.len + n].copy_from_slice(&s.as_bytes()[..n]);
        self.len += n;
        Ok(())
    }
}

/// Writes `millpond: …` and a newline to standard error. Without allocation; failures to write are ignored.
pub(crate) fn say(message: std::fmt::Arguments<'_>) {
    let mut line = Line {
        text: [0; LINE],
        len: 0,
    };
    let _ = std::fmt::write(&mut line, format_args!("millpond: {message}"));
    line.text[line.len] = b'\n';
    let text = &line.text[..=line.len];
    let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CLOEXEC | OFlags::NOCTTY;
    match rustix::fs::open(c"/proc/self/fd/2", flags, Mode::empty()) {
        Ok(stderr) => drop(rustix::io::write(&stderr, text)),
        Err(_) => drop(rustix::io::write(rustix::stdio::stderr(), text)),
    }
}
