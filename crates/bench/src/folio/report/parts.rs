//! The parts of the benchmark that were measured.

use crate::error::Skip;
use crate::folio::side::Side;
use crate::folio::{header, latency, mix, snapshot, sparse, touch};
use crate::kernel_swap::Setting;
use crate::part::{Part, Skips};
use crate::phases::{Phases, Work};
use serde::Serialize;

/// All parts that were measured.
#[derive(Clone, Debug, Default, Serialize)]
pub struct FolioParts {
    /// The swap workload over twice the budget.
    pub swap: Option<Part<Side, Work, Phases>>,
    /// Both patterns of reading at a time.
    pub mix: Option<Part<Side, mix::Sizes, mix::Outcome>>,
    /// The setting of the kernel's side of both parts.
    pub kernel_swap: Option<Setting>,
    /// First touch.
    pub touch: Option<Part<Side, touch::Sizes, touch::Outcome>>,
    /// Touches of one byte here and one there.
    pub sparse: Option<Part<Side, sparse::Sizes, sparse::Outcome>>,
    /// Large allocations of which a header is used.
    pub header: Option<Part<header::Run, header::Sizes, header::Outcome>>,
    /// An image of memory; the kernel's is a fork.
    pub snapshot: Option<Part<Side, snapshot::Sizes, snapshot::Outcome>>,
    /// Slow faults.
    pub latency: Option<Part<latency::Run, latency::Sizes, latency::Outcome>>,
    pub(super) skipped: Skips,
}

impl FolioParts {
    /// Notes that something was left out.
    pub fn skip(&mut self, what: &str, why: &Skip) {
        self.skipped.note(what, why);
    }
}
