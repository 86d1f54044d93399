//! A fault, from the backend to the installed page.

use crate::driver::Driver;
use crate::memory::Memory;
use crate::recent::Witnessed;
#[cfg(feature = "shuttle")]
use crate::sabotage::{self, Sabotage};
use crate::stall::{Path, Stall};
use crate::state::config::Background;
use crate::state::latency::FaultPath;
use crate::state::watchdog::Waiting;
use millpond_core::limits::LARGE;
use millpond_core::{
    Command, Commands, Event, GroupId, LEAF_PAGES, Order, Outcome, PageCount, PageIndex, PageRange,
    Reclaimer, Refusal, Reply,
};
use millpond_mmu::{Delivery, FaultSink, Faulters, Resolution};
use millpond_sync::Held;
use millpond_sync::atomic::{AtomicBool, Ordering};
use millpond_sync::time::Instant;
use std::time::Duration;

/// Batches that a fault in a group above its high has to reclaim. One batch saves fewer folios than a stream's fault
/// brings in.
const HIGH_BATCHES: u32 = 2;

/// Rounds of a fault after which all other threads go first, under a test scheduler.
#[cfg(feature = "shuttle")]
const FAIR_AFTER: u32 = 100;

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
        Command::Zero { at, .. }
        | Command::Load { at, .. }
        | Command::Fold { at, .. }
        | Command::Read { at, .. } => at.len >= LARGE.pages(),
        _ => false,
    }
}

/// The path of a fault that this command resolves.
fn path_of(command: Command) -> Option<FaultPath> {
    match command {
        Command::Zero { .. } => Some(FaultPath::FirstTouch),
        Command::Rescue { .. } => Some(FaultPath::Rescue),
        Command::Load { .. } | Command::Fold { .. } => Some(FaultPath::Load),
        Command::Read { .. } => Some(FaultPath::Read),
        _ => None,
    }
}

/// What these commands read from a file: the requested folio, and those that follow it.
fn read_of(commands: &Commands) -> Option<PageRange> {
    let mut reads = commands.iter().filter_map(|command| match command {
        Command::Read { at, .. } => Some(at),
        _ => None,
    });
    let mut all = reads.next()?;
    for next in reads {
        if next.start == all.end() {
            all.len.0 += next.len.0;
        }
    }
    Some(all)
}

/// Behaviour of a thread when the page is in flight on another one.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Patience {
    /// Waits until it has landed.
    Wait,
    /// Does not wait: the faulting thread sleeps in the kernel, and the thread that completes the page wakes it.
    Leave,
}

/// Sets the flag `what` to the value `is`, and writes only if that changes the flag: an unneeded write would evict the
/// flag from other processors' caches. Only one thread calls this, after each fault.
fn note(what: &AtomicBool, is: bool) {
    if what.load(Ordering::Relaxed) != is {
        what.store(is, Ordering::Relaxed);
    }
}

