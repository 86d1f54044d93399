//! Reclaim: batches that the core chooses, until enough memory is available.
//!
//! Memory that its owners can do without goes first: lazily freed memory (chosen by the core), then volatile ranges
//! (chosen by the book). While workers give memory back, a thread that needs some waits for one of their batches, at
//! most a millisecond: the pages on the lists may be the very ones that are being freed, and writing these out would be
//! wasted work.
//!
//! The background thread also gives back spare frames that copies leave behind. Otherwise faults would, one in 24 of
//! them, and these would be the slowest hundredth ([`Core::gather_copied`](millpond_core::Core::gather_copied)).
//!
//! If a second thread reclaims, each call that moves pages interrupts the first one's processor. So it works only for
//! streams of large folios, or for all memory if faults are not served on their own processor anyway ([`Background`]).
//!
//! A faulting thread that finds no memory reclaims by itself (direct); the background thread keeps that rare. Both run
//! the same batches; the first to see enough available stops.

use crate::driver::Driver;
use crate::fault::Patience;
use crate::memory::Memory;
use crate::state::config::Background;
use millpond_core::{Commands, Core, Event, GroupId, PageCount, Reclaimer, Reply, VmStat};
use millpond_sync::atomic::Ordering;
use millpond_sync::time::Instant;

/// Minimum batch of a thread that stops to reclaim: this part of the limit, in pages, within [`DIRECT_BATCH`].
const DIRECT_SHARE: u32 = 128;
/// Bounds of a direct batch, in pages. Adjacent folios go out by one system call and one TLB shootdown, so 128 pages
/// give the same throughput as more. But with 128 pages 0.8 % of all faults at 4 KiB wait for a batch, and the 99th
/// percentile of latency lies just beyond the other faults: it is 5 to 9 times the median, and 1.5 to 2.4 times with
/// 512 or 256 pages.
const DIRECT_BATCH: std::ops::RangeInclusive<u32> = 64..=512;

/// Pages that a thread reclaims if it lacks `pages` pages of at most `most`.
fn direct_batch(most: PageCount, pages: PageCount) -> PageCount {
    let share = most.0 / DIRECT_SHARE;
    let batch = share.clamp(*DIRECT_BATCH.start(), *DIRECT_BATCH.end());
    PageCount(pages.0.max(batch))
}

/// Number of times that all of memory may be scanned before a reclaim that has not found enough gives up.
const ROUNDS: u64 = 8;

/// The end of a reclaim that other threads undo.
///
/// Pages that one thread takes out may be touched and brought back by another, so a reclaim could continue for as long
/// as others touch memory: a lower budget, set while the store was full or most memory was pinned, took that long. So a
/// reclaim ends when so many pages have been scanned that each was examined a few times. While a store or the files
/// accept nothing, folios are taken out only because some of them may leave without a write: then it ends when all have
/// been scanned once, and nothing came free. (kswapd ends after `MAX_RECLAIM_RETRIES`.)
pub(crate) struct InVain {
    /// Pages in memory when the reclaim began, or the limit if that is more. After a budget was lowered there are more
    /// than the limit.
    pages: u64,
    end: u64,
    freed: u64,
    scanned: u64,
}

impl InVain {
    /// Begins to monitor a reclaim.
    pub(crate) fn new(core: &Core) -> Self {
        let stat = core.stats();
        let (freed, scanned) = Self::counts(&stat);
        let pages = (stat.nr_mapped + stat.nr_limbo).max(core.limit().0.into());
        Self {
            pages,
            end: scanned + ROUNDS * pages,
            freed,
            scanned,
        }
    }

    /// Whether the reclaim is in vain. Called before each batch.
    pub(crate) fn gives_up(&mut self, core: &Core) -> bool {
        let (freed, scanned) = Self::counts(&core.stats());
        if freed != self.freed {
            (self.freed, self.scanned) = (freed, scanned);
        }
        let blocked = core.store_blocked() || core.files_blocked();
        scanned > self.end || blocked && scanned - self.scanned > self.pages
    }

    fn counts(stat: &VmStat) -> (u64, u64) {
        let freed = stat.pgsteal_kswapd + stat.pgsteal_direct + stat.pglazyfreed;
        (freed, stat.pgscan_kswapd + stat.pgscan_direct)
    }
}

impl<M: Memory> Driver<M> {
    /// Reclaims until `pages` are available, or nothing can be reclaimed now; in that case a patient thread waits a
    /// moment for folios that other threads have in flight. Returns whether this thread did something.
    pub fn reclaim_for(&self, pages: PageCount, by: Reclaimer, patience: Patience) -> bool {
        let started = Instant::now();
        let (want, mut vain) = {
            let core = self.lock();
            (direct_batch(core.limit(), pages), InVain::new(&core))
        };
        self.mark_lazy_batch_inside();
        let mut commands = Commands::new();
        let mut progress = false;
        let mut may_wait = patience == Patience::Wait;
        loop {
            let core = self.lock();
            let enough = core.available() >= want;
            if !enough && vain.gives_up(&core) {
                progress = false;
                break;
            }
            if !enough && may_wait && self.freer.is_busy() {
                may_wait = false;
                drop(self.wait_settled(core));
                continue;
            }
            let nothing_lazy = core.lazyfree_pages() == PageCount::ZERO;
            drop(core);
            if !enough && nothing_lazy && self.purge_oldest_volatile() {
                progress = true;
                continue;
            }
            let event = Event::Reclaim { pages: want, by };
            let done = !enough && self.batch(event, &mut commands);
            if commands.is_empty() && done {
                progress = true;
                continue;
            }
            if commands.is_empty() {
                // This thread did nothing, so the missing pages are in flight on other threads.
                let core = self.lock();
                if !progress && !core.is_quiet() && patience == Patience::Wait {
                    drop(self.wait_for_any(core));
                }
                break;
            }
            progress = true;
            self.carry_out(&mut commands);
            self.wake_waiters();
            // Data that went into compressed RAM still takes memory: only now is it known how much came free.
            self.adjust_limit();
        }
        self.count_reclaim(started, by);
        self.poke_shrinkers();
        progress
    }

