//! The result of `millpond bench lazyfree`, for programs (JSON) and for people.
//!
//! The JSON object has `schema` = `millpond-bench-lazyfree/1`; later versions only add fields:
//!
//! | field | meaning |
//! | --- | --- |
//! | `machine` | `kernel` release, `cores` |
//! | `load` | the machine's load average of the last minute, before and after |
//! | `rounds` | rounds of each side |
//! | `cycle` | `sizes`, `sides` (each `side`, `median`, `rounds`; microseconds a chunk, see [`Cycle`](crate::lazyfree::cycle::Cycle)), `ratios` |
//! | `workers` | `sizes`, `sides` (as above, see [`workers::Outcome`](crate::lazyfree::workers::Outcome)) |
//! | `ebizzy` | `sizes`, `runs` (each `threads`, `decay`, `allocator`, `median`, `rounds`), `lazy_over_eager` (each `threads`, `decay`, `times`) |
//! | `rss` | `memory_bytes`, `orders` (each `order`, `median`, `rounds`) |
//! | `targets` | what was wanted: `what`, `value`, `wanted` (at least or at most, as `bound` says), `met` |
//! | `skipped` | `what` was left out and `why` |
//!
//! A part that was not asked for is null. A ratio is the kernel's median over Millpond's: how many times faster. Each
//! figure's median is taken by itself; of `wrong_pages`, `wrong_records`, `purged`, peaks and the error of `rss` it is
//! the highest.

mod parts;
mod targets;
mod text;

use crate::report::Machine;
use crate::target::Target;
pub use parts::{Ebizzy, Parts, Rss, Sides};
use serde::Serialize;
use targets::targets;

/// The whole result.
#[derive(Clone, Debug, Serialize)]
pub struct LazyFreeReport {
    schema: &'static str,
    machine: Machine,
    load: [Option<f64>; 2],
    rounds: u16,
    #[serde(flatten)]
    parts: Parts,
    targets: Vec<Target>,
}

impl LazyFreeReport {
    /// Puts the result together.
    #[must_use]
    pub fn new(rounds: u16, load: [Option<f64>; 2], mut parts: Parts) -> Self {
        if let Some(cycle) = &mut parts.cycle {
            cycle.compare();
        }
        Self {
            schema: "millpond-bench-lazyfree/1",
            machine: Machine::look(),
            load,
            rounds,
            targets: targets(&parts),
            parts,
        }
    }

    /// Whether all memory of every round held what it may hold.
    #[must_use]
    pub fn all_right(&self) -> bool {
        let Parts {
            cycle,
            workers,
            ebizzy,
            rss,
            skipped: _,
        } = &self.parts;
        let cycle = cycle.iter().flat_map(|part| &part.sides);
        let workers = workers.iter().flat_map(|part| &part.sides);
        let ebizzy = ebizzy.iter().flat_map(|part| &part.runs);
        let rss = rss.iter().flat_map(|part| &part.orders);
        let wrong = cycle
            .map(|side| side.measured.median.wrong_pages)
            .chain(workers.map(|side| side.measured.median.wrong_pages))
            .chain(ebizzy.map(|run| run.measured.median.wrong_records))
            .chain(rss.map(|order| order.measured.median.wrong_pages));
        wrong.sum::<u64>() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lazyfree::cycle::{self, Cycle};
    use crate::lazyfree::decay::Decay;
    use crate::lazyfree::ebizzy::{self, Allocator};
    use crate::lazyfree::memory::Side;

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

    fn report(sides: Vec<(Side, Vec<Cycle>)>) -> LazyFreeReport {
        let parts = Parts {
            cycle: Some(Sides::new(sizes(), sides)),
            ..Parts::default()
        };
        LazyFreeReport::new(3, [Some(0.5), None], parts)
    }

    #[test]
    fn ratios_are_of_medians_and_say_which_targets_are_met() {
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
        let met: Vec<bool> = report.targets.iter().map(|target| target.met).collect();
        assert_eq!(met, [true, false, true, false]);
        assert!(
            report
                .to_string()
                .contains("2.5000, wanted at least 2: met")
        );
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
        let part = Ebizzy::new(sizes, rounds.collect());
        assert_eq!(part.lazy_over_eager.len(), 1);
        assert_eq!(part.lazy_over_eager[0].times, 1.0);
        let parts = Parts {
            ebizzy: Some(part),
            ..Parts::default()
        };
        let report = LazyFreeReport::new(1, [None; 2], parts);
        assert!(!report.all_right());
        assert!(report.to_string().contains("1.00"), "{report}");
    }
}
