//! The figures of a manager in the form of a board, group by group.

use crate::pressure::Pressure;
use crate::stats::{LatencySummary, Stats};
use millpond_board::{FaultWay, Field, Fields};
use millpond_core::{PAGE_SIZE, VmStat};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

const PAGE: u64 = PAGE_SIZE as u64;

/// The peaks of a store's figures so far.
#[derive(Debug, Default)]
pub struct StorePeaks {
    logical: AtomicU64,
    stored: AtomicU64,
    beyond: AtomicU64,
}

impl StorePeaks {
    /// The peaks of a store that was not read yet.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            logical: AtomicU64::new(0),
            stored: AtomicU64::new(0),
            beyond: AtomicU64::new(0),
        }
    }
}

/// The figures in the form of a board, except those that are not a manager's: resident set and time. Updates `peaks`.
///
/// ```
/// use millpond_board::Field;
/// let manager = millpond::Manager::builder().ram(16 << 20).build()?;
/// let fields = millpond::publish::fields(&manager.stats(), &Default::default());
/// assert_eq!(fields.get(Field::Budget), 16 << 20);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use]
pub fn fields(stats: &Stats, peaks: &StorePeaks) -> Fields {
    let mut fields = Fields::default();
    memory(&mut fields, stats);
    faults(&mut fields, stats);
    store(&mut fields, stats, peaks);
    reclaim(&mut fields, stats);
    workingset(&mut fields, &stats.vm);
    folios(&mut fields, &stats.vm);
    given_up(&mut fields, stats);
    fields
}

/// What the store was given and what it holds. Updates the peaks.
fn store(fields: &mut Fields, stats: &Stats, peaks: &StorePeaks) {
    let (vm, store) = (&stats.vm, &stats.store);
    if store.logical_bytes > peaks.logical.fetch_max(store.logical_bytes, Relaxed) {
        peaks.stored.store(store.stored_bytes, Relaxed);
    }
    set(
        fields,
        [
            (Field::BytesOut, vm.pswpout * PAGE),
            (Field::BytesIn, vm.pswpin * PAGE),
            (
                Field::BytesOutFree,
                (vm.pswpout_unchanged + vm.pswpout_zero) * PAGE,
            ),
            (Field::StoreLogical, store.logical_bytes),
            (Field::StoreStored, store.stored_bytes),
            (Field::StoreLogicalPeak, peaks.logical.load(Relaxed)),
            (Field::StoreStoredPeak, peaks.stored.load(Relaxed)),
            (Field::StoreRam, store.ram_bytes),
            (Field::StoreFailed, stats.store_failures),
            (Field::LoadFailed, vm.load_failed),
            (Field::RemoteBytes, stats.beyond.bytes),
            (
                Field::RemotePeak,
                peaks
                    .beyond
                    .fetch_max(stats.beyond.bytes, Relaxed)
                    .max(stats.beyond.bytes),
            ),
            (Field::RemoteLoads, stats.beyond.loads),
            (Field::RemoteLost, stats.beyond.lost_loads),
            (Field::RemoteAway, stats.beyond.away.as_millis() as u64),
        ],
    );
}

/// Where memory is.
fn memory(fields: &mut Fields, stats: &Stats) {
    let vm = &stats.vm;
    set(
        fields,
        [
            (Field::Budget, stats.ram),
            (Field::PeakFrames, vm.peak_frames * PAGE),
            (Field::PeakOwn, stats.own_peak_bytes),
            (Field::Touched, vm.touched * PAGE),
            (Field::OverLimit, vm.over_limit),
            (
                Field::OverLimitBytes,
                stats.peak_bytes.saturating_sub(stats.ram),
            ),
            (Field::NrMapped, vm.nr_mapped),
            (Field::NrLimbo, vm.nr_limbo),
            (Field::NrFreeFrames, vm.nr_free_frames),
            (Field::NrSwapped, vm.nr_swapped),
            (Field::NrActive, vm.nr_active),
            (Field::NrInactive, vm.nr_inactive),
            (Field::NrActiveFile, vm.nr_active_file),
            (Field::NrInactiveFile, vm.nr_inactive_file),
            (Field::NrFilePages, vm.nr_file_pages),
            (Field::NrDirty, vm.nr_dirty),
            (Field::NrWriteback, vm.nr_writeback),
            (Field::NrUnevictable, vm.nr_unevictable),
            (Field::NrLimit, vm.nr_limit),
            (Field::Metadata, stats.metadata_bytes),
        ],
    );
}

