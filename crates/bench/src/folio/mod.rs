//! `millpond bench folio`: one setting for every pattern of access, beside the kernel's mechanism for each.
//!
//! | part | question | file |
//! | --- | --- | --- |
//! | `swap` | what do filling and reading twice the budget cost, in order and at random, and what comes in unasked? | [`swap`] |
//! | `mix` | what do both patterns cost while they meet in one region? | [`mix`] |
//! | `touch` | what does a first touch cost where there is room for everything? | [`touch`] |
//! | `sparse` | how much memory does a program hold that touches little of much? | [`sparse`] |
//! | `header` | what does a program pay that allocates much and uses nothing? | [`header`] |
//! | `snapshot` | what does an image of memory cost, and writing to the memory that it shares? | [`snapshot`] |
//! | `latency` | how much slower than the usual fault are the slowest? | [`latency`] |
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

use crate::error::{BenchError, Skip};
use crate::guard::Guard;
use crate::kernel_swap::KernelSwap;
use crate::millpond_side::{self, How};
use crate::order::BenchOrder;
use crate::part::{Contender, Part, is_asked_for};
use crate::phases::{Manner, Work};
use crate::place::Place;
use crate::rounds::{Rounds, load_average, options};
use crate::summary::Summary;
use crate::worker::{Workers, say_measured};
use crate::{mapping, under_run};
use report::FolioParts;
use side::Side;
use std::path::PathBuf;

/// `millpond bench folio`'s arguments.
#[derive(clap::Args, Debug)]
pub struct FolioArgs {
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

const PARTS: [Name; 7] = [
    Name::Swap,
    Name::Mix,
    Name::Touch,
    Name::Sparse,
    Name::Header,
    Name::Snapshot,
    Name::Latency,
];

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

/// Measures, puts everything back, and prints. Returns 1 when memory held what it must not.
///
/// # Errors
/// When a worker fails, something cannot be put back, or a signal asked for the end.
pub fn folio(args: &FolioArgs) -> Result<u8, BenchError> {
    let workers = Workers::new().map_err(BenchError::Start)?;
    let guard = Guard::acquire_if_root()?;
    let mut bench = Bench {
        args,
        workers,
        guard,
        kernel: None,
        parts: FolioParts::default(),
    };
    let load = load_average();
    for part in PARTS {
        if !is_asked_for(&args.only, part) {
            continue;
        }
        match part {
            Name::Swap => bench.swap()?,
            Name::Mix => bench.mix()?,
            Name::Touch => bench.touch()?,
            Name::Sparse => bench.sparse()?,
            Name::Header => bench.header()?,
            Name::Snapshot => bench.snapshot()?,
            Name::Latency => bench.latency()?,
        }
    }
    bench.guard.map_or(Ok(()), Guard::finish)?;
    bench.workers.check()?;
    let report = Summary::new(args.rounds, args.order, [load, load_average()], bench.parts);
    report.conclude(args.json)
}

struct Bench<'a> {
    args: &'a FolioArgs,
    workers: Workers,
    guard: Option<Guard>,
    /// The kernel's swap, once a part has needed it.
    kernel: Option<Result<KernelSwap, Skip>>,
    parts: FolioParts,
}

