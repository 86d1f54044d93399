//! A fault, from the backend to the installed page.

use crate::driver::Driver;
use crate::memory::Memory;
use crate::recent::Witnessed;
use crate::stall::Path;
use crate::state::config::Background;
use crate::state::latency::FaultPath;
use millpond_core::limits::LARGE;
use millpond_core::{
    Command, Commands, Event, LEAF_PAGES, Order, Outcome, PageCount, PageIndex, PageRange,
    Reclaimer, Refusal, Reply,
};
use millpond_mmu::{Delivery, FaultSink, Faulters, Resolution};
use millpond_sync::Held;
use millpond_sync::atomic::{AtomicBool, Ordering};
use millpond_sync::time::Instant;
use std::time::Duration;

/// Batches that a fault in a group above its high pays for. One batch saves fewer folios than a stream's fault brings
/// in.
const HIGH_BATCHES: u32 = 2;

/// Why a page could not be brought in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FaultError {
    /// The page's contents are lost.
    Lost,
    /// The page is in no region.
    Outside,
    /// No folio record was left.
    OutOfRecords,
}

/// Whether a command brings in a large folio.
fn is_large(command: Command) -> bool {
    match command {
        Command::Zero { at, .. } | Command::Load { at, .. } | Command::Fold { at, .. } => {
            at.len >= LARGE.pages()
        }
        _ => false,
    }
}

/// The path of a fault that this command resolves.
fn path_of(command: Command) -> Option<FaultPath> {
    match command {
        Command::Zero { .. } => Some(FaultPath::FirstTouch),
        Command::Rescue { .. } => Some(FaultPath::Rescue),
        Command::Load { .. } | Command::Fold { .. } => Some(FaultPath::Load),
        _ => None,
    }
}

/// Behaviour of a thread when the page is in flight on another one.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Patience {
    /// Waits until it has landed.
    Wait,
    /// Leaves: the faulting thread sleeps in the kernel, and the thread that completes the page wakes it.
    Leave,
}

/// Sets `what` to `is`, and writes only if that is a change: so nothing is written that others have in their caches.
/// Called after each fault, by one thread alone.
fn note(what: &AtomicBool, is: bool) {
    if what.load(Ordering::Relaxed) != is {
        what.store(is, Ordering::Relaxed);
    }
}

impl FaultSink for Driver {
    fn handler_started(&self) {
        self.isolate();
    }

    fn handler_serves(&self, whom: Faulters) {
        note(&self.handler_stays, whom == Faulters::OneBeside);
        note(&self.handler_serves_one, whom != Faulters::Several);
    }

    fn fault(&self, page: PageIndex) -> Resolution {
        self.serve(page)
    }
}

impl<M: Memory> Driver<M> {
    /// Serves a fault: the work of [`FaultSink::fault`], whatever the memory is. For threads outside the gate.
    pub fn serve(&self, page: PageIndex) -> Resolution {
        let started = Instant::now();
        let Some(_inside) = self.enter_for_fault(page) else {
            return Resolution::Asleep;
        };
        if self.governor.is_look_old(started) {
            self.adjust_limit();
        }
        let patience = match self.delivery {
            Delivery::InThread => {
                self.traces.fault();
                Patience::Wait
            }
            Delivery::Handler => Patience::Leave,
        };
        let mut path = FaultPath::Spurious;
        let mut groups = None;
        let resolution = match self.bring_in_by(page, patience, &mut path, &mut groups) {
            Ok(resolution) => resolution,
            Err(_) => Resolution::Lost,
        };
        let ns = started.elapsed().as_nanos() as u64;
        self.latency.record(path, ns);
        if let (FaultPath::Load, Some(groups)) = (path, groups) {
            self.loaded(&groups, started, ns);
        }
        if resolution == Resolution::Installed {
            self.record(page);
        }
        resolution
    }

    /// Makes `page` resident, or says why not. For threads inside the gate.
    pub fn bring_in(&self, page: PageIndex, patience: Patience) -> Result<Resolution, FaultError> {
        self.bring_in_by(page, patience, &mut FaultPath::Spurious, &mut None)
    }

