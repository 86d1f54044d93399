//! `millpond bench run`: a program of your own in less memory than it takes, under Millpond and under the kernel.
//!
//! | side | what keeps it within its memory | where the rest goes |
//! | --- | --- | --- |
//! | `unlimited` | nothing | |
//! | `millpond` | `millpond run`, a budget for each process, the store's memory inside | `--store` |
//! | `kernel_file` | a memory cgroup for all processes together | a swap file in `--swap-directory` |
//! | `kernel_zram` | the same | zram with lz4, whose memory is in no group: it comes on top |
//! | `kernel_zram_inside` | the same, and what zram takes is taken off its limit every 10 ms | the same |
//!
//! `kernel_zram` is what an operator has who sets up zram for the machine. `kernel_zram_inside` answers the question
//! that `millpond` answers: how fast is the program when memory *and* compressed memory have this much together? An
//! eighth of the limit always stays with the program.
//!
//! The program runs twice without a limit before anything is measured. Every other run is compared with what it prints
//! then, and how it ends. A program that does not print the same twice cannot be compared, and the result says so. A
//! quarter of its peak is the limit, unless `--ram` gives another. The parts of files that the
//! program has read are in the page cache by then, and charged to no group. So the program's code in that cache costs
//! the kernel's sides nothing, and Millpond's side what it costs any process.

mod kernel;
mod program;
mod report;
mod side;

use crate::error::{BenchError, Skip};
use crate::guard::Guard;
use crate::order::BenchOrder;
use crate::part::{Contender, Part, Skips, is_asked_for};
use crate::rounds::{Rounds, load_average};
use crate::summary::Summary;
use crate::under_run;
use crate::worker::Workers;
use millpond_cli::run::StoreChoice;
use millpond_cli::size;
use program::Ran;
pub use program::{Job, work};
use report::{Expected, RunParts, Sizes};
use side::{SIDES, Side};
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Command;

/// The divisor that makes the limit from what the program takes, unless `--ram` says otherwise.
const QUARTER: u64 = 4;
/// Bytes of swap for each byte that the program takes without a limit. The factor is more than one, because a tree's
/// processes are measured apart.
const SWAP_TIMES: u64 = 3;
/// The least amount of swap.
const SWAP_LEAST: u64 = 256 << 20;
/// Free memory that the program finds, for each byte that it takes: the byte itself, and what a store keeps of it.
const WARM_TIMES: u64 = 2;

/// `millpond bench run`'s arguments.
#[derive(clap::Args, Debug)]
pub struct RunArgs {
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
    /// How often each side is measured
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=1000))]
    rounds: u16,
    /// Measure these sides alone
    #[arg(long, value_name = "SIDE,...", value_delimiter = ',')]
    only: Vec<Side>,
    /// The memory for the program; without this option it is a quarter of what the program takes without a limit
    #[arg(long, value_name = "SIZE", value_parser = size::parse_ram)]
    ram: Option<u64>,
    /// Millpond's store, as `millpond run` takes it
    #[arg(long, value_name = "auto|zram|file[:PATH]", default_value = "auto", value_parser = StoreChoice::parse)]
    store: StoreChoice,
    /// The order of Millpond's folios
    #[arg(long, default_value = "adaptive")]
    order: BenchOrder,
    /// The directory in which the kernel's swap file is made
    #[arg(long, value_name = "DIRECTORY", default_value = "/var/tmp")]
    swap_directory: PathBuf,
    /// The program and its arguments; its standard input is empty
    #[arg(
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "PROGRAM"
    )]
    program: Vec<OsString>,
}

