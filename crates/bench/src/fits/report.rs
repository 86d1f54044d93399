//! The result of `millpond bench fits`, for programs (JSON) and for people.
//!
//! The JSON object has `schema` = `millpond-bench-fits/2`; later versions only add fields:
//!
//! | field | meaning |
//! | --- | --- |
//! | `machine` | `kernel` release, `cores` |
//! | `load` | the machine's load average of the last minute, before and after |
//! | `rounds` | rounds of each side |
//! | `redis_set`, `redis_get`, `heap_reads`, `sqlite`, `http` | a part: `sizes`, `sides` (each `side`, `median`, `rounds`), `ratios` |
//! | `skipped` | `what` was left out and `why` |
//!
//! A part that was not measured is null. [`Outcome`] says what the figures are. A ratio is the time of the program by
//! itself divided by its time under Millpond: 1 is the same time, and less than 1 is slower.

use crate::fits::Name;
use crate::fits::job::Sizes;
use crate::fits::side::Side;
use crate::part::{self, Figure, Part, Shown, show};
use crate::rounds::{Median, highest, of};
use crate::summary::Parts;
use clap::ValueEnum;
use millpond_cli::size::Human;
use serde::{Deserialize, Serialize};

/// The measurements of one run.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Outcome {
    /// The time of the work, in seconds.
    pub seconds: f64,
    /// Processor time of the program from its start to its end; of a server, without its clients.
    pub cpu_seconds: f64,
    /// Bytes that went to the store or came from it. None have to.
    pub store_bytes: u64,
    /// Answers that were not right.
    pub wrong: u64,
}

impl Median for Outcome {
    fn median(rounds: &[Self]) -> Self {
        Self {
            seconds: of(rounds, |r| r.seconds),
            cpu_seconds: of(rounds, |r| r.cpu_seconds),
            store_bytes: highest(rounds, |r| r.store_bytes),
            wrong: highest(rounds, |r| r.wrong),
        }
    }
}

impl part::Outcome for Outcome {
    const FIGURES: &'static [Figure<Self>] = &[
        Figure::time("seconds", |r| r.seconds),
        Figure::time("processor", |r| r.cpu_seconds),
        Figure::other("store bytes", |r| r.store_bytes as f64),
    ];

    fn wrong(&self) -> u64 {
        self.wrong
    }
}

type FitsPart = Part<Side, Sizes, Outcome>;

/// All parts that were measured.
#[derive(Clone, Debug, Default, Serialize)]
pub struct FitsParts {
    redis_set: Option<FitsPart>,
    redis_get: Option<FitsPart>,
    heap_reads: Option<FitsPart>,
    sqlite: Option<FitsPart>,
    http: Option<FitsPart>,
}

impl FitsParts {
    /// Takes a part that was measured.
    pub fn set(&mut self, name: Name, part: FitsPart) {
        *match name {
            Name::RedisSet => &mut self.redis_set,
            Name::RedisGet => &mut self.redis_get,
            Name::HeapReads => &mut self.heap_reads,
            Name::Sqlite => &mut self.sqlite,
            Name::Http => &mut self.http,
        } = Some(part);
    }
}

/// The name of a part in arguments and in JSON.
pub fn name_of(name: Name) -> String {
    name.to_possible_value()
        .map(|value| value.get_name().to_owned())
        .unwrap_or_default()
}

impl Parts for FitsParts {
    const SCHEMA: &'static str = "millpond-bench-fits/2";

    fn all(&self) -> Vec<Option<Shown<'_>>> {
        let parts = [
            (&self.redis_set, "redis-benchmark, SET, 50 clients"),
            (&self.redis_get, "redis-benchmark, GET, 50 clients"),
            (&self.heap_reads, "reads of 4 KiB into the heap"),
            (&self.sqlite, "sqlite3 with a database in a file"),
            (&self.http, "requests to python's HTTP server"),
        ];
        let shown = |(part, what)| {
            show(part, |sizes: &Sizes| {
                format!("{what}, in {}", Human(sizes.ram))
            })
        };
        parts.map(shown).into()
    }

    fn units(&self, _order: &str) -> String {
        "times are seconds".to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::part::Skips;
    use crate::summary::Summary;

    fn ran(seconds: f64, wrong: u64) -> Outcome {
        Outcome {
            seconds,
            cpu_seconds: seconds,
            store_bytes: 0,
            wrong,
        }
    }

    fn report(rounds: Vec<(Side, Vec<Outcome>)>) -> Summary<FitsParts> {
        let mut parts = FitsParts::default();
        let sizes = Sizes {
            ram: 512 << 20,
            amount: 100,
        };
        parts.set(Name::Sqlite, Part::new(sizes, rounds));
        Summary::new(1, None, [None; 2], parts, Skips::default())
    }

    #[test]
    fn each_delivery_is_compared_with_the_program_by_itself() {
        let report = report(vec![
            (Side::Plain, vec![ran(1.0, 0)]),
            (Side::Direct, vec![ran(1.25, 0)]),
        ]);
        let part = report.parts.sqlite.as_ref().unwrap();
        assert_eq!(part.ratio("seconds", Side::Direct, Side::Plain), Some(0.8));
        assert!(report.all_right());
        assert!(
            report
                .to_string()
                .contains("sqlite3 with a database in a file, in 512 MiB")
        );
    }

    #[test]
    fn a_wrong_answer_is_seen() {
        assert!(!report(vec![(Side::Direct, vec![ran(1.0, 0), ran(1.0, 1)])]).all_right());
    }
}
