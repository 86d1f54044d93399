//! `millpond bench folio`: one setting for every pattern of access, beside the kernel's mechanism for each.
//!
//! | part | question | file |
//! | --- | --- | --- |
//! | `swap` | what do filling and reading twice the budget cost, in order and at random, and what comes in unasked? | [`swap`](mod@swap) |
//! | `mix` | what do both patterns cost while they meet in one region? | [`mix`](mod@mix) |
//! | `touch` | what does a first touch cost where there is room for everything? | [`touch`](mod@touch) |
//! | `sparse` | how much memory does a program hold that touches little of much? | [`sparse`](mod@sparse) |
//! | `header` | what does a program pay that allocates much and uses nothing? | [`header`](mod@header) |
//! | `snapshot` | what does an image of memory cost, and writing to the memory that it shares? | [`snapshot`](mod@snapshot) |
//! | `latency` | how much slower than the usual fault are the slowest? | [`latency`](mod@latency) |
//!
//! As in the other benchmarks each measurement is a fresh process, and the sides of a part take turns in every round.

mod header;
mod latency;
mod mix;
mod report;
mod side;
mod snapshot;
mod sparse;
mod swap;
mod touch;

use crate::bench::{self, Asked, Bench};
use crate::error::BenchError;
use crate::kernel_swap::KernelSwap;
use crate::millpond_side::{self, How};
use crate::order::BenchOrder;
use crate::part::{Contender, Part, Skips};
use crate::phases::{Manner, Work};
use crate::rounds::options;
use crate::worker::say_measured;
use crate::{mapping, under_run};
use report::FolioParts;
use side::Side;
use std::path::PathBuf;

/// `millpond bench folio`'s arguments.
#[derive(clap::Args, Debug)]
pub struct FolioArgs {
    #[command(flatten)]
    asked: Asked<Name>,
    /// The order of Millpond's folios in all parts
    #[arg(long, default_value = "adaptive")]
    order: BenchOrder,
    #[command(flatten)]
    work: Work,
    #[command(flatten)]
    mix: mix::Sizes,
    #[command(flatten)]
    touch: touch::Sizes,
    #[command(flatten)]
    sparse: sparse::Sizes,
    #[command(flatten)]
    header: header::Sizes,
    #[command(flatten)]
    snapshot: snapshot::Sizes,
    #[command(flatten)]
    latency: latency::Sizes,
}

/// A part of the benchmark.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
enum Name {
    /// A region of twice the budget: filled, read at random, read in order
    Swap,
    /// Reads at random and reads in order, at the same time in one region
    Mix,
    /// The first touch of memory that fits into the budget
    Touch,
    /// Single bytes that are touched far from each other
    Sparse,
    /// Large allocations of which only a header is used
    Header,
    /// A snapshot of memory, and writes to the pages that it shares
    Snapshot,
    /// The slowest faults and the median fault
    Latency,
}

impl bench::Name for Name {}

/// One measured process of this benchmark.
#[derive(clap::Subcommand, Debug)]
pub enum FolioWorker {
    /// Read at random and in order at the same time
    Mix {
        /// The side whose memory is measured
        side: Side,
        /// The directory of the memory cgroup, for the kernel's side
        #[arg(long)]
        cgroup: Option<PathBuf>,
        #[command(flatten)]
        work: Work,
        #[command(flatten)]
        sizes: mix::Sizes,
    },
    /// Touch memory for the first time
    Touch {
        /// The side whose memory is measured
        side: Side,
        #[command(flatten)]
        sizes: touch::Sizes,
    },
    /// Touch single bytes that are far from each other
    Sparse {
        /// The order of the folios
        order: BenchOrder,
        #[command(flatten)]
        sizes: sparse::Sizes,
    },
    /// Run the program that uses only headers
    Header {
        #[command(flatten)]
        sizes: header::Sizes,
    },
    /// Take a snapshot of memory
    Snapshot {
        /// The side whose memory is measured
        side: Side,
        #[command(flatten)]
        sizes: snapshot::Sizes,
    },
    /// Time each fault
    Latency {
        /// The order of the folios
        order: BenchOrder,
        /// Let a thread reclaim memory ahead of need
        #[arg(long)]
        background: bool,
        #[command(flatten)]
        sizes: latency::Sizes,
    },
}

