//! `millpond-bench`, also started as `millpond bench`: Millpond beside what the kernel does with the same data in the
//! same RAM.

mod cgroup;
mod clock;
mod data;
mod error;
mod folio;
mod free;
mod guard;
mod kernel_swap;
mod lazyfree;
mod mapping;
mod memory;
mod millpond_side;
mod order;
mod part;
mod phases;
mod place;
mod remap;
mod report;
mod rounds;
mod run;
mod smaps;
mod summary;
mod swap;
mod swap_area;
mod swap_file;
mod target;
mod under_run;
mod warm;
mod worker;
mod workingset;
mod zram;

use crate::error::BenchError;
use crate::worker::say_measured;
use clap::{Parser, Subcommand};
use phases::{Manner, Work};
use std::path::PathBuf;
use std::process::ExitCode;

/// Measure Millpond beside what the kernel does
#[derive(Parser, Debug)]
#[command(name = "millpond-bench", version)]
struct Cli {
    #[command(subcommand)]
    command: BenchCommand,
}

/// What can be measured.
#[derive(Subcommand, Debug)]
enum BenchCommand {
    /// A region twice the budget: fill, random accesses, sequential read, verify; Millpond beside kernel swap to zram
    /// or to a file
    Swap(swap::SwapArgs),
    /// Giving memory back lazily: cost, store reads, a program that allocates, reported sizes; Millpond beside the
    /// kernel
    #[command(name = "lazyfree")]
    LazyFree(lazyfree::LazyFreeArgs),
    /// Folios of any size: first touch, both patterns of reading in one region, waste, snapshots, the slowest faults;
    /// Millpond beside the kernel
    Folio(folio::FolioArgs),
    /// Moving memory by its tables, and a vector that grows by pushes; Millpond beside `mremap` and the system's
    /// allocator
    Remap(remap::RemapArgs),
    /// Giving much memory back, at once and over and over; Millpond beside `munmap`
    Free(free::FreeArgs),
    /// A program of your own in less memory than it takes; `millpond run` beside swap to a file and to zram
    Run(run::RunArgs),
    /// Which pages stay in memory: another working set, a scan beside a hot one, traces; Millpond beside the kernel
    Workingset(workingset::WorkingsetArgs),
    /// One measured process
    #[command(subcommand, hide = true)]
    Worker(WorkerCommand),
}

/// One measured process.
#[derive(Subcommand, Debug)]
enum WorkerCommand {
    /// Millpond at one order, or an adaptive one
    Millpond {
        #[command(flatten)]
        how: millpond_side::How,
        #[command(flatten)]
        work: Work,
        #[command(flatten)]
        manner: Manner,
    },
    /// Kernel swap in a cgroup
    KernelSwap {
        /// The cgroup's directory
        #[arg(long)]
        cgroup: PathBuf,
        #[command(flatten)]
        work: Work,
        #[command(flatten)]
        manner: Manner,
    },
    /// Lazy free
    #[command(subcommand)]
    LazyFree(lazyfree::LazyFreeWorker),
    /// Folios
    #[command(subcommand)]
    Folio(folio::FolioWorker),
    /// Remap
    #[command(subcommand)]
    Remap(remap::RemapWorker),
    /// Free
    #[command(subcommand)]
    Free(free::FreeWorker),
    /// A program
    Program(run::Job),
    /// Workingset
    #[command(subcommand)]
    Workingset(workingset::WorkingsetWorker),
}

fn main() -> ExitCode {
    match bench(&Cli::parse().command) {
        Ok(status) => ExitCode::from(status),
        Err(error) => {
            millpond_cli::print::say(format_args!("{error}"));
            ExitCode::from(error.exit_code())
        }
    }
}

/// Measures. Returns 0, or 1 when memory was read back wrong.
///
/// # Errors
/// When there is no result.
fn bench(command: &BenchCommand) -> Result<u8, BenchError> {
    match command {
        BenchCommand::Swap(args) => swap::swap(args),
        BenchCommand::LazyFree(args) => lazyfree::lazyfree(args),
        BenchCommand::Folio(args) => folio::folio(args),
        BenchCommand::Remap(args) => remap::remap(args),
        BenchCommand::Free(args) => free::free(args),
        BenchCommand::Run(args) => run::run(args),
        BenchCommand::Workingset(args) => workingset::workingset(args),
        BenchCommand::Worker(command) => work(command),
    }
}

/// Does the work of the measured process, and prints what it measured as JSON.
///
/// # Errors
/// When the process cannot get its memory, or print.
fn work(command: &WorkerCommand) -> Result<u8, BenchError> {
    match command {
        WorkerCommand::Millpond { how, work, manner } => {
            say_measured(millpond_side::work(how, work, *manner))?;
        }
        WorkerCommand::KernelSwap {
            cgroup,
            work,
            manner,
        } => {
            say_measured(kernel_swap::work(cgroup, work, *manner).map_err(Into::into))?;
        }
        WorkerCommand::LazyFree(command) => lazyfree::work(command)?,
        WorkerCommand::Folio(command) => folio::work(command)?,
        WorkerCommand::Remap(command) => remap::work(command)?,
        WorkerCommand::Free(command) => free::work(command)?,
        WorkerCommand::Program(job) => say_measured(run::work(job))?,
        WorkerCommand::Workingset(command) => workingset::work(command)?,
    }
    Ok(0)
}
