//! The result of `millpond bench lazyfree`, for programs (JSON) and for people.
//!
//! The JSON object, `schema` = `millpond-bench-lazyfree/1`; later versions only add fields:
//!
//! | field | meaning |
//! | --- | --- |
//! | `machine` | `kernel` release, `cores` |
//! | `load` | the machine's load average of the last minute, before and after |
//! | `rounds` | rounds of each side |
//! | `cycle` | `sizes`, `sides` (each `side`, `median`, `rounds`; microseconds a chunk, see [`Cycle`]), `ratios` |
//! | `workers` | `sizes`, `sides` (as above, see [`workers::Outcome`]) |
//! | `ebizzy` | `sizes`, `runs` (each `threads`, `decay`, `allocator`, `median`, `rounds`), `lazy_over_eager` (each `threads`, `decay`, `times`) |
//! | `rss` | `memory_bytes`, `orders` (each `order`, `median`, `rounds`) |
//! | `targets` | what was wanted: `what`, `value`, `wanted` (at least or at most, as `bound` says), `met` |
//! | `skipped` | `what` was left out and `why` |
//!
//! A part that was not asked for is null. A ratio is the kernel's median over Millpond's: how many times faster. Each
//! figure's median is taken by itself; of `wrong_pages`, `wrong_records`, `purged`, peaks and the error of `rss` it is
//! the highest.

mod targets;
mod text;

use crate::error::Skip;
use crate::lazyfree::cycle::{self, Cycle};
use crate::lazyfree::decay::Decay;
use crate::lazyfree::ebizzy::{self, Allocator, Run};
use crate::lazyfree::memory::Side;
use crate::lazyfree::{rss, workers};
use crate::report::Machine;
use crate::rounds::{Measured, Median, count, highest, known, of};
use crate::target::Target;
use serde::Serialize;
use targets::targets;

impl Median for Cycle {
    fn median(rounds: &[Self]) -> Self {
        Self {
            interleaved: of(rounds, |r| r.interleaved),
            phased: of(rounds, |r| r.phased),
            phased_free: of(rounds, |r| r.phased_free),
            vectored: known(rounds, |r| r.vectored),
            spinning: known(rounds, |r| r.spinning),
            faults: of(rounds, |r| r.faults),
            purged: highest(rounds, |r| r.purged),
            wrong_pages: highest(rounds, |r| r.wrong_pages),
            skipped: rounds
                .first()
                .map_or_else(Vec::new, |round| round.skipped.clone()),
        }
    }
}

impl Median for workers::Outcome {
    fn median(rounds: &[Self]) -> Self {
        Self {
            seconds: of(rounds, |r| r.seconds),
            pswpin: count(rounds, |r| r.pswpin),
            pswpout: count(rounds, |r| r.pswpout),
            pglazyfreed: count(rounds, |r| r.pglazyfreed),
            pages_touched: count(rounds, |r| r.pages_touched),
            wrong_pages: highest(rounds, |r| r.wrong_pages),
        }
    }
}

impl Median for ebizzy::Outcome {
    fn median(rounds: &[Self]) -> Self {
        Self {
            records_per_second: of(rounds, |r| r.records_per_second),
            faults: of(rounds, |r| r.faults),
            wrong_records: highest(rounds, |r| r.wrong_records),
            peak_rss_bytes: highest(rounds, |r| r.peak_rss_bytes),
        }
    }
}

impl Median for rss::Outcome {
    fn median(rounds: &[Self]) -> Self {
        Self {
            rss_bytes: count(rounds, |r| r.rss_bytes),
            metadata_bytes: count(rounds, |r| r.metadata_bytes),
            resident_bytes: count(rounds, |r| r.resident_bytes),
            lazyfree_bytes: count(rounds, |r| r.lazyfree_bytes),
            error: rounds.iter().map(|r| r.error).fold(0.0, f64::max),
            wrong_pages: highest(rounds, |r| r.wrong_pages),
        }
    }
}

/// A part whose sides are ways of giving memory back.
#[derive(Clone, Debug, Serialize)]
pub struct Sides<S, T> {
    sizes: S,
    sides: Vec<SideRounds<T>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    ratios: Vec<Ratio>,
}

#[derive(Clone, Debug, Serialize)]
struct SideRounds<T> {
    side: Side,
    #[serde(flatten)]
    measured: Measured<T>,
}

impl<S, T: Median> Sides<S, T> {
    /// Sums the rounds up.
    #[must_use]
    pub fn new(sizes: S, rounds: Vec<(Side, Vec<T>)>) -> Self {
        let sides = rounds.into_iter().map(|(side, rounds)| SideRounds {
            side,
            measured: rounds.into(),
        });
        Self {
            sizes,
            sides: sides.collect(),
            ratios: Vec::new(),
        }
    }
}

impl<S, T> Sides<S, T> {
    fn median(&self, side: Side) -> Option<&T> {
        let found = self.sides.iter().find(|found| found.side == side)?;
        Some(&found.measured.median)
    }
}

