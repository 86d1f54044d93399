//! Two groups under one budget, one quiet and one that thrashes: does the quiet one notice?
//!
//! The quiet group may have 0.4 of the budget and is protected up to that (`max` and `low`). It uses half of the
//! budget at random, so that it has refaults of its own: one access in five. The other group has no limits and reads
//! two budgets at random, alternating page by page with the quiet group; it would use all the memory there is. The
//! ratio of the quiet group's refaults with the other group to those without it shows how much a neighbour's
//! thrashing affects it. Only Millpond is measured: the kernel's groups are separate processes.

use crate::data::{self, PAGE};
use crate::error::Failure;
use crate::millpond_side;
use crate::order::BenchOrder;
use crate::outcome::{highest, outcome};
use crate::side::sides;
use crate::workingset::memory::{BATCH, Touched};
use millpond::{GroupLimits, Region};
use serde::{Deserialize, Serialize};

sides! {
    /// Whether another group runs as well.
    pub enum Company {
        /// The quiet group has all memory for itself
        Alone,
        /// Another group thrashes meanwhile
        Beside,
    }
    against []
}

/// Sizes of one measurement.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, clap::Args)]
#[group(skip)]
pub struct Sizes {
    /// The RAM budget of both groups together
    #[arg(id = "groups-ram", long = "groups-ram", default_value = "64M", value_parser = millpond_cli::size::parse_ram, value_name = "SIZE")]
    pub budget_bytes: u64,
    /// The number of counted accesses of the quiet group
    #[arg(id = "groups-accesses", long = "groups-accesses", default_value_t = 200_000, value_parser = clap::value_parser!(u64).range(1000..), value_name = "N")]
    pub accesses: u64,
}

impl Sizes {
    /// The bytes that the quiet group may have.
    fn quiet_bytes(&self) -> u64 {
        self.budget_bytes / PAGE as u64 * 2 / 5 * PAGE as u64
    }

    /// The number of pages that the quiet group uses.
    fn quiet(&self) -> usize {
        (self.budget_bytes / PAGE as u64 / 2) as usize
    }

    /// The number of pages that the other group uses.
    fn thrashing(&self) -> usize {
        (self.budget_bytes / PAGE as u64 * 2) as usize
    }
}

outcome! {
    /// The measurements of one process.
    pub struct Outcome {
        /// Major faults of the quiet group.
        pub refaults: u64,
        /// The share of the quiet group's accesses that took a major fault.
        pub refault_ratio: f64,
        /// Bytes that the quiet group had at the end.
        pub usage_bytes: u64,
        /// Major faults of the other group.
        pub others_faults: u64,
        /// Pages with wrong contents.
        pub wrong_pages: u64 = highest,
    }
    wrong |r| r.wrong_pages;
    figures {
        other "refaults" = |one| one.refaults,
        other "ratio" = |one| one.refault_ratio,
        other "MiB at end" = |one| one.usage_bytes as f64 / f64::from(1 << 20),
        other "other's" = |one| one.others_faults,
    }
}

/// Does the job of the measured process.
///
/// # Errors
/// When there is no memory.
pub fn work(company: Company, order: BenchOrder, sizes: &Sizes) -> Result<Outcome, Failure> {
    let manager = millpond_side::settings(sizes.budget_bytes).build()?;
    let bytes = sizes.quiet_bytes();
    let limits = GroupLimits::new().low(bytes).max(bytes);
    let quiet = manager.group(&manager.root(), "quiet", limits)?;
    let thrashing = manager.group(&manager.root(), "thrashing", GroupLimits::new())?;
    let builder = || Region::builder().order(order.0);
    let mut quiet_region = builder()
        .group(&quiet)
        .build(&manager, sizes.quiet() * PAGE)?;
    let mut other_region = builder()
        .group(&thrashing)
        .build(&manager, sizes.thrashing() * PAGE)?;
    let majors = || manager.stats().vm.pgmajfault;
    let mut ours = Touched::new(quiet_region.as_mut_slice(), &majors);
    let mut others = Touched::new(other_region.as_mut_slice(), &majors);
    ours.fill(0..sizes.quiet());
    others.fill(0..sizes.thrashing());

    let mut pages = data::random_pages(sizes.quiet(), 1);
    let mut other_pages = data::random_pages(sizes.thrashing(), 2);
    let mut go = |accesses: u64| {
        let (mut refaults, mut others_faults) = (0, 0);
        for _ in 0..accesses / BATCH as u64 {
            refaults += ours.read(pages.by_ref().take(BATCH));
            if company == Company::Beside {
                others_faults += others.read(other_pages.by_ref().take(BATCH));
            }
        }
        (refaults, others_faults)
    };
    // These accesses let each group reach the size that it can get.
    go(sizes.accesses / 2);
    let (refaults, others_faults) = go(sizes.accesses);
    let wrong_pages = ours.wrong + others.wrong;
    Ok(Outcome {
        refaults,
        refault_ratio: refaults as f64 / (sizes.accesses / BATCH as u64 * BATCH as u64) as f64,
        usage_bytes: quiet.stats()?.usage,
        others_faults,
        wrong_pages,
    })
}
