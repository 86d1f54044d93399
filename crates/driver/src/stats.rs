//! Statistics of a manager.

use crate::state::queue::FreeStats;
use millpond_board::LATENCY_BUCKETS;
use millpond_core::{Beyond, PAGE_SIZE, PageCount, StoreUsage, VmStat};
use serde::Serialize;
use std::time::Duration;

/// Latency of faults, from the moment when the manager learns of a fault to the moment when it is resolved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LatencySummary {
    /// Faults measured.
    pub count: u64,
    /// Median, in nanoseconds, rounded up by a 64th at most.
    pub p50_ns: u64,
    /// 99th percentile, in nanoseconds, rounded up by a 64th at most.
    pub p99_ns: u64,
    /// Longest time, in nanoseconds.
    pub max_ns: u64,
    /// Total time of all these faults, in nanoseconds, accurate to a 128th.
    pub total_ns: u64,
    /// Number of faults by duration, in doublings of the time: see [`millpond_board::latency_bucket`].
    pub histogram: [u64; LATENCY_BUCKETS],
}

/// Latency of faults by the path that they took. A fault is counted once, under the most expensive thing that happened
/// in it: the fields are in order of cost.
///
/// ```
/// let manager = millpond::Manager::builder().ram(16 << 20).build()?;
/// let mut region = manager.region(1 << 20)?;
/// region.as_mut_slice().fill(7);
/// let stats = manager.stats();
/// assert!(stats.faults.first_touch.count <= 16); // of 64 KiB each, or of several such
/// assert!(stats.faults.first_touch.p50_ns <= stats.faults.first_touch.max_ns);
/// assert_eq!(stats.faults.load.count, 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct FaultLatencies {
    /// Faults with nothing to do, because another thread had been faster. With a handler thread, also faults on pages
    /// that another thread is bringing in: the faulting thread sleeps until the page is there, and that sleep is not
    /// measured.
    pub spurious: LatencySummary,
    /// Faults that mapped zeros: memory that was never written, or given back since.
    pub first_touch: LatencySummary,
    /// Faults that remapped memory that had been taken out and was still in RAM.
    pub rescue: LatencySummary,
    /// Faults whose contents came from the store.
    pub load: LatencySummary,
    /// Faults whose contents came from the file of their region.
    pub read: LatencySummary,
    /// Faults that waited for another thread's work.
    pub waited: LatencySummary,
    /// Faults that found no memory, so the faulting thread reclaimed by itself.
    pub reclaimed: LatencySummary,
}

/// Counters and gauges of a manager. Pages are 4 KiB.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Stats {
    /// Counters under Linux's vmstat names.
    pub vm: VmStat,
    /// Figures of the store's contents.
    pub store: StoreUsageStats,
    /// Figures of stored data outside the machine.
    pub beyond: BeyondStats,
    /// The budget, in bytes.
    pub ram: u64,
    /// Freeing: its tuning, and the work in progress.
    pub free: FreeStats,
    /// Bytes of the manager's own tables.
    pub metadata_bytes: u64,
    /// Bytes of huge pages that stand ready for a stream through new memory. They are within the budget.
    pub ahead_bytes: u64,
    /// Peak of the bytes that frames, store and tables took together, as far as the budget counts them.
    pub peak_bytes: u64,
    /// Peak of the process's bytes that were neither managed nor the manager's own (code, static variables, stacks, the
    /// kernel's mappings), if the budget covers the whole process; otherwise 0.
    pub own_peak_bytes: u64,
    /// Latency of all faults.
    pub latency: LatencySummary,
    /// Latency of faults by the path that they took.
    pub faults: FaultLatencies,
    /// Assumed cost of a load from the store, as a multiple of the cost of a rescue: at first an estimate for the kind
    /// of store, then a recent measurement. It determines how long memory waits in limbo.
    pub refault_cost: f64,
    /// Time spent reclaiming, in the background and in faulting threads.
    pub reclaim: Duration,
    /// Time spent reclaiming in faulting threads; included in `reclaim`.
    pub reclaim_direct: Duration,
    /// Costs and savings of recompression, when compressed RAM was short.
    pub recompress: RecompressStats,
    /// Volatile ranges that were purged because memory was short.
    pub volatile_purges: u64,
    /// Number of times that the store was found full or failing.
    pub store_failures: u64,
}

