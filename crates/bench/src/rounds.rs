//! The common part of the benchmarks: sides that take turns, medians of their rounds, and the way both are printed.
//!
//! The sides take turns because a machine's speed drifts: other guests, heat, the page cache. Each round runs every
//! side once, so a slow minute slows all of them. Medians then drop the rounds that were disturbed.

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
    /// A plan of `count` rounds, none of which has run yet. A side that is named twice is one side.
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

/// One side's rounds.
#[derive(Clone, Debug, Serialize)]
pub struct Measured<T> {
    /// The median of the rounds.
    pub median: T,
    /// Each round, in the order in which they ran.
    pub rounds: Vec<T>,
}

impl<T: Median> From<Vec<T>> for Measured<T> {
    fn from(rounds: Vec<T>) -> Self {
        Self {
            median: T::median(&rounds),
            rounds,
        }
    }
}

/// A kind of round of which a median can be taken.
pub trait Median: Sized {
    /// The medians of each figure; the highest value of figures where one bad round is bad.
    fn median(rounds: &[Self]) -> Self;
}

/// The median of one figure.
pub fn of<T>(rounds: &[T], field: impl Fn(&T) -> f64) -> f64 {
    median(rounds.iter().map(field).collect())
}

/// The median of a whole number.
pub fn count<T>(rounds: &[T], field: impl Fn(&T) -> u64) -> u64 {
    of(rounds, |round| field(round) as f64) as u64
}

/// The median of a figure that not all rounds have.
pub fn known<T>(rounds: &[T], field: impl Fn(&T) -> Option<f64>) -> Option<f64> {
    let known: Vec<f64> = rounds.iter().filter_map(field).collect();
    (!known.is_empty()).then(|| median(known))
}

/// The highest of one figure.
pub fn highest<T>(rounds: &[T], field: impl Fn(&T) -> u64) -> u64 {
    rounds.iter().map(field).max().unwrap_or(0)
}

/// The middle value, or the mean of the two in the middle; not a number when there are no values.
#[must_use]
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => values[middle],
        _ => f64::midpoint(values[middle - 1], values[middle]),
    }
}

/// Numbers as options of a command.
#[must_use]
pub fn options(numbers: &[(&str, u64)]) -> Vec<String> {
    numbers
        .iter()
        .flat_map(|(name, value)| [(*name).to_owned(), value.to_string()])
        .collect()
}

/// Parses a size that is a whole number of pages, one at least.
///
/// # Errors
/// When `text` is no such size.
pub fn parse_pages(text: &str) -> Result<u64, String> {
    let bytes = millpond_cli::size::parse(text).map_err(|error| error.to_string())?;
    if bytes == 0 || bytes % PAGE as u64 != 0 {
        return Err(format!("`{text}` is not a multiple of {PAGE} bytes"));
    }
    Ok(bytes)
}

/// Processes that wanted to run, averaged over the last minute: on a busy machine the figures mean less.
#[must_use]
pub fn load_average() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/loadavg").ok()?;
    text.split(' ').next()?.parse().ok()
}

/// Prints a result for programs or for people.
///
/// # Errors
/// When standard output takes no more.
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

    #[test]
    fn medians_of_odd_and_even_counts() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(vec![4.0, 1.0, 2.0, 3.0]), 2.5);
        assert!(median(vec![]).is_nan());
    }
}
