//! `millpond bench file`: reads a file larger than the budget in place.
//!
//! | part | what is read |
//! | --- | --- |
//! | `sequential` | the whole file once, in order |
//! | `random` | pages at random, by one thread |
//! | `random_threads` | pages at random, by several threads |
//! | `hot` | a set of half the budget repeatedly, during a scan of the rest of the file |
//!
//! | side | how |
//! | --- | --- |
//! | `millpond` | a region over the file, under a manager with the budget |
//! | `kernel` | `mmap` of the file, which is what `np.memmap` does, in a memory cgroup of the budget |
//! | `kernel_advised` | the same, and the kernel is told how the file will be read |
//! | `device` | direct reads, four of 2 MiB at a time, into huge pages; only in the part `sequential` |
//!
//! The kernel charges the page cache that a process fills to the process's group, so a group with a limit of the
//! budget keeps a mapped file within it. Millpond's side also has a group, without a limit: page cache that it fills
//! is charged there, and can be seen from outside. Before each measured process the file is removed from the page
//! cache. Every side inspects every byte of the pages that it reads. A ratio is the time of the kernel's mapping, or
//! of the device's reads, divided by Millpond's.

mod data_file;
mod work;

use crate::bench::{Asked, Bench, Parts, is_asked_for};
use crate::cgroup::{self, UNLIMITED};
use crate::error::{BenchError, Skip};
use crate::jobs::Job;
use crate::rounds::parse_pages;
use crate::side::sides;
use clap::ValueEnum;
use data_file::DataFile;
use millpond_cli::size::{self, Human};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use work::Outcome;
pub use work::{Task, work};

/// `millpond bench file`'s arguments.
#[derive(clap::Args, Debug)]
pub struct FileArgs {
    #[command(flatten)]
    asked: Asked<Part>,
    /// Measure only these sides
    #[arg(long, value_name = "SIDE,...", value_delimiter = ',')]
    sides: Vec<Side>,
    /// The directory in which the file is created
    #[arg(long, value_name = "DIRECTORY", default_value = "/var/tmp")]
    directory: PathBuf,
    #[command(flatten)]
    sizes: Sizes,
}

/// Sizes of one measurement.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, clap::Args)]
#[group(skip)]
pub struct Sizes {
    /// The size of the file
    #[arg(id = "size", long = "size", default_value = "2G", value_parser = parse_pages, value_name = "SIZE")]
    pub file_bytes: u64,
    /// The RAM budget
    #[arg(id = "ram", long = "ram", default_value = "128M", value_parser = size::parse_ram, value_name = "SIZE")]
    pub budget_bytes: u64,
    /// The number of pages read at random, by all threads together
    #[arg(long, default_value_t = 4_000, value_parser = clap::value_parser!(u64).range(1..), value_name = "N")]
    pub accesses: u64,
    /// The number of threads that read in the part `random_threads`
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=256), value_name = "N")]
    pub threads: u16,
}

/// A part of the benchmark.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, clap::ValueEnum)]
#[value(rename_all = "snake_case")]
pub enum Part {
    /// Read the whole file in order
    Sequential,
    /// Read pages at random
    Random,
    /// Read pages at random, with several threads
    RandomThreads,
    /// Read a hot set during a scan
    Hot,
}

impl Parts for Part {
    const SCHEMA: &'static str = "millpond-bench-file/2";

    fn units(_order: &str) -> String {
        "times are µs a page of 4 KiB, of all threads together".to_owned()
    }
}

sides! {
    /// Who brings the pages of the file into memory.
    pub enum Side {
        /// A region over the file, under a manager
        Millpond,
        /// The file mapped by the kernel (`mmap`, as `np.memmap` does) in a memory cgroup of the budget
        Kernel,
        /// The same, and the kernel is told how the file will be read (`MADV_SEQUENTIAL`, `MADV_RANDOM`)
        KernelAdvised,
        /// The file read by calls that bypass the page cache, several at a time: the device's own rate
        Device,
    }
    against [Kernel, KernelAdvised, Device]
}

