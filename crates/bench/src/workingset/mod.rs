//! `millpond bench workingset`: are the right pages in memory? Millpond beside kernel swap to zram under the same
//! budget.
//!
//! | part | question | file |
//! | --- | --- | --- |
//! | `shift` | how many major faults does it take to give memory to another working set? | [`shift`](mod@shift) |
//! | `scan` | do pages that are used once push out pages that are used again and again? | [`scan`](mod@scan) |
//! | `groups` | does a group that thrashes disturb one that does not? | [`groups`](mod@groups) |
//! | `metadata` | how much memory do the tables take? | [`metadata`](mod@metadata) |
//! | `overhead` | how much of a fault's time does noting all this take? | [`overhead`](mod@overhead) |
//! | `traces` | how does the policy compare with others on real traces? | [`traces`](mod@traces) |
//!
//! As in the other benchmarks each measurement is a fresh process, and the sides of a part take turns in every round.
//! Folios are of order 0 unless asked otherwise: the question is which pages are chosen, and larger folios bring
//! neighbours along.

mod groups;
mod memory;
mod metadata;
mod overhead;
mod report;
mod scan;
mod shift;
mod side;
mod traces;

use crate::bench::{self, Asked, Bench};
use crate::error::{BenchError, Skip};
use crate::order::BenchOrder;
use crate::part::{Contender, Part};
use crate::phases::Work;
use crate::worker::say_measured;
use groups::Company;
use memory::Setting;
use overhead::Detection;
use report::WorkingsetParts;
use serde::de::DeserializeOwned;
use side::Side;
use std::fmt::Display;
use std::path::PathBuf;
use traces::Traces;

/// `millpond bench workingset`'s arguments.
#[derive(clap::Args, Debug)]
pub struct WorkingsetArgs {
    #[command(flatten)]
    asked: Asked<Name, 3>,
    /// The order of Millpond's folios in all parts
    #[arg(long, default_value = "0")]
    order: BenchOrder,
    #[command(flatten)]
    shift: shift::Sizes,
    #[command(flatten)]
    scan: scan::Sizes,
    #[command(flatten)]
    groups: groups::Sizes,
    #[command(flatten)]
    metadata: metadata::Sizes,
    #[command(flatten)]
    overhead: overhead::Sizes,
    #[command(flatten)]
    traces: traces::Sizes,
}

/// A part of the benchmark.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
enum Name {
    /// A working set that takes the place of another
    Shift,
    /// A scan beside a hot working set
    Scan,
    /// A group beside another that thrashes
    Groups,
    /// The memory that the tables take
    Metadata,
    /// The part of a fault's time that bookkeeping takes
    Overhead,
    /// Recorded traces
    Traces,
}

impl bench::Name for Name {
    /// Replays disturb nobody's figures except by the processor time that they take.
    fn wants_quiet(self) -> bool {
        self != Self::Traces
    }
}

/// One measured process of this benchmark.
#[derive(clap::Subcommand, Debug)]
pub enum WorkingsetWorker {
    /// Replace a working set by another
    Shift {
        #[command(flatten)]
        how: How,
        #[command(flatten)]
        sizes: shift::Sizes,
    },
    /// Scan memory beside a hot working set
    Scan {
        #[command(flatten)]
        how: How,
        #[command(flatten)]
        sizes: scan::Sizes,
    },
    /// Run a group alone or beside one that thrashes
    Groups {
        /// Whether the group that thrashes is there
        company: groups::Company,
        /// The order of the folios
        #[arg(long)]
        order: BenchOrder,
        #[command(flatten)]
        sizes: groups::Sizes,
    },
    /// Measure the memory that the tables take
    Metadata {
        #[command(flatten)]
        how: How,
        #[command(flatten)]
        sizes: metadata::Sizes,
    },
    /// Measure the part of a fault's time that bookkeeping takes
    Overhead {
        /// Whether the bookkeeping is done
        detection: overhead::Detection,
        /// The order of the folios
        #[arg(long)]
        order: BenchOrder,
        #[command(flatten)]
        sizes: overhead::Sizes,
    },
}

/// Whose memory a measured process has.
#[derive(clap::Args, Debug)]
pub struct How {
    /// The side whose memory is measured
    side: Side,
    /// The order of Millpond's folios
    #[arg(long)]
    order: BenchOrder,
    /// The directory of the memory cgroup, for the kernel's side
    #[arg(long)]
    cgroup: Option<PathBuf>,
}

impl How {
    fn setting(&self, budget: u64, pages: usize) -> Setting<'_> {
        Setting {
            side: self.side,
            order: self.order,
            cgroup: self.cgroup.as_deref(),
            budget,
            pages,
        }
    }
}

/// Measures, puts everything back, and prints. Returns 1 when memory held wrong bytes.
///
/// # Errors
/// When a worker fails, something cannot be put back, or a signal asked for the end.
pub fn workingset(args: &WorkingsetArgs) -> Result<u8, BenchError> {
    Bench::run(&args.asked, Some(args.order), |bench, part| {
        measure(bench, args, part)
    })
}

