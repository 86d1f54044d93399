//! The cycle of freeing a chunk and writing it again, as an allocator does all day. All memory is resident, and there
//! is no pressure.
//!
//! | pattern | one pass over all chunks |
//! | --- | --- |
//! | `interleaved` | free chunk i, rewrite chunk i |
//! | `phased` | free all, then rewrite all |
//! | `vectored` | as `phased`, freed with as few calls as the side allows |
//! | `spinning` | as `interleaved`, while a thread on another processor is interrupted by each changed mapping |
//!
//! Rewriting means one word per page: the least that a program does with memory that it got back. So the remaining
//! cost is that of freeing and faulting. The side that frees nothing shows how much of each figure is the rewriting
//! itself.
//!
//! After each pattern every byte is checked. A page must have the word that was written last. The rest of the page
//! must either be entirely as it was before the page was first freed, or be all zeros.

use crate::data::{self, PAGE};
use crate::error::Failure;
use crate::lazyfree::kernel::Anonymous;
use crate::lazyfree::memory::{Memory, Side};
use crate::lazyfree::ours::Managed;
use crate::outcome::{first, highest, outcome};
use crate::rounds;
use crate::side::Contender;
use rustix::thread::CpuSet;
use serde::{Deserialize, Serialize};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Sizes of one measurement.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, clap::Args)]
#[group(skip)]
pub struct Sizes {
    /// The size of the memory whose chunks are freed and rewritten
    #[arg(id = "cycle-memory", long = "cycle-memory", default_value = "64M", value_parser = rounds::parse_pages, value_name = "SIZE")]
    pub memory_bytes: u64,
    /// The size of a chunk
    #[arg(id = "cycle-chunk", long = "cycle-chunk", default_value = "64K", value_parser = rounds::parse_pages, value_name = "SIZE")]
    pub chunk_bytes: u64,
    /// The number of passes over the memory in each pattern
    #[arg(id = "cycle-passes", long = "cycle-passes", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..), value_name = "N")]
    pub passes: u32,
}

/// The measured sides, in the order in which a round runs them.
pub const SIDES: [Side; 7] = [
    Side::KernelKeep,
    Side::LazyFree,
    Side::KernelFree,
    Side::Volatile,
    Side::KernelDontneed,
    Side::LazyFreeShared,
    Side::Discard,
];

outcome! {
    /// The measurements of one process, in microseconds per chunk.
    pub struct Cycle {
        /// The time to free one chunk and rewrite it.
        pub interleaved: f64,
        /// The time to free all chunks and then rewrite all.
        pub phased: f64,
        /// The time of only the freeing in `phased`.
        pub phased_free: f64,
        /// The time of `phased` with vectored freeing; null if the side has none.
        pub vectored: Option<f64>,
        /// The time of `interleaved` with another running thread; null if there is only one processor.
        pub spinning: Option<f64>,
        /// Faults per chunk during `interleaved`, as counted by the side that resolves them.
        pub faults: f64,
        /// Ranges that came back without their contents (volatile ranges only).
        pub purged: u64 = highest,
        /// Pages that had neither of the two allowed contents.
        pub wrong_pages: u64 = highest,
        /// The reasons why patterns have no figure.
        pub skipped: Vec<String> = first,
    }
    wrong |r| r.wrong_pages;
    figures {
        time "interleaved" = |cycle| cycle.interleaved,
        time "phased" = |cycle| cycle.phased,
        time "vectored" = |cycle| cycle.vectored,
        time "spinning" = |cycle| cycle.spinning,
        other "faults" = |cycle| cycle.faults,
    }
}

/// Does the job of the measured process.
///
/// # Errors
/// When there is no memory, or the side refuses.
pub fn work(side: Side, sizes: &Sizes) -> Result<Cycle, Failure> {
    let mut memory = open(side, sizes.memory_bytes)?;
    measure(memory.as_mut(), sizes)
}

/// Creates memory of `bytes` bytes for `side`; Millpond's fits entirely within its budget.
fn open(side: Side, bytes: u64) -> Result<Box<dyn Memory>, Failure> {
    Ok(if side.is_kernel() {
        Box::new(Anonymous::map(side, usize::try_from(bytes)?)?)
    } else {
        Box::new(Managed::within_budget(side, bytes)?)
    })
}

