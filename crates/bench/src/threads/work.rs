//! The measured process: it fills a region of twice its budget, and has one thread or more read it.

use crate::clock::Clock;
use crate::data::{self, PAGE};
use crate::error::Failure;
use crate::mapping::{Mapping, Pages};
use crate::order::BenchOrder;
use crate::phases::{Work, usage};
use crate::threads::Name;
use crate::threads::report::Outcome;
use crate::threads::side::Who;
use crate::{cgroup, millpond_side};
use millpond::Delivery;
use std::path::PathBuf;
use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::{iter, thread};

/// How often a region is read in order.
const LAPS: usize = 2;
/// Pages of a piece that one thread reads.
const PIECE: usize = 512;

/// What is measured once.
#[derive(Clone, Debug, clap::Args)]
#[group(skip)]
pub struct Job {
    /// The part
    pub part: Name,
    /// Who serves the faults
    pub who: Who,
    /// How many threads fault
    #[arg(long)]
    pub threads: u16,
    /// The order of Millpond's folios
    #[arg(long)]
    pub order: BenchOrder,
    /// The directory of the memory cgroup, for the kernel's side
    #[arg(long)]
    pub cgroup: Option<PathBuf>,
    #[command(flatten)]
    pub work: Work,
}

/// Fills the region, and measures.
///
/// # Errors
/// When the process cannot get its memory or enter its group.
pub fn work(job: &Job) -> Result<Outcome, Failure> {
    let delivery = match job.who {
        Who::Direct => Delivery::InThread,
        Who::Handler => Delivery::Handler,
        Who::Kernel => return kernels(job),
    };
    let manager = millpond_side::settings(job.work.ram)
        .delivery(delivery)
        .build()?;
    let mut region = manager.region_with(job.work.len()?, job.order.0)?;
    fill(region.as_mut_slice());
    read(region.as_slice(), job, || manager.stats().vm.pgmajfault)
}

fn kernels(job: &Job) -> Result<Outcome, Failure> {
    if let Some(cgroup) = &job.cgroup {
        cgroup::enter(cgroup)?;
    }
    let mut memory = Mapping::new(job.work.len()?, Pages::Small)?;
    fill(memory.bytes_mut());
    read(memory.bytes(), job, || usage().major_faults)
}

fn fill(memory: &mut [u8]) {
    for (index, page) in memory.chunks_exact_mut(PAGE).enumerate() {
        data::fill(page, index);
    }
}

/// Has all threads read, from when the last of them is there. `faults` looks at the count of major faults.
fn read(memory: &[u8], job: &Job, faults: impl Fn() -> u64) -> Result<Outcome, Failure> {
    let threads = usize::from(job.threads);
    let start = &Barrier::new(threads + 1);
    let taken = &AtomicUsize::new(0);
    let before = faults();
    let (micros, cpu, done) = thread::scope(|scope| {
        let running: Vec<_> = (0..threads)
            .map(|number| scope.spawn(move || share(memory, job, number, start, taken)))
            .collect();
        start.wait();
        let clock = Clock::start();
        let done: Vec<_> = running.into_iter().map(|thread| thread.join()).collect();
        (clock.wall(), clock.cpu(), done)
    });
    let major_faults = faults() - before;
    let mut all = Done::default();
    for one in done {
        let one = one.map_err(|_| "a thread panicked")?;
        all.pages += one.pages;
        all.wrong += one.wrong;
    }
    Ok(Outcome {
        // A region that fits has no major fault, and then this is the whole time.
        fault: micros / major_faults.max(1) as f64,
        cpu: cpu / major_faults.max(1) as f64,
        page: micros / all.pages as f64,
        major_faults,
        wrong_pages: all.wrong,
    })
}

/// What a thread has done.
#[derive(Default)]
struct Done {
    pages: u64,
    wrong: u64,
}

/// One thread's work. All threads together read as many pages in order as one thread would; at random each reads as
/// many as one thread would. `taken` counts the pieces that threads have taken.
fn share(memory: &[u8], job: &Job, number: usize, start: &Barrier, taken: &AtomicUsize) -> Done {
    let (pages, threads) = (memory.len() / PAGE, usize::from(job.threads));
    let own = number * pages / threads..(number + 1) * pages / threads;
    let order: Box<dyn Iterator<Item = usize>> = match job.part {
        Name::Random => {
            let accesses = job.work.accesses as usize;
            Box::new(data::random_pages(pages, number as u64).take(accesses))
        }
        Name::InOrder => Box::new((0..LAPS).flat_map(move |_| own.clone())),
        Name::InPieces => {
            let pieces = pages.div_ceil(PIECE);
            let next =
                move || Some(taken.fetch_add(1, Relaxed)).filter(|&piece| piece < LAPS * pieces);
            let piece = move |piece: usize| {
                let first = piece % pieces * PIECE;
                first..(first + PIECE).min(pages)
            };
            Box::new(iter::from_fn(next).flat_map(piece))
        }
    };
    start.wait();
    let mut done = Done::default();
    for index in order {
        done.pages += 1;
        done.wrong += u64::from(!data::look(memory, index));
    }
    done
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(part: Name, threads: u16) -> Job {
        Job {
            part,
            who: Who::Kernel,
            threads,
            order: "0".parse().unwrap(),
            cgroup: None,
            work: Work {
                pages: 1001,
                ram: 16 << 20,
                accesses: 700,
            },
        }
    }

    #[test]
    fn each_page_is_read_once_a_lap_and_a_wrong_one_is_counted() {
        let mut memory = vec![0; 1001 * PAGE];
        fill(&mut memory);
        memory[1000 * PAGE + PAGE - 1] ^= 1;
        for part in [Name::InOrder, Name::InPieces] {
            for threads in [1, 2, 3] {
                let outcome = read(&memory, &job(part, threads), || 0).unwrap();
                assert_eq!(outcome.wrong_pages, LAPS as u64, "{part:?} {threads}");
            }
        }
    }

    #[test]
    fn every_thread_reads_its_share_at_random() {
        let start = Barrier::new(1);
        let mut memory = vec![0; 1001 * PAGE];
        fill(&mut memory);
        let done = share(
            &memory,
            &job(Name::Random, 2),
            1,
            &start,
            &AtomicUsize::new(0),
        );
        assert_eq!((done.pages, done.wrong), (700, 0));
        assert_eq!(kernels(&job(Name::Random, 2)).unwrap().wrong_pages, 0);
    }
}
