//! The driver: hands events to the core, carries out its commands, hands the results back.
//!
//! A fault's way through it: [`fault`] asks the core under the lock; [`carry_out`] works unlocked, on the MMU and the
//! store; the completion goes in under the lock again, and whoever waited is woken. Everything else that moves memory
//! ([`reclaim`], [`operate`]) is the same loop with another event at its start.
//!
//! Nothing below may allocate, touch managed memory, or wait for anything but the core lock, a command in flight on
//! another thread, and the store: a fault may come from anywhere, the program's allocator included.

mod ahead;
mod carry_out;
mod closed;
mod excess;
mod fault;
pub(crate) mod fork;
pub(crate) mod free;
mod freed;
mod give_back;
mod governor;
mod group;
pub(crate) mod housekeeping;
mod kept;
mod latency;
mod lazy_free;
pub(crate) mod lock;
pub(crate) mod operate;
mod place;
pub(crate) mod prefetch;
#[cfg(test)]
mod provoke;
pub(crate) mod recent;
mod reclaim;
pub(crate) mod record;
mod refault_cost;
pub(crate) mod remap;
pub(crate) mod shrink;
pub(crate) mod snapshot;
pub(crate) mod stall;
mod store_share;
mod turns;
mod vanished;
mod watchdog;

pub use lazy_free::Contents;

use crate::builder::OnStoreFull;
use crate::error::PopulateError;
use crate::publish::Publisher;
use crate::signals::SignalsBlocked;
use crate::stats::Stats;
use governor::Governor;
use latency::Latency;
use lock::{Gate, Held, Rank, Ranked};
use millpond_core::tables::volatile::VolatileBook;
use millpond_core::{Core, PageCount, Store, VmStat};
use millpond_mmu::{Delivery, Uffd};
use recent::Witnessed;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use std::sync::{Condvar, Mutex};
use std::time::Duration;

/// What a driver is made of, besides the core.
pub(crate) struct Parts {
    pub(crate) mmu: Uffd,
    /// The kernel's number of each memory node; none where memory is not placed.
    pub(crate) nodes: Vec<u32>,
    pub(crate) store: Box<dyn Store>,
    pub(crate) delivery: Delivery,
    pub(crate) ram: u64,
    pub(crate) charge: Charge,
    pub(crate) on_store_full: OnStoreFull,
    pub(crate) background: Background,
    pub(crate) lazyfree_max: PageCount,
    pub(crate) on_tick: Option<fn()>,
    pub(crate) publisher: Option<Publisher>,
    pub(crate) recording: Option<record::Recording>,
}

/// What the budget counts besides the frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Charge {
    /// Frames and the core's tables; the store's RAM is outside.
    Frames,
    /// Frames, tables and the store's RAM.
    FramesAndStore,
    /// All of the process's resident memory, as the kernel counts it.
    Process,
}

/// When a second thread reclaims ahead of need.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Background {
    Never,
    /// While large folios come in for large ones that have to be written: a stream that fills.
    Large,
    /// Always, unless a handler thread shares a processor with the only thread that faults, and has a store that works
    /// at once: then while [`Large`](Self::Large) ones come in.
    Apart,
    Always,
}

/// See the [module](self).
pub(crate) struct Driver {
    /// Entered by everyone who works on memory; see [`fork`].
    gate: Gate,
    /// A fault was left to whoever opens the gate; see [`closed`].
    deferred: AtomicBool,
    /// Faults at mapped pages, and the page of the last; see [`vanished`].
    spurious: AtomicU32,
    spurious_page: AtomicU32,
    core: Ranked<Witnessed>,
    pub(crate) mmu: Uffd,
    nodes: Vec<u32>,
    store: Box<dyn Store>,
    delivery: Delivery,
    on_store_full: OnStoreFull,
    governor: Governor,
    pub(crate) freer: free::Freer,
    /// What was given up and stays where it is for the next user.
    kept: kept::Kept,
    latency: Latency,
    /// What was freed in place and is not marked yet. Whoever reclaims only tries its lock.
    freed: freed::Freed,
    /// Volatile ranges. Whoever reclaims only tries this lock; see [`lazy_free`].
    volatile: Mutex<VolatileBook>,
    /// Purges of volatile ranges under way.
    purging: AtomicU32,
    /// Volatile ranges purged so far.
    purges: AtomicU64,
    /// Notified when something that was waited for has completed.
    settled: Condvar,
    /// Threads that wait on `settled`.
    waiters: AtomicU32,
    /// Held by the reclaim thread while it works; see [`fork`].
    housekeeping: Ranked<()>,
    /// Futex word: changes when the reclaim thread is wanted.
    kicks: AtomicU32,
    /// Whether the reclaim thread sleeps, so that kicking it costs nothing while it works.
    resting: AtomicBool,
    /// How often it still looks for a stream by itself; see [`ahead`].
    looks_ahead: AtomicU32,
    stop: AtomicBool,
    background: Background,
    traces: place::Traces,
    /// The handler thread is where faults come from.
    handler_stays: AtomicBool,
    /// One thread alone has faults that the handler serves.
    handler_serves_one: AtomicBool,
    /// The store is waited for, as a file is.
    store_waits: AtomicBool,
    on_tick: Option<fn()>,
    publisher: Option<Publisher>,
    recorder: Option<record::Recorder>,
    reclaim_ns: AtomicU64,
    direct_ns: AtomicU64,
    store_failures: AtomicU64,
    /// It was said that memory is above the budget; see [`excess`].
    excess_said: AtomicBool,
    pub(crate) watchdog: watchdog::Watchdog,
    children: fork::Children,
    stalls: stall::Stalls,
    pub(crate) prefetcher: prefetch::Prefetcher,
    pub(crate) shrinkers: shrink::Shrinkers,
    /// Counters at the time that this process was forked, so that its own figures begin at zero.
    inherited: Ranked<VmStat>,
}

