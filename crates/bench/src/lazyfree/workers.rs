//! Twelve workers in half the memory that they need: does freed memory ever come back from the store?
//!
//! Each worker fills its own block and frees it, five times. Together the blocks are twice the budget, so when all
//! are filled, half of the memory is in the store, and then all is freed. No worker frees before the last has filled
//! its block: otherwise a worker that the scheduler favours would finish before another begins, and the store would
//! stay empty. Reading freed pages back is wasted work, because they are overwritten next. The kernel once kept
//! lazily freed pages' places in swap, and read 879,585 pages back in a loop like this one. When it released them at
//! once, 1,878 were left.
//!
//! So the figure is store reads (`pswpin`). Lazy freeing should have no more of them than eager freeing, which
//! releases everything. Without any freeing each round reads back what the previous round left in the store.
//!
//! A block is filled by `memset`, as in that loop. Pages of one repeated byte cost both stores almost nothing, so the
//! seconds say little about a store's cost; the reads say how often it would be paid.
//!
//! The counters are read before the blocks are checked for wrong bytes, because the check reads the store as well.
//! The kernel's sides run in a memory cgroup and swap to zram. Their counters are those of the machine, which has to
//! be quiet.

use crate::cgroup;
use crate::data::PAGE;
use crate::error::Failure;
use crate::lazyfree::kernel::{self, Anonymous};
use crate::lazyfree::memory::{AfterFree, Memory, Side};
use crate::lazyfree::ours::{self, Managed};
use crate::outcome::{highest, outcome};
use crate::rounds;
use crate::side::Contender;
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::sync::Barrier;
use std::time::Instant;

/// Sizes of one measurement.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, clap::Args)]
#[group(skip)]
pub struct Sizes {
    /// The number of worker threads
    #[arg(id = "worker-threads", long = "worker-threads", default_value_t = 12, value_parser = clap::value_parser!(u16).range(1..=256), value_name = "N")]
    pub threads: u16,
    /// The size of the memory that each worker thread fills and frees
    #[arg(id = "worker-block", long = "worker-block", default_value = "32M", value_parser = rounds::parse_pages, value_name = "SIZE")]
    pub block_bytes: u64,
    /// The RAM budget of all worker threads together
    #[arg(id = "worker-ram", long = "worker-ram", default_value = "192M", value_parser = millpond_cli::size::parse_ram, value_name = "SIZE")]
    pub budget_bytes: u64,
    /// The number of times that each worker thread fills and frees its memory
    #[arg(id = "worker-times", long = "worker-times", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=20), value_name = "N")]
    pub times: u32,
}

/// Millpond's sides, in the order in which a round runs them.
pub const OURS: [Side; 3] = [Side::LazyFree, Side::Discard, Side::Keep];
/// The kernel's sides, in the order in which a round runs them.
pub const KERNELS: [Side; 3] = [Side::KernelFree, Side::KernelDontneed, Side::KernelKeep];

outcome! {
    /// The measurements of one process.
    pub struct Outcome {
        /// Seconds from the start of all workers to the end of the last.
        pub seconds: f64,
        /// Pages read from the store.
        pub pswpin: u64,
        /// Pages written to the store.
        pub pswpout: u64,
        /// Lazily freed pages that were dropped because memory was short.
        pub pglazyfreed: u64,
        /// Pages filled, counting each time that a page was filled.
        pub pages_touched: u64,
        /// Pages with wrong contents.
        pub wrong_pages: u64 = highest,
    }
    wrong |r| r.wrong_pages;
    figures {
        other "store reads" = |one| one.pswpin,
        other "% of touched" = |one| one.pswpin as f64 / one.pages_touched as f64 * 100.0,
        other "written" = |one| one.pswpout,
        other "seconds" = |one| one.seconds,
    }
}

impl Sizes {
    /// The number of pages in all blocks.
    #[must_use]
    pub fn pages(&self) -> u64 {
        u64::from(self.threads) * self.block_bytes / PAGE as u64
    }
}

/// The measured process; a kernel's side enters the group `cgroup` first.
///
/// # Errors
/// When there is no memory, or the side refuses.
pub fn work(side: Side, sizes: &Sizes, cgroup: Option<&Path>) -> Result<Outcome, Failure> {
    if side.is_kernel() {
        if let Some(cgroup) = cgroup {
            cgroup::enter(cgroup)?;
        }
        let len = usize::try_from(sizes.block_bytes)?;
        let blocks = blocks(sizes, || Anonymous::map(side, len))?;
        return run(blocks, side, sizes, || Ok(kernel::vmstat()?));
    }
    let manager = ours::manager(sizes.budget_bytes)?;
    let blocks = blocks(sizes, || Managed::new(side, &manager, sizes.block_bytes))?;
    run(blocks, side, sizes, || {
        let vm = manager.stats().vm;
        Ok([vm.pswpin, vm.pswpout, vm.pglazyfreed])
    })
}