/// Measures, restores the machine, and prints. Returns 1 when memory had wrong contents.
///
/// # Errors
/// When the file cannot be created, a worker fails, something cannot be restored, or a signal ended the benchmark.
pub fn file(args: &FileArgs) -> Result<u8, BenchError> {
    // The file is created when the first part is measured, under the benchmark's lock.
    let mut made = None;
    Bench::run(&args.asked, None, |bench, part| {
        let file = match made.take() {
            Some(file) => file,
            None => DataFile::make(&args.directory, args.sizes.file_bytes)
                .map_err(|error| BenchError::Memory(error.into()))?,
        };
        let sides = sides(bench, part, args, &file)?;
        let rounds = bench.rounds(&sides, |bench, side| {
            measure_once(bench, part, side, args, &file)
        })?;
        made = Some(file);
        let (size, ram) = (Human(args.sizes.file_bytes), Human(args.sizes.budget_bytes));
        let how = how(part, &args.sizes);
        let heading = format!("a file of {size} in {ram}, {how}");
        bench.part(part, heading, args.sizes, rounds)
    })
}

/// How the file is read in a part.
fn how(part: Part, sizes: &Sizes) -> String {
    match part {
        Part::Sequential => "read in order".to_owned(),
        Part::Random => "read at random".to_owned(),
        Part::RandomThreads => format!("read at random by {} threads", sizes.threads),
        Part::Hot => "a hot set of half the budget beside a scan".to_owned(),
    }
}

/// The requested sides that can run here.
fn sides(
    bench: &mut Bench,
    part: Part,
    args: &FileArgs,
    file: &DataFile,
) -> Result<Vec<Side>, BenchError> {
    let all = Side::value_variants().iter().copied();
    let mut here = Vec::new();
    for side in all.filter(|&side| is_asked_for(&args.sides, side)) {
        let can = match side {
            Side::Millpond => Ok(()),
            Side::Device if part != Part::Sequential => continue,
            Side::Device => data_file::open_direct(&file.path()).map(drop).map_err(|_| {
                let directory = args.directory.display();
                Skip(format!(
                    "files in {directory} cannot be read past the page cache; name another --directory"
                ))
            }),
            Side::Kernel | Side::KernelAdvised => {
                match group(bench, side, args.sizes.budget_bytes) {
                    Ok(_) => Ok(()),
                    Err(BenchError::Skipped(why)) => Err(why),
                    Err(error) => return Err(error),
                }
            }
        };
        bench.put_back()?;
        if bench.can(&format!("{part:?}, {side}"), can) {
            here.push(side);
        }
    }
    Ok(here)
}

/// Creates the group in which `side` runs: the kernel's has a limit.
fn group(bench: &mut Bench, side: Side, budget: u64) -> Result<Option<PathBuf>, BenchError> {
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
        // The other sides can run without the group.
        Err(BenchError::Skipped(_)) if limit == UNLIMITED => Ok(None),
        Err(error) => Err(error),
    }
}

fn measure_once(
    bench: &mut Bench,
    part: Part,
    side: Side,
    args: &FileArgs,
    file: &DataFile,
) -> Result<Outcome, BenchError> {
    let group = group(bench, side, args.sizes.budget_bytes)?;
    file.cool().map_err(BenchError::Start)?;
    let mut outcome: Outcome = bench.guarded(&Job::File(Task {
        part,
        side,
        file: file.path(),
        cgroup: group.clone(),
        sizes: args.sizes,
    }))?;
    outcome.peak_group_bytes = group.as_deref().and_then(cgroup::peak);
    bench.put_back()?;
    Ok(outcome)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::comparison::{Comparison, Table};

    #[test]
    fn millpond_is_compared_with_the_mapping_and_with_the_device() {
        let read = |page, wrong_pages| Outcome {
            page,
            wrong_pages,
            ..Outcome::default()
        };
        let rounds = vec![
            (Side::Millpond, vec![read(2.0, 0)]),
            (Side::Kernel, vec![read(3.0, 0)]),
            (Side::Device, vec![read(1.0, 0), read(1.0, 1)]),
        ];
        let part = Comparison::new((), rounds);
        let ratio = |against| part.ratio("page", Side::Millpond, against);
        assert_eq!(ratio(Side::Kernel), Some(1.5));
        assert_eq!(ratio(Side::Device), Some(0.5));
        assert_eq!(part.wrong(), 1, "one wrong page of one round is seen");
    }
}