/// Faults, and how long they took.
fn faults(fields: &mut Fields, stats: &Stats) {
    let vm = &stats.vm;
    set(
        fields,
        [
            (Field::MinorFaults, vm.pgfault - vm.pgmajfault),
            (Field::MajorFaults, vm.pgmajfault),
            (Field::Rescued, vm.limbo_rescue * PAGE),
            (Field::PgZero, vm.pgzero),
            (Field::FaultP50, stats.latency.p50_ns),
            (Field::FaultP99, stats.latency.p99_ns),
            (Field::FaultMax, stats.latency.max_ns),
        ],
    );
    for (by_way, way, names) in [
        (
            &stats.faults.first_touch,
            FaultWay::FirstTouch,
            [
                Field::FirstTouchCount,
                Field::FirstTouchP50,
                Field::FirstTouchP99,
                Field::FirstTouchMax,
                Field::FirstTouchTime,
            ],
        ),
        (
            &stats.faults.rescue,
            FaultWay::Rescue,
            [
                Field::RescueCount,
                Field::RescueP50,
                Field::RescueP99,
                Field::RescueMax,
                Field::RescueTime,
            ],
        ),
        (
            &stats.faults.load,
            FaultWay::Load,
            [
                Field::LoadCount,
                Field::LoadP50,
                Field::LoadP99,
                Field::LoadMax,
                Field::LoadTime,
            ],
        ),
        (
            &stats.faults.waited,
            FaultWay::Waited,
            [
                Field::WaitedCount,
                Field::WaitedP50,
                Field::WaitedP99,
                Field::WaitedMax,
                Field::WaitedTime,
            ],
        ),
        (
            &stats.faults.reclaimed,
            FaultWay::Reclaimed,
            [
                Field::ReclaimedCount,
                Field::ReclaimedP50,
                Field::ReclaimedP99,
                Field::ReclaimedMax,
                Field::ReclaimedTime,
            ],
        ),
    ] {
        let LatencySummary {
            count,
            p50_ns,
            p99_ns,
            max_ns,
            total_ns,
            histogram,
        } = *by_way;
        let values = [count, p50_ns, p99_ns, max_ns, total_ns];
        set(fields, names.into_iter().zip(values));
        fields.set_latency(way, histogram);
    }
}

/// Reclaim: its time, the pages that it scanned and those that it took.
fn reclaim(fields: &mut Fields, stats: &Stats) {
    let vm = &stats.vm;
    set(
        fields,
        [
            (Field::Reclaim, nanos(stats.reclaim)),
            (Field::ReclaimDirect, nanos(stats.reclaim_direct)),
            (Field::Recompress, nanos(stats.recompress.time)),
            (Field::RecompressBytes, stats.recompress.bytes),
            (Field::RecompressSaved, stats.recompress.saved_bytes),
            (Field::DirectReclaims, vm.allocstall),
            (Field::PgScanKswapd, vm.pgscan_kswapd),
            (Field::PgScanDirect, vm.pgscan_direct),
            (Field::PgStealKswapd, vm.pgsteal_kswapd),
            (Field::PgStealDirect, vm.pgsteal_direct),
            (Field::PgScanAnon, vm.pgscan_anon),
            (Field::PgScanFile, vm.pgscan_file),
            (Field::PgStealAnon, vm.pgsteal_anon),
            (Field::PgStealFile, vm.pgsteal_file),
            (Field::PswpOutUnchanged, vm.pswpout_unchanged),
            (Field::PswpOutZero, vm.pswpout_zero),
            (Field::PgPgIn, vm.pgpgin),
            (Field::PgPgOut, vm.pgpgout),
            (Field::DropBehind, vm.drop_behind),
            (Field::TakeOutLeaf, vm.takeout_leaf),
            (Field::TakeOutLeafStayed, vm.takeout_leaf_stayed),
            (Field::TakeOutBusy, vm.takeout_busy),
            (Field::TakeOutImmovable, vm.takeout_immovable),
        ],
    );
}

