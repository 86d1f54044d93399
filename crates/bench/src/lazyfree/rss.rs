//! Checks the manager's figures: compares the memory that it reports as resident and as lazily freed with the
//! kernel's figures.
//!
//! Programs that free lazily are said to lie about their size: the kernel counts pages that nobody needs any more as
//! resident, and no figure tells how many there are. Here a region is filled, every second leaf (2 MiB) of it is
//! lazily freed, and the growth of the process's `Rss` is compared with `resident + lazyfree` as the manager reports
//! them. The manager's tables for the region are not bytes of the region, so their growth (as the manager reports it)
//! is subtracted.

use crate::error::Failure;
use crate::lazyfree::ours;
use crate::outcome::{highest, kib, longest, outcome};
use crate::side::Contender;
use crate::{rounds, smaps};
use millpond::{Manager, Order, PAGE_SIZE};
use serde::Serialize;
use std::time::{Duration, Instant};

const LEAF: usize = 2 << 20;
/// A time longer than two ticks of the manager's thread. The second tick ends a stream that has requested nothing
/// since the first.
const QUIET: Duration = Duration::from_millis(300);
const PATIENCE: Duration = Duration::from_secs(10);

/// Sizes of one measurement.
#[derive(Clone, Debug, Serialize, clap::Args)]
#[group(skip)]
pub struct Sizes {
    /// The size of the region
    #[arg(id = "rss-memory", long = "rss-memory", default_value = "64M", value_parser = rounds::parse_pages, value_name = "SIZE")]
    pub memory_bytes: u64,
    /// The orders of the folios
    #[arg(id = "rss-orders", long = "rss-orders", value_delimiter = ',', default_value = "0,4,9", value_parser = clap::value_parser!(u8).range(0..=9), value_name = "N,...")]
    pub orders: Vec<u8>,
}

outcome! {
    /// The findings of one process, in bytes.
    pub struct Outcome {
        /// Growth of `Rss` due to filling the region and freeing half of it.
        pub rss_bytes: u64,
        /// Growth of the manager's tables meanwhile, contained in `rss_bytes`.
        pub metadata_bytes: u64,
        /// Bytes that the manager reports as resident.
        pub resident_bytes: u64,
        /// Bytes that the manager reports as lazily freed.
        pub lazyfree_bytes: u64,
        /// The difference between `resident + lazyfree` and `rss - metadata`, relative to the latter.
        pub error: f64 = longest,
        /// Pages with wrong contents in the half that was not freed.
        pub wrong_pages: u64 = highest,
    }
    wrong |r| r.wrong_pages;
    figures {
        other "Rss, KiB" = |one| kib(one.rss_bytes),
        other "tables" = |one| kib(one.metadata_bytes),
        other "resident" = |one| kib(one.resident_bytes),
        other "lazyfree" = |one| kib(one.lazyfree_bytes),
        other "error, %" = |one| one.error * 100.0,
    }
}

/// A side is an order of folios, given as a number.
impl Contender for u8 {}

/// Waits for the end of the stream that filling the region forms. Huge pages are kept ready for a stream: memory that
/// is reported separately, and returned when no stream uses it. If there are none for [`QUIET`], no more will come.
fn await_streams_end(manager: &Manager) -> Result<(), Failure> {
    let (begun, mut last) = (Instant::now(), Instant::now());
    while last.elapsed() < QUIET {
        if manager.stats().ahead_bytes > 0 {
            last = Instant::now();
        }
        if begun.elapsed() > PATIENCE {
            return Err("huge pages that nobody wants any more stay ready".into());
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

/// Does the job of the measured process.
///
/// # Errors
/// When the manager or the region cannot be created.
pub fn work(order: u8, bytes: u64) -> Result<Outcome, Failure> {
    let order = Order::new(order).ok_or("an order is at most 9")?;
    let len = usize::try_from(bytes)?;
    let manager = ours::manager(2 * bytes + (64 << 20))?;
    let mut region = manager.region_with(len, order)?;
    let (before, tables) = (smaps::resident()?, manager.stats().metadata_bytes);
    region.as_mut_slice().fill(1);
    let freed: Vec<_> = (0..len)
        .step_by(2 * LEAF)
        .map(|start| start..(start + LEAF).min(len))
        .collect();
    region.lazy_free_vectored(&freed)?;
    await_streams_end(&manager)?;
    let (after, stats) = (smaps::resident()?, manager.stats());

    let rss_bytes = after.saturating_sub(before);
    let metadata_bytes = stats.metadata_bytes.saturating_sub(tables);
    let resident_bytes = stats.resident_bytes();
    let lazyfree_bytes = stats.lazyfree_bytes();
    let seen = rss_bytes.saturating_sub(metadata_bytes) as f64;
    let error = ((resident_bytes + lazyfree_bytes) as f64 - seen).abs() / seen;
    let kept = region.as_slice().chunks(LEAF).skip(1).step_by(2);
    let wrong = kept
        .flat_map(|leaf| leaf.chunks(PAGE_SIZE))
        .filter(|page| page.iter().any(|&byte| byte != 1));
    Ok(Outcome {
        rss_bytes,
        metadata_bytes,
        resident_bytes,
        lazyfree_bytes,
        error,
        wrong_pages: wrong.count() as u64,
    })
}
