//! `millpond bench remap`: moving memory, compared with the kernel's `mremap` and a vector of the system's allocator.
//!
//! | part | question | file |
//! | --- | --- | --- |
//! | `move` | what does it cost to move memory, all mapped at any offset, or half stored? | [`moving`](mod@moving) |
//! | `scale` | does that cost grow with the pages, or with their page tables? | [`moving`](mod@moving) |
//! | `vec` | what does it cost to grow a vector by pushes, up to the budget and beyond? | [`mod@vec`] |
//!
//! As in the other benchmarks, each measurement is a fresh process, and the sides of a part take turns in each round.

mod case;
mod kernel;
pub mod moving;
pub mod vec;

use crate::bench::{Asked, Bench, Parts};
use crate::error::BenchError;
use crate::jobs::Job;
use crate::memory;
use crate::order::BenchOrder;
pub use case::Case;
use millpond_cli::size::Human;

/// `millpond bench remap`'s arguments.
#[derive(clap::Args, Debug)]
pub struct RemapArgs {
    #[command(flatten)]
    asked: Asked<Part>,
    /// The order of Millpond's folios in all parts
    #[arg(long, default_value = "4")]
    order: BenchOrder,
    #[command(flatten)]
    moving: moving::Sizes,
    #[command(flatten)]
    scale: moving::Scale,
    #[command(flatten)]
    vec: vec::Sizes,
}

/// A part of the benchmark.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
enum Part {
    /// Move memory at any offset, all of it in memory or half of it in the store
    Move,
    /// Move memory of growing size
    Scale,
    /// Grow a vector by pushes
    Vec,
}

impl Parts for Part {
    const SCHEMA: &'static str = "millpond-bench-remap/2";

    fn units(order: &str) -> String {
        format!("moves are µs; Millpond's folios are of order {order}")
    }
}

/// Measures and prints. Returns 1 when memory had wrong contents.
///
/// # Errors
/// When a worker fails, or a signal ended the benchmark.
pub fn remap(args: &RemapArgs) -> Result<u8, BenchError> {
    let order = args.order;
    Bench::run(&args.asked, Some(order), |bench, part| match part {
        Part::Move => {
            let sizes = args.moving;
            let heading = format!("moving {}", Human(sizes.memory_bytes));
            let job = |case| Job::RemapMove(case, order, sizes);
            bench.processes::<moving::Outcome, _, _>(part, heading, sizes, &case::ALL, job)
        }
        Part::Scale => scale(bench, args),
        Part::Vec => {
            let sizes = args.vec;
            let (to, budget) = (Human(sizes.to_bytes), Human(sizes.budget_bytes));
            let heading = format!("pushes up to {to}, PondVec at a budget of {budget}; ms");
            let sides = [vec::Side::Pond, vec::Side::System];
            let job = |side| Job::RemapVec(side, order, sizes);
            bench.processes::<vec::Outcome, _, _>(part, heading, sizes, &sides, job)
        }
    })
}

fn scale(bench: &mut Bench, args: &RemapArgs) -> Result<(), BenchError> {
    let mut runs = Vec::new();
    for &memory_bytes in &args.scale.memory_bytes {
        let what = format!("scale at {}", Human(memory_bytes));
        if bench.can(&what, memory::room_for(memory_bytes)) {
            let places = [Case::Ours { offset: 0 }, Case::Kernel];
            runs.extend(places.map(|place| moving::Run {
                place,
                memory_bytes,
            }));
        }
    }
    let heading = "moving more and more, all in memory".to_owned();
    let job = |run: moving::Run| {
        let sizes = moving::Sizes {
            memory_bytes: run.memory_bytes,
            ..args.moving
        };
        Job::RemapMove(run.place, args.order, sizes)
    };
    bench.processes::<moving::Outcome, _, _>(Part::Scale, heading, args.scale.clone(), &runs, job)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::comparison::{Comparison, Table};

    fn moved(moving: f64, wrong_pages: u64) -> Vec<moving::Outcome> {
        vec![moving::Outcome {
            moving,
            wrong_pages,
            ..moving::Outcome::default()
        }]
    }

    #[test]
    fn each_offset_is_compared_with_both_kernel_methods() {
        let moving = Comparison::new(
            (),
            vec![
                (Case::Ours { offset: 0 }, moved(2.0, 0)),
                (Case::Ours { offset: 4096 }, moved(4.0, 0)),
                (Case::HalfStored, moved(3.0, 0)),
                (Case::Kernel, moved(3.0, 0)),
                (Case::KernelMisaligned, moved(30.0, 0)),
            ],
        );
        let ratio = |offset, kernel| moving.ratio("move", Case::Ours { offset }, kernel);
        assert_eq!(ratio(0, Case::Kernel), Some(1.5));
        assert_eq!(ratio(4096, Case::KernelMisaligned), Some(7.5));
        let half = moving.ratio("move", Case::HalfStored, Case::Kernel);
        assert_eq!(half, Some(1.0));
        assert_eq!(moving.wrong(), 0);
    }

    #[test]
    fn equal_sizes_are_compared_and_a_wrong_page_is_counted() {
        let run = |place, memory_bytes| moving::Run {
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
        let scale = Comparison::new((), rounds);
        let ratio = |kernel| scale.ratio("move", run(ours, 2), run(Case::Kernel, kernel));
        assert_eq!((ratio(2), ratio(1)), (Some(8.0), None));
        assert_eq!(scale.wrong(), 1);
    }
}
