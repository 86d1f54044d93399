//! `millpond bench file`: a file that is larger than the budget, read in place.
//!
//! | part | what is read |
//! | --- | --- |
//! | `sequential` | the whole file once, in order |
//! | `random` | pages at random, by one thread |
//! | `random_threads` | pages at random, by several threads |
//! | `hot` | a set of half the budget again and again, beside a scan of the rest of the file |
//!
//! | side | how |
//! | --- | --- |
//! | `millpond` | a region over the file, under a manager with the budget |
//! | `kernel` | `mmap` of the file, which is what `np.memmap` does, in a memory cgroup of the budget |
//! | `kernel_advised` | the same, and the kernel is told how the file will be read |
//! | `device` | reads by the call, past the page cache, four of 2 MiB at a time, into huge pages: in the part `sequential` only |
//!
//! The kernel charges the page cache that a process fills to the process's group, so a group of the budget is what
//! holds a mapped file to a budget. Millpond's side has a group too, without a limit: what it fills of the page cache
//! counts there, and is seen from outside. Before each measured process the page cache forgets the file. Every side
//! looks at every byte of the pages that it reads.

mod data_file;
mod report;
mod side;
mod work;

use crate::bench::{self, Asked, Bench};
use crate::cgroup;
use crate::error::{BenchError, Skip};
use crate::part::Part;
use crate::rounds::{self, parse_pages};
use clap::ValueEnum;
use data_file::DataFile;
use millpond_cli::size;
use report::{FileParts, Outcome};
use serde::Serialize;
use side::Side;
use std::path::{Path, PathBuf};
pub use work::{Job, work};

/// A limit that is none: more than any machine has.
const UNLIMITED: u64 = 1 << 60;

/// `millpond bench file`'s arguments.
#[derive(clap::Args, Debug)]
pub struct FileArgs {
    #[command(flatten)]
    asked: Asked<Name>,
    /// Measure these sides alone
    #[arg(long, value_name = "SIDE,...", value_delimiter = ',')]
    sides: Vec<Side>,
    /// The directory in which the file is made
    #[arg(long, value_name = "DIRECTORY", default_value = "/var/tmp")]
    directory: PathBuf,
    #[command(flatten)]
    sizes: Sizes,
}

/// Sizes of one measurement.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, clap::Args)]
#[group(skip)]
pub struct Sizes {
    /// The size of the file
    #[arg(id = "size", long = "size", default_value = "2G", value_parser = parse_pages, value_name = "SIZE")]
    pub file_bytes: u64,
    /// The RAM budget
    #[arg(id = "ram", long = "ram", default_value = "128M", value_parser = size::parse_ram, value_name = "SIZE")]
    pub budget_bytes: u64,
    /// How many pages are read at random, by all threads together
    #[arg(long, default_value_t = 4_000, value_parser = clap::value_parser!(u64).range(1..), value_name = "N")]
    pub accesses: u64,
    /// How many threads read in the part `random_threads`
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=256), value_name = "N")]
    pub threads: u16,
}

impl Sizes {
    /// The sizes as arguments of the measured process.
    fn to_arguments(self) -> Vec<String> {
        rounds::options(&[
            ("--size", self.file_bytes),
            ("--ram", self.budget_bytes),
            ("--accesses", self.accesses),
            ("--threads", self.threads.into()),
        ])
    }
}

/// A part of the benchmark.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
#[value(rename_all = "snake_case")]
pub enum Name {
    /// The whole file in order
    Sequential,
    /// Pages at random
    Random,
    /// Pages at random, by several threads
    RandomThreads,
    /// A hot set beside a scan
    Hot,
}

impl bench::Name for Name {}

/// Measures, puts everything back, and prints. Returns 1 when memory held wrong bytes.
///
/// # Errors
/// When the file cannot be made, a worker fails, something cannot be put back, or a signal asked for the end.
pub fn file(args: &FileArgs) -> Result<u8, BenchError> {
    // The file is made when the first part is measured, under the benchmark's lock.
    let mut made = None;
    Bench::run(&args.asked, None, |bench, name| {
        let file = match made.take() {
            Some(file) => file,
            None => DataFile::make(&args.directory, args.sizes.file_bytes)
                .map_err(|error| BenchError::Memory(error.into()))?,
        };
        let measured = measure(bench, name, args, &file);
        made = Some(file);
        measured
    })
}

