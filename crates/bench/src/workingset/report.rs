//! The result of `millpond bench workingset`, for programs (JSON) and for people.
//!
//! The JSON object has `schema` = `millpond-bench-workingset/2`; later versions only add fields:
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
//! | `skipped` | `what` was left out and `why` |
//!
//! A part that was not measured is null. The `Outcome` in the part's own file says what its figures are. Each figure's
//! median is taken by itself; of counts of wrong places it is the highest.

use crate::kernel_swap;
use crate::part::{Part, Shown, show};
use crate::summary::Parts;
use crate::workingset::groups::{self, Company};
use crate::workingset::overhead::{self, Detection};
use crate::workingset::side::Side;
use crate::workingset::traces::Traces;
use crate::workingset::{metadata, scan, shift};
use millpond_cli::size::Human;
use serde::Serialize;

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
}

impl Parts for WorkingsetParts {
    const SCHEMA: &'static str = "millpond-bench-workingset/2";

    fn all(&self) -> Vec<Option<Shown<'_>>> {
        let Self {
            kernel: _,
            shift,
            scan,
            groups,
            metadata,
            overhead,
            traces,
        } = self;
        vec![
            show(shift, |sizes| {
                let budget = Human(sizes.budget_bytes);
                format!("another set of 0.9 of {budget}, a scan going past")
            }),
            show(scan, |sizes| {
                let budget = Human(sizes.budget_bytes);
                format!("a hot set of half of {budget}, a scan of ten times as much")
            }),
            show(groups, |sizes| {
                let budget = Human(sizes.budget_bytes);
                format!("a quiet group with 0.4 of {budget}, and one that thrashes in the rest")
            }),
            show(metadata, |sizes| {
                let memory = Human(sizes.memory_bytes);
                format!("tables for {memory}, all of it resident")
            }),
            show(overhead, |sizes| {
                let (all, ram) = (Human(2 * sizes.budget_bytes), Human(sizes.budget_bytes));
                format!("random reads of {all} in {ram}, with workingset detection and without")
            }),
            traces.as_ref().map(|traces| Shown {
                heading: "miss ratios of traces, in parts of their pages".to_owned(),
                table: traces,
            }),
        ]
    }

    fn units(&self, order: &str) -> String {
        format!("Millpond's folios are of order {order}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::part::Skips;
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
        Summary::new(1, "0".parse().ok(), [None; 2], parts, Skips::default())
    }

    fn outcome(faults_over_set: f64, steady_after: Option<u64>) -> shift::Outcome {
        shift::Outcome {
            faults_over_set,
            steady_after,
            ..shift::Outcome::default()
        }
    }

    #[test]
    fn a_set_that_never_was_steady_in_one_round_is_not_steady() {
        let steady = |outcomes| {
            let shift = report(outcomes).parts.shift.unwrap();
            shift.sides[0].measured.median.steady_after
        };
        let often = || outcome(1.1, Some(2));
        assert_eq!(steady(vec![often(), often()]), Some(2));
        assert_eq!(steady(vec![often(), outcome(1.1, None), often()]), None);
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