/// Measures, puts everything back, and prints. Returns 1 when memory held wrong bytes.
///
/// # Errors
/// When a worker fails, something cannot be put back, or a signal asked for the end.
pub fn folio(args: &FolioArgs) -> Result<u8, BenchError> {
    Bench::run(&args.asked, Some(args.order), |bench, part| match part {
        Name::Swap => swap(bench, args),
        Name::Mix => mix(bench, args),
        Name::Touch => touch(bench, args),
        Name::Sparse => sparse(bench, args),
        Name::Header => header(bench, args),
        Name::Snapshot => snapshot(bench, args),
        Name::Latency => latency(bench, args),
    })
}

/// Millpond's side, and the kernel's where there is one.
fn sides_of_swap(args: &FolioArgs, kernel: Option<&KernelSwap>) -> Vec<Side> {
    let mut sides = vec![Side::Ours(args.order)];
    sides.extend(kernel.map(|_| Side::Kernel));
    sides
}

fn swap(bench: &mut Bench<FolioParts>, args: &FolioArgs) -> Result<(), BenchError> {
    let (work, manner) = (args.work, Manner::default());
    let (rounds, setting) = bench.beside_kernel_swap("swap", &work, |bench, kernel| {
        bench.rounds(&sides_of_swap(args, kernel), |bench, side| {
            match (side, kernel, &mut bench.guard) {
                (Side::Ours(order), ..) => {
                    let how = How::by(order);
                    millpond_side::measure(&bench.workers, &how, &work, manner)
                }
                (_, Some(kernel), Some(guard)) => kernel.measure(&bench.workers, guard, manner),
                _ => unreachable!("no side that was not set up"),
            }
        })
    })?;
    bench.parts.kernel_swap = setting.or(bench.parts.kernel_swap.take());
    bench.parts.swap = Some(Part::new(work, rounds));
    Ok(())
}

fn mix(bench: &mut Bench<FolioParts>, args: &FolioArgs) -> Result<(), BenchError> {
    let (work, sizes) = (args.work, args.mix);
    let (rounds, setting) = bench.beside_kernel_swap("mix", &work, |bench, kernel| {
        bench.rounds(&sides_of_swap(args, kernel), |bench, side| {
            let mut arguments = worker_of("mix", side, &work.to_arguments());
            arguments.extend(options(&[("--mix-threads", sizes.threads.into())]));
            bench.process(arguments, kernel.filter(|_| side.is_kernel()))
        })
    })?;
    bench.parts.kernel_swap = setting.or(bench.parts.kernel_swap.take());
    bench.parts.mix = Some(Part::new(sizes, rounds));
    Ok(())
}

/// Millpond's sides and the kernel's two, as far as there are huge pages.
fn sides_with_huge_pages(skipped: &mut Skips, part: &str, ours: &[Side]) -> Vec<Side> {
    let mut sides = ours.to_vec();
    sides.push(Side::Kernel);
    match mapping::huge_pages() {
        Ok(()) => sides.push(Side::KernelHuge),
        Err(why) => skipped.note(&format!("{part}, the kernel's huge pages"), &why),
    }
    sides
}

fn touch(bench: &mut Bench<FolioParts>, args: &FolioArgs) -> Result<(), BenchError> {
    let sizes = args.touch;
    let ours = [Side::Ours(args.order), Side::fixed(9), Side::fixed(4)];
    let sides = sides_with_huge_pages(&mut bench.skipped, "touch", &ours);
    let numbers = options(&[("--touch-memory", sizes.memory_bytes)]);
    let rounds = bench.processes(&sides, |side| worker_of("touch", side, &numbers))?;
    bench.parts.touch = Some(Part::new(sizes, rounds));
    Ok(())
}