fn blocks<M: Memory>(
    sizes: &Sizes,
    make: impl Fn() -> Result<M, Failure>,
) -> Result<Vec<M>, Failure> {
    (0..sizes.threads).map(|_| make()).collect()
}

fn run<M: Memory>(
    mut blocks: Vec<M>,
    side: Side,
    sizes: &Sizes,
    counters: impl Fn() -> Result<[u64; 3], Failure>,
) -> Result<Outcome, Failure> {
    let before = counters()?;
    let all = Barrier::new(blocks.len());
    let (seconds, ended) = std::thread::scope(|scope| {
        let started = Instant::now();
        let threads: Vec<_> = (0u16..)
            .zip(&mut blocks)
            .map(|(worker, block)| {
                let all = &all;
                scope.spawn(move || {
                    let mut done = Ok(());
                    for time in 0..sizes.times {
                        let bytes = block.bytes();
                        bytes.fill(value(worker, time));
                        let whole = 0..bytes.len();
                        all.wait();
                        // A failed worker still meets the others at the barrier, so that none waits for ever.
                        done = done.and_then(|()| block.free(whole));
                    }
                    done
                })
            })
            .collect();
        let ended: Result<Vec<()>, Failure> = threads
            .into_iter()
            .map(|thread| thread.join().map_err(|_| "a worker panicked")?)
            .collect();
        (started.elapsed().as_secs_f64(), ended)
    });
    ended?;
    let after = counters()?;
    let [pswpin, pswpout, pglazyfreed] = std::array::from_fn(|index| after[index] - before[index]);
    let wrong_pages = (0u16..).zip(&mut blocks).map(|(worker, block)| {
        let last = value(worker, sizes.times - 1);
        let pages = block.bytes().chunks_exact(PAGE);
        pages
            .filter(|page| !is_right(page, last, side.freed()))
            .count() as u64
    });
    Ok(Outcome {
        seconds,
        pswpin,
        pswpout,
        pglazyfreed,
        pages_touched: sizes.pages() * u64::from(sizes.times),
        wrong_pages: wrong_pages.sum(),
    })
}

/// The byte with which a worker fills its block: never zero, and different in each of a worker's rounds.
fn value(worker: u16, time: u32) -> u8 {
    ((u32::from(worker) * 20 + time) % 255) as u8 + 1
}

fn is_right(page: &[u8], last: u8, freed: AfterFree) -> bool {
    let is = |value| page.iter().all(|&byte| byte == value);
    match freed {
        AfterFree::Old => is(last),
        AfterFree::Zeros => is(0),
        AfterFree::Either => is(last) || is(0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_round_has_its_own_value_and_none_is_zero() {
        for worker in [0, 11, 255] {
            let values: std::collections::BTreeSet<u8> =
                (0..20).map(|time| value(worker, time)).collect();
            assert_eq!(values.len(), 20);
            assert!(!values.contains(&0));
        }
    }

    #[test]
    fn a_page_is_old_or_zero_as_the_side_promises() {
        let mut page = [5; PAGE];
        assert!(is_right(&page, 5, AfterFree::Old) && is_right(&page, 5, AfterFree::Either));
        assert!(!is_right(&page, 5, AfterFree::Zeros) && !is_right(&page, 4, AfterFree::Either));
        page[7] = 0;
        assert!(!is_right(&page, 5, AfterFree::Either), "half of each");
        page.fill(0);
        assert!(is_right(&page, 5, AfterFree::Zeros) && !is_right(&page, 5, AfterFree::Old));
    }

    #[test]
    fn kernel_sides_touch_every_page_correctly() {
        let sizes = Sizes {
            threads: 3,
            block_bytes: 1 << 20,
            budget_bytes: 16 << 20,
            times: 2,
        };
        for side in KERNELS {
            let outcome = work(side, &sizes, None).unwrap();
            assert_eq!((outcome.wrong_pages, outcome.pages_touched), (0, 1536));
            assert!(outcome.seconds > 0.0);
        }
    }
}
