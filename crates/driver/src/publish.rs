//! A manager's counters on a board, for `millpond stat`.
//!
//! A *board* is memory of this process that other processes of the same user (and root) can read; [`millpond_board`]
//! has its form. The manager's own thread writes there ten times a second, whatever the program does. A fault neither
//! writes there nor waits for it.
//!
//! All managers of a process share a board, each with a slot of its own. The board is made with the first manager that
//! asks for it, and its descriptor stays open from then on: other processes find the board by it. A program that closes
//! descriptors that it does not know closes this one too; the only effect is that the board is not found any more.

use crate::pressure::Pressure;
use crate::stats::Stats;
use millpond_board::{Board, BoardError, Field, Fields, SlotWriter, State, now_ns};
use millpond_core::PAGE_SIZE;
use rustix::fs::{Mode, OFlags};
use std::ffi::CStr;
use std::os::fd::OwnedFd;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, PoisonError};

/// The board of this process, and the descriptor that other processes open.
static OWN: Mutex<Option<(Board, OwnedFd)>> = Mutex::new(None);

/// A manager's slot.
pub struct Publisher {
    slot: SlotWriter,
    /// The process that claimed the slot: a forked child has the mapping, but the slot is its parent's.
    pid: u32,
    since_ns: u64,
    peaks: StorePeaks,
}

impl Publisher {
    /// Claims a slot of the board of this process under `name`.
    ///
    /// # Errors
    /// There can be no board, or no further slot on it.
    pub fn new(name: &str) -> Result<Self, BoardError> {
        let mut own = OWN.lock().unwrap_or_else(PoisonError::into_inner);
        let board = match &*own {
            Some((board, _)) => *board,
            None => own.insert(Board::create(name)?).0,
        };
        let pid = std::process::id();
        Ok(Self {
            slot: board.claim_beside(pid, name)?,
            pid,
            since_ns: now_ns(),
            peaks: StorePeaks::new(),
        })
    }

    /// Writes the counters to the board. A forked child writes nothing.
    pub fn publish(&self, stats: &Stats, pressure: &Pressure) {
        if std::process::id() != self.pid {
            return;
        }
        let mut fields = fields(stats, &self.peaks);
        set_pressure(&mut fields, pressure);
        resident().write_to(&mut fields);
        fields.set(Field::Wall, now_ns().saturating_sub(self.since_ns));
        self.slot.publish(State::Running, &fields);
    }
}

impl Drop for Publisher {
    fn drop(&mut self) {
        if std::process::id() == self.pid {
            self.slot.release();
        }
    }
}

/// The fullest moment of a store so far.
#[derive(Debug, Default)]
pub struct StorePeaks {
    logical: AtomicU64,
    stored: AtomicU64,
}

impl StorePeaks {
    /// Peaks of a store that was not looked at yet.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            logical: AtomicU64::new(0),
            stored: AtomicU64::new(0),
        }
    }
}