/// How many times faster than the kernel.
#[derive(Clone, Debug, Serialize)]
struct Ratio {
    pattern: &'static str,
    ours: Side,
    kernel: Side,
    times: f64,
}

/// The time that a process measured in one pattern.
type TimeOf = fn(&Cycle) -> Option<f64>;

const PATTERNS: [(&str, TimeOf); 4] = [
    ("interleaved", |cycle| Some(cycle.interleaved)),
    ("phased", |cycle| Some(cycle.phased)),
    ("vectored", |cycle| cycle.vectored),
    ("spinning", |cycle| cycle.spinning),
];

impl Sides<cycle::Sizes, Cycle> {
    fn compare(&mut self) {
        let mut ratios = Vec::new();
        for (pattern, time) in PATTERNS {
            let of = |side| self.median(side).and_then(time);
            let ours = [
                Side::LazyFree,
                Side::Volatile,
                Side::LazyFreeShared,
                Side::Discard,
            ];
            for ours in ours {
                for kernel in [Side::KernelFree, Side::KernelDontneed] {
                    if let (Some(our_time), Some(kernel_time)) = (of(ours), of(kernel)) {
                        ratios.push(Ratio {
                            pattern,
                            ours,
                            kernel,
                            times: kernel_time / our_time,
                        });
                    }
                }
            }
        }
        self.ratios = ratios;
    }

    fn ratio(&self, pattern: &str, ours: Side, kernel: Side) -> Option<f64> {
        self.ratios
            .iter()
            .find(|r| r.pattern == pattern && r.ours == ours && r.kernel == kernel)
            .map(|ratio| ratio.times)
    }
}

/// The allocating program's part.
#[derive(Clone, Debug, Serialize)]
pub struct Ebizzy {
    sizes: ebizzy::Sizes,
    runs: Vec<RunRounds>,
    lazy_over_eager: Vec<Gain>,
}

#[derive(Clone, Debug, Serialize)]
struct RunRounds {
    #[serde(flatten)]
    run: Run,
    #[serde(flatten)]
    measured: Measured<ebizzy::Outcome>,
}

#[derive(Clone, Debug, Serialize)]
struct Gain {
    threads: u16,
    decay: Decay,
    times: f64,
}

impl Ebizzy {
    /// Sums the rounds up.
    #[must_use]
    pub fn new(sizes: ebizzy::Sizes, rounds: Vec<(Run, Vec<ebizzy::Outcome>)>) -> Self {
        let runs = rounds.into_iter().map(|(run, rounds)| RunRounds {
            run,
            measured: rounds.into(),
        });
        let mut part = Self {
            sizes,
            runs: runs.collect(),
            lazy_over_eager: Vec::new(),
        };
        let of = |run| part.median(run).map(|median| median.records_per_second);
        let gains = part.runs.iter().filter_map(|&RunRounds { run, .. }| {
            if run.allocator != Allocator::LazyPurge {
                return None;
            }
            let eager = Run {
                allocator: Allocator::EagerPurge,
                ..run
            };
            Some(Gain {
                threads: run.threads,
                decay: run.decay,
                times: of(run)? / of(eager)?,
            })
        });
        part.lazy_over_eager = gains.collect();
        part
    }

    fn median(&self, run: Run) -> Option<&ebizzy::Outcome> {
        let found = self.runs.iter().find(|found| found.run == run)?;
        Some(&found.measured.median)
    }
}

/// The part about reported sizes.
#[derive(Clone, Debug, Serialize)]
pub struct Rss {
    memory_bytes: u64,
    orders: Vec<AtOrder>,
}

#[derive(Clone, Debug, Serialize)]
struct AtOrder {
    order: u8,
    #[serde(flatten)]
    measured: Measured<rss::Outcome>,
}

impl Rss {
    /// Sums the rounds up.
    #[must_use]
    pub fn new(memory_bytes: u64, rounds: Vec<(u8, Vec<rss::Outcome>)>) -> Self {
        let orders = rounds.into_iter().map(|(order, rounds)| AtOrder {
            order,
            measured: rounds.into(),
        });
        Self {
            memory_bytes,
            orders: orders.collect(),
        }
    }
}

/// All parts that were measured.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Parts {
    /// Free and rewrite.
    pub cycle: Option<Sides<cycle::Sizes, Cycle>>,
    /// Twelve workers.
    pub workers: Option<Sides<workers::Sizes, workers::Outcome>>,
    /// The allocating program.
    pub ebizzy: Option<Ebizzy>,
    /// Reported sizes.
    pub rss: Option<Rss>,
    skipped: Vec<Skipped>,
}

#[derive(Clone, Debug, Serialize)]
struct Skipped {
    what: String,
    why: String,
}

impl Parts {
    /// Notes that something was left out.
    pub fn skip(&mut self, what: &str, why: &Skip) {
        self.skipped.push(Skipped {
            what: what.to_owned(),
            why: why.to_string(),
        });
    }
}

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
