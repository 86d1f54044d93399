//! Compares the slowest faults with the usual one while memory is short: a region of twice the budget, read at
//! random.
//!
//! A fault that finds no memory reclaims some itself, and a fault that reclaims a batch pays for the faults after it.
//! The mean does not show that, but the latency of a program that answers requests does. So the 99th percentile is
//! reported beside the median, with and without a thread that reclaims ahead of need.
//!
//! The times are measured twice. The program measures the time of each access whose page was not mapped (`mincore`,
//! called before the clock starts), including signal and kernel. The manager has histograms of the time from its
//! notification of a fault until the fault is resolved. Memory is filled through `populate`, which causes no faults,
//! so that the histograms contain only the random accesses.

use crate::data::{self, PAGE};
use crate::error::Failure;
use crate::millpond_side;
use crate::order::BenchOrder;
use crate::outcome::{highest, outcome};
use crate::side::Contender;
use millpond::{LatencySummary, Region};
use serde::{Deserialize, Serialize};
use std::hint::black_box;
use std::time::Instant;
use std::{fmt, io};

/// Bytes that are filled at once. They are certainly still in memory afterwards.
const CHUNK: usize = 1 << 20;

/// Sizes of one measurement.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, clap::Args)]
#[group(skip)]
pub struct Sizes {
    /// The RAM budget; the region is twice as large
    #[arg(id = "latency-ram", long = "latency-ram", default_value = "256M", value_parser = millpond_cli::size::parse_ram, value_name = "SIZE")]
    pub budget_bytes: u64,
    /// The number of random accesses
    #[arg(id = "latency-accesses", long = "latency-accesses", default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(100..), value_name = "N")]
    pub accesses: u32,
}

/// One variant of the measurement.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Run {
    /// The order of the folios.
    pub order: BenchOrder,
    /// Whether a thread reclaims ahead of need.
    pub background: bool,
}

impl Contender for Run {}

impl fmt::Display for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let who = if self.background {
            "a thread reclaims"
        } else {
            "faults reclaim"
        };
        f.pad(&format!("{}, {who}", self.order))
    }
}

outcome! {
    /// The times of faults, in nanoseconds.
    #[derive(Copy)]
    pub struct Times {
        /// The number of faults.
        pub count: u64,
        /// The median.
        pub p50_ns: u64,
        /// The 99th percentile.
        pub p99_ns: u64,
        /// The longest time.
        pub max_ns: u64 = highest,
    }
}

impl Times {
    /// The 99th percentile, divided by the median.
    #[must_use]
    pub fn spread(&self) -> f64 {
        self.p99_ns as f64 / self.p50_ns as f64
    }

    fn of(mut times: Vec<u64>) -> Self {
        times.sort_unstable();
        let at = |percent: usize| {
            let rank = (times.len() * percent).div_ceil(100).max(1);
            times.get(rank - 1).copied().unwrap_or(0)
        };
        Self {
            count: times.len() as u64,
            p50_ns: at(50),
            p99_ns: at(99),
            max_ns: at(100),
        }
    }
}

impl From<LatencySummary> for Times {
    fn from(summary: LatencySummary) -> Self {
        let LatencySummary {
            count,
            p50_ns,
            p99_ns,
            max_ns,
            ..
        } = summary;
        Self {
            count,
            p50_ns,
            p99_ns,
            max_ns,
        }
    }
}

outcome! {
    /// The measurements of one process.
    pub struct Outcome {
        /// The program's times: accesses whose page was not mapped.
        pub program: Times,
        /// The manager's times of all faults.
        pub manager: Times,
        /// The manager's times of faults that mapped memory again which was still in RAM.
        pub rescue: Times,
        /// The manager's times of faults that read from the store.
        pub load: Times,
        /// The manager's times of faults that reclaimed first.
        pub reclaimed: Times,
        /// Pages with wrong contents.
        pub wrong_pages: u64 = highest,
    }
    wrong |r| r.wrong_pages;
    figures {
        other "p50" = |r| micros(r.program.p50_ns),
        other "p99" = |r| micros(r.program.p99_ns),
        other "max" = |r| micros(r.program.max_ns),
        other "p99/p50" = |r| r.program.spread(),
        other "manager p50" = |r| micros(r.manager.p50_ns),
        other "manager p99" = |r| micros(r.manager.p99_ns),
    }
}

fn micros(ns: u64) -> f64 {
    ns as f64 / 1000.0
}

