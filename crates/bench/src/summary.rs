//! The result of a benchmark of several parts, for programs (JSON) and for people: the machine that it was measured on,
//! the parts, the targets and the list of what was left out.

use crate::error::BenchError;
use crate::order::BenchOrder;
use crate::part::Skips;
use crate::report::Machine;
use crate::rounds::print;
use crate::target::{self, Target};
use serde::Serialize;
use std::fmt;

/// The parts of one benchmark, as far as they were measured.
pub trait Parts: Serialize {
    /// Name and version of the JSON form; later versions only add fields.
    const SCHEMA: &'static str;

    /// Adds the ratios between the sides of each part.
    fn compare(&mut self);

    /// The targets for the parts, when Millpond's folios are of this order.
    fn targets(&self, order: BenchOrder) -> Vec<Target>;

    /// Places in memory of all parts that did not hold what they had to.
    fn wrong(&self) -> u64;

    /// The list of what was left out.
    fn skipped(&self) -> &Skips;

    /// Writes the tables for people, below a line that says what the figures are.
    ///
    /// # Errors
    /// When `f` takes no more.
    fn write(&self, f: &mut fmt::Formatter<'_>, rounds: u16, order: &str) -> fmt::Result;
}

/// The whole result.
#[derive(Clone, Debug, Serialize)]
pub struct Summary<P> {
    schema: &'static str,
    machine: Machine,
    load: [Option<f64>; 2],
    rounds: u16,
    order: String,
    #[serde(flatten)]
    pub parts: P,
    pub targets: Vec<Target>,
}

impl<P: Parts> Summary<P> {
    /// Puts the result together. `load` is the machine's load average before and after.
    #[must_use]
    pub fn new(rounds: u16, order: BenchOrder, load: [Option<f64>; 2], mut parts: P) -> Self {
        parts.compare();
        Self {
            schema: P::SCHEMA,
            machine: Machine::look(),
            load,
            rounds,
            order: order.to_string(),
            targets: parts.targets(order),
            parts,
        }
    }

    /// Prints the result, as JSON or for people, and returns the exit status: 1 when memory held what it must not.
    ///
    /// # Errors
    /// When the result cannot be printed.
    pub fn conclude(&self, json: bool) -> Result<u8, BenchError> {
        print(json, self).map_err(BenchError::Print)?;
        Ok(u8::from(!self.all_right()))
    }

    /// Whether all memory of every round held what it had to.
    #[must_use]
    pub fn all_right(&self) -> bool {
        self.parts.wrong() == 0
    }
}

impl<P: Parts> fmt::Display for Summary<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.parts.write(f, self.rounds, &self.order)?;
        target::write_all(f, &self.targets)?;
        write!(f, "{}", self.parts.skipped())?;
        if !self.all_right() {
            writeln!(f, "WRONG BYTES were read back; see the JSON form")?;
        }
        Ok(())
    }
}
