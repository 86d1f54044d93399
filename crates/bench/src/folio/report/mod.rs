//! The result of `millpond bench folio`, for programs (JSON) and for people.
//!
//! The JSON object has `schema` = `millpond-bench-folio/1`; later versions only add fields:
//!
//! | field | meaning |
//! | --- | --- |
//! | `machine` | `kernel` release, `cores` |
//! | `load` | the machine's load average of the last minute, before and after |
//! | `rounds` | rounds of each side |
//! | `order` | Millpond's setting, as `--order` takes it |
//! | `swap`, `mix`, `touch`, `sparse`, `header`, `snapshot`, `latency` | a part: `sizes`, `sides` (each `side`, `median`, `rounds`), `ratios` |
//! | `kernel_swap` | what the kernel's side of `swap` and `mix` ran on |
//! | `targets` | what was wanted: `what`, `value`, `wanted` (at least or at most, as `bound` says), `met` |
//! | `skipped` | `what` was left out and `why` |
//!
//! A part that was not asked for is null. The `Outcome` in the part's own file says what its figures are; times are
//! microseconds. A `side` is a text (an order is Millpond at this order; `kernel`, `kernel_huge`), or an object that
//! says how it was run. A ratio is a kernel side's median over Millpond's: how many times faster. Each figure's median
//! is taken by itself; of `wrong_pages`, `wrong_headers`, peaks and longest times it is the highest.

mod parts;
mod targets;
mod text;

use crate::order::BenchOrder;
use crate::part::{Part, Skips};
use crate::summary::Parts;
use crate::target::Target;
pub use parts::FolioParts;
use std::fmt;
use targets::targets;
use text::tables;

impl Parts for FolioParts {
    const SCHEMA: &'static str = "millpond-bench-folio/1";

    fn compare(&mut self) {
        if let Some(swap) = &mut self.swap {
            swap.compare();
        }
        if let Some(mix) = &mut self.mix {
            mix.compare();
        }
        if let Some(touch) = &mut self.touch {
            touch.compare();
        }
        if let Some(snapshot) = &mut self.snapshot {
            snapshot.compare();
        }
    }

    fn targets(&self, order: BenchOrder) -> Vec<Target> {
        targets(order, self)
    }

    fn wrong(&self) -> u64 {
        let Self {
            swap,
            mix,
            kernel_swap: _,
            touch,
            sparse,
            header,
            snapshot,
            latency,
            skipped: _,
        } = self;
        let wrong = [
            swap.as_ref().map(Part::wrong),
            mix.as_ref().map(Part::wrong),
            touch.as_ref().map(Part::wrong),
            sparse.as_ref().map(Part::wrong),
            header.as_ref().map(Part::wrong),
            snapshot.as_ref().map(Part::wrong),
            latency.as_ref().map(Part::wrong),
        ];
        wrong.into_iter().flatten().sum()
    }

    fn skipped(&self) -> &Skips {
        &self.skipped
    }

    fn write(&self, f: &mut fmt::Formatter<'_>, rounds: u16, _order: &str) -> fmt::Result {
        writeln!(
            f,
            "medians of {rounds} rounds; times are µs; Millpond's rows are named by their order"
        )?;
        tables(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::folio::side::Side;
    use crate::folio::touch;
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
        let order = "adaptive".parse().unwrap();
        Summary::new(3, order, [Some(0.5), None], parts)
    }

    #[test]
    fn ratios_are_of_medians_and_say_which_targets_are_met() {
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
        let met: Vec<bool> = report.targets.iter().map(|target| target.met).collect();
        assert_eq!(met, [true, false]);
        let text = report.to_string();
        assert!(text.contains("wanted at least 3: met"), "{text}");
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
