//! Freeing a large amount of memory at once: how long the caller waits, what it costs in total, and how long other
//! threads wait meanwhile.
//!
//! | side | work of the caller |
//! | --- | --- |
//! | `free_async` | unhooks the region; a worker returns its memory |
//! | `drop` | all of the work, in pieces |
//! | `discard` | the same, but the region stays |
//! | `kernel` | `munmap`, in one piece |
//!
//! Each process does this twice, each time with new memory and a new manager. The first time there is no other
//! thread: *blocked* is the time until the call returns, *whole* the time until [`Manager::quiesce`] returns, and
//! *cpu* the processor time of all threads until the frames that Millpond keeps for the next faults have also gone to
//! the kernel. *Cpu to the end* continues until the manager has ended, including its tables. The second time another
//! thread maps and touches memory ([`crate::free::watch`]): first for a moment while nothing is freed, then until
//! everything is returned, and then for as long again while this thread counts instead of freeing. The last is
//! measured because a machine has pauses of its own, and more of them when it is busy.
//!
//! The memory was touched page by page, and is mapped in pages of 4 KiB on both sides unless the order says
//! otherwise.

use crate::clock::Clock;
use crate::data::PAGE;
use crate::error::Failure;
use crate::free::Side;
use crate::free::watch::{Seen, TOUCHED, Touched, Watch};
use crate::mapping::{Mapping, Pages};
use crate::order::BenchOrder;
use crate::outcome::{highest, longest, mib, outcome};
use crate::{millpond_side, rounds, smaps};
use millpond::{FreeTuning, Manager, Region};
use serde::{Deserialize, Serialize};
use std::time::{Duration, Instant};

/// The sides of this part.
pub const SIDES: [Side; 4] = [Side::FreeAsync, Side::Drop, Side::Discard, Side::Kernel];
/// Additional memory: tables, frames in transit, and the memory that the other thread touches.
const SPARE: u64 = 64 << 20;
/// The time for which the other thread measures while nothing is freed.
const IDLE: Duration = Duration::from_millis(300);

/// Sizes of one measurement.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, clap::Args)]
#[group(skip)]
pub struct Sizes {
    /// The size of the memory that is freed
    #[arg(id = "blocked-memory", long = "blocked-memory", default_value = "4G", value_parser = rounds::parse_pages, value_name = "SIZE")]
    pub memory_bytes: u64,
    /// The number of threads that return memory in the background; without this option Millpond chooses
    #[arg(id = "free-workers", long = "free-workers", value_name = "N")]
    pub workers: Option<u64>,
    /// The number of pages from which on a free hands batches to the background threads
    #[arg(id = "free-batch", long = "free-batch", value_name = "PAGES")]
    pub batch_pages: Option<u32>,
    /// The maximum number of bytes that one system call returns
    #[arg(id = "free-chunk", long = "free-chunk", value_parser = rounds::parse_pages, value_name = "SIZE")]
    pub chunk_bytes: Option<u64>,
}

impl Sizes {
    fn tuning(&self) -> Result<FreeTuning, Failure> {
        let mut tuning = FreeTuning::default();
        if let Some(workers) = self.workers {
            tuning.workers = usize::try_from(workers)?;
        }
        if let Some(batch_pages) = self.batch_pages {
            tuning.batch_pages = batch_pages;
        }
        if let Some(chunk_bytes) = self.chunk_bytes {
            tuning.chunk_bytes = usize::try_from(chunk_bytes)?;
        }
        Ok(tuning)
    }
}

outcome! {
    /// The measurements of one process, in microseconds.
    pub struct Outcome {
        /// The time until the call returned.
        pub blocked: f64,
        /// The time until all memory was returned.
        pub whole: f64,
        /// Processor time of all threads, until the kept frames had gone as well.
        pub cpu: f64,
        /// Processor time of all threads, until the manager had ended.
        pub cpu_to_the_end: f64,
        /// Resident memory of the process when all memory was returned, including the frames kept for the next
        /// faults.
        pub rss_bytes: u64,
        /// The longest time that another thread needed meanwhile to map, touch and unmap memory.
        pub longest_mmap: f64 = longest,
        /// The other thread's longest first touch.
        pub longest_fault: f64 = longest,
        /// The other thread's longest time of either kind while nothing was freed.
        pub longest_idle: f64 = longest,
        /// The other thread's longest time of either kind while a thread of its process computed for as long as
        /// freeing took.
        pub longest_control: f64 = longest,
        /// The number of samples that the other thread took meanwhile.
        pub looks: u64,
        /// Pages with wrong contents.
        pub wrong_pages: u64 = highest,
    }
    wrong |r| r.wrong_pages;
    figures {
        time "blocked" = |r| r.blocked,
        other "whole" = |r| r.whole,
        time "cpu" = |r| r.cpu,
        other "cpu to end" = |r| r.cpu_to_the_end,
        other "RSS left MiB" = |r| mib(r.rss_bytes),
        other "max mmap" = |r| r.longest_mmap,
        other "max fault" = |r| r.longest_fault,
        other "max idle" = |r| r.longest_idle,
        other "max control" = |r| r.longest_control,
    }
}

