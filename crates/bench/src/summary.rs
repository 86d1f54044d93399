//! The result of a benchmark of several parts, for programs (JSON) and for people: the machine that it was measured on,
//! the parts, and the list of what was left out. It holds figures and judges none of them;
//! `.ci/compare` compares them with those that the project wants.

use crate::error::BenchError;
use crate::order::BenchOrder;
use crate::part::{Shown, Skips};
use crate::report::Machine;
use crate::rounds::print;
use serde::Serialize;
use std::fmt;

/// The parts of one benchmark, as far as they were measured.
pub trait Parts: Serialize {
    /// Name and version of the JSON form; later versions only add fields.
    const SCHEMA: &'static str;

    /// All parts in the order in which people see them; `None` for a part that was not measured.
    fn all(&self) -> Vec<Option<Shown<'_>>>;

    /// Says what the figures are: times in which unit, and folios of which order.
    fn units(&self, order: &str) -> String;
}

/// The whole result.
#[derive(Clone, Debug, Serialize)]
pub struct Summary<P> {
    schema: &'static str,
    machine: Machine,
    load: [Option<f64>; 2],
    rounds: u16,
    #[serde(skip_serializing_if = "Option::is_none")]
    order: Option<String>,
    #[serde(flatten)]
    pub parts: P,
    skipped: Skips,
}

impl<P: Parts> Summary<P> {
    /// Puts the result together. `load` is the machine's load average before and after.
    #[must_use]
    pub fn new(
        rounds: u16,
        order: Option<BenchOrder>,
        load: [Option<f64>; 2],
        parts: P,
        skipped: Skips,
    ) -> Self {
        Self {
            schema: P::SCHEMA,
            machine: Machine::look(),
            load,
            rounds,
            order: order.map(|order| order.to_string()),
            parts,
            skipped,
        }
    }

    /// Prints the result, as JSON or for people, and returns the exit status: 1 when memory held wrong bytes.
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
        let parts = self.parts.all();
        parts.iter().flatten().all(|part| part.table.wrong() == 0)
    }
}

impl<P: Parts> fmt::Display for Summary<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = self.parts.units(self.order.as_deref().unwrap_or_default());
        writeln!(f, "medians of {} rounds; {units}", self.rounds)?;
        for Shown { heading, table } in self.parts.all().into_iter().flatten() {
            writeln!(f, "\n{heading}")?;
            table.write(f)?;
        }
        write!(f, "{}", self.skipped)?;
        if !self.all_right() {
            writeln!(f, "WRONG BYTES were read back; see the JSON form")?;
        }
        Ok(())
    }
}
