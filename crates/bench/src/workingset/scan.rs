//! A hot set of half the budget during a scan of ten budgets: does the hot set stay?
//!
//! The set is read in random order, each page equally often, with pages of the scan in between. A page of the scan is
//! touched once. It does not deserve memory; but when it is touched nobody knows that yet, and a list by last use
//! prefers it to every page of the set. The hit ratio is the share of accesses to the set that took no major fault.
//! An access to a page that was taken out and mapped again from limbo is a hit, because nothing was read for it.

use crate::data::PAGE;
use crate::error::Failure;
use crate::outcome::{highest, outcome};
use crate::workingset::memory::{self, BATCH, Mixed, Place, Scan};
use serde::{Deserialize, Serialize};
use std::time::Instant;

/// The number of passes over the hot set before the scan begins.
const WARM_PASSES: u32 = 4;
/// The scan's length in budgets.
const SCAN_BUDGETS: u64 = 10;

/// Sizes of one measurement.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, clap::Args)]
#[group(skip)]
pub struct Sizes {
    /// The RAM budget
    #[arg(id = "scan-ram", long = "scan-ram", default_value = "64M", value_parser = millpond_cli::size::parse_ram, value_name = "SIZE")]
    pub budget_bytes: u64,
    /// The number of pages that the scan reads for every 64 pages of the working set
    #[arg(id = "scan-rate", long = "scan-rate", default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..=1024), value_name = "N")]
    pub scan_in_64: u16,
}

impl Sizes {
    fn hot(&self) -> usize {
        (self.budget_bytes / PAGE as u64 / 2) as usize
    }

    fn scan(&self) -> usize {
        (self.budget_bytes / PAGE as u64 * SCAN_BUDGETS) as usize
    }

    /// The number of pages in the memory.
    #[must_use]
    pub fn pages(&self) -> usize {
        self.hot() + self.scan()
    }
}

outcome! {
    /// The measurements of one process.
    pub struct Outcome {
        /// The share of accesses to the hot set that took no major fault during the scan.
        pub hit_ratio: f64,
        /// Accesses to the hot set.
        pub hot_accesses: u64,
        /// Accesses to the hot set that took a major fault.
        pub hot_faults: u64,
        /// The number of pages that the scan touched.
        pub scanned: u64,
        /// Major faults by pages of the scan.
        pub scan_faults: u64,
        /// The duration of the scan in seconds.
        pub seconds: f64,
        /// Pages with wrong contents.
        pub wrong_pages: u64 = highest,
    }
    wrong |r| r.wrong_pages;
    figures {
        other "hit ratio" = |one| one.hit_ratio,
        other "hot faults" = |one| one.hot_faults,
        other "scan faults" = |one| one.scan_faults,
        time "seconds" = |one| one.seconds,
    }
}

/// Does the job of the measured process.
///
/// # Errors
/// When there is no memory.
pub fn work(place: &Place, sizes: &Sizes) -> Result<Outcome, Failure> {
    let hot = sizes.hot();
    let scan = hot..hot + sizes.scan();
    memory::with(place, sizes.budget_bytes, sizes.pages(), |mut memory| {
        memory.fill(scan.clone());
        memory.fill(0..hot);
        let mut warm = Mixed::new(0..hot, None);
        for _ in 0..WARM_PASSES {
            warm.pass(&mut memory);
        }
        let started = Instant::now();
        let all = scan.len() as u64;
        let rate = BATCH / 64 * usize::from(sizes.scan_in_64);
        let mut mixed = Mixed::new(0..hot, Some(Scan::new(scan, rate)));
        let mut outcome = Outcome::default();
        // The loop continues to the end of the pass in which the scan ends.
        while outcome.scanned < all {
            let passed = mixed.pass(&mut memory);
            outcome.hot_accesses += hot as u64;
            outcome.hot_faults += passed.set;
            outcome.scanned += passed.scanned;
            outcome.scan_faults += passed.scan;
        }
        outcome.hit_ratio = 1.0 - outcome.hot_faults as f64 / outcome.hot_accesses as f64;
        outcome.seconds = started.elapsed().as_secs_f64();
        outcome.wrong_pages = memory.wrong;
        outcome
    })
}
