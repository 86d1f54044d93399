//! `millpond bench lazyfree`: giving memory back lazily, Millpond's way beside the kernel's.
//!
//! | part | question | file |
//! | --- | --- | --- |
//! | `cycle` | what do freeing and using again cost while nobody is short of memory? | [`cycle`](mod@cycle) |
//! | `workers` | is freed memory ever read back from the store when memory is short? | [`workers`](mod@workers) |
//! | `ebizzy` | how much does a program gain if its allocator frees lazily? | [`ebizzy`](mod@ebizzy) |
//! | `rss` | are the reported sizes true? | [`rss`](mod@rss) |
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

use crate::bench::{self, Asked, Bench};
use crate::error::{BenchError, Skip};
use crate::part::{Contender, Part};
use crate::phases::Work;
use crate::rounds::{options, parse_pages};
use crate::under_run;
use crate::worker::say_measured;
use memory::Side;
use report::LazyFreeParts;
use std::path::PathBuf;

/// `millpond bench lazyfree`'s arguments.
#[derive(clap::Args, Debug)]
pub struct LazyFreeArgs {
    #[command(flatten)]
    asked: Asked<Name>,
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
enum Name {
    /// Chunks that are freed and rewritten, all in memory
    Cycle,
    /// Worker threads that fill and free twice the budget
    Workers,
    /// A program that allocates, under `millpond run`
    Ebizzy,
    /// The resident sizes that Millpond and the kernel report
    Rss,
}

impl bench::Name for Name {}

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

/// Measures, puts everything back, and prints. Returns 1 when memory held wrong bytes.
///
/// # Errors
/// When a worker fails, something cannot be put back, or a signal asked for the end.
pub fn lazyfree(args: &LazyFreeArgs) -> Result<u8, BenchError> {
    Bench::run(&args.asked, None, |bench, part| match part {
        Name::Cycle => cycle(bench, args),
        Name::Workers => twelve_workers(bench, args),
        Name::Ebizzy => ebizzy(bench, args),
        Name::Rss => rss(bench, args),
    })
}

/// Times that a kernel's side is started when it is killed. All its workers fill at once, now and then faster than the
/// kernel writes to zram, and the kernel takes that for the end of memory.
const KERNEL_TRIES: u32 = 4;

fn cycle(bench: &mut Bench<LazyFreeParts>, args: &LazyFreeArgs) -> Result<(), BenchError> {
    let sizes = args.cycle;
    let rounds = bench.processes(&cycle::SIDES, |side| {
        worker_of("cycle", side, sizes.to_arguments())
    })?;
    let part: Part<Side, _, cycle::Cycle> = Part::new(sizes, rounds);
    for side in &part.sides {
        for why in &side.measured.median.skipped {
            let what = format!("cycle, {}", side.side);
            bench.skipped.note(&what, &Skip(why.clone()));
        }
    }
    bench.parts.cycle = Some(part);
    Ok(())
}

fn twelve_workers(bench: &mut Bench<LazyFreeParts>, args: &LazyFreeArgs) -> Result<(), BenchError> {
    let sizes = args.workers;
    let work = Work {
        pages: sizes.pages(),
        ram: sizes.budget_bytes,
        accesses: 1,
    };
    let (rounds, _) = bench.beside_kernel_swap("workers", &work, |bench, kernel| {
        let mut sides = workers::OURS.to_vec();
        sides.extend(kernel.iter().flat_map(|_| workers::KERNELS));
        bench.rounds(&sides, |bench, side| {
            let arguments = worker_of("workers", side, sizes.to_arguments());
            let kernel = kernel.filter(|_| side.is_kernel());
            let mut tries = if kernel.is_some() { KERNEL_TRIES } else { 1 };
            loop {
                tries -= 1;
                match bench.process(arguments.clone(), kernel) {
                    Err(BenchError::Killed) if tries > 0 => {}
                    measured => break measured,
                }
            }
        })
    })?;
    bench.parts.workers = Some(Part::new(sizes, rounds));
    Ok(())
}

fn ebizzy(bench: &mut Bench<LazyFreeParts>, args: &LazyFreeArgs) -> Result<(), BenchError> {
    let sizes = &args.ebizzy;
    let can_run = under_run::can_run();
    let runs = sizes.runs(can_run.is_err());
    if let Err(why) = can_run {
        bench.skipped.note("ebizzy under millpond run", &why);
    }
    let rounds = bench.rounds(&runs, |bench, run| {
        ebizzy::measure(&bench.workers, run, sizes)
    })?;
    bench.parts.ebizzy = Some(Part::new(sizes.clone(), rounds));
    Ok(())
}

fn rss(bench: &mut Bench<LazyFreeParts>, args: &LazyFreeArgs) -> Result<(), BenchError> {
    let sizes = &args.rss;
    let rounds = bench.processes(&sizes.orders, |order| {
        let mut arguments = vec!["lazy-free".to_owned(), "rss".to_owned()];
        let numbers = [("--order", order.into()), ("--bytes", sizes.memory_bytes)];
        arguments.extend(options(&numbers));
        arguments
    })?;
    bench.parts.rss = Some(Part::new(sizes.clone(), rounds));
    Ok(())
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
