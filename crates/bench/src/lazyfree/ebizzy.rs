//! A program that depends heavily on its allocator, and the effect of lazy purging on it.
//!
//! The program is modelled on ebizzy, itself a stand-in for web servers. A table of chunks is filled once. Then each
//! thread takes a random chunk, allocates a copy of it, looks up a number in the copy, and frees it. The figure is
//! records per second. The program only uses `malloc`, so it runs with any allocator: with the C library's by itself,
//! and with Millpond's under `millpond run`, which returns unused memory lazily or eagerly.
//!
//! The allocators are measured both with their default settings and returning memory at once ([`Decay`]).
//!
//! Copies are between a quarter and the whole of a chunk, so that an allocator cannot hand out the same piece for ever.

use crate::data;
use crate::error::Failure;
use crate::lazyfree::decay::Decay;
use crate::outcome::{highest, outcome};
use crate::phases::usage;
use crate::rounds;
use crate::side::Contender;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::hint::black_box;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Sizes of one measurement.
#[derive(Clone, Debug, Serialize, clap::Args)]
#[group(skip)]
pub struct Sizes {
    /// The numbers of threads with which the program is run
    #[arg(id = "ebizzy-threads", long = "ebizzy-threads", value_delimiter = ',', default_value = "1,2,4", value_parser = clap::value_parser!(u16).range(1..=256), value_name = "N,...")]
    pub threads: Vec<u16>,
    /// How long Millpond's allocator keeps unused memory, in milliseconds; `own` is its own setting
    #[arg(
        id = "ebizzy-decays",
        long = "ebizzy-decays",
        value_delimiter = ',',
        default_value = "own,0",
        value_name = "MS,..."
    )]
    pub decays: Vec<Decay>,
    /// The program's RAM budget under `millpond run`
    #[arg(id = "ebizzy-ram", long = "ebizzy-ram", default_value = "256M", value_parser = millpond_cli::size::parse_ram, value_name = "SIZE")]
    pub budget_bytes: u64,
    #[command(flatten)]
    pub program: Program,
}

/// The program's own settings.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize, clap::Args)]
#[group(skip)]
pub struct Program {
    /// The number of chunks in the program's table
    #[arg(id = "ebizzy-chunks", long = "ebizzy-chunks", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..), value_name = "N")]
    pub chunks: u32,
    /// The size of a chunk
    #[arg(id = "ebizzy-chunk", long = "ebizzy-chunk", default_value = "512K", value_parser = rounds::parse_pages, value_name = "SIZE")]
    pub chunk_bytes: u64,
    /// How long each run lasts, in milliseconds
    #[arg(id = "ebizzy-ms", long = "ebizzy-ms", default_value_t = 2000, value_parser = clap::value_parser!(u64).range(10..=600_000), value_name = "MS")]
    pub milliseconds: u64,
}

/// The program's allocator.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Allocator {
    /// Millpond's allocator, which returns memory lazily.
    LazyPurge,
    /// Millpond's allocator, which returns memory eagerly.
    EagerPurge,
    /// The C library's allocator, without Millpond.
    Libc,
}

impl Allocator {
    /// The option value of `millpond run` for it, if it is Millpond's.
    pub fn purge(self) -> Option<&'static str> {
        match self {
            Self::LazyPurge => Some("on"),
            Self::EagerPurge => Some("off"),
            Self::Libc => None,
        }
    }
}

/// One way of running the program.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Run {
    /// The number of allocating threads.
    pub threads: u16,
    /// The time for which the allocator keeps unused memory.
    pub decay: Decay,
    /// The allocator.
    pub allocator: Allocator,
}

outcome! {
    /// The findings of the program.
    pub struct Outcome {
        /// Copies made, searched and freed per second.
        pub records_per_second: f64,
        /// Numbers that were in a wrong place.
        pub wrong_records: u64 = highest,
        /// Page faults per record, as counted by the kernel for the process.
        pub faults: f64,
        /// Peak resident set of the process as counted by the kernel, in bytes.
        pub peak_rss_bytes: u64 = highest,
    }
    wrong |r| r.wrong_records;
    figures {
        other "records/s" = |one| one.records_per_second.round(),
        time "µs a record" = |one| 1e6 / one.records_per_second,
        other "faults" = |one| one.faults,
    }
}

impl Contender for Run {
    /// Lazy purging is compared with eager purging at the same number of threads and the same decay.
    fn is_against(self, other: Self) -> bool {
        self.allocator == Allocator::LazyPurge
            && other
                == Self {
                    allocator: Allocator::EagerPurge,
                    ..self
                }
    }
}

impl fmt::Display for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { threads, decay, .. } = self;
        match self.allocator {
            Allocator::LazyPurge => write!(f, "{threads}, kept {decay}, lazy"),
            Allocator::EagerPurge => write!(f, "{threads}, kept {decay}, eager"),
            Allocator::Libc => write!(f, "{threads}, C library"),
        }
    }
}

