//! `millpond-bench`, also started as `millpond bench`: Millpond beside what the kernel does with the same data in the
//! same RAM.

mod backing;
mod bench;
mod cgroup;
mod clock;
mod data;
mod error;
mod file;
mod fits;
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
mod programs;
mod programs_here;
mod remap;
#[cfg(feature = "remote")]
mod remote;
mod report;
mod rounds;
mod run;
mod smaps;
mod start;
mod summary;
mod swap;
mod swap_area;
mod swap_file;
mod threads;
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
    /// Fill, access and read a region of twice the budget, beside kernel swap to zram or to a file
    Swap(swap::SwapArgs),
    /// Free memory lazily, beside the kernel's `madvise`
    #[command(name = "lazyfree")]
    LazyFree(lazyfree::LazyFreeArgs),
    /// Touch and read memory in folios of any size, beside the kernel's pages
    Folio(folio::FolioArgs),
    /// Move memory by its page tables, beside `mremap`, and let a vector grow, beside the system's allocator
    Remap(remap::RemapArgs),
    /// Give much memory back, at once and repeatedly, beside `munmap`
    Free(free::FreeArgs),
    /// Read a file larger than the budget in place, beside the kernel's `mmap` and the device's own rate
    File(file::FileArgs),
    /// Keep memory in a Redis and in an S3 server, beside what the services' own client moves
    #[cfg(feature = "remote")]
    Remote(remote::RemoteArgs),
    /// Run programs whose memory fits into the budget, under `millpond run` and by themselves
    Fits(fits::FitsArgs),
    /// Run a program of your own in less memory than it needs, by `millpond run`, beside swap to a file and to zram
    Run(run::RunArgs),
    /// Run twelve real programs in a half and a quarter of their memory, by `millpond run` and by the kernel's swap
    Programs(programs::ProgramsArgs),
    /// Let one thread and two threads fault, and compare their rates
    Threads(threads::ThreadsArgs),
    /// Start processes that end at once, under `millpond run`, beside the same by themselves
    Start(start::StartArgs),
    /// Measure which pages stay in memory when the working set changes, during a scan and by traces, beside the kernel
    Workingset(workingset::WorkingsetArgs),
    /// Run one process that is measured; the other commands start it
    #[command(subcommand, hide = true)]
    Worker(WorkerCommand),
}

/// One measured process.
#[derive(Subcommand, Debug)]
enum WorkerCommand {
    /// Measure Millpond at one order
    Millpond {
        #[command(flatten)]
        how: millpond_side::How,
        #[command(flatten)]
        work: Work,
        #[command(flatten)]
        manner: Manner,
    },
    /// Measure kernel swap in a memory cgroup
    KernelSwap {
        /// The directory of the memory cgroup
        #[arg(long)]
        cgroup: PathBuf,
        #[command(flatten)]
        work: Work,
        #[command(flatten)]
        manner: Manner,
    },
    /// Run one process of `lazyfree`
    #[command(subcommand)]
    LazyFree(lazyfree::LazyFreeWorker),
    /// Run one process of `folio`
    #[command(subcommand)]
    Folio(folio::FolioWorker),
    /// Run one process of `remap`
    #[command(subcommand)]
    Remap(remap::RemapWorker),
    /// Run one process of `free`
    #[command(subcommand)]
    Free(free::FreeWorker),
    /// Run one process of `run`
    Program(run::Job),
    /// Run one process of `file`
    File(file::Job),
    /// Run one process of `remote`
    #[cfg(feature = "remote")]
    Remote(remote::Job),
    /// Run one process of `fits`
    #[command(subcommand)]
    Fits(fits::FitsWorker),
    /// Run one process of `threads`
    Threads(threads::Job),
    /// Run the process of `start`
    Start {
        #[command(flatten)]
        sizes: start::Sizes,
    },
    /// Run one process of `workingset`
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
        BenchCommand::File(args) => file::file(args),
        #[cfg(feature = "remote")]
        BenchCommand::Remote(args) => remote::remote(args),
        BenchCommand::Fits(args) => fits::fits(args),
        BenchCommand::Run(args) => run::run(args),
        BenchCommand::Programs(args) => programs::programs(args),
        BenchCommand::Threads(args) => threads::threads(args),
        BenchCommand::Start(args) => start::start(args),
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
        WorkerCommand::File(job) => say_measured(file::work(job))?,
        #[cfg(feature = "remote")]
        WorkerCommand::Remote(job) => say_measured(remote::work(job))?,
        WorkerCommand::Fits(command) => fits::work(command)?,
        WorkerCommand::Threads(job) => say_measured(threads::work(job))?,
        WorkerCommand::Start { sizes } => start::work(*sizes)?,
        WorkerCommand::Workingset(command) => workingset::work(command)?,
    }
    Ok(0)
}
