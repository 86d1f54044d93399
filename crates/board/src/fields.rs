//! The counters of a slot, by name.
//!
//! A slot has room for [`FIELD_ROOM`] words, and for a histogram of latencies for each way that faults go. A new
//! counter takes the next number. A number never gets another meaning within one version of the board.

use crate::latency::{FaultWay, Histogram, LATENCY_BUCKETS};

/// Number of words for counters in a slot.
pub(crate) const FIELD_ROOM: usize = 160;

macro_rules! fields {
    ($($(#[doc = $doc:literal])* $name:ident = $key:literal,)*) => {
        /// A counter: a number of bytes, of nanoseconds or of things, as each one says.
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

            /// The counter's meaning, in a line.
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
    /// Most bytes of managed memory that were in RAM at once: mapped, in limbo and spare.
    PeakFrames = "peak_frames_bytes",
    /// Most bytes that a look found resident and neither managed nor Millpond's: code, static variables, stacks.
    PeakOwn = "peak_own_bytes",
    /// Bytes of managed memory that were touched, each page once until it was given back.
    Touched = "touched_bytes",
    /// Faults that needed no read from the store, nor from a file.
    MinorFaults = "minor_faults",
    /// Faults that read from the store, or from a file.
    MajorFaults = "major_faults",
    /// Bytes written to the store, before compression.
    BytesOut = "out_bytes",
    /// Bytes read from the store, after decompression.
    BytesIn = "in_bytes",
    /// Bytes evicted without a write, because the store still had them or they were zero.
    BytesOutFree = "out_without_write_bytes",
    /// Bytes mapped again from limbo, taken out but not yet evicted.
    Rescued = "rescued_bytes",
    /// Bytes in the store now, before compression.
    StoreLogical = "store_logical_bytes",
    /// Bytes that the store takes now, after compression.
    StoreStored = "store_stored_bytes",
    /// Highest value of `StoreLogical`.
    StoreLogicalPeak = "store_logical_peak_bytes",
    /// Value of `StoreStored` when `StoreLogical` was highest.
    StoreStoredPeak = "store_stored_peak_bytes",
    /// RAM that the store has from the system now.
    StoreRam = "store_ram_bytes",
    /// Half of the faults were served in this time or less, in nanoseconds.
    FaultP50 = "fault_p50_ns",
    /// 99 of 100 faults were served in this time or less, in nanoseconds.
    FaultP99 = "fault_p99_ns",
    /// The longest fault, in nanoseconds.
    FaultMax = "fault_max_ns",
    /// Time that threads spent in reclaim, in nanoseconds.
    Reclaim = "reclaim_ns",
    /// Saves that failed or found the store full.
    StoreFailed = "store_failed",
    /// Loads that failed.
    LoadFailed = "load_failed",
    /// Faults that were served above the budget, because nothing more could leave.
    OverLimit = "over_limit_faults",
    /// Bytes above the budget at the worst moment.
    OverLimitBytes = "over_limit_bytes",
    /// Faults that found no memory and reclaimed by themselves.
    DirectReclaims = "direct_reclaims",
    /// Wall time since the process's slot was claimed, in nanoseconds.
    Wall = "wall_ns",
    /// Bytes in RAM that were lazily freed and, as far as is known, not used since, so that they may be taken. They are
    /// in `Rss`, which the kernel counts.
    LazyFree = "lazyfree_bytes",
    /// Pages lazily freed while they were in memory.
    PgLazyFree = "pglazyfree",
    /// Lazily freed pages that were dropped because memory was wanted.
    PgLazyFreed = "pglazyfreed",
    /// Lazily freed pages that were used again before they were dropped.
    PgLazyFreeReused = "pglazyfree_reused",
    /// Faults that mapped zeros.
    FirstTouchCount = "fault_first_touch_count",
    /// Half of the faults that mapped zeros were served in this time or less, in nanoseconds.
    FirstTouchP50 = "fault_first_touch_p50_ns",
    /// 99 of 100 faults that mapped zeros were served in this time or less, in nanoseconds.
    FirstTouchP99 = "fault_first_touch_p99_ns",
    /// The longest fault that mapped zeros, in nanoseconds.
    FirstTouchMax = "fault_first_touch_max_ns",
    /// Faults that mapped a page in limbo again.
    RescueCount = "fault_rescue_count",
    /// Half of the faults that mapped a page in limbo again were served in this time or less, in nanoseconds.
    RescueP50 = "fault_rescue_p50_ns",
    /// 99 of 100 faults that mapped a page in limbo again were served in this time or less, in nanoseconds.
    RescueP99 = "fault_rescue_p99_ns",
    /// The longest fault that mapped a page in limbo again, in nanoseconds.
    RescueMax = "fault_rescue_max_ns",
    /// Faults that read from the store, or from a file.
    LoadCount = "fault_load_count",
    /// Half of the faults that read from the store were served in this time or less, in nanoseconds.
    LoadP50 = "fault_load_p50_ns",
    /// 99 of 100 faults that read from the store were served in this time or less, in nanoseconds.
    LoadP99 = "fault_load_p99_ns",
    /// The longest fault that read from the store, in nanoseconds.
    LoadMax = "fault_load_max_ns",
    /// Faults that waited for another thread's work.
    WaitedCount = "fault_waited_count",
    /// Half of the faults that waited for another thread's work were served in this time or less, in nanoseconds.
    WaitedP50 = "fault_waited_p50_ns",
    /// 99 of 100 faults that waited for another thread's work were served in this time or less, in nanoseconds.
    WaitedP99 = "fault_waited_p99_ns",
    /// The longest fault that waited for another thread's work, in nanoseconds.
    WaitedMax = "fault_waited_max_ns",
    /// Faults that reclaimed by themselves.
    ReclaimedCount = "fault_reclaimed_count",
    /// Half of the faults that reclaimed by themselves were served in this time or less, in nanoseconds.
    ReclaimedP50 = "fault_reclaimed_p50_ns",
    /// 99 of 100 faults that reclaimed by themselves were served in this time or less, in nanoseconds.
    ReclaimedP99 = "fault_reclaimed_p99_ns",
    /// The longest fault that reclaimed by itself, in nanoseconds.
    ReclaimedMax = "fault_reclaimed_max_ns",
    /// Pages looked at by the background reclaimer.
    PgScanKswapd = "pgscan_kswapd",
    /// Pages looked at by threads in need of memory.
    PgScanDirect = "pgscan_direct",
    /// Pages freed by the background reclaimer.
    PgStealKswapd = "pgsteal_kswapd",
    /// Pages freed by threads in need of memory.
    PgStealDirect = "pgsteal_direct",
    /// Pages evicted without writing, because the store still had them.
    PswpOutUnchanged = "pswpout_unchanged",
    /// Pages evicted without writing, because they were zero.
    PswpOutZero = "pswpout_zero",
    /// Pages mapped as fresh zeros.
    PgZero = "pgzero",
    /// Pages moved to the active list.
    PgActivate = "pgactivate",
    /// Pages moved from the active to the inactive list.
    PgDeactivate = "pgdeactivate",
    /// Pages given back by discards.
    PgDiscard = "pgdiscard",
    /// Leaves whose remaining pages were evicted, because a stream wanted the leaf whole.
    LeafEvicted = "leaf_evicted",
    /// Pages taken out with their leaf, by its table.
    TakeOutLeaf = "takeout_leaf",
    /// Pages that were to go out with their leaf and stayed, because one page of the leaf had to stay.
    TakeOutLeafStayed = "takeout_leaf_stayed",
    /// Take-outs that the kernel refused because a page was in use for I/O.
    TakeOutBusy = "takeout_busy",
    /// Folios found immovable because of their mapping.
    TakeOutImmovable = "takeout_immovable",
    /// Folios split because only a part was wanted or could move.
    FolioSplit = "folio_split",
    /// Folios that were left whole though a part of them was freed.
    DeferredSplit = "deferred_split",
    /// Folios that were brought in from several slots.
    FolioFold = "folio_fold",
    /// Pages that a stream longer than memory has left behind.
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
    /// The limit on pages in memory now: the budget less the other memory that it covers.
    NrLimit = "nr_limit",
    /// Bytes of the manager's own tables.
    Metadata = "metadata_bytes",
    /// Part of the last 10 seconds in which some thread waited for memory, in hundredths of a per cent.
    PressureSome10 = "pressure_some_avg10",
    /// Part of the last 60 seconds in which some thread waited for memory, in hundredths of a per cent.
    PressureSome60 = "pressure_some_avg60",
    /// Part of the last 300 seconds in which some thread waited for memory, in hundredths of a per cent.
    PressureSome300 = "pressure_some_avg300",
    /// Part of the last 10 seconds in which all threads that used memory waited for it, in hundredths of a per cent.
    PressureFull10 = "pressure_full_avg10",
    /// Part of the last 60 seconds in which all threads that used memory waited for it, in hundredths of a per cent.
    PressureFull60 = "pressure_full_avg60",
    /// Part of the last 300 seconds in which all threads that used memory waited for it, in hundredths of a per cent.
    PressureFull300 = "pressure_full_avg300",
    /// Time that threads which needed memory themselves spent in reclaim, in nanoseconds.
    ReclaimDirect = "reclaim_direct_ns",
    /// Number of threads that give freed memory back: a setting.
    FreeWorkers = "free_workers",
    /// Pages that one free unhooks before workers help: a setting.
    FreeThreshold = "free_threshold_pages",
    /// Most bytes that go to the kernel by one call: a setting.
    FreeChunk = "free_chunk_bytes",
    /// Frees that wait for a worker now, or are with one.
    FreeQueued = "free_queued",
    /// Batches of freed memory that were given back.
    FreeBatches = "free_batches",
    /// Batches of freed memory that workers gave back.
    FreeByWorkers = "free_batches_by_workers",
    /// Bytes that went to the kernel with batches of freed memory.
    FreeBytes = "free_bytes",
    /// Time that giving freed memory back took, in nanoseconds, in all threads together.
    FreeTime = "free_ns",
    /// Anonymous pages among the pages looked at by reclaim.
    PgScanAnon = "pgscan_anon",
    /// Pages of files among the pages looked at by reclaim.
    PgScanFile = "pgscan_file",
    /// Anonymous pages among the pages freed by reclaim.
    PgStealAnon = "pgsteal_anon",
    /// Pages of files among the pages freed by reclaim.
    PgStealFile = "pgsteal_file",
    /// Pages read from files.
    PgPgIn = "pgpgin",
    /// Pages written back to files.
    PgPgOut = "pgpgout",
    /// Anonymous pages that came back and had left a shadow.
    WorkingsetRefaultAnon = "workingset_refault_anon",
    /// Pages of files that came back and had left a shadow.
    WorkingsetRefaultFile = "workingset_refault_file",
    /// Anonymous pages that came back and became active at once.
    WorkingsetActivateAnon = "workingset_activate_anon",
    /// Pages of files that came back and became active at once.
    WorkingsetActivateFile = "workingset_activate_file",
    /// Anonymous pages that became active at once and had been active before they left.
    WorkingsetRestoreAnon = "workingset_restore_anon",
    /// Pages of files that became active at once and had been active before they left.
    WorkingsetRestoreFile = "workingset_restore_file",
    /// Tables of entries that held shadows only and were dropped.
    WorkingsetNodereclaim = "workingset_nodereclaim",
    /// Pages of files on the active list now.
    NrActiveFile = "nr_active_file",
    /// Pages of files on the inactive list now.
    NrInactiveFile = "nr_inactive_file",
    /// Tables of entries that hold shadows only now.
    WorkingsetNodes = "workingset_nodes",
    /// Sampled faults on pages that had been in memory, that would have happened in memory as it is.
    RefaultsAt100 = "refaults_at_100_percent",
    /// Sampled faults on pages that had been in memory, that would have happened in memory larger by a quarter.
    RefaultsAt125 = "refaults_at_125_percent",
    /// Sampled faults on pages that had been in memory, that would have happened in memory larger by a half.
    RefaultsAt150 = "refaults_at_150_percent",
    /// Sampled faults on pages that had been in memory, that would have happened in twice as much memory.
    RefaultsAt200 = "refaults_at_200_percent",
    /// Sampled faults on pages that had been in memory, that would have happened in three times as much memory.
    RefaultsAt300 = "refaults_at_300_percent",
    /// Bytes of `LazyFree` that the program still has mapped; the rest is in limbo.
    LazyFreeMapped = "lazyfree_mapped_bytes",
    /// Bytes of files in the resident set: code, libraries, mapped files (`RssFile`).
    RssFiles = "rss_files_bytes",
    /// Bytes of shared memory in the resident set (`RssShmem`).
    RssShared = "rss_shared_bytes",
    /// Time that faults which mapped zeros took, in nanoseconds, in all threads together.
    FirstTouchTime = "fault_first_touch_ns",
    /// Time that faults which mapped a page in limbo again took, in nanoseconds, in all threads together.
    RescueTime = "fault_rescue_ns",
    /// Time that faults which read from the store took, in nanoseconds, in all threads together.
    LoadTime = "fault_load_ns",
    /// Time that faults which waited for another thread's work took, in nanoseconds, in all threads together.
    WaitedTime = "fault_waited_ns",
    /// Time that faults which reclaimed by themselves took, in nanoseconds, in all threads together.
    ReclaimedTime = "fault_reclaimed_ns",
    /// Processor time that compressing again what is in compressed RAM took, in nanoseconds.
    Recompress = "recompress_ns",
    /// Bytes in compressed RAM that were compressed again, more densely, before any compression.
    RecompressBytes = "recompressed_bytes",
    /// Bytes of RAM that compressing again saved, at the time.
    RecompressSaved = "recompress_saved_bytes",
    /// Pages of files in memory now that may leave.
    NrFilePages = "nr_file_pages",
    /// Pages of files that a write has failed for now.
    NrDirty = "nr_dirty",
    /// Pages of files on their way out now, which are written if they have changed.
    NrWriteback = "nr_writeback",
    /// Bytes that are beyond the machine alone now, before compression.
    RemoteBytes = "remote_bytes",
    /// Highest value of `RemoteBytes`.
    RemotePeak = "remote_peak_bytes",
    /// Loads from beyond the machine.
    RemoteLoads = "remote_loads",
    /// Loads from beyond the machine that failed.
    RemoteLost = "remote_lost",
    /// How long nothing beyond the machine has answered, in milliseconds; zero while it answers.
    RemoteAway = "remote_away_ms",
    /// How often the program asked how much memory there is, and was told of its budget.
    AskedMemory = "asked_memory",
}

const _: () = assert!(Field::ALL.len() <= FIELD_ROOM);

/// A value for each counter, and a histogram of latencies for each way that faults go.
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

    /// Gives `field` the value `value`.
    pub fn set(&mut self, field: Field, value: u64) {
        self.values[field as usize] = value;
    }

    /// How many faults of this way took how long.
    #[must_use]
    pub fn latency(&self, way: FaultWay) -> &Histogram {
        &self.latency[way as usize]
    }

    /// Sets how many faults of this way took how long.
    pub fn set_latency(&mut self, way: FaultWay, histogram: Histogram) {
        self.latency[way as usize] = histogram;
    }
}