fn measure(
    bench: &mut Bench<WorkingsetParts>,
    args: &WorkingsetArgs,
    part: Name,
) -> Result<(), BenchError> {
    match part {
        Name::Shift => {
            let sizes = args.shift;
            let work = (sizes.budget_bytes, sizes.pages());
            let rounds = both(bench, args, "shift", work, &sizes.to_arguments())?;
            bench.parts.shift = Some(Part::new(sizes, rounds));
        }
        Name::Scan => {
            let sizes = args.scan;
            let work = (sizes.budget_bytes, sizes.pages());
            let rounds = both(bench, args, "scan", work, &sizes.to_arguments())?;
            bench.parts.scan = Some(Part::new(sizes, rounds));
        }
        Name::Groups => {
            let sizes = args.groups;
            let sides = [Company::Alone, Company::Beside];
            let arguments = sizes.to_arguments();
            let rounds = bench.processes(&sides, |side| args.worker_of("groups", side, &arguments));
            bench.parts.groups = Some(Part::new(sizes, rounds?));
        }
        Name::Metadata => {
            let sizes = args.metadata;
            let arguments = sizes.to_arguments();
            let rounds = bench.processes(&[Side::Millpond], |side| {
                args.worker_of("metadata", side, &arguments)
            })?;
            bench.parts.metadata = Some(Part::new(sizes, rounds));
        }
        Name::Overhead => {
            let sizes = args.overhead;
            let sides = [Detection::On, Detection::Off];
            let arguments = sizes.to_arguments();
            let rounds =
                bench.processes(&sides, |side| args.worker_of("overhead", side, &arguments))?;
            bench.parts.overhead = Some(Part::new(sizes, rounds));
        }
        Name::Traces => match &args.traces.traces {
            Some(directory) => {
                bench.parts.traces = Some(Traces::measure(&args.traces, directory)?);
            }
            None => {
                let why = Skip("name a directory of traces with --traces".to_owned());
                bench.skipped.note("traces", &why);
            }
        },
    }
    Ok(())
}

/// Measures Millpond beside the kernel, if the kernel's side can run here.
fn both<T: DeserializeOwned>(
    bench: &mut Bench<WorkingsetParts>,
    args: &WorkingsetArgs,
    part: &str,
    (ram, pages): (u64, usize),
    sizes: &[String],
) -> Result<Vec<(Side, Vec<T>)>, BenchError> {
    let work = Work {
        pages: pages as u64,
        ram,
        accesses: 1,
    };
    let (rounds, setting) = bench.beside_kernel_swap(part, &work, |bench, kernel| {
        let mut sides = vec![Side::Millpond];
        sides.extend(kernel.map(|_| Side::Kernel));
        bench.rounds(&sides, |bench, side| {
            let arguments = args.worker_of(part, side, sizes);
            bench.process(arguments, kernel.filter(|_| side.is_kernel()))
        })
    })?;
    bench.parts.kernel = setting.or(bench.parts.kernel.take());
    Ok(rounds)
}

impl WorkingsetArgs {
    fn worker_of(&self, part: &str, side: impl Display, sizes: &[String]) -> Vec<String> {
        let (side, order) = (side.to_string(), self.order.to_string());
        let mut arguments = ["workingset", part, &side, "--order", &order]
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
pub fn work(command: &WorkingsetWorker) -> Result<(), BenchError> {
    match command {
        WorkingsetWorker::Shift { how, sizes } => {
            let setting = how.setting(sizes.budget_bytes, sizes.pages());
            say_measured(shift::work(setting, sizes))
        }
        WorkingsetWorker::Scan { how, sizes } => {
            let setting = how.setting(sizes.budget_bytes, sizes.pages());
            say_measured(scan::work(setting, sizes))
        }
        WorkingsetWorker::Groups {
            company,
            order,
            sizes,
        } => {
            let setting = own_setting(*order, sizes.budget_bytes);
            say_measured(groups::work(*company, setting, sizes))
        }
        WorkingsetWorker::Overhead {
            detection,
            order,
            sizes,
        } => {
            let setting = own_setting(*order, sizes.budget_bytes);
            say_measured(overhead::work(*detection, setting, sizes))
        }
        WorkingsetWorker::Metadata { how, sizes } => {
            let setting = how.setting(sizes.budget(), sizes.pages());
            say_measured(metadata::work(setting))
        }
    }
}

/// The setting for a part that makes regions of its own.
fn own_setting(order: BenchOrder, budget: u64) -> Setting<'static> {
    Setting {
        side: Side::Millpond,
        order,
        cgroup: None,
        budget,
        pages: 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_options_are_the_same() {
        use clap::{Args, Subcommand};
        WorkingsetArgs::augment_args(clap::Command::new("workingset")).debug_assert();
        WorkingsetWorker::augment_subcommands(clap::Command::new("worker")).debug_assert();
    }
}
