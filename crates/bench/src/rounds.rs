//! Sides that take turns.
//!
//! The sides take turns because a machine's speed drifts: other guests, heat, the page cache. Each round runs every
//! side once, so a slow minute slows all of them. Medians then discard the disturbed rounds.

use crate::data::PAGE;
use crate::error::BenchError;
use serde::Serialize;
use std::fmt;
use std::io::{self, Write};

/// The measurements of several sides that take turns.
pub struct Rounds<S, T> {
    count: u16,
    /// The sides, each with its rounds.
    pub done: Vec<(S, Vec<T>)>,
}

impl<S: Copy + PartialEq, T> Rounds<S, T> {
    /// Plans `count` rounds. Duplicate sides are merged.
    #[must_use]
    pub fn new(sides: &[S], count: u16) -> Self {
        let mut done: Vec<(S, Vec<T>)> = Vec::new();
        for &side in sides {
            if done.iter().all(|(other, _)| *other != side) {
                done.push((side, Vec::new()));
            }
        }
        Self { count, done }
    }

    /// Measures all rounds of all sides.
    ///
    /// # Errors
    /// The first error of `measure`.
    pub fn run(
        &mut self,
        mut measure: impl FnMut(S) -> Result<T, BenchError>,
    ) -> Result<(), BenchError> {
        for _ in 0..self.count {
            for (side, rounds) in &mut self.done {
                rounds.push(measure(*side)?);
            }
        }
        Ok(())
    }
}

/// Parses a size that is a whole number of pages, at least one.
///
/// # Errors
/// When `text` is not such a size.
pub fn parse_pages(text: &str) -> Result<u64, String> {
    let bytes = millpond_cli::size::parse(text).map_err(|error| error.to_string())?;
    if bytes == 0 || bytes % PAGE as u64 != 0 {
        return Err(format!("`{text}` is not a multiple of {PAGE} bytes"));
    }
    Ok(bytes)
}

/// Prints a result as JSON or as text.
///
/// # Errors
/// When standard output cannot be written.
pub fn print(json: bool, report: &(impl Serialize + fmt::Display)) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    if json {
        serde_json::to_writer_pretty(&mut stdout, report)?;
        writeln!(stdout)
    } else {
        write!(stdout, "{report}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_whole_pages() {
        assert_eq!(parse_pages("64K"), Ok(65536));
        for text in ["0", "100", "1.5K", "x"] {
            assert!(parse_pages(text).is_err(), "{text}");
        }
    }

    #[test]
    fn sides_take_turns() {
        let mut order = Vec::new();
        let mut rounds = Rounds::new(&['a', 'b', 'a'], 2);
        rounds
            .run(|side| {
                order.push(side);
                Ok(order.len())
            })
            .unwrap();
        assert_eq!(order, ['a', 'b', 'a', 'b']);
        assert_eq!(rounds.done, [('a', vec![1, 3]), ('b', vec![2, 4])]);
    }
}