fn measure(memory: &mut dyn Memory, sizes: &Sizes) -> Result<Cycle, Failure> {
    let mut work = Work::new(memory, sizes)?;
    let mut cycle = Cycle::default();

    work.interleaved()?;
    let faults = work.memory.faults();
    let interleaved = work.passes(Work::interleaved)?;
    let faults = work.memory.faults() - faults;
    cycle.interleaved = interleaved.0;
    cycle.faults = faults as f64 / (work.ranges.len() as f64 * f64::from(work.passes));
    cycle.wrong_pages += work.wrong_pages();

    work.phased()?;
    (cycle.phased, cycle.phased_free) = work.passes(Work::phased)?;
    cycle.wrong_pages += work.wrong_pages();

    match work.vectored() {
        None => {}
        Some(Err(why)) => cycle.skipped.push(format!("vectored: {why}")),
        Some(Ok(_)) => {
            let vectored = work.passes(|work| work.vectored().unwrap_or(Ok(Duration::ZERO)))?;
            cycle.vectored = Some(vectored.0);
            cycle.wrong_pages += work.wrong_pages();
        }
    }

    match two_processors() {
        Some((own, other)) => {
            let spinning = beside_a_spinner(own, other, || {
                work.interleaved()?;
                work.passes(Work::interleaved)
            })?;
            cycle.spinning = Some(spinning.0);
            cycle.wrong_pages += work.wrong_pages();
        }
        None => cycle
            .skipped
            .push("spinning: this process may use one processor only".to_owned()),
    }
    cycle.purged = work.memory.purged();
    Ok(cycle)
}

struct Work<'a> {
    memory: &'a mut dyn Memory,
    ranges: Vec<Range<usize>>,
    passes: u32,
    /// The word that the last pass wrote, without the page's index that was added to it.
    stamp: u64,
}

impl<'a> Work<'a> {
    fn new(memory: &'a mut dyn Memory, sizes: &Sizes) -> Result<Self, Failure> {
        let chunk = usize::try_from(sizes.chunk_bytes)?;
        let bytes = memory.bytes();
        for (index, page) in bytes.chunks_exact_mut(PAGE).enumerate() {
            data::fill(page, index);
        }
        let starts = (0..bytes.len()).step_by(chunk);
        let ranges = starts
            .map(|start| start..(start + chunk).min(bytes.len()))
            .collect();
        Ok(Self {
            memory,
            ranges,
            passes: sizes.passes,
            stamp: 0,
        })
    }

    /// Runs `pass` the requested number of times. Returns microseconds per chunk for whole passes, and for the part
    /// whose time they returned.
    fn passes(
        &mut self,
        mut pass: impl FnMut(&mut Self) -> Result<Duration, Failure>,
    ) -> Result<(f64, f64), Failure> {
        let started = Instant::now();
        let mut part = Duration::ZERO;
        for _ in 0..self.passes {
            part += pass(self)?;
        }
        let chunks = self.ranges.len() as f64 * f64::from(self.passes);
        let each = |time: Duration| time.as_secs_f64() * 1e6 / chunks;
        Ok((each(started.elapsed()), each(part)))
    }

    fn interleaved(&mut self) -> Result<Duration, Failure> {
        self.stamp += 1;
        for index in 0..self.ranges.len() {
            let range = self.ranges[index].clone();
            self.memory.free(range.clone())?;
            self.rewrite(range)?;
        }
        Ok(Duration::ZERO)
    }

    fn phased(&mut self) -> Result<Duration, Failure> {
        self.stamp += 1;
        let started = Instant::now();
        for range in &self.ranges {
            self.memory.free(range.clone())?;
        }
        let freeing = started.elapsed();
        self.rewrite_all()?;
        Ok(freeing)
    }

    fn vectored(&mut self) -> Option<Result<Duration, Failure>> {
        let started = Instant::now();
        let freed = self.memory.free_vectored(&self.ranges)?;
        let freeing = started.elapsed();
        self.stamp += 1;
        Some(freed.and_then(|()| self.rewrite_all()).map(|()| freeing))
    }

