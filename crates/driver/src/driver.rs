//! The driver itself: its state and its counters.

use crate::memory::Memory;
use crate::others::Unmade;
use crate::publish::Publisher;
use crate::recent::Witnessed;
use crate::signals::SignalsBlocked;
use crate::state::children::Children;
use crate::state::config::{Background, OnStoreFull, Parts};
use crate::state::files::Files;
use crate::state::governor::Governor;
use crate::state::latency::Latency;
use crate::state::lazy_batch::LazyBatch;
use crate::state::prefetch::Prefetcher;
use crate::state::queue::Freer;
use crate::state::ram_worth::Saves;
use crate::state::read_ahead::ReadAhead;
use crate::state::reclaim_cpu::Traces;
use crate::state::record::Recorder;
use crate::state::reuse::Reuse;
use crate::state::shrink::Shrinkers;
use crate::state::stall::Stalls;
use crate::state::watchdog::Watchdog;
use crate::state::writer::Writer;
use crate::stats::{RecompressStats, Stats};
use millpond_core::tables::volatile::VolatileBook;
use millpond_core::{Core, Recompressed, Store, VmStat};
use millpond_mmu::{Delivery, RealMemory};
use millpond_sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use millpond_sync::{Condvar, Gate, Held, Rank, Ranked, Word, end_by};
use std::time::Duration;

/// Hands events to the core and carries out its commands; see the [crate](crate). The memory is real unless another
/// one is named ([`Memory`]).
pub struct Driver<M: Memory = RealMemory> {
    /// The gate, which every thread that works on memory enters; see [`fork`].
    pub(crate) gate: Gate,
    /// Whether a fault was deferred to the thread that opens the gate; see [`closed_gate`].
    pub(crate) deferred: AtomicBool,
    /// Number of faults at mapped pages, and the page of the last one; see [`spurious_fault`].
    pub(crate) spurious: AtomicU32,
    pub(crate) spurious_page: AtomicU32,
    pub(crate) core: Ranked<Witnessed>,
    /// The memory that is managed.
    pub mmu: M,
    pub(crate) nodes: Vec<u32>,
    pub(crate) store: Box<dyn Store>,
    /// The files whose pages are regions'.
    pub(crate) files: Files,
    pub(crate) delivery: Delivery,
    pub(crate) on_store_full: OnStoreFull,
    pub(crate) governor: Governor,
    /// Memory that is freed in the background.
    pub freer: Freer,
    /// Memory that was given up and stays in place for its next user.
    pub(crate) reuse: Reuse,
    pub(crate) latency: Latency,
    /// Ranges that were freed in place and are not marked yet. A thread that reclaims only tries its lock.
    pub(crate) lazy_batch: LazyBatch,
    /// Volatile ranges. A thread that reclaims only tries this lock; see [`lazy_free`].
    pub(crate) volatile: Ranked<VolatileBook>,
    /// Number of purges of volatile ranges in progress.
    pub(crate) purging: AtomicU32,
    /// Number of volatile ranges purged so far.
    pub(crate) purges: AtomicU64,
    /// Notified when something that threads wait for has completed.
    pub(crate) settled: Condvar,
    /// Number of threads that wait on `settled`.
    pub(crate) waiters: AtomicU32,
    /// Number of these that wait for any command to settle.
    pub(crate) waiters_for_any: AtomicU32,
    /// Lock that the reclaim thread holds while it works; see [`fork`].
    pub(crate) housekeeping: Ranked<()>,
    /// The threads that the reclaim thread has yet to make.
    pub(crate) others: Unmade,
    /// Word that changes when the reclaim thread is needed.
    pub(crate) kicks: Word,
    /// Whether the reclaim thread sleeps, so that kicking it costs nothing while it works.
    pub(crate) resting: AtomicBool,
    /// How many more times the reclaim thread looks for a stream by itself; see [`ahead`].
    pub(crate) looks_ahead: AtomicU32,
    pub(crate) stop: AtomicBool,
    pub(crate) background: Background,
    pub(crate) traces: Traces,
    /// Whether the handler thread shares a processor with the only thread that faults.
    pub(crate) handler_stays: AtomicBool,
    /// Whether all the faults that the handler serves are one thread's.
    pub(crate) handler_serves_one: AtomicBool,
    /// Whether threads have to wait for loads from the store, as for loads from a file.
    pub(crate) store_waits: AtomicBool,
    pub(crate) on_tick: Option<fn()>,
    pub(crate) publisher: Option<Publisher>,
    pub(crate) recorder: Option<Recorder>,
    pub(crate) reclaim_ns: AtomicU64,
    pub(crate) direct_ns: AtomicU64,
    pub(crate) recompress_ns: AtomicU64,
    pub(crate) store_failures: AtomicU64,
    pub(crate) saves: Saves,
    /// Whether the message was written that memory exceeds the budget; see [`excess`].
    pub(crate) excess_said: AtomicBool,
    /// The faults that wait.
    pub watchdog: Watchdog,
    pub(crate) children: Children,
    pub(crate) stalls: Stalls,
    /// The ranges to prefetch.
    pub prefetcher: Prefetcher,
    /// The streams of files that are read ahead.
    pub(crate) read_ahead: ReadAhead,
    /// The thread that writes shared regions back.
    pub(crate) writer: Writer,
    /// The caches that shrink when memory is short.
    pub shrinkers: Shrinkers,
    /// Counters at the time when this process was forked, so that its own figures begin at zero.
    pub(crate) inherited: Ranked<VmStat>,
    pub(crate) inherited_recompressed: Ranked<Recompressed>,
}

