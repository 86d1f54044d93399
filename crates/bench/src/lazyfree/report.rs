//! The result of `millpond bench lazyfree`, for programs (JSON) and for people.
//!
//! The JSON object has `schema` = `millpond-bench-lazyfree/2`; later versions only add fields:
//!
//! | field | meaning |
//! | --- | --- |
//! | `machine` | `kernel` release, `cores` |
//! | `load` | the machine's load average of the last minute, before and after |
//! | `rounds` | rounds of each side |
//! | `cycle`, `workers`, `ebizzy`, `rss` | a part: `sizes`, `sides` (each `side`, `median`, `rounds`), `ratios` |
//! | `skipped` | `what` was left out and `why` |
//!
//! A part that was not asked for is null. The `Outcome` in the part's own file says what its figures are (`cycle`: the
//! [`Cycle`], in microseconds a chunk). A `side` is a text, a number (of an order), or an object that says how it was
//! run. A ratio is a kernel side's median over Millpond's, in `ebizzy` that of eager purging over that of lazy purging:
//! how many times faster. Each figure's median is taken by itself; of `wrong_pages`, `wrong_records`, `purged`, peaks
//! and the error of `rss` it is the highest.

use crate::lazyfree::cycle::{self, Cycle};
use crate::lazyfree::memory::Side;
use crate::lazyfree::{ebizzy, rss, workers};
use crate::part::{Part, Shown, show};
use crate::summary::Parts;
use millpond_cli::size::Human;
use serde::Serialize;

/// All parts that were measured.
#[derive(Clone, Debug, Default, Serialize)]
pub struct LazyFreeParts {
    /// Free and rewrite.
    pub cycle: Option<Part<Side, cycle::Sizes, Cycle>>,
    /// Twelve workers.
    pub workers: Option<Part<Side, workers::Sizes, workers::Outcome>>,
    /// The allocating program.
    pub ebizzy: Option<Part<ebizzy::Run, ebizzy::Sizes, ebizzy::Outcome>>,
    /// Reported sizes.
    pub rss: Option<Part<u8, rss::Sizes, rss::Outcome>>,
}

impl Parts for LazyFreeParts {
    const SCHEMA: &'static str = "millpond-bench-lazyfree/2";

    fn all(&self) -> Vec<Option<Shown<'_>>> {
        let Self {
            cycle,
            workers,
            ebizzy,
            rss,
        } = self;
        vec![
            show(cycle, |sizes| {
                let bytes = Human(sizes.chunk_bytes);
                format!("free and rewrite, µs a chunk of {bytes}")
            }),
            show(workers, |sizes| {
                let (threads, times) = (sizes.threads, sizes.times);
                let (block, budget) = (Human(sizes.block_bytes), Human(sizes.budget_bytes));
                format!(
                    "{threads} workers fill and free {block} each {times} times in {budget}, pages"
                )
            }),
            show(ebizzy, |_| {
                "allocating program: threads, how many ms memory is kept, purge".to_owned()
            }),
            show(rss, |_| {
                "half of a region lazily freed, by the order of its folios".to_owned()
            }),
        ]
    }

    fn units(&self, _order: &str) -> String {
        "times are µs, where nothing else is said".to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lazyfree::decay::Decay;
    use crate::lazyfree::ebizzy::Allocator;
    use crate::part::Skips;
    use crate::summary::Summary;

    fn cycle(time: f64, wrong_pages: u64) -> Cycle {
        Cycle {
            interleaved: time,
            phased: 2.0 * time,
            vectored: (time > 1.0).then_some(time),
            wrong_pages,
            ..Cycle::default()
        }
    }

    fn sizes() -> cycle::Sizes {
        cycle::Sizes {
            memory_bytes: 1 << 20,
            chunk_bytes: 1 << 16,
            passes: 1,
        }
    }

    fn report(sides: Vec<(Side, Vec<Cycle>)>) -> Summary<LazyFreeParts> {
        let parts = LazyFreeParts {
            cycle: Some(Part::new(sizes(), sides)),
            ..LazyFreeParts::default()
        };
        Summary::new(3, None, [Some(0.5), None], parts, Skips::default())
    }

    #[test]
    fn ratios_are_of_medians() {
        let ours = [2.0, 9.0, 1.0].map(|time| cycle(time, 0)).to_vec();
        let report = report(vec![
            (Side::LazyFree, ours),
            (Side::KernelFree, vec![cycle(5.0, 0)]),
            (Side::KernelDontneed, vec![cycle(19.0, 0)]),
        ]);
        let part = report.parts.cycle.as_ref().unwrap();
        let ratio = |pattern| part.ratio(pattern, Side::LazyFree, Side::KernelFree);
        assert_eq!(ratio("interleaved"), Some(2.5));
        assert_eq!(
            ratio("vectored"),
            Some(5.0 / 5.5),
            "of the rounds that have it"
        );
        assert_eq!(ratio("spinning"), None);
        let compared =
            "interleaved: millpond lazy_free is 2.50 times as fast as kernel MADV_FREE\n";
        assert!(report.to_string().contains(compared), "{report}");
    }

    #[test]
    fn one_wrong_page_in_one_round_is_seen() {
        assert!(report(vec![(Side::Discard, vec![cycle(1.0, 0)])]).all_right());
        let rounds = vec![cycle(1.0, 0), cycle(1.0, 1), cycle(1.0, 0)];
        let report = report(vec![(Side::Discard, rounds)]);
        assert!(!report.all_right());
        assert!(report.to_string().contains("WRONG BYTES"));
    }

    #[test]
    fn one_wrong_record_is_seen_as_well() {
        let outcome = |wrong_records| ebizzy::Outcome {
            records_per_second: 10.0,
            wrong_records,
            ..ebizzy::Outcome::default()
        };
        let sizes = ebizzy::Sizes {
            threads: vec![2],
            decays: vec![Decay::Own],
            budget_bytes: 1,
            program: ebizzy::Program {
                chunks: 1,
                chunk_bytes: 4096,
                milliseconds: 10,
            },
        };
        let runs = sizes.runs(false);
        let rounds = runs.into_iter().map(|run| {
            let wrong_records = u64::from(run.allocator == Allocator::EagerPurge);
            (run, vec![outcome(wrong_records)])
        });
        let run = |allocator| ebizzy::Run {
            threads: 2,
            decay: Decay::Own,
            allocator,
        };
        let part = Part::new(sizes, rounds.collect());
        let (lazy, eager) = (run(Allocator::LazyPurge), run(Allocator::EagerPurge));
        assert_eq!(part.ratio("µs a record", lazy, eager), Some(1.0));
        assert_eq!(part.ratio("µs a record", eager, lazy), None);
        let parts = LazyFreeParts {
            ebizzy: Some(part),
            ..LazyFreeParts::default()
        };
        let report = Summary::new(1, None, [None; 2], parts, Skips::default());
        assert!(!report.all_right());
        assert!(report.to_string().contains("1.00"), "{report}");
    }
}