    fn rewrite_all(&mut self) -> Result<(), Failure> {
        for index in 0..self.ranges.len() {
            self.rewrite(self.ranges[index].clone())?;
        }
        Ok(())
    }

    /// Writes the first word of each page.
    fn rewrite(&mut self, range: Range<usize>) -> Result<(), Failure> {
        self.memory.reuse(range.clone())?;
        let first = range.start / PAGE;
        let pages = self.memory.bytes()[range].chunks_exact_mut(PAGE);
        for (index, page) in pages.enumerate() {
            page[..8].copy_from_slice(&word(self.stamp, first + index));
        }
        Ok(())
    }

    fn wrong_pages(&mut self) -> u64 {
        let stamp = self.stamp;
        let pages = self.memory.bytes().chunks_exact(PAGE).enumerate();
        pages
            .filter(|&(index, page)| !is_right(page, index, stamp))
            .count() as u64
    }
}

fn word(stamp: u64, index: usize) -> [u8; 8] {
    ((stamp << 32) + index as u64).to_le_bytes()
}

fn is_right(page: &[u8], index: usize, stamp: u64) -> bool {
    let mut old = [0; PAGE];
    data::fill(&mut old, index);
    let rest = &page[8..];
    page[..8] == word(stamp, index) && (rest == &old[8..] || rest.iter().all(|&byte| byte == 0))
}

/// Two different processors that this process may use.
fn two_processors() -> Option<(usize, usize)> {
    let allowed = rustix::thread::sched_getaffinity(None).ok()?;
    let mut usable = (0..CpuSet::MAX_CPU).filter(|&cpu| allowed.is_set(cpu));
    Some((usable.next()?, usable.next()?))
}

/// Does `work` on processor `own` while a thread runs on `other`.
fn beside_a_spinner<T>(
    own: usize,
    other: usize,
    work: impl FnOnce() -> Result<T, Failure>,
) -> Result<T, Failure> {
    let before = rustix::thread::sched_getaffinity(None)?;
    let (running, stop) = (AtomicBool::new(false), AtomicBool::new(false));
    pin(own)?;
    let done = std::thread::scope(|scope| {
        scope.spawn(|| {
            // If pinning fails, the thread spins on a processor that the kernel chooses.
            let _ = pin(other);
            running.store(true, Ordering::Release);
            while !stop.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
        });
        while !running.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
        let done = work();
        stop.store(true, Ordering::Relaxed);
        done
    });
    rustix::thread::sched_setaffinity(None, &before)?;
    done
}

fn pin(cpu: usize) -> rustix::io::Result<()> {
    let mut only = CpuSet::new();
    only.set(cpu);
    rustix::thread::sched_setaffinity(None, &only)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_must_be_all_old_or_all_zeros() {
        let mut page = [0; PAGE];
        page[..8].copy_from_slice(&word(3, 9));
        assert!(is_right(&page, 9, 3));
        assert!(!is_right(&page, 9, 4), "an earlier word is a lost write");
        assert!(!is_right(&page, 8, 3), "another page's word");
        page[4095] = 1;
        assert!(!is_right(&page, 9, 3), "a byte that was never written");
        data::fill(&mut page, 9);
        page[..8].copy_from_slice(&word(3, 9));
        assert!(is_right(&page, 9, 3));
        page[2000..].fill(0);
        assert!(!is_right(&page, 9, 3), "half old, half zeros");
    }

    #[test]
    fn kernel_sides_lose_no_write() {
        let sizes = Sizes {
            memory_bytes: 1 << 20,
            chunk_bytes: 24 << 10,
            passes: 2,
        };
        for side in SIDES.into_iter().filter(|side| side.is_kernel()) {
            let cycle = work(side, &sizes).unwrap();
            assert_eq!(cycle.wrong_pages, 0, "{side}: {cycle:?}");
            assert!(cycle.interleaved > 0.0 && cycle.phased > 0.0, "{cycle:?}");
            let faulted = side == Side::KernelDontneed;
            assert_eq!(cycle.faults > 1.0, faulted, "{side}: {cycle:?}");
        }
    }
}
