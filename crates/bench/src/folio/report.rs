//! The result of `millpond bench folio`, for programs (JSON) and for people.
//!
//! The JSON object has `schema` = `millpond-bench-folio/2`; later versions only add fields:
//!
//! | field | meaning |
//! | --- | --- |
//! | `machine` | `kernel` release, `cores` |
//! | `load` | the machine's load average of the last minute, before and after |
//! | `rounds` | rounds of each side |
//! | `order` | Millpond's setting, as `--order` takes it |
//! | `swap`, `mix`, `touch`, `sparse`, `header`, `snapshot`, `latency` | a part: `sizes`, `sides` (each `side`, `median`, `rounds`), `ratios` |
//! | `kernel_swap` | what the kernel's side of `swap` and `mix` ran on |
//! | `skipped` | `what` was left out and `why` |
//!
//! A part that was not asked for is null. The `Outcome` in the part's own file says what its figures are; times are
//! microseconds. A `side` is a text (an order is Millpond at this order; `kernel`, `kernel_huge`), or an object that
//! says how it was run. A ratio is a kernel side's median over Millpond's: how many times faster. Each figure's median
//! is taken by itself; of `wrong_pages`, `wrong_headers`, peaks and longest times it is the highest.

use crate::folio::side::Side;
use crate::folio::{header, latency, mix, snapshot, sparse, touch};
use crate::kernel_swap::Setting;
use crate::part::{Part, Shown, show};
use crate::phases::{Phases, Work};
use crate::summary::Parts;
use millpond_cli::size::Human;
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
}

impl Parts for FolioParts {
    const SCHEMA: &'static str = "millpond-bench-folio/2";

    fn all(&self) -> Vec<Option<Shown<'_>>> {
        let Self {
            swap,
            mix,
            kernel_swap: _,
            touch,
            sparse,
            header,
            snapshot,
            latency,
        } = self;
        vec![
            show(swap, |sizes| {
                let (region, budget) = (Human(sizes.pages * 4096), Human(sizes.ram));
                format!("{region} in {budget}, a page or an access")
            }),
            show(mix, |sizes| {
                let threads = sizes.threads;
                format!("the same by threads, half of them in order ({threads}), a page")
            }),
            show(touch, |sizes| {
                let memory = Human(sizes.memory_bytes);
                format!("first touch of {memory}, a page of 4 KiB")
            }),
            show(sparse, |sizes| {
                let (memory, stride) = (Human(sizes.memory_bytes), Human(sizes.stride_bytes));
                format!("one byte each {stride} over {memory}")
            }),
            show(header, |sizes| {
                let block = Human(sizes.block_bytes);
                format!("malloc of {block}, a header, free")
            }),
            show(snapshot, |sizes| {
                let memory = Human(sizes.memory_bytes);
                format!("image of {memory} (kernel: fork), writing a page")
            }),
            show(latency, |sizes| {
                let (region, budget) = (Human(2 * sizes.budget_bytes), Human(sizes.budget_bytes));
                format!("faults at random over {region} in {budget}")
            }),
        ]
    }

    fn units(&self, _order: &str) -> String {
        "times are µs; Millpond's rows are named by their order".to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::part::Skips;
    use crate::summary::Summary;

    fn touched(page: f64, wrong_pages: u64) -> touch::Outcome {
        touch::Outcome {
            page,
            wrong_pages,
            ..touch::Outcome::default()
        }
    }

    fn report(rounds: Vec<(Side, Vec<touch::Outcome>)>) -> Summary<FolioParts> {
        let sizes = touch::Sizes {
            memory_bytes: 1 << 20,
        };
        let parts = FolioParts {
            touch: Some(Part::new(sizes, rounds)),
            ..FolioParts::default()
        };
        let order = "adaptive".parse().ok();
        Summary::new(3, order, [Some(0.5), None], parts, Skips::default())
    }

    #[test]
    fn ratios_are_of_medians() {
        let ours = "adaptive".parse().unwrap();
        let report = report(vec![
            (ours, [2.0, 9.0, 1.0].map(|page| touched(page, 0)).to_vec()),
            (Side::Kernel, vec![touched(6.0, 0)]),
            (Side::KernelHuge, vec![touched(1.0, 0)]),
        ]);
        let part = report.parts.touch.as_ref().unwrap();
        assert_eq!(part.ratio("page", ours, Side::Kernel), Some(3.0));
        assert_eq!(part.ratio("page", ours, Side::KernelHuge), Some(0.5));
        assert_eq!(part.ratio("page", Side::fixed(9), Side::Kernel), None);
        let text = report.to_string();
        let compared = "page: adaptive is 3.00 times as fast as kernel\n";
        assert!(text.contains(compared), "{text}");
        assert!(!text.contains("WRONG"), "{text}");
    }

    #[test]
    fn one_wrong_page_in_one_round_is_seen() {
        let rounds = vec![touched(1.0, 0), touched(1.0, 1), touched(1.0, 0)];
        let report = report(vec![(Side::fixed(9), rounds)]);
        assert!(!report.all_right());
        assert!(report.to_string().contains("WRONG BYTES"));
    }
}
