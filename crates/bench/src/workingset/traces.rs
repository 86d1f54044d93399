//! Real traces under Millpond's policy and others: how much worse than LRU is it in the worst case, and how good is
//! it overall?
//!
//! Each trace of a directory is replayed in a tenth, a quarter and half of its pages (`millpond_replay`; time does
//! not matter, so this is done once and on one side). A policy that is good overall may be bad for one program, and a
//! user may run just that one: so the worst ratio to LRU over all traces and sizes is reported. Overall the policies
//! are compared by the geometric mean of their miss ratios, in which halving the misses of one trace weighs as much
//! as halving those of another.

use crate::comparison::Table;
use crate::error::BenchError;
use millpond_cli::replay::{run_all, traces_in};
use millpond_replay::import::Reading;
use millpond_replay::open;
use millpond_replay::policies::Policy;
use serde::Serialize;
use std::fmt;
use std::path::{Path, PathBuf};

/// Sizes of memory in percent of a trace's pages.
const PERCENT: [u32; 3] = [10, 25, 50];

/// The policies, ours first and LRU second.
const POLICIES: [Policy; 6] = [
    Policy::Workingset,
    Policy::Lru,
    Policy::Arc,
    Policy::Lirs,
    Policy::S3Fifo,
    Policy::Sieve,
];

/// The traces to replay.
#[derive(Clone, Debug, clap::Args)]
pub struct Sizes {
    /// A directory of page traces that `millpond replay` can read; without this option the part is skipped
    #[arg(long, value_name = "DIRECTORY")]
    pub traces: Option<PathBuf>,
    /// Traces whose names begin with PREFIX mark writes with bit 0 of each number
    #[arg(long, value_name = "PREFIX", default_value = "pg_")]
    pub traces_write_bit: String,
}

/// A trace replayed with one size of memory.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    trace: String,
    percent: u32,
    pages: u32,
    /// The number of accesses of the trace.
    accesses: u64,
    /// The miss ratios by policy, in the order of `policies`.
    miss_ratios: Vec<f64>,
}

/// The results of all traces.
#[derive(Clone, Debug, Serialize)]
pub struct Traces {
    policies: Vec<&'static str>,
    rows: Vec<Row>,
    /// The worst ratio of Millpond's misses to LRU's.
    worst_over_lru: f64,
    worst_trace: String,
    /// The geometric means of the miss ratios, by policy.
    geometric_means: Vec<f64>,
    /// Millpond's geometric mean divided by the best of the others', excluding LRU.
    over_best: f64,
}

impl Traces {
    /// Replays all traces.
    ///
    /// # Errors
    /// When a trace cannot be read or replayed, or there is no trace.
    pub fn measure(sizes: &Sizes, directory: &Path) -> Result<Self, BenchError> {
        let failed = |error: &dyn fmt::Display| BenchError::Traces(error.to_string());
        let mut rows = Vec::new();
        let paths = traces_in(directory).map_err(|error| {
            BenchError::Traces(format!("cannot read {}: {error}", directory.display()))
        })?;
        for path in paths {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let reading = Reading {
                write_bit: name.starts_with(&sizes.traces_write_bit),
                instructions: false,
            };
            let trace = open::load(&path, None, reading).map_err(|error| failed(&error))?;
            let pages = PERCENT.map(|percent| (trace.footprint() * percent / 100).max(1));
            let results = run_all(&trace, &POLICIES, &pages).map_err(|error| failed(&error))?;
            let name = name.split('.').next().unwrap_or_default().to_owned();
            for (size, (percent, pages)) in PERCENT.into_iter().zip(pages).enumerate() {
                let of = |misses: u64| misses as f64 / trace.len() as f64;
                rows.push(Row {
                    trace: name.clone(),
                    percent,
                    pages,
                    accesses: trace.len() as u64,
                    miss_ratios: results
                        .iter()
                        .map(|(_, runs)| of(runs[size].misses))
                        .collect(),
                });
            }
        }
        if rows.is_empty() {
            return Err(BenchError::Traces(format!(
                "there is no trace in {}; name a directory of them with --traces",
                directory.display()
            )));
        }
        Ok(Self::new(rows))
    }

    fn new(rows: Vec<Row>) -> Self {
        let over_lru = |row: &Row| row.miss_ratios[0] / row.miss_ratios[1];
        let worst = rows
            .iter()
            .max_by(|a, b| over_lru(a).total_cmp(&over_lru(b)));
        let (worst_over_lru, worst_trace) = worst.map_or((f64::NAN, String::new()), |row| {
            (over_lru(row), format!("{} at {} %", row.trace, row.percent))
        });
        let mean = |policy: usize| {
            let logs = rows.iter().map(|row| row.miss_ratios[policy].ln());
            (logs.sum::<f64>() / rows.len() as f64).exp()
        };
        let geometric_means: Vec<f64> = (0..POLICIES.len()).map(mean).collect();
        let best = geometric_means[2..]
            .iter()
            .copied()
            .fold(f64::INFINITY, f64::min);
        Self {
            policies: POLICIES.map(Policy::name).to_vec(),
            worst_over_lru,
            worst_trace,
            over_best: geometric_means[0] / best,
            geometric_means,
            rows,
        }
    }
}

impl Table for Traces {
    fn write(&self, f: &mut dyn fmt::Write) -> fmt::Result {
        write!(f, "{:<26}", "")?;
        for policy in &self.policies {
            write!(f, "{policy:>12}")?;
        }
        writeln!(f)?;
        for row in &self.rows {
            let name = format!("{} {:>2} %", row.trace, row.percent);
            write!(f, "{name:<26}")?;
            for ratio in &row.miss_ratios {
                write!(f, "{ratio:>12.4}")?;
            }
            writeln!(f)?;
        }
        write!(f, "{:<26}", "geometric mean")?;
        for mean in &self.geometric_means {
            write!(f, "{mean:>12.4}")?;
        }
        writeln!(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(percent: u32, miss_ratios: [f64; 6]) -> Row {
        Row {
            trace: "t".to_owned(),
            percent,
            pages: 1,
            accesses: 1,
            miss_ratios: miss_ratios.to_vec(),
        }
    }

    #[test]
    fn worst_trace_is_chosen_by_ratio_and_best_other_excludes_lru() {
        let traces = Traces::new(vec![
            row(10, [0.4, 0.5, 1.0, 0.9, 0.8, 0.2]),
            row(25, [0.11, 0.1, 1.0, 0.9, 0.8, 0.2]),
        ]);
        assert!((traces.worst_over_lru - 1.1).abs() < 1e-9);
        assert_eq!(traces.worst_trace, "t at 25 %");
        let ours = (0.4_f64 * 0.11).sqrt();
        assert!(
            (traces.over_best - ours / 0.2).abs() < 1e-9,
            "SIEVE's is the lowest"
        );
    }
}