fn measure(
    bench: &mut Bench<FileParts>,
    name: Name,
    args: &FileArgs,
    file: &DataFile,
) -> Result<(), BenchError> {
    let sides = sides(bench, name, args, file)?;
    let rounds = bench.rounds(&sides, |bench, side| {
        measure_once(bench, name, side, args, file)
    })?;
    bench.parts.set(name, Part::new(args.sizes, rounds));
    Ok(())
}

/// The sides that were asked for and can run here.
fn sides(
    bench: &mut Bench<FileParts>,
    name: Name,
    args: &FileArgs,
    file: &DataFile,
) -> Result<Vec<Side>, BenchError> {
    let all = Side::value_variants().iter().copied();
    let asked = all.filter(|side| args.sides.is_empty() || args.sides.contains(side));
    let mut here = Vec::new();
    for side in asked {
        let can = match side {
            Side::Millpond => Ok(()),
            Side::Device if name != Name::Sequential => continue,
            Side::Device => data_file::open_direct(&file.path()).map(drop).map_err(|_| {
                let directory = args.directory.display();
                Skip(format!(
                    "files in {directory} cannot be read past the page cache; name another --directory"
                ))
            }),
            Side::Kernel | Side::KernelAdvised => match group(bench, side, args.sizes.budget_bytes) {
                Ok(_) => Ok(()),
                Err(BenchError::Skipped(why)) => Err(why),
                Err(error) => return Err(error),
            },
        };
        put_back(bench)?;
        match can {
            Ok(()) => here.push(side),
            Err(why) => bench.skipped.note(&format!("{name:?}, {side}"), &why),
        }
    }
    Ok(here)
}

/// Makes the group that `side` runs in: the kernel's has a limit.
fn group(
    bench: &mut Bench<FileParts>,
    side: Side,
    budget: u64,
) -> Result<Option<PathBuf>, BenchError> {
    let limit = match side {
        Side::Kernel | Side::KernelAdvised => budget,
        Side::Millpond | Side::Device => UNLIMITED,
    };
    let made = match &mut bench.guard {
        Some(guard) => guard.make_group(limit),
        None => Err(Skip("making cgroups needs root".to_owned()).into()),
    };
    match made {
        Ok((_, group)) => Ok(Some(group)),
        // The other sides do without the group.
        Err(BenchError::Skipped(_)) if limit == UNLIMITED => Ok(None),
        Err(error) => Err(error),
    }
}

fn put_back(bench: &mut Bench<FileParts>) -> Result<(), BenchError> {
    bench
        .guard
        .as_mut()
        .map_or(Ok(()), |guard| guard.put_back())
}

fn measure_once(
    bench: &mut Bench<FileParts>,
    name: Name,
    side: Side,
    args: &FileArgs,
    file: &DataFile,
) -> Result<Outcome, BenchError> {
    let group = group(bench, side, args.sizes.budget_bytes)?;
    file.cool().map_err(BenchError::Start)?;
    let mut arguments = vec!["file".to_owned(), value_name(name), side.to_string()];
    arguments.extend(args.sizes.to_arguments());
    arguments.extend(["--file".to_owned(), text(&file.path())]);
    if let Some(group) = &group {
        arguments.extend(["--cgroup".to_owned(), text(group)]);
    }
    let guard = &mut bench.guard;
    let mut outcome: Outcome = bench.workers.measure(&arguments, |pid, start| {
        guard.as_mut().map_or(Ok(()), |guard| {
            guard.record(|made| made.worker = Some((pid, start)))
        })
    })?;
    outcome.peak_group_bytes = group.as_deref().and_then(cgroup::peak);
    put_back(bench)?;
    Ok(outcome)
}

fn text(path: &Path) -> String {
    path.display().to_string()
}

/// The name of a part in arguments.
fn value_name(name: Name) -> String {
    let value = name.to_possible_value();
    value.map_or_else(String::new, |value| value.get_name().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_options_are_the_same() {
        use clap::Args;
        FileArgs::augment_args(clap::Command::new("file")).debug_assert();
        Job::augment_args(clap::Command::new("worker")).debug_assert();
    }
}