/// Costs and savings of recompression. Compressed RAM that is nearly full keeps data that was not used for a while with
/// zstd instead of LZ4.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RecompressStats {
    /// Processor time of recompression.
    pub time: Duration,
    /// Bytes that were recompressed, before any compression.
    pub bytes: u64,
    /// Bytes of RAM that recompression saved, at the time.
    pub saved_bytes: u64,
    /// Bytes that were tried and stayed unchanged, before any compression.
    pub left_bytes: u64,
}

/// Figures of stored data outside the machine, in S3 or Redis for instance; see [`millpond_core::Beyond`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct BeyondStats {
    /// Bytes that are only there, before compression.
    pub bytes: u64,
    /// Loads from there.
    pub loads: u64,
    /// Loads from there that failed.
    pub lost_loads: u64,
    /// Time since the service stopped answering; zero while it answers.
    pub away: Duration,
}

impl From<Beyond> for BeyondStats {
    fn from(beyond: Beyond) -> Self {
        Self {
            bytes: beyond.bytes,
            loads: beyond.loads,
            lost_loads: beyond.lost_loads,
            away: Duration::from_millis(beyond.away_ms),
        }
    }
}

/// Figures of a store's contents; see [`millpond_core::StoreUsage`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct StoreUsageStats {
    /// Slots that hold something.
    pub slots: u64,
    /// Bytes of the saved data, before compression.
    pub logical_bytes: u64,
    /// Bytes that the saved data takes, in RAM and on a device together.
    pub stored_bytes: u64,
    /// Bytes of RAM that the store has obtained from the system.
    pub ram_bytes: u64,
    /// Slots that take no space because all of their words are equal.
    pub same_filled: u64,
    /// Slots kept uncompressed.
    pub incompressible: u64,
}

impl From<StoreUsage> for StoreUsageStats {
    fn from(usage: StoreUsage) -> Self {
        Self {
            slots: usage.slots,
            logical_bytes: usage.logical_bytes,
            stored_bytes: usage.stored_bytes,
            ram_bytes: usage.ram_bytes,
            same_filled: usage.same_filled,
            incompressible: usage.incompressible,
        }
    }
}

impl Stats {
    /// Bytes that are mapped in the program now and in use, excluding lazily freed memory.
    #[must_use]
    pub fn resident_bytes(&self) -> u64 {
        (self.vm.nr_mapped - self.vm.nr_lazyfree_mapped) * PAGE_SIZE as u64
    }

    /// Bytes in RAM that were lazily freed and not used since, and so may be reclaimed.
    #[must_use]
    pub fn lazyfree_bytes(&self) -> u64 {
        self.vm.nr_lazyfree * PAGE_SIZE as u64
    }

    /// Bytes in RAM but taken out of the program, waiting for a second touch.
    #[must_use]
    pub fn limbo_bytes(&self) -> u64 {
        (self.vm.nr_limbo - (self.vm.nr_lazyfree - self.vm.nr_lazyfree_mapped)) * PAGE_SIZE as u64
    }

    /// The share of major faults so far, 0 to 1, that would not have happened with `more` bytes of budget; `None` while
    /// there were too few to tell. [`millpond_core::policy::curve`] explains how the share is determined.
    ///
    /// ```
    /// let manager = millpond::Manager::builder().ram(16 << 20).build()?;
    /// let mut region = manager.region(24 << 20)?;
    /// region.as_mut_slice().fill(7);
    /// let sum = |bytes: &[u8]| bytes.iter().map(|&byte| u64::from(byte)).sum::<u64>();
    /// for _ in 0..10 {
    ///     assert_eq!(sum(region.as_slice()), 7 * (24 << 20));
    /// }
    /// // All of it is used in turn; with a budget of 48 MiB nothing would have had to come back.
    /// assert!(manager.stats().avoided(32 << 20) > Some(0.9));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn avoided(&self, more: u64) -> Option<f64> {
        let pages = more / PAGE_SIZE as u64;
        self.vm
            .avoided(PageCount(u32::try_from(pages).unwrap_or(u32::MAX)))
    }

    /// Bytes saved for each byte that the store takes; `None` while the store holds nothing.
    #[must_use]
    pub fn compression_ratio(&self) -> Option<f64> {
        (self.store.stored_bytes > 0)
            .then(|| self.store.logical_bytes as f64 / self.store.stored_bytes as f64)
    }
}
