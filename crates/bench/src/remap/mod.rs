//! `millpond bench remap`: moving memory, beside the kernel's `mremap` and a vector of the system's allocator.
//!
//! | part | question | file |
//! | --- | --- | --- |
//! | `move` | what does it cost to move memory that is all mapped, from any offset? And if half of it is in the store? | [`moving`] |
//! | `scale` | does that grow with the pages, or with the tables that hold them? | [`moving`] |
//! | `vec` | what does it cost to grow a vector by pushes, up to the budget and beyond? | [`mod@vec`] |
//!
//! As in the other benchmarks each measurement is a fresh process, and the sides of a part take turns in every round.

mod kernel;
mod moving;
mod place;
mod report;
mod vec;

use crate::error::BenchError;
use crate::guard::Guard;
use crate::memory;
use crate::order::BenchOrder;
use crate::part::{Part, is_asked_for};
use crate::rounds::{Rounds, load_average};
use crate::summary::Summary;
use crate::worker::{Workers, say_measured};
use place::Place;
use report::RemapParts;

/// `millpond bench remap`'s arguments.
#[derive(clap::Args, Debug)]
pub struct RemapArgs {
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
    /// How often each side is measured
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=1000))]
    rounds: u16,
    /// Measure these parts alone
    #[arg(long, value_name = "PART,...", value_delimiter = ',')]
    only: Vec<Name>,
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

const PARTS: [Name; 3] = [Name::Move, Name::Scale, Name::Vec];

/// One measured process of this benchmark.
#[derive(clap::Subcommand, Debug)]
pub enum RemapWorker {
    /// Move memory
    Move {
        /// The side whose memory is moved, and where the memory is
        place: Place,
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

/// Measures and prints. Returns 1 when memory held what it must not.
///
/// # Errors
/// When a worker fails, or a signal asked for the end.
pub fn remap(args: &RemapArgs) -> Result<u8, BenchError> {
    let workers = Workers::new().map_err(BenchError::Start)?;
    // Nothing of the machine is changed; root takes the lock all the same, so that no two benchmarks disturb each
    // other.
    let guard = Guard::acquire_if_root()?;
    let mut bench = Bench {
        args,
        workers,
        parts: RemapParts::default(),
    };
    let load = load_average();
    for part in PARTS {
        if !is_asked_for(&args.only, part) {
            continue;
        }
        match part {
            Name::Move => bench.moving()?,
            Name::Scale => bench.scale()?,
            Name::Vec => bench.vec()?,
        }
    }
    guard.map_or(Ok(()), Guard::finish)?;
    bench.workers.check()?;
    let report = Summary::new(args.rounds, args.order, [load, load_average()], bench.parts);
    report.conclude(args.json)
}

struct Bench<'a> {
    args: &'a RemapArgs,
    workers: Workers,
    parts: RemapParts,
}

impl Bench<'_> {
    fn move_once(&self, place: Place, sizes: moving::Sizes) -> Result<moving::Outcome, BenchError> {
        let mut arguments = self.worker_of("move", &place);
        arguments.extend(sizes.to_arguments());
        self.workers.measure(&arguments, |_, _| Ok(()))
    }

    fn moving(&mut self) -> Result<(), BenchError> {
        let sizes = self.args.moving;
        let mut rounds = Rounds::new(&place::ALL, self.args.rounds);
        rounds.run(|place| self.move_once(place, sizes))?;
        self.parts.moving = Some(Part::new(sizes, rounds.done));
        Ok(())
    }

    fn scale(&mut self) -> Result<(), BenchError> {
        let mut runs = Vec::new();
        for &memory_bytes in &self.args.scale.memory_bytes {
            match memory::room_for(memory_bytes) {
                Ok(()) => runs.extend([Place::Ours { offset: 0 }, Place::Kernel].map(|place| {
                    moving::Run {
                        place,
                        memory_bytes,
                    }
                })),
                Err(why) => {
                    let what = format!("scale at {}", millpond_cli::size::Human(memory_bytes));
                    self.parts.skipped.note(&what, &why);
                }
            }
        }
        let mut rounds = Rounds::new(&runs, self.args.rounds);
        rounds.run(
            |moving::Run {
                 place,
                 memory_bytes,
             }| {
                let sizes = moving::Sizes {
                    memory_bytes,
                    ..self.args.moving
                };
                self.move_once(place, sizes)
            },
        )?;
        self.parts.scale = Some(Part::new(self.args.scale.clone(), rounds.done));
        Ok(())
    }

    fn vec(&mut self) -> Result<(), BenchError> {
        let sizes = self.args.vec;
        let mut rounds = Rounds::new(&[vec::Side::Pond, vec::Side::System], self.args.rounds);
        rounds.run(|side| {
            let mut arguments = self.worker_of("vec", &side);
            arguments.extend(sizes.to_arguments());
            self.workers.measure(&arguments, |_, _| Ok(()))
        })?;
        self.parts.vec = Some(Part::new(sizes, rounds.done));
        Ok(())
    }

    fn worker_of(&self, part: &str, side: &impl ToString) -> Vec<String> {
        let (side, order) = (side.to_string(), self.args.order.to_string());
        ["remap", part, &side, "--order", &order]
            .map(str::to_owned)
            .to_vec()
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
