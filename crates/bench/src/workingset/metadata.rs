//! The memory of a manager's tables. The allowance is 48 bytes per resident folio and 8 bytes per mapped page, and
//! all of it must be in the figure that is charged to the budget.
//!
//! A region of folios of one order is touched within the budget, so that each folio is resident and nothing is in the
//! store. Its allowance is compared with [`Stats::metadata_bytes`](millpond::Stats), minus that of a manager without
//! regions. The kernel's figure is compared as well, because it shows what the tables really take: they are anonymous
//! memory of the process, and nothing else in it grows meanwhile except the mapped memory. Tables allocate whole
//! pages, so a little of that is not used yet; it is in both figures.

use crate::data::PAGE;
use crate::error::Failure;
use crate::order::BenchOrder;
use crate::outcome::{highest, outcome};
use crate::{millpond_side, rounds, smaps};
use millpond::OrderPolicy;
use serde::{Deserialize, Serialize};

/// Bytes allowed for each resident folio.
pub const A_FOLIO: u64 = 48;
/// Bytes allowed for each mapped page.
pub const A_PAGE: u64 = 8;

/// Sizes of one measurement.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, clap::Args)]
#[group(skip)]
pub struct Sizes {
    /// The size of the touched memory
    #[arg(id = "metadata-memory", long = "metadata-memory", default_value = "128M", value_parser = rounds::parse_pages, value_name = "SIZE")]
    pub memory_bytes: u64,
}

impl Sizes {
    /// The budget, which has room for twice the memory.
    #[must_use]
    pub fn budget(&self) -> u64 {
        (2 * self.memory_bytes).max(64 << 20)
    }

    /// The number of pages in the memory.
    #[must_use]
    pub fn pages(&self) -> usize {
        (self.memory_bytes / PAGE as u64) as usize
    }
}

outcome! {
    /// The measurements of one process.
    pub struct Outcome {
        /// Bytes of tables for the touched memory.
        pub bytes: u64 = highest,
        /// Bytes allowed for the touched memory.
        pub allowed: u64 = highest,
        /// The ratio of both.
        pub over_allowed: f64,
        /// Bytes of tables beyond those after the first touch, per page.
        pub bytes_a_page: f64,
        /// Resident bytes of the process that are neither the memory nor reported as tables.
        pub unreported: f64,
        /// Pages with wrong contents.
        pub wrong_pages: u64 = highest,
    }
    wrong |r| r.wrong_pages;
    figures {
        other "bytes" = |one| one.bytes,
        other "allowed" = |one| one.allowed,
        other "bytes a page" = |one| one.bytes_a_page,
        other "unreported" = |one| one.unreported,
    }
}

/// Does the job of the measured process.
///
/// # Errors
/// When there is no memory, or the kernel does not report how much is used.
pub fn work(order: BenchOrder, sizes: &Sizes) -> Result<Outcome, Failure> {
    let BenchOrder(OrderPolicy::Fixed(order)) = order else {
        return Err("adaptive folios have no order to count them by; give --order 0 to 9".into());
    };
    let manager = millpond_side::settings(sizes.budget()).build()?;
    let mut region = manager.region_with(sizes.pages() * PAGE, order)?;
    // The first leaf is not counted, because it includes the minimum size of the tables.
    let memory = region.as_mut_slice();
    memory[0] = 1;
    let before = manager.stats();
    let rss_before = resident()?;
    for page in memory.chunks_exact_mut(PAGE).skip(1) {
        page[0] = 1;
    }
    let wrong_pages = memory.chunks_exact(PAGE).filter(|page| page[0] != 1);
    let wrong_pages = wrong_pages.count() as u64;
    let rss = resident()? - rss_before;
    let after = manager.stats();
    let pages = after.vm.nr_mapped - before.vm.nr_mapped;
    let bytes = after.metadata_bytes - before.metadata_bytes;
    let folios = pages >> order.get();
    let allowed = folios * A_FOLIO + pages * A_PAGE;
    let frames = (pages + after.vm.nr_free_frames - before.vm.nr_free_frames) * PAGE as u64;
    Ok(Outcome {
        bytes,
        allowed,
        over_allowed: bytes as f64 / allowed as f64,
        bytes_a_page: bytes as f64 / pages as f64,
        unreported: rss as f64 - frames as f64 - bytes as f64,
        wrong_pages,
    })
}

/// Resident anonymous bytes of this process, as counted by the kernel. The figure is the median of five readings,
/// because a page that moves while one of them walks the tables is seen twice or not at all. (All resident bytes
/// would not do: code that runs for the first time brings in 64 KiB of its file.)
fn resident() -> Result<u64, Failure> {
    let mut looks = [0; 5];
    for look in &mut looks {
        *look = smaps::anonymous()?;
    }
    looks.sort_unstable();
    Ok(looks[2])
}