impl<M: Memory> Driver<M> {
    /// Makes a driver for `core`. It serves no fault until the memory of `parts` passes it one.
    pub fn new(core: Core, parts: Parts<M>) -> Self {
        end_by(millpond_mmu::panics::stop_unwinding);
        Self {
            gate: Gate::new(),
            deferred: AtomicBool::new(false),
            spurious: AtomicU32::new(0),
            spurious_page: AtomicU32::new(u32::MAX),
            governor: Governor::new(parts.ram, parts.charge),
            freer: Freer::new(),
            reuse: Reuse::new(),
            core: Ranked::new(Rank::Core, Witnessed::new(core)),
            mmu: parts.mmu,
            nodes: parts.nodes,
            store: parts.store,
            files: Files::new(),
            delivery: parts.delivery,
            on_store_full: parts.on_store_full,
            latency: Latency::new(),
            lazy_batch: LazyBatch::new(parts.lazyfree_max),
            volatile: Ranked::new(Rank::VolatileRanges, VolatileBook::new()),
            purging: AtomicU32::new(0),
            purges: AtomicU64::new(0),
            settled: Condvar::new(),
            waiters: AtomicU32::new(0),
            waiters_for_any: AtomicU32::new(0),
            housekeeping: Ranked::new(Rank::Housekeeping, ()),
            others: Unmade::new(),
            kicks: Word::new(0),
            resting: AtomicBool::new(false),
            looks_ahead: AtomicU32::new(0),
            stop: AtomicBool::new(false),
            background: parts.background,
            traces: Traces::new(),
            handler_stays: AtomicBool::new(false),
            handler_serves_one: AtomicBool::new(false),
            store_waits: AtomicBool::new(false),
            on_tick: parts.on_tick,
            publisher: parts.publisher,
            recorder: parts.recording.map(Recorder::new),
            reclaim_ns: AtomicU64::new(0),
            direct_ns: AtomicU64::new(0),
            recompress_ns: AtomicU64::new(0),
            store_failures: AtomicU64::new(0),
            saves: Saves::default(),
            excess_said: AtomicBool::new(false),
            watchdog: Watchdog::new(),
            children: Children::new(),
            stalls: Stalls::new(),
            prefetcher: Prefetcher::new(),
            read_ahead: ReadAhead::new(),
            writer: Writer::new(),
            shrinkers: Shrinkers::new(),
            inherited: Ranked::new(Rank::Figures, VmStat::default()),
            inherited_recompressed: Ranked::new(Rank::Figures, Recompressed::default()),
        }
    }

    /// The largest budget for which the driver's tables are made, in bytes.
    pub fn most_ram(&self) -> u64 {
        self.governor.most()
    }

    /// Takes the lock of the core.
    pub fn lock(&self) -> Held<'_, Witnessed> {
        self.core.lock()
    }

    /// Ends the process if the core's state is inconsistent. Only in builds that check themselves.
    #[cfg(debug_assertions)]
    pub fn expect_sound(&self) {
        let _quiet = SignalsBlocked::new();
        let _inside = self.gate.enter();
        let core = self.lock();
        core.judge(core.check());
    }

    fn recompress_stats(&self) -> RecompressStats {
        let now = self.store.recompressed();
        let before = *self.inherited_recompressed.lock();
        RecompressStats {
            time: Duration::from_nanos(self.recompress_ns.load(Ordering::Relaxed)),
            bytes: now.bytes.saturating_sub(before.bytes),
            saved_bytes: now.saved.saturating_sub(before.saved),
            left_bytes: now.left.saturating_sub(before.left),
        }
    }

    /// All counters and gauges.
    pub fn stats(&self) -> Stats {
        let _quiet = SignalsBlocked::new();
        let _inside = self.gate.enter();
        let (vm, metadata_bytes, refault_cost) = {
            let core = self.lock();
            (core.stats(), core.metadata_bytes(), core.refault_cost())
        };
        let vm = vm.since(&self.inherited.lock());
        let direct = self.direct_ns.load(Ordering::Relaxed);
        let background = self.reclaim_ns.load(Ordering::Relaxed);
        Stats {
            vm,
            store: self.store.usage().into(),
            beyond: self.store.beyond().into(),
            ram: self.governor.ram(),
            free: self.freer.stats(),
            metadata_bytes,
            ahead_bytes: self.mmu.huge_ready().bytes(),
            peak_bytes: self.governor.peak(),
            own_peak_bytes: self.governor.own_peak(),
            latency: self.latency.summary(),
            faults: self.latency.by_path(),
            refault_cost: f64::from(refault_cost) / 16.0,
            reclaim: Duration::from_nanos(direct + background),
            reclaim_direct: Duration::from_nanos(direct),
            recompress: self.recompress_stats(),
            volatile_purges: self.purges.load(Ordering::Relaxed),
            store_failures: self.store_failures.load(Ordering::Relaxed),
        }
    }
}
