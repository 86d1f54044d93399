//! `millpond bench fits`: programs whose memory fits into the budget, under `millpond run` and by themselves.
//!
//! Where everything fits, nothing has to leave, and a program should not notice Millpond at all. What is left are the
//! first touch of its memory, the allocator, and (with direct delivery) the look at each system call. So the programs
//! are those that make many system calls:
//!
//! | part | what is timed |
//! | --- | --- |
//! | `redis_set`, `redis_get` | 50 clients of redis-benchmark, which is a process without Millpond, and a redis-server |
//! | `heap_reads` | a program that reads a file from the page cache into its heap, 4 KiB a call, as `dd` does |
//! | `sqlite` | sqlite3, which fills, changes and asks a database in a file |
//! | `http` | requests to python's `http.server`, each of which gets a thread of its own |
//!
//! A server's start and end are not timed; what a program prints or answers is compared with what it must be. The disk
//! is not measured: sqlite3 does not wait for it (`synchronous=off`).

mod heap;
mod http;
mod job;
mod redis;
mod report;
mod side;
mod sqlite;

use crate::bench::{self, Asked, Bench};
use crate::error::BenchError;
use crate::part::Part;
use crate::under_run;
use crate::worker::say_measured;
use job::{Job, Sizes};
use millpond_cli::run::DeliveryChoice;
use report::FitsParts;
use side::Side;
use std::path::PathBuf;

/// `millpond bench fits`' arguments.
#[derive(clap::Args, Debug)]
pub struct FitsArgs {
    #[command(flatten)]
    asked: Asked<Name>,
    #[command(flatten)]
    sizes: Sizes,
}

/// A part of the benchmark.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
#[value(rename_all = "snake_case")]
pub enum Name {
    /// redis-benchmark's SET, 50 clients
    RedisSet,
    /// redis-benchmark's GET, 50 clients
    RedisGet,
    /// Reads of 4 KiB into the heap
    HeapReads,
    /// sqlite3 with a database in a file
    Sqlite,
    /// Requests to python's HTTP server
    Http,
}

impl bench::Name for Name {}

/// One measured process of this benchmark.
#[derive(clap::Subcommand, Debug)]
pub enum FitsWorker {
    /// Start a part's program on one side, and time it
    Job(Job),
    /// Be the program that reads into its heap
    HeapReads {
        /// The file that is read
        file: PathBuf,
        /// How often it is read
        laps: u32,
    },
}

/// Measures and prints. Returns 1 when a program gave a wrong answer.
///
/// # Errors
/// When a worker fails, or a signal asked for the end.
pub fn fits(args: &FitsArgs) -> Result<u8, BenchError> {
    Bench::run(&args.asked, None, |bench, name| measure(bench, name, args))
}

fn measure(bench: &mut Bench<FitsParts>, name: Name, args: &FitsArgs) -> Result<(), BenchError> {
    let part = report::name_of(name);
    if let Err(why) = job::can_run(name) {
        bench.skipped.note(&part, &why);
        return Ok(());
    }
    bench.workers.take(args.sizes.ram);
    let mut sides = vec![Side::Plain];
    for (side, delivery) in [
        (Side::Handler, DeliveryChoice::Handler),
        (Side::Direct, DeliveryChoice::Direct),
    ] {
        match under_run::can_run_by(delivery) {
            Ok(()) => sides.push(side),
            Err(why) => bench.skipped.note(&format!("{part} by {side}"), &why),
        }
    }
    let rounds = bench.processes(&sides, |side| {
        let mut arguments = ["fits", "job", &part, &side.to_string()]
            .map(str::to_owned)
            .to_vec();
        arguments.extend(args.sizes.to_arguments());
        arguments
    })?;
    bench.parts.set(name, Part::new(args.sizes, rounds));
    Ok(())
}

/// Does the work of the measured process, and prints what it measured as JSON.
///
/// # Errors
/// When the program cannot be started, or fails.
pub fn work(command: &FitsWorker) -> Result<(), BenchError> {
    match command {
        FitsWorker::Job(job) => say_measured(job::work(job)),
        FitsWorker::HeapReads { file, laps } => say_measured(heap::read(file, *laps)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_options_are_the_same() {
        use clap::{Args, Subcommand};
        FitsArgs::augment_args(clap::Command::new("fits")).debug_assert();
        FitsWorker::augment_subcommands(clap::Command::new("worker")).debug_assert();
    }
}
