//! A working set is abandoned and another of 0.9 of the budget appears, during a scan: how many major faults does it
//! take until the new one stays?
//!
//! Memory that was active has to make room for pages that come back repeatedly, but not for pages that only pass. Any
//! policy has at least one fault for each page of the new set, since all of it is in the store. Each further fault is
//! a page that was evicted although it was needed.
//!
//! | step | action |
//! | --- | --- |
//! | 1 | the new set, the scan and then the old set are written; all but the end of that goes to the store |
//! | 2 | the old set, 0.9 of the budget, is read four times |
//! | 3 | the new set is read repeatedly, with pages of the scan in between, until it is *steady* |
//!
//! Each pass of step 3 has another random order. The set is *steady* when a pass has major faults for at most a
//! hundredth of it.
//!
//! The scan is much longer than the budget, so that a page of it is forgotten before it comes again. With a page of
//! the scan for every four of the set, a page of the set comes again after 1.1 budgets of others: a list that only
//! considers the last use keeps nothing.

use crate::data::PAGE;
use crate::error::Failure;
use crate::outcome::{Median, highest, none, outcome};
use crate::workingset::memory::{self, BATCH, Mixed, Place, Scan};
use serde::{Deserialize, Serialize};
use std::time::Instant;

/// The number of passes over the old set.
const OLD_PASSES: u32 = 4;
/// The scan's length in budgets.
const SCAN_BUDGETS: u64 = 4;

/// Sizes of one measurement.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, clap::Args)]
#[group(skip)]
pub struct Sizes {
    /// The RAM budget
    #[arg(id = "shift-ram", long = "shift-ram", default_value = "64M", value_parser = millpond_cli::size::parse_ram, value_name = "SIZE")]
    pub budget_bytes: u64,
    /// The number of pages that the scan reads for every 64 pages of the working set
    #[arg(id = "shift-scan", long = "shift-scan", default_value_t = 16, value_parser = clap::value_parser!(u16).range(0..=1024), value_name = "N")]
    pub scan_in_64: u16,
    /// The maximum number of passes over the new working set
    #[arg(id = "shift-passes", long = "shift-passes", default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=1000), value_name = "N")]
    pub passes: u16,
}

impl Sizes {
    /// The number of pages in either set.
    #[must_use]
    pub fn set(&self) -> usize {
        (self.budget_bytes / PAGE as u64 * 9 / 10) as usize
    }

    fn scan(&self) -> usize {
        (self.budget_bytes / PAGE as u64 * SCAN_BUDGETS) as usize
    }

    /// The number of pages in the memory.
    #[must_use]
    pub fn pages(&self) -> usize {
        2 * self.set() + self.scan()
    }
}

outcome! {
    /// The measurements of one process.
    #[serde(default)]
    pub struct Outcome {
        /// Major faults by the new set until it was steady, including the steady pass, divided by its pages. If it
        /// never was steady, the faults are those of all passes.
        pub faults_over_set: f64,
        /// The number of passes over the set until it was steady; null if it never was.
        pub steady_after: Option<u64> = steady,
        /// Major faults by the new set in each pass; only for single rounds.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        pub major_faults: Vec<u64> = none,
        /// Major faults by the old set in its last pass.
        pub old_set_faults: u64,
        /// The duration of step 3 in seconds.
        pub seconds: f64,
        /// Pages with wrong contents.
        pub wrong_pages: u64 = highest,
    }
    wrong |r| r.wrong_pages;
    figures {
        other "faults/set" = |one| one.faults_over_set,
        other "steady after" = |one| one.steady_after,
        other "seconds" = |one| one.seconds,
    }
}

/// A rule: a set that was not steady in one round is not steady.
fn steady<'a>(rounds: impl Iterator<Item = &'a Option<u64>>) -> Option<u64> {
    let after: Option<Vec<u64>> = rounds.copied().collect();
    Some(u64::median(after?.iter()))
}

/// Does the job of the measured process.
///
/// # Errors
/// When there is no memory.
pub fn work(place: &Place, sizes: &Sizes) -> Result<Outcome, Failure> {
    let set = sizes.set();
    let new = 0..set;
    let scan = set..set + sizes.scan();
    let old = scan.end..scan.end + set;
    memory::with(place, sizes.budget_bytes, sizes.pages(), |mut memory| {
        memory.fill(0..old.end);
        let mut abandoned = Mixed::new(old, None);
        let mut old_set_faults = 0;
        for _ in 0..OLD_PASSES {
            old_set_faults = abandoned.pass(&mut memory).set;
        }
        let started = Instant::now();
        let scan = (sizes.scan_in_64 > 0)
            .then(|| Scan::new(scan, BATCH / 64 * usize::from(sizes.scan_in_64)));
        let mut mixed = Mixed::new(new, scan);
        let mut major_faults = Vec::new();
        let mut steady_after = None;
        while steady_after.is_none() && major_faults.len() < usize::from(sizes.passes) {
            let faults = mixed.pass(&mut memory).set;
            major_faults.push(faults);
            if faults * 100 <= set as u64 {
                steady_after = Some(major_faults.len() as u64);
            }
        }
        Outcome {
            faults_over_set: major_faults.iter().sum::<u64>() as f64 / set as f64,
            steady_after,
            major_faults,
            old_set_faults,
            seconds: started.elapsed().as_secs_f64(),
            wrong_pages: memory.wrong,
        }
    })
}
