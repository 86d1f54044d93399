//! This process's slot on the report board.
//!
//! The counters are written there on every tick of the manager and at the end. A child inherits its parent's counters
//! along with its memory; we subtract what was counted before the fork, so that the sum over all processes is
//! correct.

use crate::stack_switch::on_safe_stack;
use crate::{code, decay, engage, last_thread, space, tell};
use core::sync::atomic::{AtomicPtr, Ordering::*};
use millpond::Stats;
use millpond::publish::{self, StorePeaks};
use millpond_board::{Board, Field, Fields, SlotWriter, State, now_ns};
use std::path::Path;

/// The cumulative counters.
const CUMULATIVE: [Field; 38] = [
    Field::MinorFaults,
    Field::MajorFaults,
    Field::BytesOut,
    Field::BytesIn,
    Field::BytesOutFree,
    Field::Rescued,
    Field::StoreFailed,
    Field::LoadFailed,
    Field::RemoteLoads,
    Field::RemoteLost,
    Field::OverLimit,
    Field::DirectReclaims,
    Field::Reclaim,
    Field::PgLazyFree,
    Field::PgLazyFreed,
    Field::PgLazyFreeReused,
    Field::PgScanKswapd,
    Field::PgScanDirect,
    Field::PgStealKswapd,
    Field::PgStealDirect,
    Field::PswpOutUnchanged,
    Field::PswpOutZero,
    Field::PgZero,
    Field::PgActivate,
    Field::PgDeactivate,
    Field::PgDiscard,
    Field::TakeOutBusy,
    Field::TakeOutImmovable,
    Field::FolioSplit,
    Field::DeferredSplit,
    Field::FolioFold,
    Field::Snapshots,
    Field::SnapshotCopy,
    Field::ReclaimDirect,
    Field::FreeBatches,
    Field::FreeByWorkers,
    Field::FreeBytes,
    Field::FreeTime,
];

/// This process's place on the board, and the time at which it started to report.
struct Reporter {
    board: Board,
    slot: SlotWriter,
    pid: i32,
    since_ns: u64,
    before: Fields,
}

impl Reporter {
    /// Writes the budget of a dormant process, for which no tick writes anything.
    fn announce(&self) {
        if !engage::is_dormant() {
            return;
        }
        let mut fields = fields(&Stats {
            ram: space::get().map_or(0, |space| space.stats().ram),
            ..Stats::default()
        });
        set_engaged(&mut fields, self);
        self.slot.publish(State::Running, &fields);
    }
}

static REPORTER: AtomicPtr<Reporter> = AtomicPtr::new(core::ptr::null_mut());
static PEAKS: StorePeaks = StorePeaks::new();

fn reporter() -> Option<&'static Reporter> {
    // SAFETY: the pointer is null or came from a leaked box.
    unsafe { REPORTER.load(Acquire).as_ref() }
}

fn set(reporter: Reporter) {
    reporter.announce();
    REPORTER.store(Box::into_raw(Box::new(reporter)), Release);
}

fn own_pid() -> i32 {
    // We do not ask the C library for the process ID: a child of `vfork` has its own ID but our memory.
    rustix::process::getpid().as_raw_nonzero().get()
}

/// Opens the board and claims a slot. If either fails the program still runs, but the report lacks a line.
pub fn begin(path: &Path, name: &str) {
    let Ok(board) = Board::open(path) else { return };
    let pid = own_pid();
    if let Ok(slot) = board.claim(pid as u32, name) {
        let reporter = Reporter {
            board,
            slot,
            pid,
            since_ns: now_ns(),
            before: Fields::default(),
        };
        set(reporter);
        millpond_mmu::report::set_keeper(keep_last_words);
    }
}

/// Keeps the process's last words on the board. The supervisor prints them after the program has ended, even if its
/// standard error is closed.
fn keep_last_words(line: &[u8]) {
    if let Some(reporter) = reporter() {
        reporter.board.set_last_words(own_pid() as u32, line);
        reporter.slot.fail();
    }
}

/// Claims a slot for a new child.
pub fn begin_in_child() {
    let Some(parent) = reporter() else { return };
    let pid = own_pid();
    match parent.board.claim_forked(pid as u32, parent.slot) {
        Ok(slot) => {
            let before = space::get().map_or_else(Fields::default, |space| fields(&space.stats()));
            let reporter = Reporter {
                board: parent.board,
                slot,
                pid,
                since_ns: now_ns(),
                before,
            };
            set(reporter);
        }
        Err(_) => REPORTER.store(core::ptr::null_mut(), Release),
    }
}

/// Writes the current counters.
pub fn publish(state: State) {
    let (Some(reporter), Some(space)) = (reporter(), space::get()) else {
        return;
    };
    if own_pid() != reporter.pid {
        return;
    }
    let mut fields = fields(&space.stats());
    for field in CUMULATIVE {
        fields.set(
            field,
            fields.get(field).saturating_sub(reporter.before.get(field)),
        );
    }
    publish::set_pressure(&mut fields, &space.pressure());
    publish::resident().write_to(&mut fields);
    fields.set(Field::AskedMemory, tell::asked());
    set_engaged(&mut fields, reporter);
    fields.set(Field::Wall, now_ns().saturating_sub(reporter.since_ns));
    reporter.slot.publish(state, &fields);
}

/// Sets whether and when the process engaged.
fn set_engaged(fields: &mut Fields, reporter: &Reporter) {
    fields.set(Field::Dormant, u64::from(engage::is_dormant()));
    if let Some((at, why)) = engage::engaged() {
        // The child of a fork may have inherited a time before its own start.
        fields.set(Field::Engaged, at.saturating_sub(reporter.since_ns).max(1));
        fields.set(Field::EngagedFor, why as u64);
    }
}

/// Checks whether lazily freed memory was reused, by looking at its bytes. That takes too long to do on every tick,
/// or in the child of a fork, which ends by `_exit` and has written to little of it.
pub fn recount() {
    if let (Some(_), Some(space)) = (reporter(), space::get()) {
        on_safe_stack(move || space.recount_lazyfree());
    }
}

/// Called by the manager about ten times a second.
pub fn tick() {
    if let Some(space) = space::get() {
        let vm = space.stats().vm;
        let evicted = vm.pswpout + vm.pswpout_unchanged + vm.pswpout_zero;
        decay::tick(evicted);
        code::tick(evicted);
    }
    publish(State::Running);
    last_thread::tick();
}

fn fields(stats: &Stats) -> Fields {
    publish::fields(stats, &PEAKS)
}
