//! `millpond bench free`: giving much memory back, beside `munmap`.
//!
//! | part | question | file |
//! | --- | --- | --- |
//! | `blocked` | how long does the caller wait, what does it cost altogether, and who else has to wait? | [`blocked`](mod@blocked) |
//! | `cycle` | what does it cost to give memory back and to touch as much again? | [`cycle`](mod@cycle) |
//! | `unmap` | how long does a program wait in `munmap` that runs under Millpond unchanged? | [`unmap`](mod@unmap) |
//!
//! As in the other benchmarks each measurement is a fresh process, and the sides of a part take turns in every round.

mod blocked;
mod cycle;
mod report;
mod side;
mod unmap;
mod watch;

use crate::bench::{self, Asked, Bench};
use crate::error::BenchError;
use crate::order::BenchOrder;
use crate::part::Part;
use crate::worker::say_measured;
use crate::{mapping, memory, under_run};
use millpond_cli::size::Human;
use report::FreeParts;
use side::Side;

/// `millpond bench free`'s arguments.
#[derive(clap::Args, Debug)]
pub struct FreeArgs {
    #[command(flatten)]
    asked: Asked<Name>,
    /// The order of Millpond's folios in all parts
    #[arg(long, default_value = "4")]
    order: BenchOrder,
    #[command(flatten)]
    blocked: blocked::Sizes,
    #[command(flatten)]
    cycle: cycle::Sizes,
    #[command(flatten)]
    unmap: unmap::Sizes,
}

/// A part of the benchmark.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
enum Name {
    /// Much memory that is given back at once
    Blocked,
    /// Memory that is given back and touched again
    Cycle,
    /// A program that calls `munmap`
    Unmap,
}

impl bench::Name for Name {}

/// One measured process of this benchmark.
#[derive(clap::Subcommand, Debug)]
pub enum FreeWorker {
    /// Give much memory back at once
    Blocked {
        /// The side whose memory is given back, and the way in which it is
        side: Side,
        /// The order of Millpond's folios
        #[arg(long)]
        order: BenchOrder,
        #[command(flatten)]
        sizes: blocked::Sizes,
    },
    /// Give memory back and touch it again
    Cycle {
        /// The side whose memory is given back, and the way in which it is
        side: Side,
        /// The order of Millpond's folios
        #[arg(long)]
        order: BenchOrder,
        #[command(flatten)]
        sizes: cycle::Sizes,
    },
    /// Run the program that calls `munmap`
    Unmap {
        #[command(flatten)]
        sizes: unmap::Sizes,
    },
}

/// Measures and prints. Returns 1 when memory held wrong bytes.
///
/// # Errors
/// When a worker fails, or a signal asked for the end.
pub fn free(args: &FreeArgs) -> Result<u8, BenchError> {
    Bench::run(&args.asked, Some(args.order), |bench, part| match part {
        Name::Blocked => blocked(bench, args),
        Name::Cycle => cycle(bench, args),
        Name::Unmap => unmap(bench, args),
    })
}

fn blocked(bench: &mut Bench<FreeParts>, args: &FreeArgs) -> Result<(), BenchError> {
    let mut sizes = args.blocked;
    if let Err(why) = memory::room_for(sizes.memory_bytes) {
        let what = format!("blocked at {}", Human(sizes.memory_bytes));
        bench.skipped.note(&what, &why);
        sizes.memory_bytes = memory::halved_to_fit(sizes.memory_bytes)?;
    }
    let rounds = bench.processes(&blocked::SIDES, |side| {
        args.worker_of("blocked", side, &sizes.to_arguments())
    })?;
    bench.parts.blocked = Some(Part::new(sizes, rounds));
    Ok(())
}

fn cycle(bench: &mut Bench<FreeParts>, args: &FreeArgs) -> Result<(), BenchError> {
    let sizes = args.cycle;
    let mut sides = vec![Side::Discard, Side::FreeAsync, Side::Kernel];
    match mapping::huge_pages() {
        Ok(()) => sides.push(Side::KernelHuge),
        Err(why) => bench.skipped.note("cycle, the kernel's huge pages", &why),
    }
    let rounds = bench.processes(&sides, |side| {
        args.worker_of("cycle", side, &sizes.to_arguments())
    })?;
    bench.parts.cycle = Some(Part::new(sizes, rounds));
    Ok(())
}

fn unmap(bench: &mut Bench<FreeParts>, args: &FreeArgs) -> Result<(), BenchError> {
    let sizes = args.unmap;
    let mut runs = vec![unmap::Run::Run, unmap::Run::Kernel];
    if let Err(why) = under_run::can_run() {
        bench.skipped.note("unmap under millpond run", &why);
        runs.remove(0);
    }
    let rounds = bench.rounds(&runs, |bench, run| {
        unmap::measure(&bench.workers, run, args.order, &sizes)
    })?;
    bench.parts.unmap = Some(Part::new(sizes, rounds));
    Ok(())
}

impl FreeArgs {
    fn worker_of(&self, part: &str, side: Side, sizes: &[String]) -> Vec<String> {
        let (side, order) = (side.to_string(), self.order.to_string());
        let mut arguments = ["free", part, &side, "--order", &order]
            .map(str::to_owned)
            .to_vec();
        arguments.extend_from_slice(sizes);
        arguments
    }
}

/// Does the work of the measured process, and prints what it measured as JSON.
///
/// # Errors
/// When the process cannot get its memory, or print.
pub fn work(command: &FreeWorker) -> Result<(), BenchError> {
    match command {
        FreeWorker::Blocked { side, order, sizes } => {
            say_measured(blocked::work(*side, *order, sizes))
        }
        FreeWorker::Cycle { side, order, sizes } => say_measured(cycle::work(*side, *order, sizes)),
        FreeWorker::Unmap { sizes } => say_measured(unmap::work(sizes)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_options_are_the_same() {
        use clap::{Args, Subcommand};
        FreeArgs::augment_args(clap::Command::new("free")).debug_assert();
        FreeWorker::augment_subcommands(clap::Command::new("worker")).debug_assert();
    }
}
