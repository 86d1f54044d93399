//! The result of `millpond bench workingset`, for programs (JSON) and for people.
//!
//! The JSON object has `schema` = `millpond-bench-workingset/1`; later versions only add fields:
//!
//! | field | meaning |
//! | --- | --- |
//! | `machine` | `kernel` release, `cores` |
//! | `load` | the machine's load average of the last minute, before and after |
//! | `rounds` | rounds of each side |
//! | `order` | the order of Millpond's folios, as `--order` takes it |
//! | `kernel` | what the kernel's side ran on; null when it was skipped |
//! | `shift`, `scan`, `groups`, `metadata`, `overhead` | a part: `sizes`, `sides` (each `side`, `median`, `rounds`), `ratios` |
//! | `traces` | `policies`, `rows` (`trace`, `percent`, `pages`, `accesses`, `miss_ratios` by policy), `geometric_means`, `worst_over_lru`, `worst_trace`, `over_best` |
//! | `targets` | what was wanted: `what`, `value`, `wanted` (at least or at most, as `bound` says), `met` |
//! | `skipped` | `what` was left out and `why` |
//!
//! A part that was not measured is null. The `Outcome` in the part's own file says what its figures are. Each figure's
//! median is taken by itself; of counts of wrong places it is the highest.

use crate::kernel_swap;
use crate::order::BenchOrder;
use crate::part::{Outcome, Part, Skips};
use crate::summary::Parts;
use crate::target::{Bound, Target};
use crate::workingset::groups::{self, Company};
use crate::workingset::overhead::{self, Detection};
use crate::workingset::side::Side;
use crate::workingset::traces::Traces;
use crate::workingset::{metadata, scan, shift};
use millpond_cli::size::Human;
use serde::Serialize;
use std::fmt;

/// All parts that were measured.
#[derive(Clone, Debug, Default, Serialize)]
pub struct WorkingsetParts {
    /// The setting of the kernel's side.
    pub kernel: Option<kernel_swap::Setting>,
    /// Another working set.
    pub shift: Option<Part<Side, shift::Sizes, shift::Outcome>>,
    /// A scan beside a hot set.
    pub scan: Option<Part<Side, scan::Sizes, scan::Outcome>>,
    /// A group beside one that thrashes.
    pub groups: Option<Part<Company, groups::Sizes, groups::Outcome>>,
    /// The memory that tables take.
    pub metadata: Option<Part<Side, metadata::Sizes, metadata::Outcome>>,
    /// The part of a fault that bookkeeping takes.
    pub overhead: Option<Part<Detection, overhead::Sizes, overhead::Outcome>>,
    /// Traces.
    pub traces: Option<Traces>,
    /// The list of what was left out.
    pub skipped: Skips,
}

impl Parts for WorkingsetParts {
    const SCHEMA: &'static str = "millpond-bench-workingset/1";

    fn compare(&mut self) {
        if let Some(scan) = &mut self.scan {
            scan.compare();
        }
    }

    fn targets(&self, _order: BenchOrder) -> Vec<Target> {
        targets(self)
    }

    fn wrong(&self) -> u64 {
        let Self {
            kernel: _,
            shift,
            scan,
            groups,
            metadata,
            overhead,
            traces: _,
            skipped: _,
        } = self;
        let wrong = [
            shift.as_ref().map(Part::wrong),
            scan.as_ref().map(Part::wrong),
            groups.as_ref().map(Part::wrong),
            metadata.as_ref().map(Part::wrong),
            overhead.as_ref().map(Part::wrong),
        ];
        wrong.into_iter().flatten().sum()
    }

    fn skipped(&self) -> &Skips {
        &self.skipped
    }

    fn write(&self, f: &mut fmt::Formatter<'_>, rounds: u16, order: &str) -> fmt::Result {
        writeln!(
            f,
            "medians of {rounds} rounds; Millpond's folios are of order {order}"
        )?;
        if let Some(part) = &self.shift {
            let budget = Human(part.sizes.budget_bytes);
            let heading = format!("another set of 0.9 of {budget}, a scan going past");
            part.write(f, &heading)?;
        }
        if let Some(part) = &self.scan {
            let budget = Human(part.sizes.budget_bytes);
            let heading = format!("a hot set of half of {budget}, a scan of ten times as much");
            part.write(f, &heading)?;
        }
        if let Some(part) = &self.groups {
            let budget = Human(part.sizes.budget_bytes);
            let heading =
                format!("a quiet group with 0.4 of {budget}, and one that thrashes in the rest");
            part.write(f, &heading)?;
        }
        if let Some(part) = &self.metadata {
            let memory = Human(part.sizes.memory_bytes);
            part.write(f, &format!("tables for {memory}, all of it resident"))?;
        }
        if let Some(part) = &self.overhead {
            let (ram, all) = (part.sizes.budget_bytes, 2 * part.sizes.budget_bytes);
            let heading = format!(
                "random reads of {} in {}, with workingset detection and without",
                Human(all),
                Human(ram)
            );
            part.write(f, &heading)?;
        }
        if let Some(traces) = &self.traces {
            write!(f, "{traces}")?;
        }
        Ok(())
    }
}

