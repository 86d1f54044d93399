//! The result of `millpond replay`, for programs (JSON) and for people.
//!
//! The JSON object has `schema` = `millpond-replay/1`; later versions only add fields:
//!
//! | field | meaning |
//! | --- | --- |
//! | `trace` | `file`, `accesses`, `pages` (different ones), `has_writes` |
//! | `sizes` | a list: `given` on the command line, `pages` |
//! | `policies` | a list: `policy`, and `runs`, one a size: `pages`, `misses`, `miss_ratio`; of workingset also `rescues`, `rescue_ratio` |
//! | `curves` | of workingset, one a size: `pages`, `major_faults`, and `steps`: with `more_pages` the share `avoided` of them would not have happened |
//! | `curve_checks` | with `--check-curve`: `pages`, `more_pages`, the share avoided as `predicted` by the curve and as `replayed` |
//!
//! A miss is an access to a page that is not in memory, first touches included; ratios are of all accesses.

mod page;

use crate::replay::check::CurveCheck;
use crate::replay::sizes::RamSize;
use crate::size::Human;
use millpond_replay::curve::{Curve, Step};
use millpond_replay::policies::{Misses, Policy};
use millpond_replay::trace::Trace;
use serde::Serialize;
use std::fmt;
use std::path::Path;

/// Bytes in a page.
const PAGE: u64 = 4096;

#[derive(Clone, Debug, Serialize)]
struct TraceFacts {
    file: String,
    accesses: u64,
    pages: u32,
    has_writes: bool,
}

/// A size of memory in which the trace was replayed.
#[derive(Clone, Debug, Serialize)]
pub struct Size {
    given: String,
    pages: u32,
}

impl Size {
    /// The size requested by `given`; `pages` is that size for this trace.
    #[must_use]
    pub fn new(given: &RamSize, pages: u32) -> Self {
        Self {
            given: given.text().to_owned(),
            pages,
        }
    }
}

#[derive(Clone, Debug, Serialize)]
struct Run {
    pages: u32,
    misses: u64,
    miss_ratio: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    rescues: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rescue_ratio: Option<f64>,
}

#[derive(Clone, Debug, Serialize)]
struct PolicyRuns {
    policy: &'static str,
    runs: Vec<Run>,
}

#[derive(Clone, Debug, Serialize)]
struct CurveStep {
    more_pages: u64,
    avoided: f64,
}

#[derive(Clone, Debug, Serialize)]
struct SizeCurve {
    pages: u32,
    major_faults: u64,
    steps: Vec<CurveStep>,
    #[serde(skip)]
    curve: Curve,
}

/// The whole result.
#[derive(Clone, Debug, Serialize)]
pub struct ReplayReport {
    schema: &'static str,
    trace: TraceFacts,
    sizes: Vec<Size>,
    policies: Vec<PolicyRuns>,
    curves: Vec<SizeCurve>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    curve_checks: Vec<CurveCheck>,
}

impl SizeCurve {
    fn of(pages: u32, curve: Curve) -> Self {
        let step = |step: Step| CurveStep {
            more_pages: step.pages,
            avoided: step.avoided,
        };
        Self {
            pages,
            major_faults: curve.faults(),
            steps: curve.steps().into_iter().map(step).collect(),
            curve,
        }
    }
}

impl ReplayReport {
    /// The results of a trace that was read from `file`.
    #[must_use]
    pub fn new(
        file: &Path,
        trace: &Trace,
        sizes: Vec<Size>,
        results: Vec<(Policy, Vec<Misses>)>,
        curve_checks: Vec<CurveCheck>,
    ) -> Self {
        let accesses = trace.len() as u64;
        let ratio = |n: u64| n as f64 / accesses as f64;
        let run = |misses: &Misses| Run {
            pages: misses.pages,
            misses: misses.misses,
            miss_ratio: ratio(misses.misses),
            rescues: misses.rescues,
            rescue_ratio: misses.rescues.map(ratio),
        };
        Self {
            schema: "millpond-replay/1",
            trace: TraceFacts {
                file: file.display().to_string(),
                accesses,
                pages: trace.footprint(),
                has_writes: trace.has_writes(),
            },
            sizes,
            policies: results
                .iter()
                .map(|(policy, misses)| PolicyRuns {
                    policy: policy.name(),
                    runs: misses.iter().map(run).collect(),
                })
                .collect(),
            curves: results
                .into_iter()
                .flat_map(|(_, runs)| runs)
                .filter_map(|run| Some(SizeCurve::of(run.pages, run.curve?)))
                .collect(),
            curve_checks,
        }
    }

    /// The result as JSON, with a newline at the end.
    ///
    /// # Panics
    /// Never: every value can be represented in JSON.
    #[must_use]
    pub fn to_json(&self) -> String {
        let mut text = serde_json::to_string_pretty(self).expect("plain data has a JSON form");
        text.push('\n');
        text
    }
}

impl fmt::Display for ReplayReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let TraceFacts {
            file,
            accesses,
            pages,
            ..
        } = &self.trace;
        let size = Human(u64::from(*pages) * PAGE);
        writeln!(f, "{file}: {accesses} accesses to {pages} pages ({size})\n")?;
        write!(f, "{:<12}", "miss ratio")?;
        for size in &self.sizes {
            write!(f, "{:>12}", size.given)?;
        }
        write!(f, "\n{:<12}", "pages")?;
        for size in &self.sizes {
            write!(f, "{:>12}", size.pages)?;
        }
        writeln!(f)?;
        for PolicyRuns { policy, runs } in &self.policies {
            write!(f, "{policy:<12}")?;
            for run in runs {
                write!(f, "{:>12.4}", run.miss_ratio)?;
            }
            writeln!(f)?;
            if runs.iter().any(|run| run.rescues.is_some()) {
                write!(f, "{:<12}", "  rescues")?;
                for run in runs {
                    write!(f, "{:>12.4}", run.rescue_ratio.unwrap_or(0.0))?;
                }
                writeln!(f)?;
            }
        }
        for (size, SizeCurve { curve, .. }) in self.sizes.iter().zip(&self.curves) {
            write!(
                f,
                "\nworkingset in {} ({} pages): {curve}",
                size.given, size.pages
            )?;
        }
        if !self.curve_checks.is_empty() {
            writeln!(
                f,
                "\nshare of the major faults in PAGES that MORE pages avoid"
            )?;
            writeln!(
                f,
                "{:>12}{:>12}{:>12}{:>12}",
                "pages", "more", "predicted", "replayed"
            )?;
        }
        for check in &self.curve_checks {
            let percent = |share: f64| format!("{:.1} %", share * 100.0);
            let (predicted, replayed) = (percent(check.predicted), percent(check.replayed));
            let CurveCheck {
                pages, more_pages, ..
            } = check;
            writeln!(
                f,
                "{pages:>12}{more_pages:>12}{predicted:>12}{replayed:>12}"
            )?;
        }
        Ok(())
    }
}
