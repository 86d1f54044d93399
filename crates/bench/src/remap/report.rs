//! The result of `millpond bench remap`, for programs (JSON) and for people.
//!
//! The JSON object has `schema` = `millpond-bench-remap/2`; later versions only add fields:
//!
//! | field | meaning |
//! | --- | --- |
//! | `machine` | `kernel` release, `cores` |
//! | `load` | the machine's load average of the last minute, before and after |
//! | `rounds` | rounds of each side |
//! | `order` | the order of Millpond's folios, as `--order` takes it |
//! | `move`, `scale`, `vec` | a part: `sizes`, `sides` (each `side`, `median`, `rounds`), `ratios` |
//! | `skipped` | `what` was left out and `why` |
//!
//! A part that was not asked for is null. The `Outcome` in the part's own file says what its figures are. A `side` is a
//! text, or an object that says how it was run. A ratio is a kernel side's median over Millpond's: how many times
//! faster. Each figure's median is taken by itself; of counts of wrong places and of the resident set it is the
//! highest.

use crate::part::{Part, Shown, show};
use crate::remap::case::Case;
use crate::remap::moving::{self, Run};
use crate::remap::vec;
use crate::summary::Parts;
use millpond_cli::size::Human;
use serde::Serialize;

/// All parts that were measured.
#[derive(Clone, Debug, Default, Serialize)]
pub struct RemapParts {
    /// Moves from any offset, and with half of the memory stored.
    #[serde(rename = "move")]
    pub moving: Option<Part<Case, moving::Sizes, moving::Outcome>>,
    /// Moves of more and more memory.
    pub scale: Option<Part<Run, moving::Scale, moving::Outcome>>,
    /// A vector that grows.
    pub vec: Option<Part<vec::Side, vec::Sizes, vec::Outcome>>,
}

impl Parts for RemapParts {
    const SCHEMA: &'static str = "millpond-bench-remap/2";

    fn all(&self) -> Vec<Option<Shown<'_>>> {
        let Self { moving, scale, vec } = self;
        vec![
            show(moving, |sizes| {
                format!("moving {}", Human(sizes.memory_bytes))
            }),
            show(scale, |_| "moving more and more, all in memory".to_owned()),
            show(vec, |sizes| {
                let (to, budget) = (Human(sizes.to_bytes), Human(sizes.budget_bytes));
                format!("pushes up to {to}, PondVec at a budget of {budget}; ms")
            }),
        ]
    }

    fn units(&self, order: &str) -> String {
        format!("moves are µs; Millpond's folios are of order {order}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::part::Skips;
    use crate::summary::Summary;

    fn moved(moving: f64, wrong_pages: u64) -> Vec<moving::Outcome> {
        vec![moving::Outcome {
            moving,
            wrong_pages,
            ..moving::Outcome::default()
        }]
    }

    fn report(rounds: Vec<(Case, Vec<moving::Outcome>)>) -> Summary<RemapParts> {
        let sizes = moving::Sizes {
            memory_bytes: 1 << 30,
            times: 1,
        };
        let parts = RemapParts {
            moving: Some(Part::new(sizes, rounds)),
            ..RemapParts::default()
        };
        Summary::new(1, "4".parse().ok(), [None; 2], parts, Skips::default())
    }

    #[test]
    fn each_offset_is_held_against_both_ways_of_the_kernel() {
        let report = report(vec![
            (Case::Ours { offset: 0 }, moved(2.0, 0)),
            (Case::Ours { offset: 4096 }, moved(4.0, 0)),
            (Case::HalfStored, moved(3.0, 0)),
            (Case::Kernel, moved(3.0, 0)),
            (Case::KernelMisaligned, moved(30.0, 0)),
        ]);
        let moving = report.parts.moving.as_ref().unwrap();
        let ratio = |offset, kernel| moving.ratio("move", Case::Ours { offset }, kernel);
        assert_eq!(ratio(0, Case::Kernel), Some(1.5));
        assert_eq!(ratio(4096, Case::KernelMisaligned), Some(7.5));
        let half = moving.ratio("move", Case::HalfStored, Case::Kernel);
        assert_eq!(half, Some(1.0));
        assert!(report.all_right());
        let text = report.to_string();
        assert!(text.contains("moving 1 GiB"), "{text}");
    }

    #[test]
    fn sizes_are_compared_with_their_like_and_a_wrong_page_is_seen() {
        let run = |place, memory_bytes| Run {
            place,
            memory_bytes,
        };
        let ours = Case::Ours { offset: 0 };
        let rounds = vec![
            (run(ours, 1), moved(1.0, 0)),
            (run(Case::Kernel, 1), moved(2.0, 1)),
            (run(ours, 2), moved(1.0, 0)),
            (run(Case::Kernel, 2), moved(8.0, 0)),
        ];
        let sizes = moving::Scale {
            memory_bytes: vec![1, 2],
        };
        let parts = RemapParts {
            scale: Some(Part::new(sizes, rounds)),
            ..RemapParts::default()
        };
        let report = Summary::new(1, "4".parse().ok(), [None; 2], parts, Skips::default());
        let scale = report.parts.scale.as_ref().unwrap();
        let ratio = |kernel| scale.ratio("move", run(ours, 2), run(Case::Kernel, kernel));
        assert_eq!((ratio(2), ratio(1)), (Some(8.0), None));
        assert!(!report.all_right());
        assert!(report.to_string().contains("WRONG BYTES"));
    }
}
