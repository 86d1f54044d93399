//! `millpond bench remap`: moving memory, beside the kernel's `mremap` and a vector of the system's allocator.
//!
//! | part | question | file |
//! | --- | --- | --- |
//! | `move` | what does it cost to move memory that is all mapped, from any offset? And if half of it is in the store? | [`moving`](mod@moving) |
//! | `scale` | does that grow with the pages, or with the tables that hold them? | [`moving`](mod@moving) |
//! | `vec` | what does it cost to grow a vector by pushes, up to the budget and beyond? | [`mod@vec`] |
//!
//! As in the other benchmarks each measurement is a fresh process, and the sides of a part take turns in every round.

mod case;
mod kernel;
mod moving;
mod report;
mod vec;

use crate::bench::{self, Asked, Bench};
use crate::error::BenchError;
use crate::memory;
use crate::order::BenchOrder;
use crate::part::Part;
use crate::worker::say_measured;
use case::Case;
use millpond_cli::size::Human;
use report::RemapParts;

/// `millpond bench remap`'s arguments.
#[derive(clap::Args, Debug)]
pub struct RemapArgs {
    #[command(flatten)]
    asked: Asked<Name>,
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
enum Name {
    /// Memory at any offset, all of it in memory or half of it in the store
    Move,
    /// Memory of growing size
    Scale,
    /// A vector that grows by pushes
    Vec,
}

impl bench::Name for Name {}

/// One measured process of this benchmark.
#[derive(clap::Subcommand, Debug)]
pub enum RemapWorker {
    /// Move memory
    Move {
        /// The side whose memory is moved, and where the memory is
        place: Case,
        /// The order of Millpond's folios
        #[arg(long)]
        order: BenchOrder,
        #[command(flatten)]
        sizes: moving::Sizes,
    },
    /// Let a vector grow by pushes
    Vec {
        /// The side whose vector grows
        side: vec::Side,
        /// The order of Millpond's folios
        #[arg(long)]
        order: BenchOrder,
        #[command(flatten)]
        sizes: vec::Sizes,
    },
}

/// Measures and prints. Returns 1 when memory held wrong bytes.
///
/// # Errors
/// When a worker fails, or a signal asked for the end.
pub fn remap(args: &RemapArgs) -> Result<u8, BenchError> {
    Bench::run(&args.asked, Some(args.order), |bench, part| match part {
        Name::Move => moving(bench, args),
        Name::Scale => scale(bench, args),
        Name::Vec => vec(bench, args),
    })
}

fn moving(bench: &mut Bench<RemapParts>, args: &RemapArgs) -> Result<(), BenchError> {
    let sizes = args.moving;
    let rounds = bench.processes(&case::ALL, |case| {
        args.worker_of("move", &case, sizes.to_arguments())
    })?;
    bench.parts.moving = Some(Part::new(sizes, rounds));
    Ok(())
}

fn scale(bench: &mut Bench<RemapParts>, args: &RemapArgs) -> Result<(), BenchError> {
    let mut runs = Vec::new();
    for &memory_bytes in &args.scale.memory_bytes {
        match memory::room_for(memory_bytes) {
            Ok(()) => {
                runs.extend(
                    [Case::Ours { offset: 0 }, Case::Kernel].map(|place| moving::Run {
                        place,
                        memory_bytes,
                    }),
                )
            }
            Err(why) => {
                let what = format!("scale at {}", Human(memory_bytes));
                bench.skipped.note(&what, &why);
            }
        }
    }
    let rounds = bench.processes(&runs, |run| {
        let sizes = moving::Sizes {
            memory_bytes: run.memory_bytes,
            ..args.moving
        };
        args.worker_of("move", &run.place, sizes.to_arguments())
    })?;
    bench.parts.scale = Some(Part::new(args.scale.clone(), rounds));
    Ok(())
}

fn vec(bench: &mut Bench<RemapParts>, args: &RemapArgs) -> Result<(), BenchError> {
    let sizes = args.vec;
    let rounds = bench.processes(&[vec::Side::Pond, vec::Side::System], |side| {
        args.worker_of("vec", &side, sizes.to_arguments())
    })?;
    bench.parts.vec = Some(Part::new(sizes, rounds));
    Ok(())
}

impl RemapArgs {
    fn worker_of(&self, part: &str, side: &impl ToString, sizes: Vec<String>) -> Vec<String> {
        let (side, order) = (side.to_string(), self.order.to_string());
        let mut arguments = ["remap", part, &side, "--order", &order]
            .map(str::to_owned)
            .to_vec();
        arguments.extend(sizes);
        arguments
    }
}

/// Does the work of the measured process, and prints what it measured as JSON.
///
/// # Errors
/// When the process cannot get its memory, or print.
pub fn work(command: &RemapWorker) -> Result<(), BenchError> {
    match command {
        RemapWorker::Move {
            place,
            order,
            sizes,
        } => say_measured(moving::work(*place, *order, sizes)),
        RemapWorker::Vec { side, order, sizes } => say_measured(vec::work(*side, *order, sizes)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_options_are_the_same() {
        use clap::{Args, Subcommand};
        RemapArgs::augment_args(clap::Command::new("remap")).debug_assert();
        RemapWorker::augment_subcommands(clap::Command::new("worker")).debug_assert();
    }
}
