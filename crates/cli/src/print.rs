//! Printing to readers that may have stopped reading.
//!
//! The macros of the standard library panic when standard output or standard error is a pipe that no process reads any
//! more: `millpond doctor | head -1` would end with a panic's message and status. A reader that has gone has seen
//! enough, so the rest is not printed, and the status is what it would have been.

use std::fmt;
use std::io::{self, Write};

/// Prints `text` to standard output, as far as there is a reader.
///
/// # Errors
/// When it cannot be written for another reason, such as a full disk.
pub fn all(text: &[u8]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    unless_left(out.write_all(text).and_then(|()| out.flush()))
}

/// Turns the error of a reader that has gone into success.
///
/// # Errors
/// Any other error.
pub fn unless_left(written: io::Result<()>) -> io::Result<()> {
    match written {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => other,
    }
}

/// Writes `millpond: ` and the message as a line to standard error. Where standard error is closed, the message is
/// lost.
pub fn say(message: fmt::Arguments<'_>) {
    let _ = io::stderr().write_all(format!("millpond: {message}\n").as_bytes());
}