/// The core, locked.
type Locked<'a> = Held<'a, Witnessed>;

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
    /// Serves a fault: the work of [`FaultSink::fault`], for any kind of memory. For threads outside the gate.
    pub fn serve(&self, page: PageIndex) -> Resolution {
        let started = Instant::now();
        let Some(_inside) = self.enter_for_fault(page) else {
            return Resolution::Asleep;
        };
        if self.governor.is_look_old(started) {
            self.adjust_limit();
        }
        let patience = match self.delivery {
            Delivery::InThread | Delivery::Direct => {
                self.traces.fault();
                Patience::Wait
            }
            Delivery::Handler => Patience::Leave,
        };
        let Served {
            resolution,
            path,
            groups,
            read,
            met_another,
        } = Fault::new(self, page, patience).serve();
        let resolution = match resolution {
            Ok(resolution) => resolution,
            // A fault may be late: since then, another thread has brought the page in, the thread that touched it has
            // continued, and the region has ended. The kernel answers each later touch of these addresses.
            Err(FaultError::Outside) if self.delivery.is_for_any_program() => Resolution::Foreign,
            Err(_) => {
                if self.delivery.is_by_signal() {
                    self.say_unread(page);
                }
                Resolution::Lost
            }
        };
        let ns = started.elapsed().as_nanos() as u64;
        self.latency.record(path, ns);
        if let (FaultPath::Load | FaultPath::Read, Some(groups)) = (path, groups) {
            self.loaded(&groups, started, ns);
        }
        if read.is_some() || met_another {
            self.read_on(page, read);
        }
        if resolution == Resolution::Installed {
            self.record(page);
        }
        resolution
    }

    /// Makes `page` resident, or returns why it cannot. For threads inside the gate.
    pub fn fault_in(&self, page: PageIndex, patience: Patience) -> Result<Resolution, FaultError> {
        Fault::new(self, page, patience).serve().resolution
    }

    /// Makes `page` resident as [`fault_in`](Self::fault_in) does, and calls `decided` as soon as the core has decided
    /// what comes along.
    pub(crate) fn fault_in_and_say(
        &self,
        page: PageIndex,
        decided: &dyn Fn(),
    ) -> Result<Resolution, FaultError> {
        let fault = Fault::new(self, page, Patience::Wait).and_says(decided);
        fault.serve().resolution
    }

    /// Whether background reclaim is worth waking a thread for, if memory is low after a fault with these commands.
    fn is_worth_a_thread(&self, core: &Locked<'_>, commands: &Commands) -> bool {
        match self.background() {
            Background::Never => false,
            Background::Large => commands.iter().any(is_large) && core.victims_are_work(),
            Background::Apart | Background::Always => true,
        }
    }

    /// The pages that may come along with `page`. A library's regions are open from end to end.
    fn usable_around(&self, page: PageIndex) -> PageRange {
        match self.delivery {
            Delivery::Handler | Delivery::Direct => self.mmu.usable_around(page),
            Delivery::InThread => PageRange::ALL,
        }
    }

    /// Waits until something that threads wait for completes. The caller has seen under the core lock, which it passes
    /// in, that this is still to come. The completing thread changes the state under that lock, and wakes the waiting
    /// threads afterwards, so no wake-up is lost. The time limit is for a thread that waits inside the gate for a
    /// worker that has yet to enter it, while a third thread waits to close it.
    pub fn wait_settled<'a>(&'a self, core: Held<'a, Witnessed>) -> Held<'a, Witnessed> {
        const LIMIT: Duration = Duration::from_millis(1);
        #[cfg(feature = "shuttle")]
        let core = match sabotage::is_out(Sabotage::LostWakeUp) {
            true => {
                drop(core);
                self.lock()
            }
            false => core,
        };
        self.waiters.fetch_add(1, Ordering::SeqCst);
        let core = core.wait_timeout(&self.settled, LIMIT);
        self.waiters.fetch_sub(1, Ordering::SeqCst);
        core
    }

    /// Like [`wait_settled`](Self::wait_settled), waits until any command that is in progress has completed: the core
    /// requests no wake-up for a folio for which no thread has asked.
    pub fn wait_for_any<'a>(&'a self, core: Held<'a, Witnessed>) -> Held<'a, Witnessed> {
        self.waiters_for_any.fetch_add(1, Ordering::SeqCst);
        let core = self.wait_settled(core);
        self.waiters_for_any.fetch_sub(1, Ordering::SeqCst);
        core
    }
}

/// The result of a fault.
struct Served {
    resolution: Result<Resolution, FaultError>,
    /// The most expensive part of the fault.
    path: FaultPath,
    /// The page's groups, when the page was brought in.
    groups: Option<Path>,
    /// What was read from a file, from the page on.
    read: Option<PageRange>,
    /// Whether the page was on its way by the work of another thread.
    met_another: bool,
}

/// A fault that is being served: its request, and its history so far.
struct Fault<'a, M: Memory> {
    driver: &'a Driver<M>,
    page: PageIndex,
    patience: Patience,
    /// The pages that may come along.
    within: PageRange,
    /// The largest order to request: it becomes smaller if memory is not available in one piece, or an install was
    /// split.
    max_order: Order,
    path: FaultPath,
    groups: Option<Path>,
    /// What was read from a file, from the page on.
    read: Option<PageRange>,
    /// Whether the page was on its way by the work of another thread.
    met_another: bool,
    /// Batches that were reclaimed for a group above its high.
    throttled: u32,
    /// The time in which the thread waits for memory, from the first reclaim on.
    stalled: Option<Stall<'a, M>>,
    /// The watchdog's entry for a fault that takes more than one round, or reads from the store or a file.
    watched: Option<Waiting<'a>>,
    /// Whether a page whose read from its file had failed was requested again.
    asked_again: bool,
    /// Called when the core has decided what comes in, before it comes in.
    decided: Option<&'a dyn Fn()>,
}

impl<'a, M: Memory> Fault<'a, M> {
    fn new(driver: &'a Driver<M>, page: PageIndex, patience: Patience) -> Self {
        Self {
            driver,
            page,
            patience,
            within: driver.usable_around(page),
            max_order: driver.most_order(),
            path: FaultPath::Spurious,
            groups: None,
            read: None,
            met_another: false,
            throttled: 0,
            stalled: None,
            watched: None,
            asked_again: false,
            decided: None,
        }
    }

