//! The share of a fault's time that workingset detection takes; 3 % is allowed.
//!
//! A region of two budgets is read at random, so that one access in two is a major fault and some of the others are
//! rescues: each of them must be recorded. Nothing can be learnt from random accesses, so the same pages are in
//! memory with and without detection, and the difference is bookkeeping. A few per cent of some microseconds cannot
//! be seen in whole accesses on a shared machine. So the core is also timed alone: the same accesses go through it
//! without everything around it, with and without detection. The share is the difference of these two times, divided
//! by the time of a whole access with detection.

use crate::data::{self, PAGE};
use crate::error::Failure;
use crate::millpond_side;
use crate::order::BenchOrder;
use crate::outcome::{highest, outcome};
use crate::side::sides;
use crate::workingset::memory::Touched;
use millpond_core::{Config, LEAF_PAGES, PageCount};
use millpond_replay::core_policy::CorePolicy;
use serde::{Deserialize, Serialize};
use std::hint::black_box;
use std::time::Instant;

/// The cost of a load from compressed RAM, in sixteenths of the cost of a rescue.
const LOAD_COST: u32 = 20;

sides! {
    /// Whether returning pages are recorded.
    pub enum Detection {
        /// With the bookkeeping of the working set
        On,
        /// Without the bookkeeping of the working set
        Off,
    }
    against []
}

/// Sizes of one measurement.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, clap::Args)]
#[group(skip)]
pub struct Sizes {
    /// The RAM budget
    #[arg(id = "overhead-ram", long = "overhead-ram", default_value = "64M", value_parser = millpond_cli::size::parse_ram, value_name = "SIZE")]
    pub budget_bytes: u64,
    /// The number of timed accesses
    #[arg(id = "overhead-accesses", long = "overhead-accesses", default_value_t = 400_000, value_parser = clap::value_parser!(u64).range(1000..), value_name = "N")]
    pub accesses: u64,
}

impl Sizes {
    /// The number of pages that fit into the budget.
    fn room(&self) -> u32 {
        (self.budget_bytes / PAGE as u64) as u32
    }

    /// The number of pages in the memory.
    #[must_use]
    pub fn pages(&self) -> usize {
        2 * self.room() as usize
    }

    fn random(&self, seed: u64) -> impl Iterator<Item = usize> + use<> {
        data::random_pages(self.pages(), seed).take(self.accesses as usize)
    }
}

outcome! {
    /// The measurements of one process.
    pub struct Outcome {
        /// Nanoseconds per access on real memory.
        pub access_ns: f64,
        /// Nanoseconds per access in the core, timed alone.
        pub core_ns: f64,
        /// Major faults of the accesses on real memory.
        pub major_faults: u64,
        /// Rescues of the accesses on real memory.
        pub rescues: u64,
        /// Pages with wrong contents.
        pub wrong_pages: u64 = highest,
    }
    wrong |r| r.wrong_pages;
    figures {
        other "ns an access" = |one| one.access_ns,
        other "of the core" = |one| one.core_ns,
        other "major faults" = |one| one.major_faults,
        other "rescues" = |one| one.rescues,
    }
}

/// Does the job of the measured process.
///
/// # Errors
/// When there is no memory, or the core cannot be driven.
pub fn work(detection: Detection, order: BenchOrder, sizes: &Sizes) -> Result<Outcome, Failure> {
    let on = detection == Detection::On;
    let core_ns = time_core(on, sizes)?;
    let manager = millpond_side::settings(sizes.budget_bytes)
        .workingset(on)
        .build()?;
    let mut region = manager.region_with(sizes.pages() * PAGE, order.0)?;
    let majors = || manager.stats().vm.pgmajfault;
    let mut memory = Touched::new(region.as_mut_slice(), &majors);
    memory.fill(0..sizes.pages());
    memory.read(sizes.random(1));
    let rescues = || manager.stats().faults.rescue.count;
    let before = rescues();
    let started = Instant::now();
    let major_faults = memory.read(sizes.random(2));
    let took = started.elapsed();
    Ok(Outcome {
        access_ns: took.as_nanos() as f64 / sizes.accesses as f64,
        core_ns,
        major_faults,
        rescues: rescues() - before,
        wrong_pages: memory.wrong,
    })
}

/// Measures nanoseconds per access in the core alone.
fn time_core(workingset: bool, sizes: &Sizes) -> Result<f64, Failure> {
    let arena = PageCount((sizes.pages() as u32).next_multiple_of(LEAF_PAGES));
    let config = Config {
        workingset,
        refault_cost: LOAD_COST,
        ..Config::new(arena, PageCount(sizes.room()))
    };
    let mut core = CorePolicy::with_config(config, sizes.room())?;
    for page in (0..sizes.pages()).chain(sizes.random(1)) {
        core.access(page as u32, false)?;
    }
    let started = Instant::now();
    for page in sizes.random(2) {
        black_box(core.access(page as u32, false)?);
    }
    Ok(started.elapsed().as_nanos() as f64 / sizes.accesses as f64)
}
