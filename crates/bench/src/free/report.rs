//! The result of `millpond bench free`, for programs (JSON) and for people.
//!
//! The JSON object has `schema` = `millpond-bench-free/2`; later versions only add fields:
//!
//! | field | meaning |
//! | --- | --- |
//! | `machine` | `kernel` release, `cores` |
//! | `load` | the machine's load average of the last minute, before and after |
//! | `rounds` | rounds of each side |
//! | `order` | the order of Millpond's folios, as `--order` takes it |
//! | `blocked`, `cycle`, `unmap` | a part: `sizes`, `sides` (each `side`, `median`, `rounds`), `ratios` |
//! | `skipped` | `what` was left out and `why` |
//!
//! A part that was not asked for is null. The `Outcome` in the part's own file says what its figures are; times are
//! microseconds. A ratio is a kernel side's median over Millpond's: how many times faster. Each figure's median is
//! taken by itself; of longest times and of counts of wrong places it is the highest.

use crate::free::side::Side;
use crate::free::{blocked, cycle, unmap};
use crate::part::{Part, Shown, show};
use crate::summary::Parts;
use millpond_cli::size::Human;
use serde::Serialize;

/// All parts that were measured.
#[derive(Clone, Debug, Default, Serialize)]
pub struct FreeParts {
    /// Much memory at once.
    pub blocked: Option<Part<Side, blocked::Sizes, blocked::Outcome>>,
    /// Giving back and touching again.
    pub cycle: Option<Part<Side, cycle::Sizes, cycle::Outcome>>,
    /// A program's `munmap`.
    pub unmap: Option<Part<unmap::Run, unmap::Sizes, unmap::Outcome>>,
}

impl Parts for FreeParts {
    const SCHEMA: &'static str = "millpond-bench-free/2";

    fn all(&self) -> Vec<Option<Shown<'_>>> {
        let Self {
            blocked,
            cycle,
            unmap,
        } = self;
        vec![
            show(blocked, |sizes| {
                format!("giving {} back", Human(sizes.memory_bytes))
            }),
            show(cycle, |sizes| {
                let memory = Human(sizes.memory_bytes);
                format!("giving {memory} back and touching as much again")
            }),
            show(unmap, |sizes| {
                format!("a program's munmap of {}", Human(sizes.memory_bytes))
            }),
        ]
    }

    fn units(&self, order: &str) -> String {
        format!("the highest of the longest; times are µs; Millpond's folios are of order {order}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::part::Skips;
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
        Summary::new(3, "4".parse().ok(), [None; 2], parts, Skips::default())
    }

    #[test]
    fn times_are_held_against_munmap_and_the_longest_wait_counts() {
        let waits = [9_000.0, 11_000.0, 2_000.0];
        let report = report(vec![
            (
                Side::FreeAsync,
                waits.map(|wait| freed(90.0, 1.0, wait, 0)).to_vec(),
            ),
            (Side::Drop, vec![freed(90_000.0, 1.0, 10_000.0, 0)]),
            (Side::Kernel, vec![freed(100_000.0, 0.9, 90_000.0, 0)]),
        ]);
        let blocked = report.parts.blocked.as_ref().unwrap();
        let ratio = |figure| blocked.ratio(figure, Side::FreeAsync, Side::Kernel);
        assert_eq!(ratio("blocked"), Some(100_000.0 / 90.0));
        assert_eq!(ratio("cpu"), Some(0.9));
        assert_eq!(blocked.sides[0].measured.median.longest_mmap, 11_000.0);
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
