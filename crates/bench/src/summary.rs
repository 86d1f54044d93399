//! The report of every benchmark made of parts, as JSON and as text: the machine, the parts, and the list of what was
//! skipped. It contains figures and does not judge them; `.ci/compare` compares them with the project's targets.
//!
//! The JSON object has `schema` = `millpond-bench-NAME/VERSION`; later versions only add fields:
//!
//! | field | meaning |
//! | --- | --- |
//! | `machine` | `kernel` release, `cores` |
//! | `load` | the machine's load average over the last minute, before and after |
//! | `rounds` | rounds of each side |
//! | `order` | the order of Millpond's folios, as for `--order`, if the benchmark has that option |
//! | a part's name | `sizes`, `sides` (each `side`, `median`, `rounds`), `ratios`; null if the part was not measured |
//! | `skipped` | `what` was skipped and `why` |
//!
//! The declaration of a part's outcome defines its figures. A `side` is a string, or an object that describes how it
//! was run. A ratio is the median of the other side, usually the kernel's, divided by that of Millpond's: how many
//! times faster Millpond is. Each figure's median is taken by itself.

use crate::comparison::Table;
use crate::error::{BenchError, Skip};
use crate::order::BenchOrder;
use crate::rounds::print;
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::value::RawValue;
use std::fmt;

/// The machine that was measured.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Machine {
    kernel: String,
    cores: usize,
}

impl Machine {
    /// Inspects the machine.
    #[must_use]
    pub fn look() -> Self {
        Self {
            kernel: rustix::system::uname()
                .release()
                .to_string_lossy()
                .into_owned(),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
        }
    }
}

/// A part's heading and table.
#[derive(Clone, Debug)]
struct Shown {
    heading: String,
    table: String,
    is_right: bool,
}

/// The whole result.
#[derive(Clone, Debug)]
pub struct Summary {
    schema: &'static str,
    /// The description of the figures: the unit of times, and the order of folios.
    units: String,
    machine: Machine,
    load: [Option<f64>; 2],
    rounds: u16,
    order: Option<BenchOrder>,
    /// The benchmark's own fields of the JSON form.
    fields: Vec<(String, Box<RawValue>)>,
    shown: Vec<Shown>,
    skipped: Vec<Skipped>,
}

#[derive(Clone, PartialEq, Debug, serde::Serialize)]
struct Skipped {
    what: String,
    why: String,
}

impl Summary {
    /// Creates a result without parts. Measuring begins now.
    #[must_use]
    pub fn new(
        schema: &'static str,
        units: String,
        rounds: u16,
        order: Option<BenchOrder>,
    ) -> Self {
        Self {
            schema,
            units,
            machine: Machine::look(),
            load: [load_average(), None],
            rounds,
            order,
            fields: Vec::new(),
            shown: Vec::new(),
            skipped: Vec::new(),
        }
    }

    /// Adds a field to the JSON form.
    ///
    /// # Errors
    /// When the value cannot be written as JSON.
    pub fn field(&mut self, name: &str, value: &impl Serialize) -> Result<(), BenchError> {
        let value = nested(value).map_err(|error| BenchError::Print(error.into()))?;
        self.fields.push((name.to_owned(), value));
        Ok(())
    }

    /// Whether the JSON form has a field.
    pub fn has(&self, name: &str) -> bool {
        self.fields.iter().any(|(field, _)| field == name)
    }

    /// Adds a table with its heading to the text.
    pub fn table(&mut self, heading: String, table: &dyn Table) {
        let mut text = String::new();
        // Writing to a string does not fail.
        let _ = table.write(&mut text);
        self.shown.push(Shown {
            heading,
            table: text,
            is_right: table.wrong() == 0,
        });
    }

    /// Reports something as skipped.
    pub fn skip(&mut self, what: &str, why: &Skip) {
        self.skipped.push(Skipped {
            what: what.to_owned(),
            why: why.to_string(),
        });
    }

    /// Reports something as skipped, unless it was reported before.
    pub fn skip_once(&mut self, what: &str, why: &Skip) {
        if self.skipped.iter().all(|noted| noted.what != what) {
            self.skip(what, why);
        }
    }

    /// Prints the result, as JSON or text, and returns the exit status: 1 when memory had wrong contents.
    ///
    /// # Errors
    /// When the result cannot be printed.
    pub fn conclude(mut self, json: bool) -> Result<u8, BenchError> {
        self.load[1] = load_average();
        print(json, &self).map_err(BenchError::Print)?;
        Ok(u8::from(!self.all_right()))
    }