/// Figures as a board has them, but for the ones that are not a manager's: resident set and time. `peaks` is brought up
/// to date.
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
    const PAGE: u64 = PAGE_SIZE as u64;
    if stats.store.logical_bytes > peaks.logical.fetch_max(stats.store.logical_bytes, Relaxed) {
        peaks.stored.store(stats.store.stored_bytes, Relaxed);
    }
    let nanos = |time: std::time::Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    let (vm, faults) = (&stats.vm, &stats.faults);
    let values = [
        (Field::Budget, stats.ram),
        (Field::PeakFrames, vm.peak_frames * PAGE),
        (Field::Touched, vm.touched * PAGE),
        (Field::MinorFaults, vm.pgfault - vm.pgmajfault),
        (Field::MajorFaults, vm.pgmajfault),
        (Field::BytesOut, vm.pswpout * PAGE),
        (Field::BytesIn, vm.pswpin * PAGE),
        (
            Field::BytesOutFree,
            (vm.pswpout_unchanged + vm.pswpout_zero) * PAGE,
        ),
        (Field::Rescued, vm.limbo_rescue * PAGE),
        (Field::StoreLogical, stats.store.logical_bytes),
        (Field::StoreStored, stats.store.stored_bytes),
        (Field::StoreLogicalPeak, peaks.logical.load(Relaxed)),
        (Field::StoreStoredPeak, peaks.stored.load(Relaxed)),
        (Field::StoreRam, stats.store.ram_bytes),
        (Field::FaultP50, stats.latency.p50_ns),
        (Field::FaultP99, stats.latency.p99_ns),
        (Field::FaultMax, stats.latency.max_ns),
        (Field::Reclaim, nanos(stats.reclaim)),
        (Field::ReclaimDirect, nanos(stats.reclaim_direct)),
        (Field::StoreFailed, stats.store_failures),
        (Field::LoadFailed, vm.load_failed),
        (Field::OverLimit, vm.over_limit),
        (
            Field::OverLimitBytes,
            stats.peak_bytes.saturating_sub(stats.ram),
        ),
        (Field::DirectReclaims, vm.allocstall),
        (Field::LazyFree, stats.lazyfree_bytes()),
        (Field::LazyFreeMapped, vm.nr_lazyfree_mapped * PAGE),
        (Field::PgLazyFree, vm.pglazyfree),
        (Field::PgLazyFreed, vm.pglazyfreed),
        (Field::PgLazyFreeReused, vm.pglazyfree_reused),
        (Field::FirstTouchCount, faults.first_touch.count),
        (Field::FirstTouchP50, faults.first_touch.p50_ns),
        (Field::FirstTouchP99, faults.first_touch.p99_ns),
        (Field::FirstTouchMax, faults.first_touch.max_ns),
        (Field::RescueCount, faults.rescue.count),
        (Field::RescueP50, faults.rescue.p50_ns),
        (Field::RescueP99, faults.rescue.p99_ns),
        (Field::RescueMax, faults.rescue.max_ns),
        (Field::LoadCount, faults.load.count),
        (Field::LoadP50, faults.load.p50_ns),
        (Field::LoadP99, faults.load.p99_ns),
        (Field::LoadMax, faults.load.max_ns),
        (Field::WaitedCount, faults.waited.count),
        (Field::WaitedP50, faults.waited.p50_ns),
        (Field::WaitedP99, faults.waited.p99_ns),
        (Field::WaitedMax, faults.waited.max_ns),
        (Field::ReclaimedCount, faults.reclaimed.count),
        (Field::ReclaimedP50, faults.reclaimed.p50_ns),
        (Field::ReclaimedP99, faults.reclaimed.p99_ns),
        (Field::ReclaimedMax, faults.reclaimed.max_ns),
        (Field::PgScanKswapd, vm.pgscan_kswapd),
        (Field::PgScanDirect, vm.pgscan_direct),
        (Field::PgStealKswapd, vm.pgsteal_kswapd),
        (Field::PgStealDirect, vm.pgsteal_direct),
        (Field::PswpOutUnchanged, vm.pswpout_unchanged),
        (Field::PswpOutZero, vm.pswpout_zero),
        (Field::PgZero, vm.pgzero),
        (Field::PgActivate, vm.pgactivate),
        (Field::PgDeactivate, vm.pgdeactivate),
        (Field::PgDiscard, vm.pgdiscard),
        (Field::LeafCleared, vm.leaf_cleared),
        (Field::TakeOutLeaf, vm.takeout_leaf),
        (Field::TakeOutLeafStayed, vm.takeout_leaf_stayed),
        (Field::TakeOutBusy, vm.takeout_busy),
        (Field::TakeOutImmovable, vm.takeout_immovable),
        (Field::FolioSplit, vm.folio_split),
        (Field::DeferredSplit, vm.deferred_split),
        (Field::FolioFold, vm.folio_fold),
        (Field::DropBehind, vm.drop_behind),
        (Field::Snapshots, vm.snapshots),
        (Field::SnapshotCopy, vm.snapshot_copy),
        (Field::NrMapped, vm.nr_mapped),
        (Field::NrLimbo, vm.nr_limbo),
        (Field::NrFreeFrames, vm.nr_free_frames),
        (Field::NrSwapped, vm.nr_swapped),
        (Field::NrActive, vm.nr_active),
        (Field::NrInactive, vm.nr_inactive),
        (Field::NrUnevictable, vm.nr_unevictable),
        (Field::NrLimit, vm.nr_limit),
        (Field::Metadata, stats.metadata_bytes),
        (Field::RefaultsAt100, vm.refaults_at[0]),
        (Field::RefaultsAt125, vm.refaults_at[1]),
        (Field::RefaultsAt150, vm.refaults_at[2]),
        (Field::RefaultsAt200, vm.refaults_at[3]),
        (Field::RefaultsAt300, vm.refaults_at[4]),
        (Field::FreeWorkers, stats.free.tuning.workers as u64),
        (
            Field::FreeThreshold,
            u64::from(stats.free.tuning.batch_pages),
        ),
        (Field::FreeChunk, stats.free.tuning.chunk_bytes as u64),
        (Field::FreeQueued, stats.free.queued as u64),
        (Field::FreeBatches, stats.free.batches),
        (Field::FreeByWorkers, stats.free.by_workers),
        (Field::FreeBytes, stats.free.bytes),
        (Field::FreeTime, nanos(stats.free.time)),
        (Field::PgScanAnon, vm.pgscan_anon),
        (Field::PgScanFile, vm.pgscan_file),
        (Field::PgStealAnon, vm.pgsteal_anon),
        (Field::PgStealFile, vm.pgsteal_file),
        (Field::PgPgIn, vm.pgpgin),
        (Field::PgPgOut, vm.pgpgout),
        (Field::WorkingsetRefaultAnon, vm.workingset_refault_anon),
        (Field::WorkingsetRefaultFile, vm.workingset_refault_file),
        (Field::WorkingsetActivateAnon, vm.workingset_activate_anon),
        (Field::WorkingsetActivateFile, vm.workingset_activate_file),
        (Field::WorkingsetRestoreAnon, vm.workingset_restore_anon),
        (Field::WorkingsetRestoreFile, vm.workingset_restore_file),
        (Field::WorkingsetNodereclaim, vm.workingset_nodereclaim),
        (Field::NrActiveFile, vm.nr_active_file),
        (Field::NrInactiveFile, vm.nr_inactive_file),
        (Field::WorkingsetNodes, vm.workingset_nodes),
    ];
    let mut fields = Fields::default();
    for (field, value) in values {
        fields.set(field, value);
    }
    fields
}

