//! The result of `millpond bench remap`, for programs (JSON) and for people.
//!
//! The JSON object has `schema` = `millpond-bench-remap/1`; later versions only add fields:
//!
//! | field | meaning |
//! | --- | --- |
//! | `machine` | `kernel` release, `cores` |
//! | `load` | the machine's load average of the last minute, before and after |
//! | `rounds` | rounds of each side |
//! | `order` | the order of Millpond's folios, as `--order` takes it |
//! | `move`, `scale`, `vec` | a part: `sizes`, `sides` (each `side`, `median`, `rounds`), `ratios` |
//! | `targets` | what was wanted: `what`, `value`, `wanted` (at least or at most, as `bound` says), `met` |
//! | `skipped` | `what` was left out and `why` |
//!
//! A part that was not asked for is null. The `Outcome` in the part's own file says what its figures are. A `side` is a
//! text, or an object that says how it was run. A ratio is a kernel side's median over Millpond's: how many times
//! faster. Each figure's median is taken by itself; of counts of wrong places and of the resident set it is the
//! highest.

use crate::order::BenchOrder;
use crate::part::{Part, Skips};
use crate::remap::moving::{self, Run};
use crate::remap::place::{self, Place};
use crate::remap::vec;
use crate::summary::Parts;
use crate::target::{Bound, Target};
use millpond_cli::size::Human;
use serde::Serialize;
use std::fmt;

/// All parts that were measured.
#[derive(Clone, Debug, Default, Serialize)]
pub struct RemapParts {
    /// Moves from any offset, and with half of the memory stored.
    #[serde(rename = "move")]
    pub moving: Option<Part<Place, moving::Sizes, moving::Outcome>>,
    /// Moves of more and more memory.
    pub scale: Option<Part<Run, moving::Scale, moving::Outcome>>,
    /// A vector that grows.
    pub vec: Option<Part<vec::Side, vec::Sizes, vec::Outcome>>,
    /// The list of what was left out.
    pub skipped: Skips,
}

impl Parts for RemapParts {
    const SCHEMA: &'static str = "millpond-bench-remap/1";

    fn compare(&mut self) {
        if let Some(moving) = &mut self.moving {
            moving.compare();
        }
        if let Some(scale) = &mut self.scale {
            scale.compare_those(|ours, kernel| ours.memory_bytes == kernel.memory_bytes);
        }
        if let Some(vec) = &mut self.vec {
            vec.compare();
        }
    }

    fn targets(&self, _order: BenchOrder) -> Vec<Target> {
        targets(self)
    }

    fn wrong(&self) -> u64 {
        let Self {
            moving,
            scale,
            vec,
            skipped: _,
        } = self;
        let wrong = [
            moving.as_ref().map(Part::wrong),
            scale.as_ref().map(Part::wrong),
            vec.as_ref().map(Part::wrong),
        ];
        wrong.into_iter().flatten().sum()
    }

    fn skipped(&self) -> &Skips {
        &self.skipped
    }

    fn write(&self, f: &mut fmt::Formatter<'_>, rounds: u16, order: &str) -> fmt::Result {
        writeln!(
            f,
            "medians of {rounds} rounds; moves are µs; Millpond's folios are of order {order}"
        )?;
        if let Some(part) = &self.moving {
            let memory = Human(part.sizes.memory_bytes);
            part.write(f, &format!("moving {memory}"))?;
        }
        if let Some(part) = &self.scale {
            part.write(f, "moving more and more, all in memory")?;
        }
        if let Some(part) = &self.vec {
            let (to, budget) = (Human(part.sizes.to_bytes), Human(part.sizes.budget_bytes));
            let heading = format!("pushes up to {to}, PondVec at a budget of {budget}; ms");
            part.write(f, &heading)?;
        }
        Ok(())
    }
}

