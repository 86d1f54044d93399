//! The counters of a slot, by name.
//!
//! A slot has room for [`FIELD_ROOM`] words, and for one latency histogram per way of serving a fault. A new counter
//! takes the next number. A number never changes its meaning within one version of the board.

use crate::latency::{FaultWay, Histogram, LATENCY_BUCKETS};

/// Number of words for counters in a slot.
pub(crate) const FIELD_ROOM: usize = 160;

macro_rules! fields {
    ($($(#[doc = $doc:literal])* $name:ident = $key:literal,)*) => {
        /// A counter. Each one's text says whether it counts bytes, nanoseconds or things.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[repr(usize)]
        pub enum Field { $($(#[doc = $doc])* $name,)* }

        impl Field {
            /// All counters, in the order of their numbers.
            pub const ALL: [Self; [$($key),*].len()] = [$(Self::$name),*];

            /// The counter's name in a machine-readable report.
            #[must_use]
            pub const fn key(self) -> &'static str {
                match self { $(Self::$name => $key,)* }
            }

            /// The counter's meaning, in one line.
            #[must_use]
            pub const fn about(self) -> &'static str {
                match self { $(Self::$name => concat!($($doc),*).trim_ascii(),)* }
            }
        }
    };
}

fields! {
    /// The budget, in bytes.
    Budget = "budget_bytes",
    /// Peak resident set of the whole process as the kernel counts it (`VmHWM`), in bytes.
    PeakRss = "peak_rss_bytes",
    /// Resident set now, in bytes.
    Rss = "rss_bytes",
    /// Peak bytes of managed memory in RAM: mapped, in limbo and spare.
    PeakFrames = "peak_frames_bytes",
    /// Peak bytes that a sample found resident and neither managed nor Millpond's: code, static variables, stacks.
    PeakOwn = "peak_own_bytes",
    /// Bytes of managed memory that were touched. A page counts once until it is given back.
    Touched = "touched_bytes",
    /// Faults that needed no read from the store or a file.
    MinorFaults = "minor_faults",
    /// Faults that read from the store or a file.
    MajorFaults = "major_faults",
    /// Bytes written to the store, before compression.
    BytesOut = "out_bytes",
    /// Bytes read from the store, after decompression.
    BytesIn = "in_bytes",
    /// Bytes evicted without a write, because the store still had them or they were zero.
    BytesOutFree = "out_without_write_bytes",
    /// Bytes mapped again from limbo: they were taken out, but not yet evicted.
    Rescued = "rescued_bytes",
    /// Bytes in the store now, before compression.
    StoreLogical = "store_logical_bytes",
    /// Bytes that the store occupies now, after compression.
    StoreStored = "store_stored_bytes",
    /// Highest value of `StoreLogical`.
    StoreLogicalPeak = "store_logical_peak_bytes",
    /// Value of `StoreStored` when `StoreLogical` was highest.
    StoreStoredPeak = "store_stored_peak_bytes",
    /// Bytes of RAM that the store holds from the system now.
    StoreRam = "store_ram_bytes",
    /// Median time to serve a fault, in nanoseconds.
    FaultP50 = "fault_p50_ns",
    /// 99th percentile of the time to serve a fault, in nanoseconds.
    FaultP99 = "fault_p99_ns",
    /// The longest fault, in nanoseconds.
    FaultMax = "fault_max_ns",
    /// Time that threads spent in reclaim, in nanoseconds.
    Reclaim = "reclaim_ns",
    /// Saves that failed or found the store full.
    StoreFailed = "store_failed",
    /// Loads that failed.
    LoadFailed = "load_failed",
    /// Faults that were served above the budget, because no more memory could leave.
    OverLimit = "over_limit_faults",
    /// Peak excess over the budget, in bytes.
    OverLimitBytes = "over_limit_bytes",
    /// Faults that found no free memory and reclaimed some themselves.
    DirectReclaims = "direct_reclaims",
    /// Wall time since the process's slot was claimed, in nanoseconds.
    Wall = "wall_ns",
    /// Bytes in RAM that were lazily freed and, as far as is known, not used since, so that they may be dropped. They
    /// are part of `Rss`, which the kernel counts.
    LazyFree = "lazyfree_bytes",
    /// Pages lazily freed while they were in memory.
    PgLazyFree = "pglazyfree",
    /// Lazily freed pages that were dropped because memory was needed.
    PgLazyFreed = "pglazyfreed",
    /// Lazily freed pages that were used again before they were dropped.
    PgLazyFreeReused = "pglazyfree_reused",
    /// Faults that mapped zeros.
    FirstTouchCount = "fault_first_touch_count",
    /// Median time to serve a fault that mapped zeros, in nanoseconds.
    FirstTouchP50 = "fault_first_touch_p50_ns",
    /// 99th percentile of the time to serve a fault that mapped zeros, in nanoseconds.
    FirstTouchP99 = "fault_first_touch_p99_ns",
    /// The longest fault that mapped zeros, in nanoseconds.
    FirstTouchMax = "fault_first_touch_max_ns",
    /// Faults that mapped a page in limbo again.
    RescueCount = "fault_rescue_count",
    /// Median time to serve a fault that mapped a page in limbo again, in nanoseconds.
    RescueP50 = "fault_rescue_p50_ns",
    /// 99th percentile of the time to serve a fault that mapped a page in limbo again, in nanoseconds.
    RescueP99 = "fault_rescue_p99_ns",
    /// The longest fault that mapped a page in limbo again, in nanoseconds.
    RescueMax = "fault_rescue_max_ns",
    /// Faults that read from the store or a file.
    LoadCount = "fault_load_count",
    /// Median time to serve a fault that read from the store, in nanoseconds.
    LoadP50 = "fault_load_p50_ns",
    /// 99th percentile of the time to serve a fault that read from the store, in nanoseconds.
    LoadP99 = "fault_load_p99_ns",
    /// The longest fault that read from the store, in nanoseconds.
    LoadMax = "fault_load_max_ns",
    /// Faults that waited for another thread's work.
    WaitedCount = "fault_waited_count",
    /// Median time to serve a fault that waited for another thread's work, in nanoseconds.
    WaitedP50 = "fault_waited_p50_ns",
    /// 99th percentile of the time to serve a fault that waited for another thread's work, in nanoseconds.
    WaitedP99 = "fault_waited_p99_ns",
    /// The longest fault that waited for another thread's work, in nanoseconds.
    WaitedMax = "fault_waited_max_ns",
    /// Faults that reclaimed memory themselves.
    ReclaimedCount = "fault_reclaimed_count",
    /// Median time to serve a fault that reclaimed memory itself, in nanoseconds.
    ReclaimedP50 = "fault_reclaimed_p50_ns",
    /// 99th percentile of the time to serve a fault that reclaimed memory itself, in nanoseconds.
    ReclaimedP99 = "fault_reclaimed_p99_ns",
    /// The longest fault that reclaimed memory itself, in nanoseconds.
    ReclaimedMax = "fault_reclaimed_max_ns",
    /// Pages scanned by the background reclaimer.
    PgScanKswapd = "pgscan_kswapd",
    /// Pages scanned by threads that needed memory.
    PgScanDirect = "pgscan_direct",
    /// Pages freed by the background reclaimer.
    PgStealKswapd = "pgsteal_kswapd",
    /// Pages freed by threads that needed memory.
    PgStealDirect = "pgsteal_direct",
    /// Pages evicted without a write, because the store still had them.
    PswpOutUnchanged = "pswpout_unchanged",
    /// Pages evicted without a write, because they were zero.
    PswpOutZero = "pswpout_zero",
    /// Pages mapped as fresh zeros.
    PgZero = "pgzero",
    /// Pages moved to the active list.
    PgActivate = "pgactivate",
    /// Pages moved from the active to the inactive list.
    PgDeactivate = "pgdeactivate",
    /// Pages freed by discards.
    PgDiscard = "pgdiscard",
    /// Leaves whose remaining pages were evicted so that a stream got the leaf whole.
    LeafEvicted = "leaf_evicted",
    /// Pages taken out together with their whole leaf, by moving its page table.
    TakeOutLeaf = "takeout_leaf",
    /// Pages that should have gone out with their leaf but stayed, because one page of the leaf had to stay.
    TakeOutLeafStayed = "takeout_leaf_stayed",
    /// Take-outs that the kernel refused because a page was in use for I/O.
    TakeOutBusy = "takeout_busy",
    /// Folios that could not be moved because of their mapping.
    TakeOutImmovable = "takeout_immovable",
    /// Folios split because only a part was requested or could move.
    FolioSplit = "folio_split",
    /// Folios that stayed whole although a part of them was freed.
    DeferredSplit = "deferred_split",
    /// Folios that were brought in from several slots.
    FolioFold = "folio_fold",
    /// Pages that a stream longer than memory left behind.
    DropBehind = "drop_behind",
    /// Snapshots taken.
    Snapshots = "snapshots",
    /// Pages copied because a snapshot and its source share them.
    SnapshotCopy = "snapshot_copy",
    /// Pages mapped now.
    NrMapped = "nr_mapped",
    /// Pages in limbo now.
    NrLimbo = "nr_limbo",
    /// Pages of spare frames now.
    NrFreeFrames = "nr_free_frames",
    /// Pages in the store now.
    NrSwapped = "nr_swapped",
    /// Pages on the active list now.
    NrActive = "nr_active",
    /// Pages on the inactive list now.
    NrInactive = "nr_inactive",
    /// Pages that cannot be reclaimed now.
    NrUnevictable = "nr_unevictable",
    /// The limit on pages in memory now: the budget minus the other memory that it covers.
    NrLimit = "nr_limit",
    /// Bytes of the manager's own tables.
    Metadata = "metadata_bytes",
    /// Share of the last 10 seconds during which some thread waited for memory, in hundredths of a per cent.
    PressureSome10 = "pressure_some_avg10",
    /// Share of the last 60 seconds during which some thread waited for memory, in hundredths of a per cent.
    PressureSome60 = "pressure_some_avg60",
    /// Share of the last 300 seconds during which some thread waited for memory, in hundredths of a per cent.
    PressureSome300 = "pressure_some_avg300",
    /// Share of the last 10 seconds during which all threads that used memory waited for it, in hundredths of a per
    /// cent.
    PressureFull10 = "pressure_full_avg10",
    /// Share of the last 60 seconds during which all threads that used memory waited for it, in hundredths of a per
    /// cent.
    PressureFull60 = "pressure_full_avg60",
    /// Share of the last 300 seconds during which all threads that used memory waited for it, in hundredths of a per
    /// cent.
    PressureFull300 = "pressure_full_avg300",
    /// Time in reclaim of threads that needed memory themselves, in nanoseconds.
    ReclaimDirect = "reclaim_direct_ns",
    /// Number of worker threads that return freed memory (a setting).
    FreeWorkers = "free_workers",
    /// Pages that one free unhooks before workers help (a setting).
    FreeThreshold = "free_threshold_pages",
    /// Most bytes returned to the kernel in one call (a setting).
    FreeChunk = "free_chunk_bytes",
    /// Frees that wait for a worker now, or are being done by one.
    FreeQueued = "free_queued",
    /// Batches of freed memory that were returned to the kernel.
    FreeBatches = "free_batches",
    /// Batches of freed memory that workers returned.
    FreeByWorkers = "free_batches_by_workers",
    /// Bytes returned to the kernel in batches of freed memory.
    FreeBytes = "free_bytes",
    /// Time spent returning freed memory, in nanoseconds, in all threads together.
    FreeTime = "free_ns",
    /// Anonymous pages scanned by reclaim.
    PgScanAnon = "pgscan_anon",
    /// File pages scanned by reclaim.
    PgScanFile = "pgscan_file",
    /// Anonymous pages freed by reclaim.
    PgStealAnon = "pgsteal_anon",
    /// File pages freed by reclaim.
    PgStealFile = "pgsteal_file",
    /// Pages read from files.
    PgPgIn = "pgpgin",
    /// Pages written back to files.
    PgPgOut = "pgpgout",
    /// Anonymous pages that came back after leaving a shadow.
    WorkingsetRefaultAnon = "workingset_refault_anon",
    /// File pages that came back after leaving a shadow.
    WorkingsetRefaultFile = "workingset_refault_file",
    /// Anonymous pages that came back and became active at once.
    WorkingsetActivateAnon = "workingset_activate_anon",
    /// File pages that came back and became active at once.
    WorkingsetActivateFile = "workingset_activate_file",
    /// Anonymous pages that became active at once and had been active before they left.
    WorkingsetRestoreAnon = "workingset_restore_anon",
    /// File pages that became active at once and had been active before they left.
    WorkingsetRestoreFile = "workingset_restore_file",
    /// Entry tables dropped because they held only shadows.
    WorkingsetNodereclaim = "workingset_nodereclaim",
    /// File pages on the active list now.
    NrActiveFile = "nr_active_file",
    /// File pages on the inactive list now.
    NrInactiveFile = "nr_inactive_file",
    /// Entry tables that hold only shadows now.
    WorkingsetNodes = "workingset_nodes",
    /// Sampled faults on pages that had been in memory that would have happened with memory as it is.
    RefaultsAt100 = "refaults_at_100_percent",
    /// Sampled faults on pages that had been in memory that would have happened with a quarter more memory.
    RefaultsAt125 = "refaults_at_125_percent",
    /// Sampled faults on pages that had been in memory that would have happened with half as much memory again.
    RefaultsAt150 = "refaults_at_150_percent",
    /// Sampled faults on pages that had been in memory that would have happened with twice as much memory.
    RefaultsAt200 = "refaults_at_200_percent",
    /// Sampled faults on pages that had been in memory that would have happened with three times as much memory.
    RefaultsAt300 = "refaults_at_300_percent",
    /// Bytes of `LazyFree` that the program still has mapped; the rest is in limbo.
    LazyFreeMapped = "lazyfree_mapped_bytes",
    /// Bytes of files in the resident set: code, libraries, mapped files (`RssFile`).
    RssFiles = "rss_files_bytes",
    /// Bytes of shared memory in the resident set (`RssShmem`).
    RssShared = "rss_shared_bytes",
    /// Total time of faults that mapped zeros, in nanoseconds, in all threads together.
    FirstTouchTime = "fault_first_touch_ns",
    /// Total time of faults that mapped a page in limbo again, in nanoseconds, in all threads together.
    RescueTime = "fault_rescue_ns",
    /// Total time of faults that read from the store, in nanoseconds, in all threads together.
    LoadTime = "fault_load_ns",
    /// Total time of faults that waited for another thread's work, in nanoseconds, in all threads together.
    WaitedTime = "fault_waited_ns",
    /// Total time of faults that reclaimed memory themselves, in nanoseconds, in all threads together.
    ReclaimedTime = "fault_reclaimed_ns",
    /// Processor time spent recompressing the contents of compressed RAM, in nanoseconds.
    Recompress = "recompress_ns",
    /// Bytes in compressed RAM that were recompressed more densely, counted uncompressed.
    RecompressBytes = "recompressed_bytes",
    /// Bytes of RAM that recompression saved, at the time.
    RecompressSaved = "recompress_saved_bytes",
    /// File pages in memory now that may leave.
    NrFilePages = "nr_file_pages",
    /// File pages whose write has failed now.
    NrDirty = "nr_dirty",
    /// File pages on their way out now, which are written if they have changed.
    NrWriteback = "nr_writeback",
    /// Bytes that are only beyond the machine now, before compression.
    RemoteBytes = "remote_bytes",
    /// Highest value of `RemoteBytes`.
    RemotePeak = "remote_peak_bytes",
    /// Loads from beyond the machine.
    RemoteLoads = "remote_loads",
    /// Loads from beyond the machine that failed.
    RemoteLost = "remote_lost",
    /// Time since anything beyond the machine last answered, in milliseconds; zero while it answers.
    RemoteAway = "remote_away_ms",
    /// How often the program asked how much memory there is and was given its budget.
    AskedMemory = "asked_memory",
    /// 1 while the process is dormant: the kernel serves it alone, and it has been near its budget at no time.
    Dormant = "dormant",
    /// Wall time after which the process engaged, in nanoseconds; zero if it was managed from its start, or is dormant.
    Engaged = "engaged_ns",
    /// Why the process engaged, as a number of `EngagedFor`; zero if it did not.
    EngagedFor = "engaged_for",
}

const _: () = assert!(Field::ALL.len() <= FIELD_ROOM);

/// A value for each counter, and a latency histogram for each way of serving a fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fields {
    pub(crate) values: [u64; FIELD_ROOM],
    pub(crate) latency: [Histogram; FaultWay::ALL.len()],
}

impl Default for Fields {
    fn default() -> Self {
        Self {
            values: [0; FIELD_ROOM],
            latency: [[0; LATENCY_BUCKETS]; FaultWay::ALL.len()],
        }
    }
}

impl Fields {
    /// The value of `field`.
    #[must_use]
    pub fn get(&self, field: Field) -> u64 {
        self.values[field as usize]
    }

    /// Sets `field` to `value`.
    pub fn set(&mut self, field: Field, value: u64) {
        self.values[field as usize] = value;
    }

    /// The histogram of how long faults of this way took.
    #[must_use]
    pub fn latency(&self, way: FaultWay) -> &Histogram {
        &self.latency[way as usize]
    }

    /// Sets the histogram of how long faults of this way took.
    pub fn set_latency(&mut self, way: FaultWay, histogram: Histogram) {
        self.latency[way as usize] = histogram;
    }
}