impl Bench<'_> {
    fn ours(&self) -> Side {
        Side::Ours(self.args.order)
    }

    /// Makes cgroup and swap device, unless that was done or tried. Returns whether they are there, and notes the
    /// reason for `part` if not.
    fn has_kernel_swap(&mut self, part: &str) -> Result<bool, BenchError> {
        if self.kernel.is_none() {
            let set_up = match &mut self.guard {
                Some(guard) => KernelSwap::set_up(guard, &self.args.work, &Place::default()),
                None => Err(Skip("making swap and cgroups needs root".to_owned()).into()),
            };
            self.kernel = Some(match set_up {
                Ok(kernel) => Ok(kernel),
                Err(BenchError::Skipped(why)) => Err(why),
                Err(error) => return Err(error),
            });
        }
        match &self.kernel {
            Some(Err(why)) => {
                self.parts.skip(&format!("{part}, the kernel's side"), why);
                Ok(false)
            }
            other => Ok(other.is_some()),
        }
    }

    /// Millpond's side, and the kernel's where there is one.
    fn sides_of_swap(&mut self, part: &str) -> Result<Vec<Side>, BenchError> {
        let kernel = self.has_kernel_swap(part)?;
        let mut sides = vec![self.ours()];
        sides.extend(kernel.then_some(Side::Kernel));
        Ok(sides)
    }

    fn swap(&mut self) -> Result<(), BenchError> {
        let mut rounds = Rounds::new(&self.sides_of_swap("swap")?, self.args.rounds);
        let manner = Manner::default();
        rounds.run(|side| {
            let (kernel, guard) = (&self.kernel, &mut self.guard);
            match (side, kernel, guard) {
                (Side::Ours(order), ..) => {
                    let how = How::by(order);
                    millpond_side::measure(&self.workers, &how, &self.args.work, manner)
                }
                (_, Some(Ok(kernel)), Some(guard)) => kernel.measure(&self.workers, guard, manner),
                _ => unreachable!("no side that was not set up"),
            }
        })?;
        if let Some(Ok(kernel)) = &self.kernel {
            self.parts.kernel_swap = Some(kernel.setting.clone());
        }
        self.parts.swap = Some(Part::new(self.args.work, rounds.done));
        Ok(())
    }

    fn mix(&mut self) -> Result<(), BenchError> {
        let (work, sizes) = (self.args.work, self.args.mix);
        let mut rounds = Rounds::new(&self.sides_of_swap("mix")?, self.args.rounds);
        rounds.run(|side| {
            let mut arguments = worker_of("mix", side, &work.to_arguments());
            arguments.extend(options(&[("--mix-threads", sizes.threads.into())]));
            let group = self.kernel.iter().flatten().find(|_| side.is_kernel());
            if let Some(kernel) = group {
                arguments.push("--cgroup".to_owned());
                arguments.push(kernel.group().display().to_string());
            }
            self.workers
                .measure(&arguments, |pid, start| match (group, &mut self.guard) {
                    (Some(_), Some(guard)) => guard.record(|made| made.worker = Some((pid, start))),
                    _ => Ok(()),
                })
        })?;
        self.parts.mix = Some(Part::new(sizes, rounds.done));
        Ok(())
    }

    /// Millpond's sides and the kernel's two, as far as there are huge pages.
    fn sides_with_huge_pages(&mut self, part: &str, ours: &[Side]) -> Vec<Side> {
        let mut sides = ours.to_vec();
        sides.push(Side::Kernel);
        match mapping::huge_pages() {
            Ok(()) => sides.push(Side::KernelHuge),
            Err(why) => self
                .parts
                .skip(&format!("{part}, the kernel's huge pages"), &why),
        }
        sides
    }

    fn touch(&mut self) -> Result<(), BenchError> {
        let sizes = self.args.touch;
        let ours = [self.ours(), Side::fixed(9), Side::fixed(4)];
        let sides = self.sides_with_huge_pages("touch", &ours);
        let mut rounds = Rounds::new(&sides, self.args.rounds);
        rounds.run(|side| {
            let numbers = options(&[("--touch-memory", sizes.memory_bytes)]);
            let arguments = worker_of("touch", side, &numbers);
            self.workers.measure(&arguments, |_, _| Ok(()))
        })?;
        self.parts.touch = Some(Part::new(sizes, rounds.done));
        Ok(())
    }

    fn sparse(&mut self) -> Result<(), BenchError> {
        let sizes = self.args.sparse;
        let sides = [Side::fixed(0), self.ours(), Side::fixed(4)];
        let mut rounds = Rounds::new(&sides, self.args.rounds);
        rounds.run(|side| {
            let arguments = worker_of("sparse", side, &sizes.to_arguments());
            self.workers.measure(&arguments, |_, _| Ok(()))
        })?;
        self.parts.sparse = Some(Part::new(sizes, rounds.done));
        Ok(())
    }

    fn header(&mut self) -> Result<(), BenchError> {
        let sizes = self.args.header;
        let can_run = under_run::can_run();
        let mut rounds = Rounds::new(
            &sizes.runs(self.args.order, can_run.is_ok()),
            self.args.rounds,
        );
        if let Err(why) = can_run {
            self.parts.skip("header under millpond run", &why);
        }
        rounds.run(|run| header::measure(&self.workers, run, &sizes))?;
        self.parts.header = Some(Part::new(sizes, rounds.done));
        Ok(())
    }

    fn snapshot(&mut self) -> Result<(), BenchError> {
        let sizes = self.args.snapshot;
        let sides = self.sides_with_huge_pages("snapshot", &[self.ours()]);
        let mut rounds = Rounds::new(&sides, self.args.rounds);
        rounds.run(|side| {
            let numbers = options(&[("--snapshot-memory", sizes.memory_bytes)]);
            let arguments = worker_of("snapshot", side, &numbers);
            self.workers.measure(&arguments, |_, _| Ok(()))
        })?;
        self.parts.snapshot = Some(Part::new(sizes, rounds.done));
        Ok(())
    }

    fn latency(&mut self) -> Result<(), BenchError> {
        let sizes = self.args.latency;
        let mut runs = Vec::new();
        for order in [BenchOrder(millpond::Order::ZERO.into()), self.args.order] {
            for background in [false, true] {
                runs.push(latency::Run { order, background });
            }
        }
        let mut rounds = Rounds::new(&runs, self.args.rounds);
        rounds.run(|run| {
            let side = Side::Ours(run.order);
            let mut arguments = worker_of("latency", side, &sizes.to_arguments());
            arguments.extend(run.background.then(|| "--background".to_owned()));
            self.workers.measure(&arguments, |_, _| Ok(()))
        })?;
        self.parts.latency = Some(Part::new(sizes, rounds.done));
        Ok(())
    }
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