/// Measures, puts everything back, and prints. Returns 1 when the program did not print what it prints without a limit,
/// or failed under Millpond.
///
/// # Errors
/// When the program cannot be started, something cannot be put back, or a signal asked for the end.
pub fn run(args: &RunArgs) -> Result<u8, BenchError> {
    let workers = Workers::new().map_err(BenchError::Start)?;
    let mut bench = Bench {
        args,
        workers,
        guard: Guard::acquire_if_root()?,
        ram: args.ram.unwrap_or(size::MIN_RAM),
        swap_bytes: SWAP_LEAST,
        skipped: Skips::default(),
    };
    let should = Expected::of([
        bench.measure(Side::Unlimited)?,
        bench.measure(Side::Unlimited)?,
    ]);
    let peak = should.peak_rss_bytes;
    if args.ram.is_none() {
        bench.ram = (peak / QUARTER)
            .next_multiple_of(1 << 20)
            .max(size::MIN_RAM);
    }
    bench.workers.take(WARM_TIMES * peak);
    bench.swap_bytes = (SWAP_TIMES * peak)
        .next_multiple_of(1 << 20)
        .max(SWAP_LEAST);
    let sides = bench.sides()?;
    let load = load_average();
    let mut rounds = Rounds::new(&sides, args.rounds);
    rounds.run(|side| Ok(should.judge(side, &bench.measure(side)?)))?;
    let Bench {
        workers,
        guard,
        ram,
        skipped,
        ..
    } = bench;
    guard.map_or(Ok(()), Guard::finish)?;
    workers.check()?;
    let words = args.program.iter().map(|word| word.to_string_lossy());
    let sizes = Sizes {
        ram_bytes: ram,
        peak_rss_bytes: peak,
        is_repeatable: should.is_repeatable,
        program: words.map(String::from).collect(),
        store: args.store.to_variable().to_string_lossy().into_owned(),
    };
    let parts = RunParts {
        program: Some(Part::new(sizes, rounds.done)),
    };
    let load = [load, load_average()];
    Summary::new(args.rounds, Some(args.order), load, parts, skipped).conclude(args.json)
}

struct Bench<'a> {
    args: &'a RunArgs,
    workers: Workers,
    guard: Option<Guard>,
    ram: u64,
    swap_bytes: u64,
    skipped: Skips,
}

impl Bench<'_> {
    /// The sides that were asked for and that this machine can do. Notes each other side.
    fn sides(&mut self) -> Result<Vec<Side>, BenchError> {
        let mut sides = Vec::new();
        for side in SIDES {
            if !is_asked_for(&self.args.only, side) {
                continue;
            }
            match self.try_out(side) {
                Ok(()) => sides.push(side),
                Err(BenchError::Skipped(why)) => self.skipped.note(&side.to_string(), &why),
                Err(error) => return Err(error),
            }
        }
        Ok(sides)
    }

    fn try_out(&mut self, side: Side) -> Result<(), BenchError> {
        if side == Side::Millpond {
            return Ok(under_run::can_run()?);
        }
        let tried = self.set_up(side).map(drop);
        // This also puts back what was made before it turned out that the side cannot run.
        if let Some(guard) = &mut self.guard {
            guard.put_back()?;
        }
        tried
    }

    fn set_up(&mut self, side: Side) -> Result<kernel::Setting, BenchError> {
        match &mut self.guard {
            Some(guard) => {
                let directory = &self.args.swap_directory;
                kernel::set_up(guard, side, self.ram, self.swap_bytes, directory)
            }
            None if side.is_kernel() => {
                Err(Skip("making swap and cgroups needs root".to_owned()).into())
            }
            None => Ok(kernel::Setting::default()),
        }
    }

    /// Makes one run, in a setting of its own.
    fn measure(&mut self, side: Side) -> Result<Ran, BenchError> {
        let setting = self.set_up(side)?;
        let mut command = Command::new("/proc/self/exe");
        command.args(["worker", "program", &side.to_string()]);
        command.args(["--ram", &self.ram.to_string()]);
        command.arg("--store").arg(self.args.store.to_variable());
        command.args(["--order", &self.args.order.to_string()]);
        if let Some(group) = &setting.group {
            command.arg("--group").arg(group);
        }
        if let Some(id) = setting.zram_inside {
            command.args(["--zram", &id.to_string()]);
        }
        command.arg("--").args(&self.args.program);
        let guard = &mut self.guard;
        let ran = self.workers.measure_command(command, |pid, start| {
            guard.as_mut().map_or(Ok(()), |guard| {
                guard.record(|made| made.worker = Some((pid, start)))
            })
        })?;
        if let Some(guard) = &mut self.guard {
            guard.put_back()?;
        }
        Ok(ran)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_options_are_the_same() {
        use clap::Args;
        RunArgs::augment_args(clap::Command::new("run")).debug_assert();
        Job::augment_args(clap::Command::new("worker")).debug_assert();
    }
}