fn sparse(bench: &mut Bench<FolioParts>, args: &FolioArgs) -> Result<(), BenchError> {
    let sizes = args.sparse;
    let sides = [Side::fixed(0), Side::Ours(args.order), Side::fixed(4)];
    let rounds = bench.processes(&sides, |side| {
        worker_of("sparse", side, &sizes.to_arguments())
    })?;
    bench.parts.sparse = Some(Part::new(sizes, rounds));
    Ok(())
}

fn header(bench: &mut Bench<FolioParts>, args: &FolioArgs) -> Result<(), BenchError> {
    let sizes = args.header;
    let can_run = under_run::can_run();
    let runs = sizes.runs(args.order, can_run.is_ok());
    if let Err(why) = can_run {
        bench.skipped.note("header under millpond run", &why);
    }
    let rounds = bench.rounds(&runs, |bench, run| {
        header::measure(&bench.workers, run, &sizes)
    })?;
    bench.parts.header = Some(Part::new(sizes, rounds));
    Ok(())
}

fn snapshot(bench: &mut Bench<FolioParts>, args: &FolioArgs) -> Result<(), BenchError> {
    let sizes = args.snapshot;
    let ours = [Side::Ours(args.order)];
    let sides = sides_with_huge_pages(&mut bench.skipped, "snapshot", &ours);
    let numbers = options(&[("--snapshot-memory", sizes.memory_bytes)]);
    let rounds = bench.processes(&sides, |side| worker_of("snapshot", side, &numbers))?;
    bench.parts.snapshot = Some(Part::new(sizes, rounds));
    Ok(())
}

fn latency(bench: &mut Bench<FolioParts>, args: &FolioArgs) -> Result<(), BenchError> {
    let sizes = args.latency;
    let mut runs = Vec::new();
    for order in [BenchOrder(millpond::Order::ZERO.into()), args.order] {
        for background in [false, true] {
            runs.push(latency::Run { order, background });
        }
    }
    let rounds = bench.processes(&runs, |run| {
        let side = Side::Ours(run.order);
        let mut arguments = worker_of("latency", side, &sizes.to_arguments());
        arguments.extend(run.background.then(|| "--background".to_owned()));
        arguments
    })?;
    bench.parts.latency = Some(Part::new(sizes, rounds));
    Ok(())
}

fn worker_of(part: &str, side: Side, sizes: &[String]) -> Vec<String> {
    let mut arguments = vec!["folio".to_owned(), part.to_owned(), side.to_string()];
    arguments.extend_from_slice(sizes);
    arguments
}

/// Does the work of the measured process, and prints what it measured as JSON.
///
/// # Errors
/// When the process cannot get its memory, or print.
pub fn work(command: &FolioWorker) -> Result<(), BenchError> {
    match command {
        FolioWorker::Mix {
            side,
            cgroup,
            work,
            sizes,
        } => say_measured(match side {
            Side::Ours(order) => mix::ours(*order, work, sizes),
            _ => mix::kernels(cgroup.as_deref(), work, sizes),
        }),
        FolioWorker::Touch { side, sizes } => say_measured(touch::work(*side, sizes)),
        FolioWorker::Sparse { order, sizes } => say_measured(sparse::work(*order, sizes)),
        FolioWorker::Header { sizes } => say_measured(header::work(sizes)),
        FolioWorker::Snapshot { side, sizes } => say_measured(snapshot::work(*side, sizes)),
        FolioWorker::Latency {
            order,
            background,
            sizes,
        } => say_measured(latency::work(*order, *background, sizes)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_options_are_the_same() {
        use clap::{Args, Subcommand};
        FolioArgs::augment_args(clap::Command::new("folio")).debug_assert();
        FolioWorker::augment_subcommands(clap::Command::new("worker")).debug_assert();
    }
}
