//! `millpond bench workingset`: are the right pages in memory? Millpond beside kernel swap to zram under the same
//! budget.
//!
//! | part | question | file |
//! | --- | --- | --- |
//! | `shift` | how many major faults does it take to give memory to another working set? | [`shift`] |
//! | `scan` | do pages that are used once push out pages that are used again and again? | [`scan`] |
//! | `groups` | does a group that thrashes disturb one that does not? | [`groups`] |
//! | `metadata` | how much memory do the tables take? | [`metadata`] |
//! | `overhead` | how much of a fault's time does noting all this take? | [`overhead`] |
//! | `traces` | how does the policy compare with others on real traces? | [`traces`] |
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

use crate::error::{BenchError, Skip};
use crate::guard::Guard;
use crate::kernel_swap::KernelSwap;
use crate::order::BenchOrder;
use crate::part::{Part, is_asked_for};
use crate::phases::Work;
use crate::place::Place;
use crate::rounds::{Median, Rounds, load_average};
use crate::summary::Summary;
use crate::worker::{Workers, say_measured};
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
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
    /// How often each side is measured
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=1000))]
    rounds: u16,
    /// Measure these parts alone
    #[arg(long, value_name = "PART,...", value_delimiter = ',')]
    only: Vec<Name>,
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

const PARTS: [Name; 6] = [
    Name::Shift,
    Name::Scan,
    Name::Groups,
    Name::Metadata,
    Name::Overhead,
    Name::Traces,
];

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

/// Measures, puts everything back, and prints. Returns 1 when memory held what it must not.
///
/// # Errors
/// When a worker fails, something cannot be put back, or a signal asked for the end.
pub fn workingset(args: &WorkingsetArgs) -> Result<u8, BenchError> {
    let workers = Workers::new().map_err(BenchError::Start)?;
    let asked: Vec<Name> = PARTS
        .into_iter()
        .filter(|&part| is_asked_for(&args.only, part))
        .collect();
    // Replays disturb nobody's figures except by the processor time that they take.
    let guard = match asked[..] {
        [Name::Traces] => None,
        _ => Guard::acquire_if_root()?,
    };
    let mut bench = Bench {
        args,
        workers,
        guard,
        parts: WorkingsetParts::default(),
    };
    let load = load_average();
    for part in asked {
        bench.measure(part)?;
    }
    let Bench {
        workers,
        guard,
        parts,
        ..
    } = bench;
    guard.map_or(Ok(()), Guard::finish)?;
    workers.check()?;
    let load = [load, load_average()];
    let report = Summary::new(args.rounds, args.order, load, parts);
    report.conclude(args.json)
}

struct Bench<'a> {
    args: &'a WorkingsetArgs,
    workers: Workers,
    guard: Option<Guard>,
    parts: WorkingsetParts,
}

impl Bench<'_> {
    fn measure(&mut self, part: Name) -> Result<(), BenchError> {
        match part {
            Name::Shift => {
                let sizes = self.args.shift;
                let work = (sizes.budget_bytes, sizes.pages());
                let rounds = self.both("shift", work, &sizes.to_arguments())?;
                self.parts.shift = Some(Part::new(sizes, rounds));
            }
            Name::Scan => {
                let sizes = self.args.scan;
                let work = (sizes.budget_bytes, sizes.pages());
                let rounds = self.both("scan", work, &sizes.to_arguments())?;
                self.parts.scan = Some(Part::new(sizes, rounds));
            }
            Name::Groups => {
                let sizes = self.args.groups;
                let sides = [Company::Alone, Company::Beside];
                let rounds = self.own("groups", &sides, &sizes.to_arguments())?;
                self.parts.groups = Some(Part::new(sizes, rounds));
            }
            Name::Metadata => {
                let sizes = self.args.metadata;
                let rounds = self.sides("metadata", None, &sizes.to_arguments())?;
                self.parts.metadata = Some(Part::new(sizes, rounds));
            }
            Name::Overhead => {
                let sizes = self.args.overhead;
                let sides = [Detection::On, Detection::Off];
                let rounds = self.own("overhead", &sides, &sizes.to_arguments())?;
                self.parts.overhead = Some(Part::new(sizes, rounds));
            }
            Name::Traces => match &self.args.traces.traces {
                Some(directory) => {
                    let traces = Traces::measure(&self.args.traces, directory)?;
                    self.parts.traces = Some(traces);
                }
                None => {
                    let why = Skip("name a directory of traces with --traces".to_owned());
                    self.parts.skipped.note("traces", &why);
                }
            },
        }
        Ok(())
    }

    /// Measures Millpond beside the kernel, if the kernel's side can run here. Swap and cgroup are of the part's own
    /// size, and are put back with it.
    fn both<T: Median + DeserializeOwned>(
        &mut self,
        part: &str,
        (ram, pages): (u64, usize),
        sizes: &[String],
    ) -> Result<Vec<(Side, Vec<T>)>, BenchError> {
        let work = Work {
            pages: pages as u64,
            ram,
            accesses: 1,
        };
        let kernel = match &mut self.guard {
            Some(guard) => KernelSwap::set_up(guard, &work, &Place::default()),
            None => Err(Skip("making swap and cgroups needs root".to_owned()).into()),
        };
        let kernel = match kernel {
            Ok(kernel) => Some(kernel),
            Err(BenchError::Skipped(why)) => {
                let what = format!("{part}, the kernel's side");
                self.parts.skipped.note(&what, &why);
                None
            }
            Err(error) => return Err(error),
        };
        let rounds = self.sides(part, kernel.as_ref(), sizes);
        if let Some(guard) = &mut self.guard {
            guard.put_back()?;
        }
        if let Some(kernel) = kernel {
            self.parts.kernel = Some(kernel.setting);
        }
        rounds
    }

    /// Measures Millpond alone, in several ways.
    fn own<S: Copy + PartialEq + Display, T: DeserializeOwned>(
        &self,
        part: &str,
        sides: &[S],
        sizes: &[String],
    ) -> Result<Vec<(S, Vec<T>)>, BenchError> {
        let order = self.args.order.to_string();
        let mut rounds = Rounds::new(sides, self.args.rounds);
        rounds.run(|side| {
            let mut arguments = ["workingset", part, &side.to_string(), "--order", &order]
                .map(str::to_owned)
                .to_vec();
            arguments.extend_from_slice(sizes);
            self.workers.measure(&arguments, |_, _| Ok(()))
        })?;
        Ok(rounds.done)
    }

    fn sides<T: DeserializeOwned>(
        &mut self,
        part: &str,
        kernel: Option<&KernelSwap>,
        sizes: &[String],
    ) -> Result<Vec<(Side, Vec<T>)>, BenchError> {
        let mut sides = vec![Side::Millpond];
        sides.extend(kernel.map(|_| Side::Kernel));
        let order = self.args.order.to_string();
        let mut rounds = Rounds::new(&sides, self.args.rounds);
        rounds.run(|side| {
            let mut arguments = ["workingset", part, &side.to_string(), "--order", &order]
                .map(str::to_owned)
                .to_vec();
            let group = kernel.filter(|_| side == Side::Kernel);
            if let Some(kernel) = group {
                arguments.push("--cgroup".to_owned());
                arguments.push(kernel.group().display().to_string());
            }
            arguments.extend_from_slice(sizes);
            self.workers.measure(&arguments, |pid, start| {
                match (group, self.guard.as_mut()) {
                    (Some(_), Some(guard)) => guard.record(|made| made.worker = Some((pid, start))),
                    _ => Ok(()),
                }
            })
        })?;
        Ok(rounds.done)
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