    fn and_says(mut self, decided: &'a dyn Fn()) -> Self {
        self.decided = Some(decided);
        self
    }

    /// Asks the core, and follows its answer, until the fault has ended.
    fn serve(mut self) -> Served {
        let mut commands = Commands::new();
        #[cfg(feature = "shuttle")]
        let mut rounds = 0_u32;
        let resolution = loop {
            // The PCT scheduler lets two threads of the highest priority run forever: one waits for a third, which
            // purges, and the other wakes it each time after trying in vain to reclaim. A kernel's scheduler is fair.
            #[cfg(feature = "shuttle")]
            {
                rounds += 1;
                if rounds.is_multiple_of(FAIR_AFTER) {
                    millpond_sync::thread::yield_now();
                }
            }
            match self.ask(&mut commands) {
                Ok(None) => self.watch(),
                Ok(Some(resolution)) => break Ok(resolution),
                Err(error) => break Err(error),
            }
        };
        Served {
            resolution,
            path: self.path,
            groups: self.groups,
            read: self.read,
            met_another: self.met_another,
        }
    }

    /// Asks the core once, and follows its answer. Returns `None` if the core must be asked again.
    fn ask(&mut self, commands: &mut Commands) -> Result<Option<Resolution>, FaultError> {
        let Some(core) = self.pay_for_high(self.driver.lock()) else {
            return Ok(None);
        };
        let Some(mut core) = self.purge_before_exceeding(core) else {
            return Ok(None);
        };
        // The stored data will not be in any cache, so it is fetched while memory is being found.
        if let Some(stored) = core.stored(self.page) {
            self.driver.store.expect(stored);
        }
        let event = Event::Fault {
            page: self.page,
            max_order: self.max_order,
            within: self.within,
        };
        match core.handle(event, commands) {
            Reply::Done => return self.install(core, commands),
            Reply::Present => {
                self.driver.came_to_mapped(&core, self.page);
                return Ok(Some(Resolution::Retry));
            }
            Reply::Wait { .. } | Reply::WaitForBase { .. } if !commands.is_empty() => {
                self.do_first(core, commands);
            }
            Reply::Wait { .. } if self.patience == Patience::Leave => {
                self.driver.watchdog.sleeps(self.page);
                self.met_another = true;
                return Ok(Some(Resolution::Asleep));
            }
            // No completion at another page wakes a thread that sleeps at this one, so the handler waits as well.
            Reply::Wait { .. } | Reply::WaitForBase { .. } => self.wait(core),
            Reply::Scattered { pages } => self.give_scattered_back(core, pages),
            Reply::Reclaim { pages } => self.reclaim(core, commands, pages),
            Reply::ReclaimGroup { group, pages } => {
                self.reclaim_group(core, commands, group, pages);
            }
            Reply::Refused(Refusal::Poisoned { .. }) => {
                drop(core);
                if std::mem::replace(&mut self.asked_again, true)
                    || !self.driver.forget_failure(self.page, commands)
                {
                    return Err(FaultError::Lost);
                }
            }
            Reply::Refused(Refusal::OutOfRecords) => return Err(FaultError::OutOfRecords),
            Reply::Refused(_) => return Err(FaultError::Outside),
            reply @ (Reply::More { .. }
            | Reply::NeedsResident { .. }
            | Reply::Seen { .. }
            | Reply::Group { .. }
            | Reply::Detached { .. }
            | Reply::Region { .. }) => unreachable!("{reply:?} is no answer to a fault"),
        }
        Ok(None)
    }

