//! The result of `millpond bench threads`, for programs (JSON) and for people.
//!
//! The JSON object has `schema` = `millpond-bench-threads/2`; later versions only add fields:
//!
//! | field | meaning |
//! | --- | --- |
//! | `machine` | `kernel` release, `cores` |
//! | `load` | the machine's load average of the last minute, before and after |
//! | `rounds` | rounds of each side |
//! | `order` | the order of Millpond's folios, as `--order` takes it |
//! | `random`, `in_order`, `in_pieces` | a part: `sizes`, `sides` (each `side` with `who` and `threads`, `median`, `rounds`), `ratios` |
//! | `kernel_swap` | the setting of the kernel's side |
//! | `skipped` | `what` was left out and `why` |
//!
//! A part that was not measured is null. [`Outcome`] says what the figures are; times are microseconds of the clock on
//! the wall, whatever the number of threads. A ratio is the time of one thread divided by that of more: how many times
//! as often these fault.

use crate::kernel_swap::Setting;
use crate::part::{self, Figure, Part, Shown, show};
use crate::phases::Work;
use crate::rounds::{Median, count, highest, of};
use crate::summary::Parts;
use crate::threads::Name;
use crate::threads::side::Run;
use clap::ValueEnum;
use millpond_cli::size::Human;
use serde::{Deserialize, Serialize};

/// The measurements of one process.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Outcome {
    /// Microseconds in which all threads together have one major fault.
    pub fault: f64,
    /// Processor time of all threads of the process for each major fault, in microseconds. Where other programs want
    /// the processors too, this says more than the clock on the wall.
    pub cpu: f64,
    /// Microseconds in which all threads together read one page.
    pub page: f64,
    /// Major faults of all threads.
    pub major_faults: u64,
    /// Pages that did not hold what was written.
    pub wrong_pages: u64,
}

impl Median for Outcome {
    fn median(rounds: &[Self]) -> Self {
        Self {
            fault: of(rounds, |r| r.fault),
            cpu: of(rounds, |r| r.cpu),
            page: of(rounds, |r| r.page),
            major_faults: count(rounds, |r| r.major_faults),
            wrong_pages: highest(rounds, |r| r.wrong_pages),
        }
    }
}

impl part::Outcome for Outcome {
    const FIGURES: &'static [Figure<Self>] = &[
        Figure::time("fault", |r| r.fault),
        Figure::other("cpu", |r| r.cpu),
        Figure::time("page", |r| r.page),
        Figure::other("faults", |r| r.major_faults as f64),
    ];

    fn wrong(&self) -> u64 {
        self.wrong_pages
    }
}

type ThreadsPart = Part<Run, Work, Outcome>;

/// All parts that were measured.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ThreadsParts {
    random: Option<ThreadsPart>,
    in_order: Option<ThreadsPart>,
    in_pieces: Option<ThreadsPart>,
    /// The setting of the kernel's side.
    pub kernel_swap: Option<Setting>,
}

impl ThreadsParts {
    /// Takes a part that was measured.
    pub fn set(&mut self, name: Name, part: ThreadsPart) {
        *match name {
            Name::Random => &mut self.random,
            Name::InOrder => &mut self.in_order,
            Name::InPieces => &mut self.in_pieces,
        } = Some(part);
    }
}

/// The name of a part in arguments and in JSON.
pub fn name_of(name: Name) -> String {
    name.to_possible_value()
        .map(|value| value.get_name().to_owned())
        .unwrap_or_default()
}

impl Parts for ThreadsParts {
    const SCHEMA: &'static str = "millpond-bench-threads/2";

    fn all(&self) -> Vec<Option<Shown<'_>>> {
        let parts = [
            (&self.random, "at random"),
            (&self.in_order, "in order"),
            (&self.in_pieces, "in order by pieces"),
        ];
        let shown = |(part, how)| {
            show(part, |work: &Work| {
                let (memory, ram) = (Human(work.pages * 4096), Human(work.ram));
                format!("{memory} in {ram}, read {how}")
            })
        };
        parts.map(shown).into()
    }

    fn units(&self, order: &str) -> String {
        format!("times are µs, of all threads together; Millpond's folios are of order {order}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::part::Skips;
    use crate::summary::Summary;
    use crate::threads::side::Who;

    #[test]
    fn two_threads_are_compared_with_one() {
        let faulted = |micros, wrong_pages| Outcome {
            fault: micros,
            cpu: micros,
            page: micros,
            major_faults: 1,
            wrong_pages,
        };
        let run = |threads| Run {
            who: Who::Direct,
            threads,
        };
        let work = Work {
            pages: 131_072,
            ram: 256 << 20,
            accesses: 1,
        };
        let rounds = vec![
            (run(1), vec![faulted(8.0, 0)]),
            (run(2), vec![faulted(5.0, 0), faulted(5.0, 1)]),
        ];
        let mut parts = ThreadsParts::default();
        parts.set(Name::Random, Part::new(work, rounds));
        let report = Summary::new(2, "0".parse().ok(), [None; 2], parts, Skips::default());
        let part = report.parts.random.as_ref().unwrap();
        assert_eq!(part.ratio("fault", run(2), run(1)), Some(1.6));
        assert!(!report.all_right());
        assert!(
            report
                .to_string()
                .contains("512 MiB in 256 MiB, read at random")
        );
    }
}
