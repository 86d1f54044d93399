//! The measured process: it fills a region of twice its budget, and reads it with one or more threads.

use crate::clock::Clock;
use crate::data::{self, PAGE};
use crate::error::Failure;
use crate::mapping::{Mapping, Pages};
use crate::order::BenchOrder;
use crate::outcome::{highest, outcome};
use crate::phases::{Work, usage};
use crate::threads::{Part, Run, Who};
use crate::{cgroup, millpond_side};
use millpond::Delivery;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::{iter, thread};

/// How often a region is read when it is read in order.
const LAPS: usize = 2;
/// The number of pages in a piece that one thread reads.
const PIECE: usize = 512;

outcome! {
    /// The measurements of one process.
    pub struct Outcome {
        /// Microseconds per major fault for all threads together.
        pub fault: f64,
        /// Processor time of all threads of the process per major fault, in microseconds. If other programs also use
        /// the processors, this says more than wall time.
        pub cpu: f64,
        /// Microseconds per page for all threads together.
        pub page: f64,
        /// Major faults of all threads.
        pub major_faults: u64,
        /// Pages with wrong contents.
        pub wrong_pages: u64 = highest,
    }
    wrong |r| r.wrong_pages;
    figures {
        time "fault" = |r| r.fault,
        other "cpu" = |r| r.cpu,
        time "page" = |r| r.page,
        other "faults" = |r| r.major_faults,
    }
}

/// One measurement.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Task {
    /// The part.
    pub part: Part,
    /// Who serves the faults, and how many threads fault.
    pub run: Run,
    /// The order of Millpond's folios.
    pub order: BenchOrder,
    /// The directory of the memory cgroup, for the kernel's side.
    pub cgroup: Option<PathBuf>,
    /// The sizes.
    pub work: Work,
}

/// Fills the region, and measures.
///
/// # Errors
/// When the process cannot get its memory or enter its group.
pub fn work(task: &Task) -> Result<Outcome, Failure> {
    let delivery = match task.run.who {
        Who::Direct => Delivery::InThread,
        Who::Handler => Delivery::Handler,
        Who::Kernel => return kernels(task),
    };
    let manager = millpond_side::settings(task.work.ram)
        .delivery(delivery)
        .build()?;
    let mut region = manager.region_with(task.work.len()?, task.order.0)?;
    data::fill_all(region.as_mut_slice());
    read(region.as_slice(), task, || manager.stats().vm.pgmajfault)
}

fn kernels(task: &Task) -> Result<Outcome, Failure> {
    if let Some(cgroup) = &task.cgroup {
        cgroup::enter(cgroup)?;
    }
    let mut memory = Mapping::new(task.work.len()?, Pages::Small)?;
    data::fill_all(memory.bytes_mut());
    read(memory.bytes(), task, || usage().major_faults)
}

/// Reads with all threads, which begin when the last of them is ready. `faults` reads the count of major faults.
fn read(memory: &[u8], task: &Task, faults: impl Fn() -> u64) -> Result<Outcome, Failure> {
    let threads = usize::from(task.run.threads);
    let start = &Barrier::new(threads + 1);
    let taken = &AtomicUsize::new(0);
    let before = faults();
    let (micros, cpu, done) = thread::scope(|scope| {
        let running: Vec<_> = (0..threads)
            .map(|number| scope.spawn(move || share(memory, task, number, start, taken)))
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
        // A region that fits has no major faults, and then this is the whole time.
        fault: micros / major_faults.max(1) as f64,
        cpu: cpu / major_faults.max(1) as f64,
        page: micros / all.pages as f64,
        major_faults,
        wrong_pages: all.wrong,
    })
}

/// The work that a thread has done.
#[derive(Default)]
struct Done {
    pages: u64,
    wrong: u64,
}

/// Does one thread's share of the work. In order, all threads together read as many pages as one thread would; at
/// random, each thread reads as many as one thread would. `taken` counts the pieces that threads have taken.
fn share(memory: &[u8], task: &Task, number: usize, start: &Barrier, taken: &AtomicUsize) -> Done {
    let (pages, threads) = (memory.len() / PAGE, usize::from(task.run.threads));
    let own = number * pages / threads..(number + 1) * pages / threads;
    let order: Box<dyn Iterator<Item = usize>> = match task.part {
        Part::Random => {
            let accesses = task.work.accesses as usize;
            Box::new(data::random_pages(pages, number as u64).take(accesses))
        }
        Part::InOrder => Box::new((0..LAPS).flat_map(move |_| own.clone())),
        Part::InPieces => {
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

    fn task(part: Part, threads: u16) -> Task {
        Task {
            part,
            run: Run {
                who: Who::Kernel,
                threads,
            },
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
        data::fill_all(&mut memory);
        memory[1000 * PAGE + PAGE - 1] ^= 1;
        for part in [Part::InOrder, Part::InPieces] {
            for threads in [1, 2, 3] {
                let outcome = read(&memory, &task(part, threads), || 0).unwrap();
                assert_eq!(outcome.wrong_pages, LAPS as u64, "{part:?} {threads}");
            }
        }
    }

    #[test]
    fn every_thread_reads_its_share_at_random() {
        let start = Barrier::new(1);
        let mut memory = vec![0; 1001 * PAGE];
        data::fill_all(&mut memory);
        let done = share(
            &memory,
            &task(Part::Random, 2),
            1,
            &start,
            &AtomicUsize::new(0),
        );
        assert_eq!((done.pages, done.wrong), (700, 0));
        assert_eq!(kernels(&task(Part::Random, 2)).unwrap().wrong_pages, 0);
    }
}