    /// Whether memory had the right contents in every round.
    #[must_use]
    pub fn all_right(&self) -> bool {
        self.shown.iter().all(|part| part.is_right)
    }
}

/// A value, indented for its place in the object.
fn nested(value: &impl Serialize) -> serde_json::Result<Box<RawValue>> {
    // JSON strings contain no line breaks, so indentation can follow every line break.
    let text = serde_json::to_string_pretty(value)?;
    RawValue::from_string(text.replace('\n', "\n  "))
}

/// The number of runnable processes, averaged over the last minute: on a busy machine the figures mean less.
fn load_average() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/loadavg").ok()?;
    text.split(' ').next()?.parse().ok()
}

impl Serialize for Summary {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("schema", self.schema)?;
        map.serialize_entry("machine", &self.machine)?;
        map.serialize_entry("load", &self.load)?;
        map.serialize_entry("rounds", &self.rounds)?;
        if let Some(order) = self.order {
            map.serialize_entry("order", &order.to_string())?;
        }
        for (name, value) in &self.fields {
            map.serialize_entry(name, value)?;
        }
        map.serialize_entry("skipped", &self.skipped)?;
        map.end()
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "medians of {} rounds; {}", self.rounds, self.units)?;
        for Shown { heading, table, .. } in &self.shown {
            write!(f, "\n{heading}\n{table}")?;
        }
        for Skipped { what, why } in &self.skipped {
            writeln!(f, "{what} skipped: {why}")?;
        }
        if !self.all_right() {
            writeln!(f, "WRONG BYTES were read back; see the JSON form")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::comparison::Comparison;
    use crate::outcome::{highest, outcome};
    use crate::workingset::Side;

    outcome! {
        struct Found {
            page: f64,
            wrong_pages: u64 = highest,
        }
        wrong |one| one.wrong_pages;
        figures { time "page" = |one| one.page, }
    }

    fn summary(ours: Vec<Found>) -> Summary {
        let mut summary = Summary::new(
            "millpond-bench-none/1",
            "times are µs".to_owned(),
            3,
            "4".parse().ok(),
        );
        let kernels = vec![Found {
            page: 6.0,
            wrong_pages: 0,
        }];
        let part = Comparison::new([7], vec![(Side::Millpond, ours), (Side::Kernel, kernels)]);
        summary.field("first", &part).unwrap();
        summary.field("second", &()).unwrap();
        summary.table("one and all".to_owned(), &part);
        summary
    }

    fn rounds(wrong_pages: [u64; 3]) -> Vec<Found> {
        let rounds = [2.0, 9.0, 1.0].into_iter().zip(wrong_pages);
        rounds
            .map(|(page, wrong_pages)| Found { page, wrong_pages })
            .collect()
    }

    #[test]
    fn json_and_text_report_the_same_parts() {
        let mut summary = summary(rounds([0; 3]));
        summary.skip_once("third", &Skip("no root".to_owned()));
        summary.skip_once("third", &Skip("again".to_owned()));
        let text = serde_json::to_string_pretty(&summary).unwrap();
        let json: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert!(
            text.contains("\n  \"first\": {\n    \"sizes\": [\n      7\n    ],\n"),
            "{text}"
        );
        assert_eq!(json["order"], "4");
        assert_eq!(json["first"]["sides"][0]["median"]["page"], 2.0);
        assert_eq!(json["first"]["ratios"][0]["times"], 3.0);
        assert!(json["second"].is_null());
        assert_eq!(json["skipped"][0]["why"], "no root");
        assert_eq!(json["skipped"].as_array().unwrap().len(), 1);
        let text = summary.to_string();
        assert!(
            text.starts_with("medians of 3 rounds; times are µs\n\none and all\n"),
            "{text}"
        );
        assert!(
            text.contains("page: millpond is 3.00 times as fast as kernel\n"),
            "{text}"
        );
        assert!(text.ends_with("third skipped: no root\n"), "{text}");
    }

    #[test]
    fn one_wrong_page_in_one_round_is_seen() {
        assert!(summary(rounds([0; 3])).all_right());
        let wrong = summary(rounds([0, 1, 0]));
        assert!(!wrong.all_right());
        assert!(wrong.to_string().contains("WRONG BYTES"));
        assert_eq!(wrong.conclude(true).unwrap(), 1);
    }
}
