//! Printing to readers that may have stopped reading.
//!
//! The macros of the standard library panic when standard output or standard error is a pipe that no process reads any
//! more: `millpond doctor | head -1` would end with a panic's message and status. A reader that has gone has seen
//! enough, so the rest is not printed, and the exit status does not change.

use anstyle::{AnsiColor, Style};
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

/// A report's text with its first line in bold, and in colour the lines that say what went wrong and what to do next.
///
/// ```
/// let text = "millpond: sort: exit status 0\n  next            nothing\n";
/// let coloured = millpond_cli::print::in_colour(text);
/// assert_eq!(anstream::adapter::strip_str(&coloured).to_string(), text);
/// assert_ne!(coloured, text);
/// ```
#[must_use]
pub fn in_colour(text: &str) -> String {
    let style_of = |(number, line): (usize, &str)| match line {
        _ if number == 0 => Style::new().bold(),
        _ if line.starts_with("  trouble ") => AnsiColor::Red.on_default(),
        _ if line.starts_with("  next ") => AnsiColor::Green.on_default().bold(),
        _ => Style::new(),
    };
    let coloured = |(number, line): (usize, &str)| {
        let (style, ended) = (style_of((number, line)), line.ends_with('\n'));
        let line = line.trim_end_matches('\n');
        format!("{style}{line}{style:#}{}", if ended { "\n" } else { "" })
    };
    text.split_inclusive('\n')
        .enumerate()
        .map(coloured)
        .collect()
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

/// Writes `millpond: ` and the message as a line to standard error. If standard error is closed, the message is lost.
pub fn say(message: fmt::Arguments<'_>) {
    let _ = io::stderr().write_all(format!("millpond: {message}\n").as_bytes());
}
