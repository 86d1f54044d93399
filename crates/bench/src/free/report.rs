//! The result of `millpond bench free`, for programs (JSON) and for people.
//!
//! The JSON object has `schema` = `millpond-bench-free/1`; later versions only add fields:
//!
//! | field | meaning |
//! | --- | --- |
//! | `machine` | `kernel` release, `cores` |
//! | `load` | the machine's load average of the last minute, before and after |
//! | `rounds` | rounds of each side |
//! | `order` | the order of Millpond's folios, as `--order` takes it |
//! | `blocked`, `cycle`, `unmap` | a part: `sizes`, `sides` (each `side`, `median`, `rounds`), `ratios` |
//! | `targets` | what was wanted: `what`, `value`, `wanted` (at least or at most, as `bound` says), `met` |
//! | `skipped` | `what` was left out and `why` |
//!
//! A part that was not asked for is null. The `Outcome` in the part's own file says what its figures are; times are
//! microseconds. A ratio is a kernel side's median over Millpond's: how many times faster. Each figure's median is
//! taken by itself; of longest times and of counts of wrong places it is the highest.

use crate::free::side::Side;
use crate::free::{blocked, cycle, unmap};
use crate::order::BenchOrder;
use crate::part::{Part, Skips};
use crate::summary::Parts;
use crate::target::{Bound, Target};
use millpond_cli::size::Human;
use serde::Serialize;
use std::fmt;

/// All parts that were measured.
#[derive(Clone, Debug, Default, Serialize)]
pub struct FreeParts {
    /// Much memory at once.
    pub blocked: Option<Part<Side, blocked::Sizes, blocked::Outcome>>,
    /// Giving back and touching again.
    pub cycle: Option<Part<Side, cycle::Sizes, cycle::Outcome>>,
    /// A program's `munmap`.
    pub unmap: Option<Part<unmap::Run, unmap::Sizes, unmap::Outcome>>,
    /// The list of what was left out.
    pub skipped: Skips,
}

impl Parts for FreeParts {
    const SCHEMA: &'static str = "millpond-bench-free/1";

    fn compare(&mut self) {
        if let Some(blocked) = &mut self.blocked {
            blocked.compare();
        }
        if let Some(cycle) = &mut self.cycle {
            cycle.compare();
        }
        if let Some(unmap) = &mut self.unmap {
            unmap.compare();
        }
    }

    fn targets(&self, _order: BenchOrder) -> Vec<Target> {
        targets(self)
    }

    fn wrong(&self) -> u64 {
        let Self {
            blocked,
            cycle,
            unmap,
            skipped: _,
        } = self;
        let wrong = [
            blocked.as_ref().map(Part::wrong),
            cycle.as_ref().map(Part::wrong),
            unmap.as_ref().map(Part::wrong),
        ];
        wrong.into_iter().flatten().sum()
    }

    fn skipped(&self) -> &Skips {
        &self.skipped
    }

    fn write(&self, f: &mut fmt::Formatter<'_>, rounds: u16, order: &str) -> fmt::Result {
        writeln!(
            f,
            "medians of {rounds} rounds, the highest of the longest; times are µs; Millpond's folios are of order {order}"
        )?;
        if let Some(part) = &self.blocked {
            let memory = Human(part.sizes.memory_bytes);
            part.write(f, &format!("giving {memory} back"))?;
        }
        if let Some(part) = &self.cycle {
            let memory = Human(part.sizes.memory_bytes);
            let heading = format!("giving {memory} back and touching as much again");
            part.write(f, &heading)?;
        }
        if let Some(part) = &self.unmap {
            let memory = Human(part.sizes.memory_bytes);
            part.write(f, &format!("a program's munmap of {memory}"))?;
        }
        Ok(())
    }
}

/// The targets, as far as the parts were measured.
fn targets(parts: &FreeParts) -> Vec<Target> {
    let mut targets = Vec::new();
    let mut push = |what: String, value: Option<f64>, bound, wanted| {
        targets.extend(value.map(|value| Target::new(what, value, bound, wanted)));
    };
    if let Some(blocked) = &parts.blocked {
        let over_kernel = |figure| {
            let ratio = blocked.ratio(figure, Side::FreeAsync, Side::Kernel);
            ratio.map(f64::recip)
        };
        for (figure, what, wanted) in [
            ("blocked", "time that the caller is blocked", 0.001),
            ("cpu", "processor time until all is given back", 1.1),
        ] {
            push(
                format!("blocked, free_async: {what}, over that of munmap"),
                over_kernel(figure),
                Bound::AtMost,
                wanted,
            );
        }
        for side in [Side::FreeAsync, Side::Drop, Side::Discard] {
            let median = blocked.median(side);
            for (what, longest) in [
                ("mmap", median.map(|median| median.longest_mmap)),
                ("fault", median.map(|median| median.longest_fault)),
            ] {
                push(
                    format!("blocked, {side}: milliseconds of another thread's longest {what}"),
                    longest.map(|micros| micros / 1000.0),
                    Bound::AtMost,
                    10.0,
                );
            }
        }
    }
    if let Some(cycle) = &parts.cycle {
        for side in [Side::Discard, Side::FreeAsync] {
            push(
                format!("cycle, {side}: times faster than munmap, mmap and touch"),
                cycle.ratio("cycle", side, Side::Kernel),
                Bound::AtLeast,
                2.0,
            );
        }
    }
    targets
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::summary::Summary;

    fn freed(blocked: f64, cpu: f64, longest_mmap: f64, wrong_pages: u64) -> blocked::Outcome {
        blocked::Outcome {
            blocked,
            cpu,
            longest_mmap,
            wrong_pages,
            ..blocked::Outcome::default()
        }
    }

    fn report(rounds: Vec<(Side, Vec<blocked::Outcome>)>) -> Summary<FreeParts> {
        let sizes = blocked::Sizes {
            memory_bytes: 4 << 30,
            workers: None,
            batch_pages: None,
            chunk_bytes: None,
        };
        let parts = FreeParts {
            blocked: Some(Part::new(sizes, rounds)),
            ..FreeParts::default()
        };
        Summary::new(3, "4".parse().unwrap(), [None, None], parts)
    }

    #[test]
    fn times_are_held_against_munmap_and_one_long_wait_is_too_many() {
        let waits = [9_000.0, 11_000.0, 2_000.0];
        let report = report(vec![
            (
                Side::FreeAsync,
                waits.map(|wait| freed(90.0, 1.0, wait, 0)).to_vec(),
            ),
            (Side::Drop, vec![freed(90_000.0, 1.0, 10_000.0, 0)]),
            (Side::Kernel, vec![freed(100_000.0, 0.9, 90_000.0, 0)]),
        ]);
        let met: Vec<bool> = report.targets.iter().map(|target| target.met).collect();
        assert_eq!(met, [true, false, false, true, true, true]);
        assert!(report.all_right());
        assert!(report.to_string().contains("giving 4 GiB back"));
    }

    #[test]
    fn one_wrong_page_in_one_round_is_seen() {
        let rounds = [0, 1, 0].map(|wrong| freed(1.0, 1.0, 1.0, wrong)).to_vec();
        let report = report(vec![(Side::Drop, rounds)]);
        assert!(!report.all_right());
        assert!(report.to_string().contains("WRONG BYTES"));
    }
}
