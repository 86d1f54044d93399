//! The counters of a slot, by name.
//!
//! A slot has room for [`FIELD_ROOM`] words. A new counter takes the next number; numbers are never given to
//! something else within one version of the board.

/// Words for counters in a slot.
pub(crate) const FIELD_ROOM: usize = 160;

macro_rules! fields {
    ($($(#[doc = $doc:literal])* $name:ident = $key:literal,)*) => {
        /// A counter. Bytes, nanoseconds or plain numbers, as each says.
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

            /// What it says, in a line.
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
    /// Bytes of managed memory that were touched, each page once until it was given back.
    Touched = "touched_bytes",
    /// Faults that needed no read from the store.
    MinorFaults = "minor_faults",
    /// Faults that read from the store.
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
    /// What the bytes in the store take there.
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
    /// Faults that were served above the budget, because the store could take nothing.
    OverLimit = "over_limit_faults",
    /// Bytes above the budget at the worst moment.
    OverLimitBytes = "over_limit_bytes",
    /// Faults that found no memory and reclaimed by themselves.
    DirectReclaims = "direct_reclaims",
    /// Wall time since the process's slot was claimed, in nanoseconds.
    Wall = "wall_ns",
    /// Bytes in RAM that were lazily freed and, as far as is known, not used since: there for the taking. They are in
    /// `Rss`, which the kernel counts.
    LazyFree = "lazyfree_bytes",
    /// Pages lazily freed while they were in memory.
    PgLazyFree = "pglazyfree",
    /// Lazily freed pages that were dropped because memory was wanted.
    PgLazyFreed = "pglazyfreed",
    /// Lazily freed pages that were used again before that.
    PgLazyFreeReused = "pglazyfree_reused",
    /// Faults that mapped zeros.
    FirstTouchCount = "fault_first_touch_count",
    /// Half of these were served in this time or less, in nanoseconds.
    FirstTouchP50 = "fault_first_touch_p50_ns",
    /// 99 of 100 of these were served in this time or less, in nanoseconds.
    FirstTouchP99 = "fault_first_touch_p99_ns",
    /// The longest of these, in nanoseconds.
    FirstTouchMax = "fault_first_touch_max_ns",
    /// Faults that mapped again what was in limbo.
    RescueCount = "fault_rescue_count",
    /// Half of these were served in this time or less, in nanoseconds.
    RescueP50 = "fault_rescue_p50_ns",
    /// 99 of 100 of these were served in this time or less, in nanoseconds.
    RescueP99 = "fault_rescue_p99_ns",
    /// The longest of these, in nanoseconds.
    RescueMax = "fault_rescue_max_ns",
    /// Faults that read from the store.
    LoadCount = "fault_load_count",
    /// Half of these were served in this time or less, in nanoseconds.
    LoadP50 = "fault_load_p50_ns",
    /// 99 of 100 of these were served in this time or less, in nanoseconds.
    LoadP99 = "fault_load_p99_ns",
    /// The longest of these, in nanoseconds.
    LoadMax = "fault_load_max_ns",
    /// Faults that waited for another thread's.
    WaitedCount = "fault_waited_count",
    /// Half of these were served in this time or less, in nanoseconds.
    WaitedP50 = "fault_waited_p50_ns",
    /// 99 of 100 of these were served in this time or less, in nanoseconds.
    WaitedP99 = "fault_waited_p99_ns",
    /// The longest of these, in nanoseconds.
    WaitedMax = "fault_waited_max_ns",
    /// Faults that reclaimed by themselves.
    ReclaimedCount = "fault_reclaimed_count",
    /// Half of these were served in this time or less, in nanoseconds.
    ReclaimedP50 = "fault_reclaimed_p50_ns",
    /// 99 of 100 of these were served in this time or less, in nanoseconds.
    ReclaimedP99 = "fault_reclaimed_p99_ns",
    /// The longest of these, in nanoseconds.
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
    /// Leaves of which the rest was put out, because a stream wanted them whole.
    LeafCleared = "leaf_cleared",
    /// Pages taken out with their leaf, by its table.
    TakeOutLeaf = "takeout_leaf",
    /// Pages that were to go out so and stayed, because one of their leaf had to.
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
    /// The limit on pages in memory now: the budget less what else it covers.
    NrLimit = "nr_limit",
    /// Bytes of the manager's own tables.
    Metadata = "metadata_bytes",
    /// Part of the last 10 seconds in which some thread waited for memory, in hundredths of a per cent.
    PressureSome10 = "pressure_some_avg10",
    /// The same of the last 60 seconds.
    PressureSome60 = "pressure_some_avg60",
    /// The same of the last 300 seconds.
    PressureSome300 = "pressure_some_avg300",
    /// Part of the last 10 seconds in which all threads that used memory waited for it, in hundredths of a per cent.
    PressureFull10 = "pressure_full_avg10",
    /// The same of the last 60 seconds.
    PressureFull60 = "pressure_full_avg60",
    /// The same of the last 300 seconds.
    PressureFull300 = "pressure_full_avg300",
    /// Of the time spent in reclaim, what threads spent that needed memory themselves, in nanoseconds.
    ReclaimDirect = "reclaim_direct_ns",
    /// Threads that give freed memory back, as it is set.
    FreeWorkers = "free_workers",
    /// Pages that one free unhooks before workers help, as it is set.
    FreeThreshold = "free_threshold_pages",
    /// Most bytes that go to the kernel by one call, as it is set.
    FreeChunk = "free_chunk_bytes",
    /// Frees that wait for a worker now, or are with one.
    FreeQueued = "free_queued",
    /// Batches of freed memory that were given back.
    FreeBatches = "free_batches",
    /// Of the batches of freed memory, those that workers gave back.
    FreeByWorkers = "free_batches_by_workers",
    /// Bytes that went to the kernel with batches of freed memory.
    FreeBytes = "free_bytes",
    /// Time that giving freed memory back took, in nanoseconds, in all threads together.
    FreeTime = "free_ns",
    /// Of the pages looked at by either, the anonymous ones.
    PgScanAnon = "pgscan_anon",
    /// Of the pages looked at by either, those of files.
    PgScanFile = "pgscan_file",
    /// Of the pages freed by either, the anonymous ones.
    PgStealAnon = "pgsteal_anon",
    /// Of the pages freed by either, those of files.
    PgStealFile = "pgsteal_file",
    /// Pages read from files.
    PgPgIn = "pgpgin",
    /// Pages written back to files.
    PgPgOut = "pgpgout",
    /// Anonymous pages that came back and had left a shadow.
    WorkingsetRefaultAnon = "workingset_refault_anon",
    /// Pages of files that came back and had left a shadow.
    WorkingsetRefaultFile = "workingset_refault_file",
    /// Of the anonymous pages that came back, those that became active at once.
    WorkingsetActivateAnon = "workingset_activate_anon",
    /// Of the pages of files that came back, those that became active at once.
    WorkingsetActivateFile = "workingset_activate_file",
    /// Of the anonymous pages that became active at once, those that had been active before they left.
    WorkingsetRestoreAnon = "workingset_restore_anon",
    /// Of the pages of files that became active at once, those that had been active before they left.
    WorkingsetRestoreFile = "workingset_restore_file",
    /// Tables of entries that held shadows only and were dropped.
    WorkingsetNodereclaim = "workingset_nodereclaim",
    /// Of the pages on the active list now, those of files.
    NrActiveFile = "nr_active_file",
    /// Of the pages on the inactive list now, those of files.
    NrInactiveFile = "nr_inactive_file",
    /// Tables of entries that hold shadows only now.
    WorkingsetNodes = "workingset_nodes",
    /// Of a sample of the faults on what was in memory before: those that there would have been in memory as it is, …
    RefaultsAt100 = "refaults_at_100_percent",
    /// … in memory larger by a quarter, …
    RefaultsAt125 = "refaults_at_125_percent",
    /// … by a half, …
    RefaultsAt150 = "refaults_at_150_percent",
    /// … in twice as much …
    RefaultsAt200 = "refaults_at_200_percent",
    /// … and in three times as much.
    RefaultsAt300 = "refaults_at_300_percent",
    /// Of `LazyFree`, what the program still has mapped; the rest is in limbo.
    LazyFreeMapped = "lazyfree_mapped_bytes",
    /// Of the resident set, bytes of files: code, libraries, mapped files (`RssFile`).
    RssFiles = "rss_files_bytes",
    /// Of the resident set, bytes of shared memory (`RssShmem`).
    RssShared = "rss_shared_bytes",
}

const _: () = assert!(Field::ALL.len() <= FIELD_ROOM);

/// A value for each counter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fields {
    pub(crate) values: [u64; FIELD_ROOM],
}

impl Default for Fields {
    fn default() -> Self {
        Self {
            values: [0; FIELD_ROOM],
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
}