    /// Reclaims in a group above its high before it gets more, not after: reclaim afterwards could take away the page
    /// that was just brought in. Returns `None` if a batch was reclaimed.
    fn pay_for_high(&mut self, mut core: Locked<'a>) -> Option<Locked<'a>> {
        if self.throttled == HIGH_BATCHES {
            return Some(core);
        }
        let Some((group, over)) = core.beyond_high(self.page) else {
            return Some(core);
        };
        if self.throttled == 0 {
            core.throttled(group);
        }
        self.throttled += 1;
        self.stall(core);
        self.driver.batch_in(group, over);
        None
    }

    /// A store that accepts nothing lets faults exceed the limit. Before that, memory goes that its owner can do
    /// without. Returns `None` if some went.
    fn purge_before_exceeding(&mut self, core: Locked<'a>) -> Option<Locked<'a>> {
        let blocked = core.store_blocked() || core.files_blocked();
        let exceeds = blocked && core.available().0 < LEAF_PAGES;
        if !exceeds || core.lazyfree_pages() > PageCount::ZERO {
            return Some(core);
        }
        drop(core);
        self.went(FaultPath::Reclaimed);
        match self.driver.purge_oldest_volatile() {
            true => None,
            false => Some(self.driver.lock()),
        }
    }

    /// Carries out the commands that bring the page in. The core is asked about the state of its memory before its lock
    /// is released.
    fn install(
        &mut self,
        core: Locked<'a>,
        commands: &mut Commands,
    ) -> Result<Option<Resolution>, FaultError> {
        let driver = self.driver;
        let low = core.below_low_mark() && driver.is_worth_a_thread(&core, commands);
        let look = driver.governor.is_look_due(core.available());
        let room = driver.has_room_ahead(core.available());
        let groups = Driver::<M>::path_of(&core, self.page);
        drop(core);
        self.decided();
        if let Some(Command::Load { part, .. }) = commands.iter().next() {
            driver.store.expect_bytes(part);
        }
        driver.uses(&groups);
        self.groups = Some(groups);
        if look {
            driver.adjust_limit();
        }
        if low {
            driver.kick();
        }
        for path in commands.iter().filter_map(path_of) {
            self.went(path);
            if matches!(path, FaultPath::Load | FaultPath::Read) {
                self.watch();
            }
        }
        self.read = read_of(commands);
        let installed = driver.carry_out(commands);
        if room {
            driver.ask_ahead();
        }
        match installed {
            Some(Outcome::Installed { .. }) => Ok(Some(Resolution::Installed)),
            Some(Outcome::InstallSplit { .. } | Outcome::InstallGone { .. })
                if self.max_order > Order::ZERO =>
            {
                self.max_order = Order::ZERO;
                Ok(None)
            }
            Some(Outcome::InstallSplit { .. } | Outcome::InstallGone { .. }) => {
                Ok(Some(Resolution::Foreign))
            }
            _ => Err(FaultError::Lost),
        }
    }

    /// Carries out the commands that must come before the fault can continue.
    fn do_first(&mut self, core: Locked<'a>, commands: &mut Commands) {
        drop(core);
        self.went(FaultPath::Reclaimed);
        self.driver.carry_out(commands);
        self.max_order = self.driver.most_order();
    }

    /// Waits for a page that is in flight. After the wait the page may be mapped as a part of a large folio; if it is
    /// in limbo while the store accepts nothing, it must be.
    fn wait(&mut self, core: Locked<'a>) {
        self.went(FaultPath::Waited);
        self.met_another = true;
        drop(self.driver.wait_settled(core));
        self.decided();
        self.max_order = self.driver.most_order();
    }

    fn give_scattered_back(&mut self, core: Locked<'a>, pages: PageCount) {
        drop(core);
        self.went(FaultPath::Reclaimed);
        if !self.driver.give_scattered_back(pages) {
            self.ask_for_less();
        }
    }

    /// Reclaims the missing pages, and also as many as are available but too few by themselves: a large folio needs
    /// both at once.
    fn reclaim(&mut self, core: Locked<'a>, commands: &mut Commands, pages: PageCount) {
        let want = core.wanted(pages);
        self.stall(core);
        self.driver.carry_out(commands);
        if !self
            .driver
            .reclaim_for(want, Reclaimer::Direct, Patience::Wait)
        {
            self.ask_for_less();
        }
    }

    fn reclaim_group(
        &mut self,
        core: Locked<'a>,
        commands: &mut Commands,
        group: GroupId,
        pages: PageCount,
    ) {
        let want = core.wanted_in(group, pages);
        self.stall(core);
        self.driver.carry_out(commands);
        if !self.driver.reclaim_in(group, want) {
            self.ask_for_less();
        }
    }

    /// Counts the thread as waiting for memory from here on, and releases the core.
    fn stall(&mut self, core: Locked<'a>) {
        self.went(FaultPath::Reclaimed);
        let groups = Driver::<M>::path_of(&core, self.page);
        drop(core);
        let driver = self.driver;
        self.stalled.get_or_insert_with(|| driver.stall(groups));
    }

    /// Memory that is not available in one piece may be available in a smaller one.
    fn ask_for_less(&mut self) {
        self.max_order = self.max_order.smaller().unwrap_or(self.max_order);
    }

    fn decided(&self) {
        if let Some(decided) = self.decided {
            decided();
        }
    }

    fn watch(&mut self) {
        let (driver, page) = (self.driver, self.page);
        self.watched
            .get_or_insert_with(|| driver.watchdog.waits(page));
    }

    fn went(&mut self, through: FaultPath) {
        self.path = through.max(self.path);
    }
}
