//! `millpond replay`: what a trace of page accesses would cost in less memory, under Millpond's policy and under
//! others.
//!
//! The trace is read once and held in memory. Each policy and size is a separate run from an empty cache, with as many
//! at a time as there are processors. Traces come from `millpond record`, from valgrind's lackey, or from other
//! collections: `millpond_replay::import` lists them.

mod check;
mod report;
mod sizes;

use crate::{page, print};
use check::check_curves;
use clap::Args;
use millpond_replay::core_policy::CoreError;
use millpond_replay::import::{Format, Reading};
use millpond_replay::policies::{Misses, Policy};
use millpond_replay::trace::Trace;
use millpond_replay::{OpenError, open};
use report::{ReplayReport, Size};
use sizes::{RamSize, RamSizeError};
use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::{io, thread};

/// `millpond replay`'s arguments.
#[derive(Args, Debug)]
pub struct ReplayArgs {
    /// A trace written by `millpond record`, or one in another format (see --format). Traces compressed with zstd are
    /// recognised
    trace: PathBuf,
    /// The memory sizes to replay with, each as a share of the pages that the trace touches (25%), in bytes (64M) or
    /// in pages (1000p)
    #[arg(long, value_name = "SIZE,…", value_delimiter = ',', default_value = "25%,50%,75%", value_parser = RamSize::parse)]
    ram: Vec<RamSize>,
    /// The replacement policies to replay with. `workingset` is Millpond's own, and `opt` is the best possible
    #[arg(
        long,
        value_name = "NAME,…",
        value_delimiter = ',',
        default_value = "workingset,lru,fifo,clock,arc,s3fifo,sieve,opt"
    )]
    policy: Vec<Policy>,
    /// The format of the trace: millpond, lackey, oracleGeneral, plain, vz or u64. It is needed only if neither the
    /// file's name nor its contents reveal it
    #[arg(long, value_name = "FORMAT")]
    format: Option<Format>,
    /// Read bit 0 of each number as "this access writes", and the other bits as the page. Applies to the formats
    /// plain, vz and u64
    #[arg(long)]
    write_bit: bool,
    /// Count instruction fetches as accesses too. Applies to the format lackey
    #[arg(long)]
    instructions: bool,
    /// Check the curve of each size: replay with more memory, and print the predicted and the actual faults
    #[arg(long)]
    check_curve: bool,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
    /// Also write the result to a file: as a web page if its name ends in .html, else as JSON. May be given more than
    /// once
    #[arg(long, value_name = "FILE")]
    report: Vec<PathBuf>,
}

/// A reason why nothing was replayed.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// The trace cannot be read.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// A size makes no sense for this trace.
    #[error(transparent)]
    Size(#[from] RamSizeError),
    /// The core refuses a size.
    #[error(transparent)]
    Core(#[from] CoreError),
    /// The report's file cannot be written.
    #[error("cannot write the report to {path}: {error}; choose another place with --report")]
    ReportFile {
        /// The file.
        path: PathBuf,
        /// The system's answer.
        error: io::Error,
    },
    /// The result cannot be printed.
    #[error("cannot print the result: {0}")]
    Print(io::Error),
}

/// Replays the trace and prints the result.
///
/// # Errors
/// When the trace cannot be read or a size makes no sense for it.
pub fn replay(args: &ReplayArgs) -> Result<u8, ReplayError> {
    let files = open_reports(&args.report)?;
    let reading = Reading {
        write_bit: args.write_bit,
        instructions: args.instructions,
    };
    let trace = open::load(&args.trace, args.format, reading)?;
    let sizes = args
        .ram
        .iter()
        .map(|size| size.pages(trace.footprint()))
        .collect::<Result<Vec<u32>, _>>()?;
    let results = run_all(&trace, &args.policy, &sizes)?;
    let checks = if args.check_curve {
        check_curves(&trace, &results)?
    } else {
        Vec::new()
    };
    let sizes = args.ram.iter().zip(sizes);
    let sizes = sizes
        .map(|(given, pages)| Size::new(given, pages))
        .collect();
    let report = ReplayReport::new(&args.trace, &trace, sizes, results, checks);
    let text = if args.json {
        report.to_json()
    } else {
        report.to_string()
    };
    print::all(text.as_bytes()).map_err(ReplayError::Print)?;
    for (path, mut file) in files {
        let text = if page::is_page(path) {
            report.to_page()
        } else {
            report.to_json()
        };
        let written = file.write_all(text.as_bytes());
        written.map_err(|error| report_file(path, error))?;
    }
    Ok(0)
}

/// The files of the report, which are created before the work, so that a mistyped directory is reported immediately.
fn open_reports(paths: &[PathBuf]) -> Result<Vec<(&PathBuf, File)>, ReplayError> {
    let mut files = Vec::new();
    for path in paths {
        let file = File::create(path).map_err(|error| report_file(path, error))?;
        files.push((path, file));
    }
    Ok(files)
}

fn report_file(path: &Path, error: io::Error) -> ReplayError {
    ReplayError::ReportFile {
        path: path.to_owned(),
        error,
    }
}

/// The files of a directory, by name, without those that are called `README…` or end in `.py`, which are not traces.
///
/// # Errors
/// When the directory cannot be read.
pub fn traces_in(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(directory)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let other = name.starts_with("README") || name.ends_with(".py") || name.starts_with('.');
        if path.is_file() && !other {
            paths.push(path);
        }
    }
    paths.sort();
    Ok(paths)
}

/// Runs every policy in every size, as many at a time as there are processors. The results are in the order of the
/// policies and sizes.
///
/// # Errors
/// When the core does not accept a size.
pub fn run_all(
    trace: &Trace,
    policies: &[Policy],
    sizes: &[u32],
) -> Result<Vec<(Policy, Vec<Misses>)>, CoreError> {
    // All sizes of LRU are computed together, those of other policies one by one.
    let mut jobs = Vec::new();
    for &policy in policies {
        match policy {
            Policy::Lru => jobs.push((policy, sizes)),
            _ => jobs.extend(sizes.chunks(1).map(|size| (policy, size))),
        }
    }
    let done: Vec<OnceLock<_>> = jobs.iter().map(|_| OnceLock::new()).collect();
    let next = AtomicUsize::new(0);
    let work = || {
        while let Some(n) = Some(next.fetch_add(1, Ordering::Relaxed)).filter(|&n| n < jobs.len()) {
            let (policy, sizes) = jobs[n];
            let first = done[n].set(policy.misses(trace, sizes)).is_ok();
            debug_assert!(first, "a job is done once");
        }
    };
    let threads = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        for _ in 0..threads.min(jobs.len()) {
            scope.spawn(work);
        }
    });
    let mut done = done
        .into_iter()
        .map(|slot| slot.into_inner().expect("all jobs are done"));
    policies
        .iter()
        .map(|&policy| {
            let runs = if policy == Policy::Lru {
                1
            } else {
                sizes.len()
            };
            let runs: Result<Vec<Vec<Misses>>, _> = done.by_ref().take(runs).collect();
            Ok((policy, runs?.concat()))
        })
        .collect()
}