/// The targets, as far as the parts were measured.
fn targets(parts: &RemapParts) -> Vec<Target> {
    let mut targets = Vec::new();
    let mut push = |what: String, value: Option<f64>, bound, wanted| {
        targets.extend(value.map(|value| Target::new(what, value, bound, wanted)));
    };
    if let Some(moving) = &parts.moving {
        let resident = place::ALL
            .into_iter()
            .filter(|place| matches!(place, Place::Ours { .. }));
        for place in resident {
            push(
                format!("move {place}: time over the kernel's aligned mremap"),
                moving.ratio("move", place, Place::Kernel).map(f64::recip),
                Bound::AtMost,
                1.0,
            );
            push(
                format!("move {place}: times faster than the kernel's misaligned mremap"),
                moving.ratio("move", place, Place::KernelMisaligned),
                Bound::AtLeast,
                10.0,
            );
        }
        let time = |place| moving.median(place).map(|median| median.moving);
        let value = time(Place::HalfStored).zip(time(Place::Ours { offset: 0 }));
        push(
            "move, half in the store: time over that with all in memory".to_owned(),
            value.map(|(half, all)| half / all),
            Bound::AtMost,
            SAME,
        );
    }
    if let Some(vec) = &parts.vec {
        push(
            "vec: time to the budget over that of the system's allocator".to_owned(),
            vec.ratio("to budget", vec::Side::Pond, vec::Side::System)
                .map(f64::recip),
            Bound::AtMost,
            1.3,
        );
        let pushed = (vec.sizes.to_bytes / vec::NUMBER) as f64;
        push(
            "vec: part of the numbers pushed that was read back right".to_owned(),
            vec.median(vec::Side::Pond)
                .map(|pond| 1.0 - pond.wrong_numbers as f64 / pushed),
            Bound::AtLeast,
            1.0,
        );
    }
    targets
}

/// The largest ratio that is taken for "the same time".
const SAME: f64 = 1.1;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::summary::Summary;

    fn moved(moving: f64, wrong_pages: u64) -> Vec<moving::Outcome> {
        vec![moving::Outcome {
            moving,
            wrong_pages,
            ..moving::Outcome::default()
        }]
    }

    fn report(rounds: Vec<(Place, Vec<moving::Outcome>)>) -> Summary<RemapParts> {
        let sizes = moving::Sizes {
            memory_bytes: 1 << 30,
            times: 1,
        };
        let parts = RemapParts {
            moving: Some(Part::new(sizes, rounds)),
            ..RemapParts::default()
        };
        Summary::new(1, "4".parse().unwrap(), [None, None], parts)
    }

    #[test]
    fn each_offset_is_held_against_both_ways_of_the_kernel() {
        let report = report(vec![
            (Place::Ours { offset: 0 }, moved(2.0, 0)),
            (Place::Ours { offset: 4096 }, moved(4.0, 0)),
            (Place::HalfStored, moved(3.0, 0)),
            (Place::Kernel, moved(3.0, 0)),
            (Place::KernelMisaligned, moved(30.0, 0)),
        ]);
        let met: Vec<bool> = report.targets.iter().map(|target| target.met).collect();
        assert_eq!(met, [true, true, false, false, false]);
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
        let ours = Place::Ours { offset: 0 };
        let rounds = vec![
            (run(ours, 1), moved(1.0, 0)),
            (run(Place::Kernel, 1), moved(2.0, 1)),
            (run(ours, 2), moved(1.0, 0)),
            (run(Place::Kernel, 2), moved(8.0, 0)),
        ];
        let sizes = moving::Scale {
            memory_bytes: vec![1, 2],
        };
        let parts = RemapParts {
            scale: Some(Part::new(sizes, rounds)),
            ..RemapParts::default()
        };
        let report = Summary::new(1, "4".parse().unwrap(), [None, None], parts);
        let scale = report.parts.scale.as_ref().unwrap();
        let ratio = |kernel| scale.ratio("move", run(ours, 2), run(Place::Kernel, kernel));
        assert_eq!((ratio(2), ratio(1)), (Some(8.0), None));
        assert!(!report.all_right());
        assert!(report.to_string().contains("WRONG BYTES"));
    }
}
