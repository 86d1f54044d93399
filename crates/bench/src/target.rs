//! A figure that was asked of a benchmark, and the figure that was reached.

use serde::Serialize;
use std::fmt;

/// The direction in which a wanted figure is meant.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Bound {
    /// A larger value is better.
    AtLeast,
    /// A smaller value is better.
    AtMost,
}

/// A wanted figure.
#[derive(Clone, Debug, Serialize)]
pub struct Target {
    /// The name of the figure.
    pub what: String,
    /// The value that was measured.
    pub value: f64,
    /// The direction in which `wanted` is meant.
    pub bound: Bound,
    /// The value that was wanted.
    pub wanted: f64,
    /// Whether the wanted value was reached.
    pub met: bool,
}

impl Target {
    /// Compares a value with the wanted one. A value that is not a number does not meet it.
    #[must_use]
    pub fn new(what: String, value: f64, bound: Bound, wanted: f64) -> Self {
        let met = match bound {
            Bound::AtLeast => value >= wanted,
            Bound::AtMost => value <= wanted,
        };
        Self {
            what,
            value,
            bound,
            wanted,
            met,
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bound = match self.bound {
            Bound::AtLeast => "at least",
            Bound::AtMost => "at most",
        };
        let met = if self.met { "met" } else { "MISSED" };
        let Self {
            what,
            value,
            wanted,
            ..
        } = self;
        write!(f, "{what} {value:.4}, wanted {bound} {wanted}: {met}")
    }
}

/// Writes a line for each target under a heading; writes nothing when there are no targets.
///
/// # Errors
/// When `f` takes no more.
pub fn write_all(f: &mut fmt::Formatter<'_>, targets: &[Target]) -> fmt::Result {
    if !targets.is_empty() {
        writeln!(f, "\nwanted")?;
    }
    targets
        .iter()
        .try_for_each(|target| writeln!(f, "  {target}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_hold_at_their_edge() {
        let met = |value, bound| Target::new(String::new(), value, bound, 2.0).met;
        assert!(met(2.0, Bound::AtLeast) && !met(1.99, Bound::AtLeast));
        assert!(met(2.0, Bound::AtMost) && !met(2.01, Bound::AtMost));
        assert!(!met(f64::NAN, Bound::AtLeast) && !met(f64::INFINITY, Bound::AtMost));
    }
}