    /// Reclaims in a group and the groups below it, until its max leaves room for `pages`, or nothing can be reclaimed
    /// there now; in that case waits a moment for folios that other threads have in flight. Returns whether this thread
    /// did something.
    pub fn reclaim_in(&self, group: GroupId, pages: PageCount) -> bool {
        let mut core = self.lock();
        let want = direct_batch(core.most_in(group), pages);
        let mut vain = InVain::new(&core);
        let mut progress = false;
        while core.available_in(group) < want {
            if vain.gives_up(&core) {
                return false;
            }
            drop(core);
            let more = self.batch_in(group, want);
            progress |= more;
            core = self.lock();
            if !more {
                break;
            }
        }
        if !progress && !core.is_quiet() {
            drop(self.wait_for_any(core));
        }
        progress
    }

    /// Reclaims one batch in a group. Returns whether something was done.
    pub fn batch_in(&self, group: GroupId, pages: PageCount) -> bool {
        let started = Instant::now();
        let mut commands = Commands::new();
        let by = Reclaimer::Direct;
        // A group that was removed in the meantime no longer has marks.
        let event = Event::ReclaimGroup { group, pages, by };
        let dropped = self.batch(event, &mut commands);
        let progress = dropped || !commands.is_empty();
        self.carry_out(&mut commands);
        self.wake_waiters();
        self.adjust_limit();
        self.count_reclaim(started, by);
        self.poke_shrinkers();
        progress
    }

    /// When the background thread reclaims now. A handler that waited for a file would keep all faults waiting.
    pub fn background(&self) -> Background {
        let apart =
            !self.handler_stays.load(Ordering::Relaxed) || self.store_waits.load(Ordering::Relaxed);
        match self.background {
            Background::Apart if !apart => Background::Large,
            background => background,
        }
    }

    /// Reclaims towards the high mark, and calls `between` after each batch, which returns whether to continue.
    pub(crate) fn reclaim_to_high_mark(&self, mut between: impl FnMut() -> bool) {
        let mut vain = InVain::new(&self.lock());
        while !vain.gives_up(&self.lock()) && self.reclaim_batch() && between() {}
    }

    /// Reclaims one batch towards the high mark. Returns false if there is nothing to do, or nothing can be done.
    fn reclaim_batch(&self) -> bool {
        let _inside = self.gate.enter();
        let started = Instant::now();
        let mut commands = Commands::new();
        let pages = {
            let mut core = self.lock();
            let pages = core.below_high_mark();
            let due = match self.background() {
                Background::Never => false,
                Background::Large => core.victims_are_work(),
                Background::Apart | Background::Always => true,
            };
            if !due || pages == PageCount::ZERO {
                return false;
            }
            drop(core);
            self.mark_lazy_batch_inside();
            core = self.lock();
            if core.lazyfree_pages() == PageCount::ZERO {
                drop(core);
                if self.purge_oldest_volatile() {
                    return true;
                }
            }
            pages
        };
        let by = Reclaimer::Background;
        let dropped = self.batch(Event::Reclaim { pages, by }, &mut commands);
        let progress = dropped || !commands.is_empty();
        self.carry_out(&mut commands);
        self.wake_waiters();
        self.give_copied_back();
        self.adjust_limit();
        self.count_reclaim(started, Reclaimer::Background);
        self.poke_shrinkers();
        progress
    }

    /// Sends one event of reclaim as often as the core asks for it; the last commands are still to be carried out.
    /// Returns whether something came free, or was done, without a command.
    fn batch(&self, event: Event, commands: &mut Commands) -> bool {
        let mut progress = false;
        loop {
            let mut core = self.lock();
            let before = core.available();
            let reply = core.handle(event, commands);
            // Lazily freed folios that were captured are dropped without a command.
            progress |= core.available() > before;
            drop(core);
            let Reply::More { .. } = reply else {
                return progress;
            };
            progress = true;
            self.carry_out(commands);
            give_way();
        }
    }

    fn count_reclaim(&self, started: Instant, by: Reclaimer) {
        let sum = match by {
            Reclaimer::Background => &self.reclaim_ns,
            Reclaimer::Direct => &self.direct_ns,
        };
        sum.fetch_add(started.elapsed().as_nanos() as u64, Ordering::Relaxed);
    }
}

/// Pauses for half a microsecond, in which a fault that waits for the core can take its lock: a thread that releases a
/// lock and takes it again at once always wins.
pub fn give_way() {
    for _ in 0..16 {
        millpond_sync::hint::spin_loop();
    }
}
