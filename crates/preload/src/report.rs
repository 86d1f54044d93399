//! This process's slot on the report board.
//!
//! Counters go there on every tick of the manager and at the end. A child inherits the counters of its parent along
//! with its memory; what was counted before the fork is taken off, so that the sum over all processes is right.

use crate::stack_switch::on_safe_stack;
use crate::{decay, space};
use core::ffi::CStr;
use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering::*};
use millpond::Stats;
use millpond_board::{Board, Field, Fields, SlotWriter, State, now_ns};
use rustix::fs::{Mode, OFlags};
use std::path::Path;

const PAGE: u64 = 4096;

/// Counters that only grow.
const CUMULATIVE: [Field; 14] = [
    Field::MinorFaults,
    Field::MajorFaults,
    Field::BytesOut,
    Field::BytesIn,
    Field::BytesOutFree,
    Field::Rescued,
    Field::StoreFailed,
    Field::LoadFailed,
    Field::OverLimit,
    Field::DirectReclaims,
    Field::Reclaim,
    Field::PgLazyFree,
    Field::PgLazyFreed,
    Field::PgLazyFreeReused,
];

/// Where and since when this process reports.
struct Reporter {
    board: Board,
    slot: SlotWriter,
    pid: i32,
    since_ns: u64,
    before: Fields,
}

static REPORTER: AtomicPtr<Reporter> = AtomicPtr::new(core::ptr::null_mut());
static LOGICAL_PEAK: AtomicU64 = AtomicU64::new(0);
static STORED_PEAK: AtomicU64 = AtomicU64::new(0);

fn reporter() -> Option<&'static Reporter> {
    // SAFETY: the pointer is null or came from a leaked box.
    unsafe { REPORTER.load(Acquire).as_ref() }
}

fn set(reporter: Reporter) {
    REPORTER.store(Box::into_raw(Box::new(reporter)), Release);
}

fn own_pid() -> i32 {
    // Not the C library's: a child of `vfork` has its own number and our memory.
    rustix::process::getpid().as_raw_nonzero().get()
}

/// Opens the board and takes a slot. Without either the program runs all the same, and the report lacks a line.
pub fn begin(path: &Path, name: &str) {
    let Ok(board) = Board::open(path) else { return };
    let pid = own_pid();
    if let Ok(slot) = board.claim(pid as u32, name) {
        set(Reporter {
            board,
            slot,
            pid,
            since_ns: now_ns(),
            before: Fields::default(),
        });
    }
}

/// Takes a slot for a new child.
pub fn begin_in_child() {
    let Some(parent) = reporter() else { return };
    let pid = own_pid();
    match parent.board.claim_forked(pid as u32, parent.slot) {
        Ok(slot) => {
            let before =
                space::get().map_or_else(Fields::default, |space| fields(&space.snapshot()));
            set(Reporter {
                board: parent.board,
                slot,
                pid,
                since_ns: now_ns(),
                before,
            });
        }
        Err(_) => REPORTER.store(core::ptr::null_mut(), Release),
    }
}

/// Writes the counters as they are now.
pub fn publish(state: State) {
    let (Some(reporter), Some(space)) = (reporter(), space::get()) else {
        return;
    };
    if own_pid() != reporter.pid {
        return;
    }
    let mut fields = fields(&space.snapshot());
    for field in CUMULATIVE {
        fields.set(
            field,
            fields.get(field).saturating_sub(reporter.before.get(field)),
        );
    }
    let (rss, peak) = resident();
    fields.set(Field::Rss, rss);
    fields.set(Field::PeakRss, peak);
    fields.set(Field::Wall, now_ns().saturating_sub(reporter.since_ns));
    reporter.slot.publish(state, &fields);
}

/// Looks whether lazily freed memory was used again, which its bytes tell. That takes too long for every tick, and for
/// the child of a fork, which ends by `_exit` and has written to little.
pub fn recount() {
    if let (Some(_), Some(space)) = (reporter(), space::get()) {
        on_safe_stack(move || space.recount_lazyfree());
    }
}

/// What the manager calls about ten times a second.
pub fn tick() {
    if let Some(space) = space::get() {
        let vm = space.snapshot().vm;
        decay::tick(vm.pswpout + vm.pswpout_unchanged + vm.pswpout_zero);
    }
    publish(State::Running);
}

fn fields(stats: &Stats) -> Fields {
    if stats.store.logical_bytes > LOGICAL_PEAK.fetch_max(stats.store.logical_bytes, Relaxed) {
        STORED_PEAK.store(stats.store.stored_bytes, Relaxed);
    }
    let (vm, faults) = (&stats.vm, &stats.faults);
    let over = stats.peak_bytes.saturating_sub(stats.ram);
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
        (Field::StoreLogicalPeak, LOGICAL_PEAK.load(Relaxed)),
        (Field::StoreStoredPeak, STORED_PEAK.load(Relaxed)),
        (Field::StoreRam, stats.store.ram_bytes),
        (Field::FaultP50, stats.latency.p50_ns),
        (Field::FaultP99, stats.latency.p99_ns),
        (Field::FaultMax, stats.latency.max_ns),
        (
            Field::Reclaim,
            u64::try_from(stats.reclaim.as_nanos()).unwrap_or(u64::MAX),
        ),
        (Field::StoreFailed, stats.store_failures),
        (Field::LoadFailed, vm.load_failed),
        (Field::OverLimit, vm.over_limit),
        (Field::OverLimitBytes, over),
        (Field::DirectReclaims, vm.allocstall),
        (Field::LazyFree, stats.lazyfree_bytes()),
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
    ];
    let mut fields = Fields::default();
    for (field, value) in values {
        fields.set(field, value);
    }
    fields
}

/// Resident bytes of the process, now and at most, as the kernel counts them; zeros where `/proc` is missing.
fn resident() -> (u64, u64) {
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
    (kib("VmRSS:"), kib("VmHWM:"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_resident_set_is_read_from_proc() {
        let (now, peak) = resident();
        assert!(now > 1 << 20 && peak >= now);
    }
}