/// The public error for a page at `offset` that could not be brought in.
pub(crate) fn fault_error(error: fault::FaultError, offset: usize) -> PopulateError {
    match error {
        fault::FaultError::Lost | fault::FaultError::Outside => PopulateError::Lost { offset },
        fault::FaultError::OutOfRecords => PopulateError::OutOfRecords,
    }
}

impl Driver {
    pub(crate) fn new(core: Core, parts: Parts) -> Self {
        Self {
            gate: Gate::new(),
            deferred: AtomicBool::new(false),
            spurious: AtomicU32::new(0),
            spurious_page: AtomicU32::new(u32::MAX),
            governor: Governor::new(parts.ram, parts.charge),
            freer: free::Freer::new(),
            kept: kept::Kept::new(),
            core: Ranked::new(Rank::Core, Witnessed::new(core)),
            mmu: parts.mmu,
            nodes: parts.nodes,
            store: parts.store,
            delivery: parts.delivery,
            on_store_full: parts.on_store_full,
            latency: Latency::new(),
            freed: freed::Freed::new(parts.lazyfree_max),
            volatile: Mutex::new(VolatileBook::new()),
            purging: AtomicU32::new(0),
            purges: AtomicU64::new(0),
            settled: Condvar::new(),
            waiters: AtomicU32::new(0),
            housekeeping: Ranked::new(Rank::Housekeeping, ()),
            kicks: AtomicU32::new(0),
            resting: AtomicBool::new(false),
            looks_ahead: AtomicU32::new(0),
            stop: AtomicBool::new(false),
            background: parts.background,
            traces: place::Traces::new(),
            handler_stays: AtomicBool::new(false),
            handler_serves_one: AtomicBool::new(false),
            store_waits: AtomicBool::new(false),
            on_tick: parts.on_tick,
            publisher: parts.publisher,
            recorder: parts.recording.map(record::Recorder::new),
            reclaim_ns: AtomicU64::new(0),
            direct_ns: AtomicU64::new(0),
            store_failures: AtomicU64::new(0),
            excess_said: AtomicBool::new(false),
            watchdog: watchdog::Watchdog::new(),
            children: fork::Children::new(),
            stalls: stall::Stalls::new(),
            prefetcher: prefetch::Prefetcher::default(),
            shrinkers: shrink::Shrinkers::new(),
            inherited: Ranked::new(Rank::Figures, VmStat::default()),
        }
    }

    pub(crate) fn most_ram(&self) -> u64 {
        self.governor.most()
    }

    pub(crate) fn lock(&self) -> Held<'_, Witnessed> {
        self.core.lock()
    }

    /// In builds that check themselves: ends the process when the core's state makes no sense.
    #[cfg(debug_assertions)]
    pub(crate) fn expect_sound(&self) {
        let _quiet = SignalsBlocked::new();
        let _inside = self.gate.enter();
        let core = self.lock();
        core.judge(core.check());
    }

    /// Everything that is counted.
    pub(crate) fn stats(&self) -> Stats {
        let _quiet = SignalsBlocked::new();
        let _inside = self.gate.enter();
        let (vm, metadata_bytes, refault_cost) = {
            let core = self.lock();
            (core.stats(), core.metadata_bytes(), core.refault_cost())
        };
        let vm = vm.since(&self.inherited.lock());
        let direct = self.direct_ns.load(std::sync::atomic::Ordering::Relaxed);
        let background = self.reclaim_ns.load(std::sync::atomic::Ordering::Relaxed);
        Stats {
            vm,
            store: self.store.usage().into(),
            ram: self.governor.ram(),
            free: self.freer.stats(),
            metadata_bytes,
            ahead_bytes: self.mmu.huge_ready().bytes(),
            peak_bytes: self.governor.peak(),
            latency: self.latency.summary(),
            faults: self.latency.by_path(),
            refault_cost: f64::from(refault_cost) / 16.0,
            reclaim: Duration::from_nanos(direct + background),
            reclaim_direct: Duration::from_nanos(direct),
            volatile_purges: self.purges.load(std::sync::atomic::Ordering::Relaxed),
            store_failures: self
                .store_failures
                .load(std::sync::atomic::Ordering::Relaxed),
        }
    }
}
