//! `millpond bench lazyfree`: giving memory back lazily, Millpond's way beside the kernel's.
//!
//! | part | question | file |
//! | --- | --- | --- |
//! | `cycle` | what do freeing and using again cost while nobody is short of memory? | [`cycle`] |
//! | `workers` | is freed memory ever read back from the store when memory is short? | [`workers`] |
//! | `ebizzy` | how much does a program gain if its allocator frees lazily? | [`ebizzy`] |
//! | `rss` | are the reported sizes true? | [`rss`] |
//!
//! As in the swap benchmark each measurement is a fresh process, and the sides of a part take turns in every round.

mod cycle;
mod decay;
mod ebizzy;
mod kernel;
mod memory;
mod ours;
mod report;
mod rss;
mod side;
mod workers;

use crate::error::{BenchError, Skip};
use crate::guard::Guard;
use crate::kernel_swap::KernelSwap;
use crate::part::is_asked_for;
use crate::phases::Work;
use crate::place::Place;
use crate::rounds::{Rounds, load_average, options, parse_pages, print};
use crate::under_run;
use crate::worker::{Workers, say_measured};
use memory::Side;
use report::{Ebizzy, LazyFreeReport, Parts, Rss, Sides};
use std::path::PathBuf;

/// `millpond bench lazyfree`'s arguments.
#[derive(clap::Args, Debug)]
pub struct LazyFreeArgs {
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
    /// How often each side is measured
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=1000))]
    rounds: u16,
    /// Measure these parts alone
    #[arg(long, value_name = "PART,...", value_delimiter = ',')]
    only: Vec<Part>,
    #[command(flatten)]
    cycle: cycle::Sizes,
    #[command(flatten)]
    workers: workers::Sizes,
    #[command(flatten)]
    ebizzy: ebizzy::Sizes,
    #[command(flatten)]
    rss: rss::Sizes,
}

/// A part of the benchmark.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
enum Part {
    /// Chunks that are freed and rewritten, all in memory
    Cycle,
    /// Worker threads that fill and free twice the budget
    Workers,
    /// A program that allocates, under `millpond run`
    Ebizzy,
    /// The resident sizes that Millpond and the kernel report
    Rss,
}

/// One measured process of this benchmark.
#[derive(clap::Subcommand, Debug)]
pub enum LazyFreeWorker {
    /// Free chunks and rewrite them, in one way
    Cycle {
        /// The way in which memory is freed
        side: Side,
        #[command(flatten)]
        sizes: cycle::Sizes,
    },
    /// Run all worker threads, in one way
    Workers {
        /// The way in which memory is freed
        side: Side,
        /// The directory of the memory cgroup, for the kernel's ways
        #[arg(long)]
        cgroup: Option<PathBuf>,
        #[command(flatten)]
        sizes: workers::Sizes,
    },
    /// Run the program that allocates
    Ebizzy {
        /// How many threads allocate
        #[arg(long, value_parser = clap::value_parser!(u16).range(1..=256))]
        threads: u16,
        /// How long the allocator keeps unused memory, in milliseconds
        #[arg(long)]
        decay: decay::Decay,
        #[command(flatten)]
        program: ebizzy::Program,
    },
    /// Compare reported sizes at one order
    Rss {
        /// The order of the folios
        #[arg(long, value_parser = clap::value_parser!(u8).range(0..=9))]
        order: u8,
        /// The size of the region
        #[arg(long, value_parser = parse_pages)]
        bytes: u64,
    },
}

/// Measures, puts everything back, and prints. Returns 1 when memory held what it must not.
///
/// # Errors
/// When a worker fails, something cannot be put back, or a signal asked for the end.
pub fn lazyfree(args: &LazyFreeArgs) -> Result<u8, BenchError> {
    let workers = Workers::new().map_err(BenchError::Start)?;
    let mut guard = Guard::acquire_if_root()?;
    let mut bench = Bench {
        args,
        workers,
        parts: Parts::default(),
        load: load_average(),
    };
    for part in [Part::Cycle, Part::Workers, Part::Ebizzy, Part::Rss] {
        if !is_asked_for(&args.only, part) {
            continue;
        }
        match part {
            Part::Cycle => bench.cycle()?,
            Part::Workers => bench.twelve_workers(guard.as_mut())?,
            Part::Ebizzy => bench.ebizzy()?,
            Part::Rss => bench.rss()?,
        }
    }
    guard.map_or(Ok(()), Guard::finish)?;
    bench.workers.check()?;
    let load = [bench.load, load_average()];
    let report = LazyFreeReport::new(args.rounds, load, bench.parts);
    print(args.json, &report).map_err(BenchError::Print)?;
    Ok(u8::from(!report.all_right()))
}

struct Bench<'a> {
    args: &'a LazyFreeArgs,
    workers: Workers,
    parts: Parts,
    load: Option<f64>,
}

/// Times that a kernel's side is started when it is killed. All its workers fill at once, now and then faster than the
/// kernel writes to zram, and the kernel takes that for the end of memory.
const KERNEL_TRIES: u32 = 4;

