//! Printing to whoever may have stopped reading.
//!
//! The macros of the standard library panic when standard output or standard error is a pipe that nobody reads any
//! more: `millpond doctor | head -1` would end with a panic's message and status. Whoever has gone has seen enough, so
//! the rest is not printed, and the status is the one that it would have been.

use std::fmt;
use std::io::{self, Write};

/// Prints `text` to standard output, as far as somebody reads it.
///
/// # Errors
/// When it cannot be written for another reason, as a disk that is full.
pub fn all(text: &[u8]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    unless_left(out.write_all(text).and_then(|()| out.flush()))
}

/// A reader that has gone is no error.
///
/// # Errors
/// All others.
pub fn unless_left(written: io::Result<()>) -> io::Result<()> {
    match written {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => other,
    }
}

/// Says `millpond: ` and the message as a line on standard error. Where that is closed nobody can be told.
pub fn say(message: fmt::Arguments<'_>) {
    let _ = io::stderr().write_all(format!("millpond: {message}\n").as_bytes());
}