/// Does the job of the measured process.
///
/// # Errors
/// When there is no memory.
pub fn work(side: Side, order: BenchOrder, sizes: &Sizes) -> Result<Outcome, Failure> {
    let len = usize::try_from(sizes.memory_bytes)?;
    match side {
        Side::Kernel => kernel(len),
        Side::FreeAsync => ours(Region::free_async, order, sizes, len),
        Side::Discard => ours(discard, order, sizes, len),
        _ => ours(drop, order, sizes, len),
    }
}

fn discard(mut region: Region) {
    let len = region.len();
    region.discard(0..len).expect("nothing is pinned");
}

fn ours(
    free: fn(Region),
    order: BenchOrder,
    sizes: &Sizes,
    len: usize,
) -> Result<Outcome, Failure> {
    let tuning = sizes.tuning()?;
    let filled = || -> Result<(Manager, Region), Failure> {
        let manager = millpond_side::settings(len as u64 + len as u64 / 16 + SPARE)
            .order(order.0)
            .build()?;
        manager.set_free_tuning(tuning);
        let mut region = manager.region(len)?;
        touch(region.as_mut_slice());
        Ok((manager, region))
    };
    let (manager, region) = filled()?;
    let mut outcome = Outcome::default();
    let clock = Clock::start();
    free(region);
    outcome.blocked = clock.wall();
    manager.quiesce();
    outcome.whole = clock.wall();
    wait_for_the_pool(&manager);
    outcome.cpu = clock.cpu();
    let looking = Clock::start();
    outcome.rss_bytes = smaps::resident()?;
    let looked = looking.cpu();
    drop(manager);
    outcome.cpu_to_the_end = clock.cpu() - looked;

    let (manager, region) = filled()?;
    let touched = Touched::Region(manager.region(TOUCHED)?);
    outcome.watched(touched, || {
        free(region);
        manager.quiesce();
    })
}

/// Waits until the kept frames have gone back to the kernel because nobody requests them: one or two seconds.
fn wait_for_the_pool(manager: &Manager) {
    let end = Instant::now() + Duration::from_secs(20);
    while manager.stats().vm.nr_free_frames > 0 && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn kernel(len: usize) -> Result<Outcome, Failure> {
    let filled = || -> Result<Mapping, Failure> {
        let mut mapping = Mapping::new(len, Pages::Small)?;
        touch(mapping.bytes_mut());
        Ok(mapping)
    };
    let mapping = filled()?;
    let clock = Clock::start();
    drop(mapping);
    let (blocked, cpu) = (clock.wall(), clock.cpu());
    let outcome = Outcome {
        blocked,
        whole: blocked,
        cpu,
        cpu_to_the_end: cpu,
        rss_bytes: smaps::resident()?,
        ..Outcome::default()
    };
    let mapping = filled()?;
    let touched = Touched::Mapping(Mapping::new(TOUCHED, Pages::Small)?);
    outcome.watched(touched, || drop(mapping))
}

impl Outcome {
    /// Adds the times for which another thread has to wait.
    fn watched(mut self, touched: Touched, free: impl FnOnce()) -> Result<Self, Failure> {
        let watch = Watch::start(touched)?;
        std::thread::sleep(IDLE);
        let (idle, touched) = watch.stop()?;
        let watch = Watch::start(touched)?;
        let started = Instant::now();
        free();
        let took = started.elapsed();
        let (seen, touched) = watch.stop()?;
        let watch = Watch::start(touched)?;
        let started = Instant::now();
        while started.elapsed() < took {
            std::hint::spin_loop();
        }
        let (control, _touched) = watch.stop()?;
        let longest = |seen: Seen| seen.mmap.max(seen.fault);
        (self.longest_idle, self.longest_control) = (longest(idle), longest(control));
        (self.longest_mmap, self.longest_fault, self.looks) = (seen.mmap, seen.fault, seen.count);
        self.wrong_pages += [idle, seen, control]
            .map(|seen| seen.wrong_pages)
            .iter()
            .sum::<u64>();
        Ok(self)
    }
}

/// Touches each page.
fn touch(memory: &mut [u8]) {
    for page in memory.chunks_exact_mut(PAGE) {
        page[0] = 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_side_frees_the_memory_it_touched() {
        let outcome = kernel(64 << 20).unwrap();
        assert!(outcome.blocked > 0.0 && outcome.cpu > 0.0);
        assert!(outcome.rss_bytes < 64 << 20, "{outcome:?}");
        assert!(outcome.looks > 0 && outcome.wrong_pages == 0);
    }

    #[test]
    fn unset_tuning_options_use_millponds_defaults() {
        let mut sizes = Sizes {
            memory_bytes: 4096,
            workers: None,
            batch_pages: None,
            chunk_bytes: None,
        };
        assert_eq!(sizes.tuning().unwrap(), FreeTuning::default());
        sizes.workers = Some(3);
        assert_eq!(sizes.tuning().unwrap().workers, 3);
    }
}