/// The targets, as far as the parts were measured.
fn targets(parts: &WorkingsetParts) -> Vec<Target> {
    let mut targets = Vec::new();
    if let Some(shift) = median(&parts.shift) {
        let what = "shift: major faults until the new set is steady, over its pages".to_owned();
        let mut target = Target::new(what, shift.faults_over_set, Bound::AtMost, 1.2);
        if shift.steady_after.is_none() {
            // Its faults had no end, however few there were so far.
            target.what.push_str(" (it never was: those so far)");
            target.met = false;
        }
        targets.push(target);
    }
    let mut push = |what: &str, value: f64, bound, wanted| {
        targets.push(Target::new(what.to_owned(), value, bound, wanted));
    };
    if let Some(scan) = median(&parts.scan) {
        let what = "scan: hit ratio of the hot set";
        push(what, scan.hit_ratio, Bound::AtLeast, 0.98);
    }
    if let Some(groups) = &parts.groups {
        let refaults = |company| groups.median(company).map(|one| one.refaults as f64);
        let pair = refaults(Company::Beside).zip(refaults(Company::Alone));
        let ratio = pair.map_or(f64::NAN, |(beside, alone)| beside / alone);
        let what = "groups: refaults of the quiet one beside a thrashing one, over those alone";
        push(what, ratio, Bound::AtMost, 1.05);
    }
    if let Some(tables) = median(&parts.metadata) {
        let what = "metadata: bytes over 48 a resident folio and 8 a mapped page";
        push(what, tables.over_allowed, Bound::AtMost, 1.0);
        let what = "metadata: bytes that the kernel counts and nobody reports, over those reported";
        let unreported = tables.unreported / tables.bytes as f64;
        push(what, unreported, Bound::AtMost, 0.1);
    }
    if let Some(overhead) = &parts.overhead {
        let of = |detection| overhead.median(detection);
        let pair = of(Detection::On).zip(of(Detection::Off));
        let share = pair.map_or(f64::NAN, |(on, off)| overhead::share(on, off));
        let what = "overhead: bookkeeping's share of the time of an access";
        push(what, share, Bound::AtMost, 0.03);
    }
    if let Some(traces) = &parts.traces {
        let (worst, trace) = traces.worst();
        let what = format!("traces: misses over LRU's where that is worst ({trace})");
        push(&what, worst, Bound::AtMost, 1.05);
        let what = "traces: geometric mean over the best of arc, lirs, s3fifo and sieve";
        push(what, traces.over_best(), Bound::AtMost, 1.0);
    }
    targets
}

/// The median of Millpond's side of a part.
fn median<S, T: Outcome>(part: &Option<Part<Side, S, T>>) -> Option<&T> {
    part.as_ref()?.median(Side::Millpond)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::summary::Summary;

    fn report(shift: Vec<shift::Outcome>) -> Summary<WorkingsetParts> {
        let sizes = shift::Sizes {
            budget_bytes: 64 << 20,
            scan_in_64: 16,
            passes: 20,
        };
        let parts = WorkingsetParts {
            shift: Some(Part::new(sizes, vec![(Side::Millpond, shift)])),
            ..WorkingsetParts::default()
        };
        Summary::new(1, "0".parse().unwrap(), [None, None], parts)
    }

    fn outcome(faults_over_set: f64, steady_after: Option<u64>) -> shift::Outcome {
        shift::Outcome {
            faults_over_set,
            steady_after,
            ..shift::Outcome::default()
        }
    }

    #[test]
    fn a_set_that_never_becomes_steady_meets_nothing() {
        let met = |outcomes| report(outcomes).targets[0].met;
        assert!(met(vec![outcome(1.1, Some(2))]));
        assert!(!met(vec![outcome(1.3, Some(2))]));
        assert!(!met(vec![outcome(0.5, None)]));
        let rounds = vec![
            outcome(1.1, Some(2)),
            outcome(1.1, None),
            outcome(1.1, Some(2)),
        ];
        assert!(!met(rounds), "one round that never was");
    }

    #[test]
    fn one_wrong_page_in_one_round_is_seen() {
        let mut wrong = outcome(1.1, Some(2));
        wrong.wrong_pages = 1;
        let report = report(vec![outcome(1.1, Some(2)), wrong]);
        assert!(!report.all_right());
        assert!(report.to_string().contains("WRONG BYTES"));
    }
}