impl Sizes {
    /// All ways of running the program, in the order in which a round runs them; without Millpond's when `libc_only`.
    #[must_use]
    pub fn runs(&self, libc_only: bool) -> Vec<Run> {
        let mut runs = Vec::new();
        for &threads in &self.threads {
            let mut run = |decay, allocator| {
                runs.push(Run {
                    threads,
                    decay,
                    allocator,
                });
            };
            for &decay in self.decays.iter().filter(|_| !libc_only) {
                run(decay, Allocator::LazyPurge);
                run(decay, Allocator::EagerPurge);
            }
            run(Decay::Own, Allocator::Libc);
        }
        runs
    }
}

/// Runs as the measured program.
///
/// # Errors
/// When the sizes exceed this machine's address space, or the allocator rejects the `decay`.
pub fn work(run: Run, program: &Program) -> Result<Outcome, Failure> {
    let threads = run.threads;
    run.decay.set()?;
    let numbers = usize::try_from(program.chunk_bytes)? / size_of::<u64>();
    let table: Vec<Vec<u64>> = (0..program.chunks)
        .map(|chunk| (0..numbers).map(|index| number(chunk, index)).collect())
        .collect();
    let table = &table;
    let (start, stop) = (
        &Barrier::new(usize::from(threads) + 1),
        &AtomicBool::new(false),
    );
    let (seconds, faults, counts) = std::thread::scope(|scope| {
        let running: Vec<_> = (0..threads)
            .map(|thread| {
                scope.spawn(move || {
                    start.wait();
                    search(table, u64::from(thread), stop)
                })
            })
            .collect();
        start.wait();
        let (started, before) = (Instant::now(), faults());
        std::thread::sleep(Duration::from_millis(program.milliseconds));
        stop.store(true, Ordering::Relaxed);
        let counts: Vec<_> = running.into_iter().map(|thread| thread.join()).collect();
        (started.elapsed().as_secs_f64(), faults() - before, counts)
    });
    let (mut records, mut wrong_records) = (0, 0);
    for count in counts {
        let (found, wrong) = count.map_err(|_| "a thread panicked")?;
        records += found + wrong;
        wrong_records += wrong;
    }
    Ok(Outcome {
        records_per_second: records as f64 / seconds,
        wrong_records,
        faults: faults as f64 / (records as f64).max(1.0),
        peak_rss_bytes: usage().peak_rss_bytes,
    })
}

/// The number at a place. Numbers ascend within a chunk, and differ between chunks.
fn number(chunk: u32, index: usize) -> u64 {
    ((index as u64) << 32) + u64::from(chunk)
}

/// Copies, searches and frees until `stop`. Returns how many numbers were found in their place, and how many
/// elsewhere.
fn search(table: &[Vec<u64>], seed: u64, stop: &AtomicBool) -> (u64, u64) {
    let numbers = table[0].len();
    let mut chunks = data::random_pages(table.len(), 2 * seed + 1);
    let mut places = data::random_pages(numbers, 2 * seed + 2);
    let (mut found, mut wrong) = (0, 0);
    while !stop.load(Ordering::Relaxed) {
        let (Some(chunk), Some(size), Some(place)) = (chunks.next(), places.next(), places.next())
        else {
            break;
        };
        let size = size.max(numbers / 4);
        let place = place % size;
        let copy = black_box(table[chunk][..size].to_vec());
        let is = copy.binary_search(&number(chunk as u32, place));
        if is == Ok(place) {
            found += 1;
        } else {
            wrong += 1;
        }
    }
    (found, wrong)
}

/// Faults of any kind so far, as counted by the kernel.
fn faults() -> u64 {
    let usage = usage();
    usage.minor_faults + usage.major_faults
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn program_finds_every_number_and_counts_a_wrong_one() {
        let program = Program {
            chunks: 3,
            chunk_bytes: 64 << 10,
            milliseconds: 30,
        };
        let run = Run {
            threads: 2,
            decay: Decay::Own,
            allocator: Allocator::Libc,
        };
        let outcome = work(run, &program).unwrap();
        assert!(outcome.records_per_second > 0.0);
        assert_eq!(outcome.wrong_records, 0);

        let damaged = [vec![0; 512]];
        let wrong = |milliseconds| {
            let stop = AtomicBool::new(false);
            std::thread::scope(|scope| {
                let searching = scope.spawn(|| search(&damaged, 0, &stop).1);
                std::thread::sleep(Duration::from_millis(milliseconds));
                stop.store(true, Ordering::Relaxed);
                searching.join().unwrap()
            })
        };
        // On a busy machine the thread may not get a processor in time.
        assert!([20, 200, 2000].into_iter().any(|time| wrong(time) > 0));
    }
}
