//! `millpond-bench`, also started as `millpond bench`: compares Millpond with what the kernel does with the same data
//! in the same RAM.

mod backing;
mod bench;
mod cgroup;
mod clock;
mod comparison;
mod data;
mod error;
mod file;
mod fits;
mod folio;
mod free;
mod guard;
mod jobs;
mod kernel_swap;
mod lazyfree;
mod mapping;
mod memory;
mod millpond_side;
mod order;
mod outcome;
mod phases;
mod programs;
mod programs_here;
mod remap;
#[cfg(feature = "remote")]
mod remote;
mod rounds;
mod run;
mod side;
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
use crate::jobs::Job;
use clap::{Parser, Subcommand};
use std::ffi::OsString;
use std::process::ExitCode;

/// Compare Millpond with the kernel
#[derive(Parser, Debug)]
#[command(name = "millpond-bench", version)]
struct Cli {
    #[command(subcommand)]
    command: BenchCommand,
}

/// The benchmarks.
#[derive(Subcommand, Debug)]
enum BenchCommand {
    /// Fill, access and read a region of twice the budget; compared with kernel swap to zram or to a file
    Swap(swap::SwapArgs),
    /// Free memory lazily; compared with the kernel's `madvise`
    #[command(name = "lazyfree")]
    LazyFree(lazyfree::LazyFreeArgs),
    /// Touch and read memory in folios of any size; compared with the kernel's pages
    Folio(folio::FolioArgs),
    /// Move memory by its page tables, compared with `mremap`; grow a vector, compared with the system's allocator
    Remap(remap::RemapArgs),
    /// Free large amounts of memory, once and repeatedly; compared with `munmap`
    Free(free::FreeArgs),
    /// Read a file larger than the budget in place; compared with the kernel's `mmap` and the device's own rate
    File(file::FileArgs),
    /// Keep memory in Redis and in an S3 server; compared with the rate of the services' own clients
    #[cfg(feature = "remote")]
    Remote(remote::RemoteArgs),
    /// Run programs whose memory fits into the budget, with and without `millpond run`
    Fits(fits::FitsArgs),
    /// Run your own program in less memory than it needs under `millpond run`; compared with swap to a file and to
    /// zram
    Run(run::RunArgs),
    /// Run twelve real programs in a half and a quarter of their memory, under `millpond run` and with kernel swap
    Programs(programs::ProgramsArgs),
    /// Compare the fault rates of one thread and of two threads
    Threads(threads::ThreadsArgs),
    /// Start processes that end at once, with and without `millpond run`
    Start(start::StartArgs),
    /// Measure which pages stay in memory when the working set changes, during a scan, and in traces; compared with
    /// the kernel
    Workingset(workingset::WorkingsetArgs),
    /// Do the job of one measured process; the other commands start it
    #[command(hide = true)]
    Worker {
        /// The job, as JSON
        job: String,
        /// A program and its arguments
        #[arg(last = true)]
        program: Vec<OsString>,
    },
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

/// Runs a benchmark. Returns 0, or 1 when memory had wrong contents.
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
        BenchCommand::Worker { job, program } => {
            let job: Job =
                serde_json::from_str(job).map_err(|error| BenchError::Memory(error.into()))?;
            job.work(program)?;
            Ok(0)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn no_two_options_are_the_same() {
        Cli::command().debug_assert();
    }
}
