//! The parts of the benchmark that were measured.

use crate::error::Skip;
use crate::lazyfree::cycle::{self, Cycle};
use crate::lazyfree::decay::Decay;
use crate::lazyfree::ebizzy::{self, Allocator, Run};
use crate::lazyfree::memory::Side;
use crate::lazyfree::{rss, workers};
use crate::rounds::{Measured, Median, count, highest, known, of};
use serde::Serialize;

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
    pub(super) sizes: S,
    pub(super) sides: Vec<SideRounds<T>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) ratios: Vec<Ratio>,
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct SideRounds<T> {
    pub(super) side: Side,
    #[serde(flatten)]
    pub(super) measured: Measured<T>,
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
    pub(super) fn median(&self, side: Side) -> Option<&T> {
        let found = self.sides.iter().find(|found| found.side == side)?;
        Some(&found.measured.median)
    }
}

/// The factor by which a side is faster than the kernel.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Ratio {
    pub(super) pattern: &'static str,
    pub(super) ours: Side,
    pub(super) kernel: Side,
    pub(super) times: f64,
}

/// The time that a process measured in one pattern.
pub(super) type TimeOf = fn(&Cycle) -> Option<f64>;

pub(super) const PATTERNS: [(&str, TimeOf); 4] = [
    ("interleaved", |cycle| Some(cycle.interleaved)),
    ("phased", |cycle| Some(cycle.phased)),
    ("vectored", |cycle| cycle.vectored),
    ("spinning", |cycle| cycle.spinning),
];

impl Sides<cycle::Sizes, Cycle> {
    pub(super) fn compare(&mut self) {
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

    pub(super) fn ratio(&self, pattern: &str, ours: Side, kernel: Side) -> Option<f64> {
        self.ratios
            .iter()
            .find(|r| r.pattern == pattern && r.ours == ours && r.kernel == kernel)
            .map(|ratio| ratio.times)
    }
}

/// The allocating program's part.
#[derive(Clone, Debug, Serialize)]
pub struct Ebizzy {
    pub(super) sizes: ebizzy::Sizes,
    pub(super) runs: Vec<RunRounds>,
    pub(super) lazy_over_eager: Vec<Gain>,
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct RunRounds {
    #[serde(flatten)]
    pub(super) run: Run,
    #[serde(flatten)]
    pub(super) measured: Measured<ebizzy::Outcome>,
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct Gain {
    pub(super) threads: u16,
    pub(super) decay: Decay,
    pub(super) times: f64,
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

    pub(super) fn median(&self, run: Run) -> Option<&ebizzy::Outcome> {
        let found = self.runs.iter().find(|found| found.run == run)?;
        Some(&found.measured.median)
    }
}

/// The part about reported sizes.
#[derive(Clone, Debug, Serialize)]
pub struct Rss {
    pub(super) memory_bytes: u64,
    pub(super) orders: Vec<AtOrder>,
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct AtOrder {
    pub(super) order: u8,
    #[serde(flatten)]
    pub(super) measured: Measured<rss::Outcome>,
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
    pub(super) skipped: Vec<Skipped>,
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct Skipped {
    pub(super) what: String,
    pub(super) why: String,
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