/// Writes the averages of a manager's whole memory, which its figures do not have.
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

/// Resident bytes of the process, as the kernel counts them; zeros where `/proc` is missing.
#[derive(Clone, Copy, Default, Debug)]
pub struct Resident {
    /// Bytes that are resident now.
    pub now: u64,
    /// Most bytes that were resident so far.
    pub peak: u64,
    /// Bytes of files' pages among those that are resident now: code, libraries, mapped files.
    pub files: u64,
    /// Bytes of shared memory among those that are resident now.
    pub shared: u64,
}

impl Resident {
    /// Writes the figures to a board's fields.
    pub fn write_to(&self, fields: &mut Fields) {
        fields.set(Field::Rss, self.now);
        fields.set(Field::PeakRss, self.peak);
        fields.set(Field::RssFiles, self.files);
        fields.set(Field::RssShared, self.shared);
    }
}

/// Resident bytes of the process. Allocates nothing.
#[must_use]
pub fn resident() -> Resident {
    const STATUS: &CStr = c"/proc/self/status";
    let mut buffer = [0u8; 4096];
    let read = rustix::fs::open(STATUS, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
        .and_then(|file| rustix::io::read(&file, &mut buffer[..]))
        .unwrap_or(0);
    let text = core::str::from_utf8(&buffer[..read]).unwrap_or("");
    let kib = |name: &str| {
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix(name))
            .unwrap_or("");
        line.split_whitespace()
            .next()
            .and_then(|n| n.parse::<u64>().ok())
            .unwrap_or(0)
            << 10
    };
    Resident {
        now: kib("VmRSS:"),
        peak: kib("VmHWM:"),
        files: kib("RssFile:"),
        shared: kib("RssShmem:"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_resident_set_is_read_from_proc() {
        let resident = resident();
        assert!(resident.now > 1 << 20 && resident.peak >= resident.now);
        assert!(resident.files > 1 << 18 && resident.now > resident.files + resident.shared);
    }
}
