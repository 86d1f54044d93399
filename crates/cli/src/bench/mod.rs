//! `millpond bench`: Millpond beside what the kernel does with the same data in the same RAM.

mod cgroup;
mod clock;
mod data;
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

use clap::Subcommand;
use phases::{Manner, Work};
use std::io;
use std::path::PathBuf;

/// What can be measured.
#[derive(Subcommand, Debug)]
pub enum BenchCommand {
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
}

/// One measured process.
#[derive(Subcommand, Debug)]
pub enum WorkerCommand {
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

/// Why a side of the benchmark cannot run on this machine.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{0}")]
pub struct Skip(pub String);

/// Why a measured process failed.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Why a benchmark gave no result.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// A side cannot run here; the benchmark goes on without it.
    #[error(transparent)]
    Skipped(#[from] Skip),
    /// Another benchmark holds the lock.
    #[error("another benchmark is running (it holds {}); wait for its end", .0.display())]
    Busy(PathBuf),
    /// The lock cannot be taken.
    #[error("cannot lock {}: {error}; run the benchmark as root", .path.display())]
    Lock {
        /// The lock's file.
        path: PathBuf,
        /// What the system said.
        error: io::Error,
    },
    /// What is made cannot be written down.
    #[error("cannot write down what the benchmark makes: {0}; see that /run has room")]
    Record(#[source] io::Error),
    /// Something could not be put back.
    #[error(
        "cannot put back swap, zram or cgroup: {0}; start the benchmark again, it tries again first"
    )]
    PutBack(#[source] io::Error),
    /// The measured process cannot be started.
    #[error("cannot start the measured process: {0}")]
    Start(#[source] io::Error),
    /// Somebody else killed the measured process.
    #[error(
        "the measured process was killed; in a memory cgroup the kernel does so, for want of memory"
    )]
    Killed,
    /// The measured process failed.
    #[error("the measured process failed: {0}")]
    Worker(String),
    /// The measured process itself: it cannot get its memory.
    #[error("cannot get the memory to measure: {0}")]
    Memory(Failure),
    /// Traces cannot be replayed.
    #[error("{0}")]
    Traces(String),
    /// A signal asked for the end.
    #[error("ended by signal {0}")]
    Interrupted(i32),
    /// The result cannot be printed.
    #[error("cannot print the result: {0}")]
    Print(#[source] io::Error),
}

impl BenchError {
    /// The exit status for this error.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Interrupted(signal) => 128u8.saturating_add(*signal as u8),
            _ => 1,
        }
    }
}

/// Measures. Answers 0, or 1 when memory was read back wrong.
///
/// # Errors
/// When there is no result.
pub fn bench(command: &BenchCommand) -> Result<u8, BenchError> {
    match command {
        BenchCommand::Swap(args) => swap::swap(args),
        BenchCommand::LazyFree(args) => lazyfree::lazyfree(args),
        BenchCommand::Folio(args) => folio::folio(args),
        BenchCommand::Remap(args) => remap::remap(args),
        BenchCommand::Free(args) => free::free(args),
        BenchCommand::Run(args) => run::run(args),
        BenchCommand::Workingset(args) => workingset::workingset(args),
    }
}

/// Is the measured process, and prints what it measured as JSON.
///
/// # Errors
/// When it cannot get its memory, or print.
pub fn work(command: &WorkerCommand) -> Result<u8, BenchError> {
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

/// Whether a part is among those that `--only` names; all are when it names none.
fn is_asked_for<T: PartialEq>(only: &[T], part: T) -> bool {
    only.is_empty() || only.contains(&part)
}

/// Prints what a measured process has measured.
fn say_measured(measured: Result<impl serde::Serialize, Failure>) -> Result<(), BenchError> {
    let measured = measured.map_err(BenchError::Memory)?;
    serde_json::to_writer(io::stdout(), &measured).map_err(|error| BenchError::Print(error.into()))
}