/// Does the job of the measured process.
///
/// # Errors
/// When the manager or the region cannot be created.
pub fn work(run: Run, sizes: &Sizes) -> Result<Outcome, Failure> {
    let manager = millpond_side::settings(sizes.budget_bytes)
        .background_reclaim(run.background)
        .build()?;
    let len = usize::try_from(2 * sizes.budget_bytes)?;
    let mut region = manager.region_with(len, run.order.0)?;
    fill(&mut region)?;
    let faults = manager.stats().faults;
    let before = faults.load.count + faults.first_touch.count + faults.reclaimed.count;
    if before != 0 {
        return Err(format!("{before} faults while memory was filled").into());
    }
    let (times, wrong_pages) = read(region.as_slice(), sizes.accesses as usize)?;
    let stats = manager.stats();
    Ok(Outcome {
        program: Times::of(times),
        manager: stats.latency.into(),
        rescue: stats.faults.rescue.into(),
        load: stats.faults.load.into(),
        reclaimed: stats.faults.reclaimed.into(),
        wrong_pages,
    })
}

fn fill(region: &mut Region) -> Result<(), Failure> {
    let len = region.len();
    for start in (0..len).step_by(CHUNK) {
        let range = start..(start + CHUNK).min(len);
        region.populate(range.clone())?;
        let pages = region.as_mut_slice()[range].chunks_exact_mut(PAGE);
        for (index, page) in (start / PAGE..).zip(pages) {
            data::fill(page, index);
        }
    }
    Ok(())
}

/// Reads a word of `accesses` pages. Returns the times of those that were not mapped, and the number of wrong ones.
fn read(memory: &[u8], accesses: usize) -> Result<(Vec<u64>, u64), Failure> {
    let mut times = Vec::with_capacity(accesses);
    let mut wrong_pages = 0;
    for index in data::random_pages(memory.len() / PAGE, 1).take(accesses) {
        let word = &memory[(index + 1) * PAGE - 8..][..8];
        let mapped = is_mapped(memory, index)?;
        let started = Instant::now();
        let right = *black_box(word) == (index as u64).to_le_bytes();
        let took = started.elapsed();
        wrong_pages += u64::from(!right);
        if !mapped {
            times.push(u64::try_from(took.as_nanos())?);
        }
    }
    Ok((times, wrong_pages))
}

/// Whether a page is mapped now.
fn is_mapped(memory: &[u8], index: usize) -> io::Result<bool> {
    let page = &memory[index * PAGE..][..PAGE];
    let mut seen = 0u8;
    // SAFETY: the page is mapped address space, `mincore` writes one byte for it, and its contents are not touched.
    let answer = unsafe { libc::mincore(page.as_ptr().cast_mut().cast(), PAGE, &raw mut seen) };
    if answer == 0 {
        Ok(seen & 1 == 1)
    } else {
        Err(io::Error::last_os_error())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mapping::{Mapping, Pages};

    #[test]
    fn percentiles_are_of_the_sorted_times() {
        let times = Times::of((1..=200).rev().collect());
        assert_eq!(
            (times.count, times.p50_ns, times.p99_ns, times.max_ns),
            (200, 100, 198, 200)
        );
        assert_eq!(times.spread(), 1.98);
        assert_eq!(Times::of(Vec::new()).count, 0);
        assert!(!Times::default().spread().is_finite());
    }

    #[test]
    fn only_touched_pages_are_mapped() {
        let mut mapping = Mapping::new(4 * PAGE, Pages::Small).unwrap();
        mapping.bytes_mut()[2 * PAGE] = 1;
        let mapped: Vec<bool> = (0..4)
            .map(|index| is_mapped(mapping.bytes(), index).unwrap())
            .collect();
        assert_eq!(mapped, [false, false, true, false]);
    }

    #[test]
    fn absent_pages_are_timed_and_wrong_ones_counted() {
        let mut mapping = Mapping::new(64 * PAGE, Pages::Small).unwrap();
        for (index, page) in mapping.bytes_mut().chunks_exact_mut(PAGE).enumerate() {
            if index % 2 == 0 {
                data::fill(page, index);
            }
        }
        let (times, wrong) = read(mapping.bytes(), 1000).unwrap();
        // The pages are zeros, and the first access to each maps it.
        assert!((1..=32).contains(&times.len()), "{}", times.len());
        assert!((400..600).contains(&wrong), "{wrong}");
    }
}