    /// Does the work of [`Driver::bring_in`], and tells which path the fault took and for which groups.
    fn bring_in_by(
        &self,
        page: PageIndex,
        patience: Patience,
        path: &mut FaultPath,
        groups: &mut Option<Path>,
    ) -> Result<Resolution, FaultError> {
        let mut went = |through: FaultPath| *path = through.max(*path);
        let mut commands = Commands::new();
        let most = self.most_order();
        let mut max_order = most;
        let within = self.usable_around(page);
        let mut throttled = 0;
        let mut stalled = None;
        let mut waiting = None;
        let mut rounds = 0;
        loop {
            if rounds > 0 {
                waiting.get_or_insert_with(|| self.watchdog.waits(page));
            }
            rounds += 1;
            let mut core = self.lock();
            // A group above its high pays before it gets more, not after: reclaim afterwards could take away the page
            // that was just brought in.
            if throttled < HIGH_BATCHES
                && let Some((group, over)) = core.beyond_high(page)
            {
                if throttled == 0 {
                    core.throttled(group);
                }
                throttled += 1;
                let path = Self::path_of(&core, page);
                drop(core);
                stalled.get_or_insert_with(|| self.stall(path));
                went(FaultPath::Reclaimed);
                self.batch_in(group, over);
                continue;
            }
            // A store that takes nothing lets faults exceed the limit. Before that, memory goes that its owner can do
            // without.
            let exceeds = core.store_blocked() && core.available().0 < LEAF_PAGES;
            if exceeds && core.lazyfree_pages() == PageCount::ZERO {
                drop(core);
                went(FaultPath::Reclaimed);
                if self.purge_oldest_volatile() {
                    continue;
                }
                core = self.lock();
            }
            // The stored data will be in no cache, so it is fetched while memory is found.
            if let Some(stored) = core.stored(page) {
                self.store.expect(stored);
            }
            let reply = core.handle(
                Event::Fault {
                    page,
                    max_order,
                    within,
                },
                &mut commands,
            );
            match reply {
                Reply::Done => {
                    let low = core.below_low_mark()
                        && match self.background() {
                            Background::Never => false,
                            Background::Large => {
                                commands.iter().any(is_large) && core.victims_are_work()
                            }
                            Background::Apart | Background::Always => true,
                        };
                    let look = self.governor.is_look_due(core.available());
                    let room = self.has_room_ahead(core.available());
                    let path = Self::path_of(&core, page);
                    drop(core);
                    if let Some(Command::Load { part, .. }) = commands.iter().next() {
                        self.store.expect_bytes(part);
                    }
                    self.uses(&path);
                    *groups = Some(path);
                    if look {
                        self.adjust_limit();
                    }
                    if low {
                        self.kick();
                    }
                    commands.iter().filter_map(path_of).for_each(&mut went);
                    if commands
                        .iter()
                        .any(|command| path_of(command) == Some(FaultPath::Load))
                    {
                        waiting.get_or_insert_with(|| self.watchdog.waits(page));
                    }
                    let installed = self.carry_out(&mut commands);
                    if room {
                        self.ask_ahead();
                    }
                    match installed {
                        Some(Outcome::Installed { .. }) => return Ok(Resolution::Installed),
                        Some(Outcome::InstallSplit { .. } | Outcome::InstallGone { .. })
                            if max_order > Order::ZERO =>
                        {
                            max_order = Order::ZERO;
                        }
                        Some(Outcome::InstallSplit { .. } | Outcome::InstallGone { .. }) => {
                            return Ok(Resolution::Retry);
                        }
                        _ => return Err(FaultError::Lost),
                    }
                }
                Reply::Present => {
                    self.came_to_mapped(&core, page);
                    return Ok(Resolution::Retry);
                }
                Reply::Wait { .. } | Reply::WaitForBase { .. } if !commands.is_empty() => {
                    drop(core);
                    went(FaultPath::Reclaimed);
                    self.carry_out(&mut commands);
                    max_order = most;
                }
                Reply::Wait { .. } if patience == Patience::Leave => {
                    self.watchdog.sleeps(page);
                    return Ok(Resolution::Asleep);
                }
                // No completion at another page wakes a thread that sleeps at this one, so the handler waits as well.
                Reply::Wait { .. } | Reply::WaitForBase { .. } => {
                    went(FaultPath::Waited);
                    drop(self.wait_settled(core));
                    // After the wait the page may be mapped as a part of a large folio; in limbo, while the store takes
                    // nothing, it must be.
                    max_order = most;
                }
                Reply::Scattered { pages } => {
                    went(FaultPath::Reclaimed);
                    drop(core);
                    if !self.give_scattered_back(pages) {
                        max_order = max_order.smaller().unwrap_or(max_order);
                    }
                }
                Reply::Reclaim { pages } => {
                    went(FaultPath::Reclaimed);
                    // The pages that are missing, and those that are there but too few by themselves: a large folio
                    // needs both at once.
                    let want = core.wanted(pages);
                    let path = Self::path_of(&core, page);
                    drop(core);
                    stalled.get_or_insert_with(|| self.stall(path));
                    self.carry_out(&mut commands);
                    // Memory that cannot be had in one piece may be had in a smaller one.
                    if !self.reclaim_for(want, Reclaimer::Direct) {
                        max_order = max_order.smaller().unwrap_or(max_order);
                    }
                }
                Reply::ReclaimGroup { group, pages } => {
                    went(FaultPath::Reclaimed);
                    let want = core.wanted_in(group, pages);
                    let path = Self::path_of(&core, page);
                    drop(core);
                    stalled.get_or_insert_with(|| self.stall(path));
                    self.carry_out(&mut commands);
                    if !self.reclaim_in(group, want) {
                        max_order = max_order.smaller().unwrap_or(max_order);
                    }
                }
                Reply::Refused(Refusal::Poisoned { .. }) => return Err(FaultError::Lost),
                Reply::Refused(Refusal::OutOfRecords) => return Err(FaultError::OutOfRecords),
                Reply::Refused(_) => return Err(FaultError::Outside),
                Reply::More { .. }
                | Reply::NeedsResident { .. }
                | Reply::Seen { .. }
                | Reply::Group { .. }
                | Reply::Detached { .. }
                | Reply::Region { .. } => {
                    unreachable!("{reply:?} is no answer to a fault")
                }
            }
        }
    }

    /// The pages that may come along with `page`. A library's regions are open from end to end.
    fn usable_around(&self, page: PageIndex) -> PageRange {
        match self.delivery {
            Delivery::Handler => self.mmu.usable_around(page),
            Delivery::InThread => PageRange::ALL,
        }
    }

    /// Waits until something that threads wait for completes. The time limit is for a completion whose wake-up comes
    /// before this thread sleeps; it costs nothing when all goes well.
    pub fn wait_settled<'a>(&'a self, core: Held<'a, Witnessed>) -> Held<'a, Witnessed> {
        const LIMIT: Duration = Duration::from_millis(1);
        self.waiters.fetch_add(1, Ordering::SeqCst);
        let core = core.wait_timeout(&self.settled, LIMIT);
        self.waiters.fetch_sub(1, Ordering::SeqCst);
        core
    }
}
