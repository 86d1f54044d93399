//! Two patterns in one region at the same time: half of the threads read it in order, the other half at random.
//!
//! Here one setting has to serve both. Memory that is brought in for the sequential threads evicts memory of the
//! others, and the holes that this leaves obstruct large steps.
//!
//! All threads run until the last has done its share, so that the patterns overlap all the time. The cost of a
//! pattern is the time of its threads divided by the pages that they read. The figure is the mean of both: the cost
//! of a page when as many are read in order as at random. Total pages over total time would flatter a side with one
//! very fast half.
//!
//! Each page has its index in its last word, which is checked at each read. Afterwards every byte is compared.

use crate::data::{self, PAGE};
use crate::error::Failure;
use crate::folio::Side;
use crate::mapping::{Mapping, Pages};
use crate::outcome::{highest, outcome};
use crate::phases::{Work, usage};
use crate::{cgroup, millpond_side};
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

/// The number of pages between two checks whether all threads are done.
const STEP: usize = 64;

/// Sizes of one measurement, in addition to those of the swap workload.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, clap::Args)]
#[group(skip)]
pub struct Sizes {
    /// The number of threads; half of them read in order
    #[arg(id = "mix-threads", long = "mix-threads", default_value_t = 2, value_parser = clap::value_parser!(u16).range(2..=256), value_name = "N")]
    pub threads: u16,
}

outcome! {
    /// The measurements of one process, in microseconds per page.
    pub struct Outcome {
        /// The cost when as many pages are read in order as at random.
        pub mixed: f64,
        /// The cost of pages read in order.
        pub sequential: f64,
        /// The cost of pages read at random.
        pub random: f64,
        /// Pages with wrong contents.
        pub wrong_pages: u64 = highest,
        /// Peak resident set of the process as counted by the kernel, in bytes.
        pub peak_rss_bytes: u64 = highest,
    }
    wrong |r| r.wrong_pages;
    figures {
        time "mixed" = |r| r.mixed,
        time "sequential" = |r| r.sequential,
        time "random" = |r| r.random,
    }
}

/// Does the job of the measured process. The kernel's side enters the group `cgroup` first.
///
/// # Errors
/// When the process cannot enter the group, or gets no memory.
pub fn work(
    side: Side,
    cgroup: Option<&Path>,
    work: &Work,
    sizes: &Sizes,
) -> Result<Outcome, Failure> {
    let Side::Ours(order) = side else {
        return kernels(cgroup, work, sizes);
    };
    let manager = millpond_side::settings(work.ram).build()?;
    let mut region = manager.region_with(work.len()?, order.0)?;
    data::fill_all(region.as_mut_slice());
    read(region.as_slice(), work, sizes)
}

fn kernels(cgroup: Option<&Path>, work: &Work, sizes: &Sizes) -> Result<Outcome, Failure> {
    if let Some(cgroup) = cgroup {
        cgroup::enter(cgroup)?;
    }
    let mut memory = Mapping::new(work.len()?, Pages::Small)?;
    data::fill_all(memory.bytes_mut());
    read(memory.bytes(), work, sizes)
}

fn read(memory: &[u8], work: &Work, sizes: &Sizes) -> Result<Outcome, Failure> {
    let threads = usize::from(sizes.threads);
    let pages = memory.len() / PAGE;
    let share = (work.accesses as usize).div_ceil(threads);
    let (start, busy) = (&Barrier::new(threads), &AtomicUsize::new(threads));
    let done: Vec<Result<Done, Failure>> = std::thread::scope(|scope| {
        let running: Vec<_> = (0..threads)
            .map(|thread| {
                scope.spawn(move || {
                    // Sequential threads start at different places, and wrap around.
                    let first = thread * pages / threads;
                    let in_order = thread % 2 == 0;
                    let mut order: Box<dyn Iterator<Item = usize>> = if in_order {
                        Box::new((0..pages).cycle().skip(first))
                    } else {
                        Box::new(data::random_pages(pages, thread as u64))
                    };
                    start.wait();
                    let mut done = Done {
                        in_order,
                        ..Done::default()
                    };
                    let started = Instant::now();
                    while busy.load(Ordering::Relaxed) > 0 {
                        for index in order.by_ref().take(STEP) {
                            done.wrong += u64::from(!data::look(memory, index));
                        }
                        let before = done.pages;
                        done.pages += STEP;
                        if before < share && done.pages >= share {
                            busy.fetch_sub(1, Ordering::Relaxed);
                        }
                    }
                    done.micros = started.elapsed().as_secs_f64() * 1e6;
                    done
                })
            })
            .collect();
        let join = |thread: std::thread::ScopedJoinHandle<'_, Done>| {
            thread.join().map_err(|_| "a thread panicked".into())
        };
        running.into_iter().map(join).collect()
    });
    let done = done.into_iter().collect::<Result<Vec<Done>, Failure>>()?;
    let cost = |in_order| {
        let of = || done.iter().filter(|one| one.in_order == in_order);
        of().map(|one| one.micros).sum::<f64>() / of().map(|one| one.pages).sum::<usize>() as f64
    };
    let (sequential, random) = (cost(true), cost(false));
    let wrong = data::wrong_pages(memory);
    Ok(Outcome {
        mixed: f64::midpoint(sequential, random),
        sequential,
        random,
        wrong_pages: done.iter().map(|one| one.wrong).sum::<u64>() + wrong,
        peak_rss_bytes: usage().peak_rss_bytes,
    })
}

/// The work of one thread.
#[derive(Default)]
struct Done {
    in_order: bool,
    pages: usize,
    micros: f64,
    wrong: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORK: Work = Work {
        pages: 256,
        ram: 16 << 20,
        accesses: 1000,
    };

    #[test]
    fn odd_and_even_numbers_of_threads_read_both_ways() {
        for threads in [2, 5] {
            let outcome = kernels(None, &WORK, &Sizes { threads }).unwrap();
            assert!(outcome.sequential > 0.0 && outcome.random > 0.0);
            assert_eq!(outcome.wrong_pages, 0);
        }
    }

    #[test]
    fn a_wrong_byte_is_found_anywhere_in_a_page() {
        let sizes = Sizes { threads: 2 };
        for at in [5, PAGE - 1] {
            let mut memory = vec![0; 256 * PAGE];
            data::fill_all(&mut memory);
            memory[7 * PAGE + at] ^= 1;
            let outcome = read(&memory, &WORK, &sizes).unwrap();
            assert!(outcome.wrong_pages > 0, "byte {at}");
        }
    }
}