/// Refaults, and what more memory would have saved.
fn workingset(fields: &mut Fields, vm: &VmStat) {
    set(
        fields,
        [
            (Field::PgActivate, vm.pgactivate),
            (Field::PgDeactivate, vm.pgdeactivate),
            (Field::WorkingsetRefaultAnon, vm.workingset_refault_anon),
            (Field::WorkingsetRefaultFile, vm.workingset_refault_file),
            (Field::WorkingsetActivateAnon, vm.workingset_activate_anon),
            (Field::WorkingsetActivateFile, vm.workingset_activate_file),
            (Field::WorkingsetRestoreAnon, vm.workingset_restore_anon),
            (Field::WorkingsetRestoreFile, vm.workingset_restore_file),
            (Field::WorkingsetNodereclaim, vm.workingset_nodereclaim),
            (Field::WorkingsetNodes, vm.workingset_nodes),
            (Field::RefaultsAt100, vm.refaults_at[0]),
            (Field::RefaultsAt125, vm.refaults_at[1]),
            (Field::RefaultsAt150, vm.refaults_at[2]),
            (Field::RefaultsAt200, vm.refaults_at[3]),
            (Field::RefaultsAt300, vm.refaults_at[4]),
        ],
    );
}

/// The fates of folios.
fn folios(fields: &mut Fields, vm: &VmStat) {
    set(
        fields,
        [
            (Field::FolioSplit, vm.folio_split),
            (Field::DeferredSplit, vm.deferred_split),
            (Field::FolioFold, vm.folio_fold),
            (Field::LeafEvicted, vm.leaf_evicted),
            (Field::Snapshots, vm.snapshots),
            (Field::SnapshotCopy, vm.snapshot_copy),
        ],
    );
}

/// Memory that the program has given up.
fn given_up(fields: &mut Fields, stats: &Stats) {
    let (vm, free) = (&stats.vm, &stats.free);
    set(
        fields,
        [
            (Field::PgDiscard, vm.pgdiscard),
            (Field::LazyFree, stats.lazyfree_bytes()),
            (Field::LazyFreeMapped, vm.nr_lazyfree_mapped * PAGE),
            (Field::PgLazyFree, vm.pglazyfree),
            (Field::PgLazyFreed, vm.pglazyfreed),
            (Field::PgLazyFreeReused, vm.pglazyfree_reused),
            (Field::FreeWorkers, free.tuning.workers as u64),
            (Field::FreeThreshold, u64::from(free.tuning.batch_pages)),
            (Field::FreeChunk, free.tuning.chunk_bytes as u64),
            (Field::FreeQueued, free.queued as u64),
            (Field::FreeBatches, free.batches),
            (Field::FreeByWorkers, free.by_workers),
            (Field::FreeBytes, free.bytes),
            (Field::FreeTime, nanos(free.time)),
        ],
    );
}

fn set(fields: &mut Fields, values: impl IntoIterator<Item = (Field, u64)>) {
    for (field, value) in values {
        fields.set(field, value);
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Writes the averages of a manager's whole memory, which its figures do not include.
pub fn set_pressure(fields: &mut Fields, pressure: &Pressure) {
    let lines = [
        (
            &pressure.some,
            [
                Field::PressureSome10,
                Field::PressureSome60,
                Field::PressureSome300,
            ],
        ),
        (
            &pressure.full,
            [
                Field::PressureFull10,
                Field::PressureFull60,
                Field::PressureFull300,
            ],
        ),
    ];
    for (line, names) in lines {
        for (field, percent) in names.into_iter().zip([line.avg10, line.avg60, line.avg300]) {
            fields.set(field, (percent * 100.0).round() as u64);
        }
    }
}