impl Bench<'_> {
    fn cycle(&mut self) -> Result<(), BenchError> {
        let sizes = self.args.cycle;
        let mut rounds = Rounds::new(&cycle::SIDES, self.args.rounds);
        rounds.run(|side| {
            let arguments = worker_of("cycle", side, sizes.to_arguments());
            self.workers.measure(&arguments, |_, _| Ok(()))
        })?;
        self.parts.cycle = Some(Sides::new(sizes, rounds.done));
        Ok(())
    }

    fn twelve_workers(&mut self, mut guard: Option<&mut Guard>) -> Result<(), BenchError> {
        let sizes = self.args.workers;
        let kernel = match set_up_kernel(&sizes, guard.as_deref_mut()) {
            Ok(kernel) => Some(kernel),
            Err(BenchError::Skipped(why)) => {
                self.parts.skip("workers, the kernel's side", &why);
                None
            }
            Err(error) => return Err(error),
        };
        let mut sides = workers::OURS.to_vec();
        if kernel.is_some() {
            sides.extend(workers::KERNELS);
        }
        let mut rounds = Rounds::new(&sides, self.args.rounds);
        rounds.run(|side| {
            let mut arguments = worker_of("workers", side, sizes.to_arguments());
            let group = kernel.as_ref().filter(|_| side.is_kernel());
            if let Some(kernel) = group {
                arguments.push("--cgroup".to_owned());
                arguments.push(kernel.group().display().to_string());
            }
            let mut tries = if group.is_some() { KERNEL_TRIES } else { 1 };
            loop {
                tries -= 1;
                let measured = self.workers.measure(&arguments, |pid, start| {
                    match (group, guard.as_deref_mut()) {
                        (Some(_), Some(guard)) => {
                            guard.record(|made| made.worker = Some((pid, start)))
                        }
                        _ => Ok(()),
                    }
                });
                match measured {
                    Err(BenchError::Killed) if tries > 0 => {}
                    measured => break measured,
                }
            }
        })?;
        self.parts.workers = Some(Sides::new(sizes, rounds.done));
        Ok(())
    }

    fn ebizzy(&mut self) -> Result<(), BenchError> {
        let sizes = &self.args.ebizzy;
        let can_run = under_run::can_run();
        let mut rounds = Rounds::new(&sizes.runs(can_run.is_err()), self.args.rounds);
        if let Err(why) = can_run {
            self.parts.skip("ebizzy under millpond run", &why);
        }
        rounds.run(|run| ebizzy::measure(&self.workers, run, sizes))?;
        self.parts.ebizzy = Some(Ebizzy::new(sizes.clone(), rounds.done));
        Ok(())
    }

    fn rss(&mut self) -> Result<(), BenchError> {
        let sizes = &self.args.rss;
        let mut rounds = Rounds::new(&sizes.orders, self.args.rounds);
        rounds.run(|order| {
            let mut arguments = vec!["lazy-free".to_owned(), "rss".to_owned()];
            let numbers = [("--order", order.into()), ("--bytes", sizes.memory_bytes)];
            arguments.extend(options(&numbers));
            self.workers.measure(&arguments, |_, _| Ok(()))
        })?;
        self.parts.rss = Some(Rss::new(sizes.memory_bytes, rounds.done));
        Ok(())
    }
}

fn set_up_kernel(
    sizes: &workers::Sizes,
    guard: Option<&mut Guard>,
) -> Result<KernelSwap, BenchError> {
    let Some(guard) = guard else {
        return Err(Skip("making swap and cgroups needs root".to_owned()).into());
    };
    let work = Work {
        pages: sizes.pages(),
        ram: sizes.budget_bytes,
        accesses: 1,
    };
    KernelSwap::set_up(guard, &work, &Place::default())
}

fn worker_of(part: &str, side: Side, sizes: Vec<String>) -> Vec<String> {
    let mut arguments = vec![
        "lazy-free".to_owned(),
        part.to_owned(),
        side.name().to_owned(),
    ];
    arguments.extend(sizes);
    arguments
}

/// Does the work of the measured process, and prints what it measured as JSON.
///
/// # Errors
/// When the process cannot get its memory, or print.
pub fn work(command: &LazyFreeWorker) -> Result<(), BenchError> {
    match command {
        LazyFreeWorker::Cycle { side, sizes } => say_measured(cycle::work(*side, sizes)),
        LazyFreeWorker::Workers {
            side,
            cgroup,
            sizes,
        } => say_measured(workers::work(*side, sizes, cgroup.as_deref())),
        LazyFreeWorker::Ebizzy {
            threads,
            decay,
            program,
        } => say_measured(ebizzy::work(*threads, *decay, program)),
        LazyFreeWorker::Rss { order, bytes } => say_measured(rss::work(*order, *bytes)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_options_are_the_same() {
        use clap::{Args, Subcommand};
        LazyFreeArgs::augment_args(clap::Command::new("lazyfree")).debug_assert();
        LazyFreeWorker::augment_subcommands(clap::Command::new("worker")).debug_assert();
    }
}
