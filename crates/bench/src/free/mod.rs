//! `millpond bench free`: giving much memory back, beside `munmap`.
//!
//! | part | question | file |
//! | --- | --- | --- |
//! | `blocked` | how long does the caller wait, what does it cost altogether, and who else has to wait? | [`blocked`] |
//! | `cycle` | what does it cost to give memory back and to touch as much again? | [`cycle`] |
//! | `unmap` | how long does a program wait in `munmap` that runs under Millpond unchanged? | [`unmap`] |
//!
//! As in the other benchmarks each measurement is a fresh process, and the sides of a part take turns in every round.

mod blocked;
mod cycle;
mod report;
mod side;
mod unmap;
mod watch;

use crate::error::BenchError;
use crate::guard::Guard;
use crate::order::BenchOrder;
use crate::part::{Part, is_asked_for};
use crate::rounds::{Rounds, load_average};
use crate::summary::Summary;
use crate::worker::{Workers, say_measured};
use crate::{mapping, memory, under_run};
use millpond_cli::size::Human;
use report::FreeParts;
use side::Side;

/// `millpond bench free`'s arguments.
#[derive(clap::Args, Debug)]
pub struct FreeArgs {
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

const PARTS: [Name; 3] = [Name::Blocked, Name::Cycle, Name::Unmap];

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

/// Measures and prints. Returns 1 when memory held what it must not.
///
/// # Errors
/// When a worker fails, or a signal asked for the end.
pub fn free(args: &FreeArgs) -> Result<u8, BenchError> {
    let workers = Workers::new().map_err(BenchError::Start)?;
    // Nothing of the machine is changed; root takes the lock all the same, so that no two benchmarks disturb each
    // other.
    let guard = Guard::acquire_if_root()?;
    let mut bench = Bench {
        args,
        workers,
        parts: FreeParts::default(),
    };
    let load = load_average();
    for part in PARTS {
        if !is_asked_for(&args.only, part) {
            continue;
        }
        match part {
            Name::Blocked => bench.blocked()?,
            Name::Cycle => bench.cycle()?,
            Name::Unmap => bench.unmap()?,
        }
    }
    guard.map_or(Ok(()), Guard::finish)?;
    bench.workers.check()?;
    let report = Summary::new(args.rounds, args.order, [load, load_average()], bench.parts);
    report.conclude(args.json)
}

struct Bench<'a> {
    args: &'a FreeArgs,
    workers: Workers,
    parts: FreeParts,
}

impl Bench<'_> {
    fn blocked(&mut self) -> Result<(), BenchError> {
        let mut sizes = self.args.blocked;
        if let Err(why) = memory::room_for(sizes.memory_bytes) {
            let what = format!("blocked at {}", Human(sizes.memory_bytes));
            self.parts.skipped.note(&what, &why);
            sizes.memory_bytes = memory::halved_to_fit(sizes.memory_bytes)?;
        }
        let mut rounds = Rounds::new(&blocked::SIDES, self.args.rounds);
        rounds.run(|side| {
            let arguments = self.worker_of("blocked", side, &sizes.to_arguments());
            self.workers.measure(&arguments, |_, _| Ok(()))
        })?;
        self.parts.blocked = Some(Part::new(sizes, rounds.done));
        Ok(())
    }

    fn cycle(&mut self) -> Result<(), BenchError> {
        let sizes = self.args.cycle;
        let mut sides = vec![Side::Discard, Side::FreeAsync, Side::Kernel];
        match mapping::huge_pages() {
            Ok(()) => sides.push(Side::KernelHuge),
            Err(why) => self
                .parts
                .skipped
                .note("cycle, the kernel's huge pages", &why),
        }
        let mut rounds = Rounds::new(&sides, self.args.rounds);
        rounds.run(|side| {
            let arguments = self.worker_of("cycle", side, &sizes.to_arguments());
            self.workers.measure(&arguments, |_, _| Ok(()))
        })?;
        self.parts.cycle = Some(Part::new(sizes, rounds.done));
        Ok(())
    }

    fn unmap(&mut self) -> Result<(), BenchError> {
        let sizes = self.args.unmap;
        let mut runs = vec![unmap::Run::Run, unmap::Run::Kernel];
        if let Err(why) = under_run::can_run() {
            self.parts.skipped.note("unmap under millpond run", &why);
            runs.remove(0);
        }
        let mut rounds = Rounds::new(&runs, self.args.rounds);
        rounds.run(|run| unmap::measure(&self.workers, run, self.args.order, &sizes))?;
        self.parts.unmap = Some(Part::new(sizes, rounds.done));
        Ok(())
    }

    fn worker_of(&self, part: &str, side: Side, sizes: &[String]) -> Vec<String> {
        let (side, order) = (side.to_string(), self.args.order.to_string());
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
