//! The world around the core: everything that happens goes through here, and is checked here.
//!
//! [`World::send`] is the only call of `Core::handle`. It logs, counts, puts the commands where they belong and then checks
//! what must hold at every moment: the core's own invariants (every few events: they cost as much as the
//! state is big), agreement between the core's idea of a page and the memory's, and the budget. [`World::advance`]
//! carries out one command or tells one completion.
//!
//! The budget rule: populated memory is at most the limit and the folios in flight. When the limit is lowered, or the core
//! says that it served a fault above the limit, memory may be above for a time; the allowance then follows the memory
//! down and never up again.

use std::collections::BTreeMap;

use millpond_core::check::PageState;
use millpond_core::{
    Command, Commands, Core, Event, FolioId, InstallError, Outcome, PageCount, PageIndex,
    PageRange, Placed, RegionId, Reply, TakeOutError,
};

use crate::actor::{Actor, Blocked, Ear};
use crate::mmu::{SimMmu, Slot};
use crate::names;
use crate::oracle::Oracle;
use crate::profile::{Options, Profile, Sabotage};
use crate::report::{Check, Coverage, Entry, Log, breach, command_folio, command_range};
use crate::rng::Rng;
use crate::schedule::{self, Pending, Schedule};
use crate::store::SimStore;

/// A region of the simulated program.
#[derive(Clone, Copy, Debug)]
pub struct SimRegion {
    /// Its name.
    pub id: RegionId,
    /// Its pages.
    pub range: PageRange,
    /// The order it was made with.
    pub order: u8,
    /// Operations in it now.
    pub users: u32,
    /// Nobody may start one any more.
    pub closing: bool,
}

/// Core, simulated memory and store, actors, and the judge.
#[derive(Debug)]
pub struct World {
    /// The core under test.
    pub core: Core,
    /// Memory.
    pub mmu: SimMmu,
    /// Store.
    pub store: SimStore,
    /// What pages must hold.
    pub oracle: Oracle,
    /// Commands under way.
    pub schedule: Schedule,
    /// Who acts.
    pub actors: Vec<Actor>,
    /// Live regions.
    pub regions: Vec<SimRegion>,
    /// What kind of world this is.
    pub profile: Profile,
    /// What the caller wants.
    pub options: Options,
    /// The run's randomness.
    pub rng: Rng,
    /// What happened.
    pub log: Log,
    /// What was seen.
    pub coverage: Coverage,
    /// Steps of the scheduler so far.
    pub step: u64,
    /// Events so far.
    pub events: u64,
    /// The limit that the core was told last.
    pub limit: u64,
    /// Whether new faults may be injected.
    pub calm: bool,
    /// The store takes nothing and will not for a while; protections stay.
    pub siege: bool,
    /// Where several threads work at once.
    pub hot: PageRange,
    /// Background reclaim is between its marks.
    pub reclaiming: bool,
    /// The last value written: each write is a new one.
    pub stamp: u64,
    /// Where each folio was when a command last said so; saves do not say.
    folio_at: BTreeMap<FolioId, PageRange>,
    allowance: u64,
    over_limit: u64,
    commands: Commands,
}

impl World {
    /// The world of `seed`.
    ///
    /// # Errors
    /// The core refuses the configuration.
    pub fn new(seed: u64, options: Options) -> Check<Self> {
        let mut rng = Rng::new(seed);
        let profile = Profile::draw(&mut rng);
        let config = profile.config;
        let core = match Core::new(config) {
            Ok(core) => core,
            Err(error) => breach!("the core refuses {config:?}: {error:?}"),
        };
        let mut mmu = SimMmu::new(config.arena, config.pool);
        let mut store = SimStore::new(profile.store_pages);
        match options.sabotage {
            Some(Sabotage::Mmu(how)) => mmu.sabotage = Some(how),
            Some(Sabotage::StaleStore(every)) => store.stale_every = Some(every),
            _ => {}
        }
        Ok(Self {
            core,
            mmu,
            store,
            oracle: Oracle::new(config.arena),
            schedule: Schedule::default(),
            actors: (0..profile.threads + 2).map(|_| Actor::default()).collect(),
            regions: Vec::new(),
            profile,
            options,
            rng,
            log: Log::default(),
            coverage: Coverage::default(),
            step: 0,
            events: 0,
            limit: u64::from(config.limit.0),
            calm: false,
            siege: false,
            hot: PageRange::default(),
            reclaiming: false,
            stamp: 0,
            folio_at: BTreeMap::new(),
            allowance: u64::from(config.limit.0),
            over_limit: 0,
            commands: Commands::new(),
        })
    }

    /// Hands an event to the core on behalf of `by`.
    ///
    /// # Errors
    /// A rule is broken.
    pub fn send(&mut self, by: usize, event: Event) -> Check<Reply> {
        self.log.push(self.step, Entry::Sent(by, event));
        self.events += 1;
        Coverage::count(&mut self.coverage.events, names::event(&event));
        self.commands.clear();
        let reply = self.core.handle(event, &mut self.commands);
        Coverage::count(&mut self.coverage.replies, names::reply(&reply));
        self.log.push(self.step, Entry::Answered(reply));
        if let Event::SetLimit { pages } = event {
            self.limit = u64::from(pages.0);
            self.allowance = self.allowance.max(self.limit);
        }
        let commands: Vec<Command> = self.commands.iter().collect();
        if matches!(reply, Reply::Refused(_)) && !commands.is_empty() {
            breach!("{event:?} is refused, yet gives {commands:?}");
        }
        for command in &commands {
            Coverage::count(&mut self.coverage.commands, names::command(command));
            self.log.push(self.step, Entry::Asked(*command));
        }
        for command in commands {
            self.take_in(by, command)?;
        }
        self.check_state()?;
        Ok(reply)
    }

    /// Puts a command under way, or carries it out when it needs no answer.
    ///
    /// A freed frame is freed at once, for the commands that follow it may need the room; only the answer is late.
    fn take_in(&mut self, owner: usize, command: Command) -> Check {
        let mut answer = None;
        match command {
            Command::Wake { at } => {
                if self.options.sabotage != Some(Sabotage::SwallowWakes) {
                    self.wake(at, Ear::Wakes);
                }
                return Ok(());
            }
            Command::Poison { at, page } => {
                if !at.contains(page) {
                    breach!(at page, "{at} is poisoned because of {page}, which is outside");
                }
                self.schedule.expect_no_clash(&command)?;
                self.oracle.poisoned(at)?;
                return self.mmu.poison(at);
            }
            Command::FreeFrame { frame } => {
                self.schedule.expect_no_clash(&command)?;
                self.mmu.free_frame(frame)?;
                answer = Some(schedule::answer(&command, None));
            }
            Command::Zero { at, .. }
            | Command::Load { at, .. }
            | Command::Rescue { at, .. }
            | Command::TakeOut { at, .. }
            | Command::TakeOutIfBlank { at, .. }
            | Command::Clear { at, .. }
            | Command::Look { at, .. }
            | Command::Zap { at, .. } => self.expect_in_region(at)?,
            Command::Save { .. } | Command::Release { .. } => {}
        }
        if let (Some(folio), Some(at)) = (command_folio(&command), command_range(&command)) {
            self.folio_at.insert(folio, at);
        }
        let not_before = self.step + self.delay();
        self.schedule.add(Pending {
            command,
            owner,
            answer,
            not_before,
        })?;
        self.actors[owner].outstanding += 1;
        Ok(())
    }

    fn delay(&mut self) -> u64 {
        if !self.calm && self.rng.chance(self.profile.slow) {
            u64::from(self.rng.below(self.profile.slow_steps))
        } else {
            0
        }
    }

    /// One command has its effect, or one completion is told. Says whether there was one.
    ///
    /// # Errors
    /// A rule is broken.
    pub fn advance(&mut self) -> Check<bool> {
        let Some(place) = self.schedule.choose(self.step, &mut self.rng) else {
            return Ok(false);
        };
        let pending = *self.schedule.get_mut(place);
        if let Some(answer) = pending.answer {
            self.schedule.remove(place);
            self.tell(pending, answer)?;
            return Ok(true);
        }
        let outcome = self.carry_out(pending.command)?;
        self.log
            .push(self.step, Entry::CarriedOut(pending.command, outcome));
        let not_before = self.step + self.delay();
        let pending = self.schedule.get_mut(place);
        pending.answer = Some(schedule::answer(&pending.command, outcome));
        pending.not_before = not_before;
        self.check_budget()?;
        Ok(true)
    }

    fn tell(&mut self, pending: Pending, answer: Event) -> Check {
        let Pending { owner, command, .. } = pending;
        let actor = &mut self.actors[owner];
        actor.outstanding -= 1;
        if let Event::Completed { outcome, .. } = answer {
            Coverage::count(&mut self.coverage.outcomes, names::outcome(&outcome));
            if matches!(outcome, Outcome::InstallSplit { .. }) {
                actor.split = true;
            }
        }
        let reply = self.send(owner, answer)?;
        if reply != Reply::Done {
            breach!("{answer:?} is answered with {reply:?}");
        }
        let swallow = self.options.sabotage == Some(Sabotage::SwallowWakes);
        if let Some(at) = self.place_of(&command)
            && !swallow
        {
            self.wake(at, Ear::Completions);
        }
        for actor in &mut self.actors {
            if actor.blocked == Blocked::OnAny
                || actor.blocked == Blocked::OnCommands && actor.outstanding == 0
            {
                actor.blocked = Blocked::No;
            }
        }
        Ok(())
    }

    /// The pages that a command concerns, if any.
    fn place_of(&self, command: &Command) -> Option<PageRange> {
        command_range(command)
            .or_else(|| command_folio(command).and_then(|folio| self.folio_at.get(&folio).copied()))
    }

    /// Whether a command under way concerns `page`.
    #[must_use]
    pub fn is_under_way(&self, page: PageIndex) -> bool {
        let here = |command| self.place_of(command).is_some_and(|at| at.contains(page));
        self.schedule.iter().any(|p| here(&p.command))
    }

    /// Lets those who wait at a page of `at` try again, if they hear of what happened.
    fn wake(&mut self, at: PageRange, told: Ear) {
        for actor in &mut self.actors {
            if let Blocked::OnPage { page, ear } = actor.blocked
                && at.contains(page)
                && ear <= told
            {
                actor.blocked = Blocked::No;
            }
        }
    }

    fn inject(&mut self, per_mille: u32, what: &'static str) -> bool {
        let hit = !self.calm && self.rng.chance(per_mille);
        if hit {
            Coverage::count(&mut self.coverage.injected, what);
        }
        hit
    }

    /// The effect of a command on memory and store.
    fn carry_out(&mut self, command: Command) -> Check<Option<Outcome>> {
        let outcome = match command {
            Command::Zero { at, frame, .. } => {
                if self.inject(self.profile.gone, "gone") {
                    return Ok(Some(Outcome::InstallGone {
                        frame_kept: frame.is_some(),
                    }));
                }
                let copy = self.inject(self.profile.copies, "copied");
                let result = self.mmu.install_zero(at, frame, copy)?;
                self.installed(at, result, frame.is_some())
            }
            Command::Load {
                part,
                at,
                frame,
                fresh,
                ..
            } => {
                if part.order != frame.order() {
                    breach!(at at.start, "load of {part:?} into {frame}");
                }
                let contents = self.store.load(part, &mut self.rng)?;
                let failed = contents.is_none();
                // The kernel may even have had no pages for a fresh frame.
                let frame_kept = !(failed && fresh && self.rng.chance(300));
                if frame_kept {
                    self.mmu.fill(frame, fresh, contents)?;
                }
                if failed {
                    Coverage::count(&mut self.coverage.injected, "load failed");
                    self.oracle.load_failed(at);
                    return Ok(Some(Outcome::LoadFailed { frame_kept }));
                }
                self.place(at, frame)?
            }
            Command::Rescue { at, frame, .. } => self.place(at, frame)?,
            Command::TakeOut { at, frame, .. } => {
                let busy = self.inject(self.profile.busy, "busy");
                match self.mmu.take_out(at, frame, busy)? {
                    Ok(()) => Outcome::TakenOut,
                    Err(TakeOutError::Busy) => Outcome::TakeOutBusy,
                    Err(TakeOutError::Immovable) => Outcome::TakeOutImmovable,
                }
            }
            Command::Save {
                frame,
                slot,
                previous,
                ..
            } => {
                let outcome =
                    self.store
                        .save(slot, previous, self.mmu.frame(frame)?, &mut self.rng)?;
                match outcome {
                    Outcome::StoreFull => {
                        Coverage::count(&mut self.coverage.injected, "store full");
                    }
                    Outcome::StoreFailed => {
                        Coverage::count(&mut self.coverage.injected, "save failed");
                    }
                    _ => {}
                }
                outcome
            }
            Command::TakeOutIfBlank { at, frame, .. } => {
                if !self.mmu.is_blank(at, true)? {
                    return Ok(Some(Outcome::Written));
                }
                let busy = self.inject(self.profile.busy, "busy");
                match self.mmu.take_out(at, frame, busy)? {
                    Ok(()) if self.mmu.frame_is_blank(frame)? => Outcome::TakenOutBlank,
                    Ok(()) => Outcome::TakenOut,
                    Err(TakeOutError::Busy) => Outcome::TakeOutBusy,
                    Err(TakeOutError::Immovable) => Outcome::TakeOutImmovable,
                }
            }
            Command::Clear { at, .. } => {
                self.mmu.clear(at)?;
                Outcome::Cleared
            }
            Command::Look { at, .. } => match self.mmu.is_blank(at, false)? {
                true => Outcome::Blank,
                false => Outcome::Written,
            },
            Command::Zap { at, .. } => {
                self.mmu.zap(at)?;
                Outcome::Zapped
            }
            Command::Release { slot } => {
                self.store.release(slot)?;
                return Ok(None);
            }
            other => unreachable!("{other:?} is carried out at once"),
        };
        Ok(Some(outcome))
    }

    fn place(&mut self, at: PageRange, frame: millpond_core::Frame) -> Check<Outcome> {
        if self.inject(self.profile.gone, "gone") {
            return Ok(Outcome::InstallGone { frame_kept: true });
        }
        let copy = self.inject(self.profile.copies, "copied");
        let result = self.mmu.install(frame, at, copy)?;
        Ok(self.installed(at, result, true))
    }

    fn installed(
        &mut self,
        at: PageRange,
        result: Result<Placed, InstallError>,
        had_frame: bool,
    ) -> Outcome {
        match result {
            Ok(placed) => {
                self.wake(at, Ear::Installs);
                Outcome::Installed {
                    frame_kept: had_frame && placed == Placed::Copied,
                }
            }
            Err(InstallError::Split) => Outcome::InstallSplit {
                frame_kept: had_frame,
            },
            Err(InstallError::Gone) => Outcome::InstallGone {
                frame_kept: had_frame,
            },
        }
    }

    fn expect_in_region(&self, at: PageRange) -> Check {
        if self.regions.iter().any(|r| r.range.covers(at)) {
            return Ok(());
        }
        breach!(at at.start, "{at} lies in no live region")
    }

    fn check_state(&mut self) -> Check {
        self.check_budget()?;
        if self.events.is_multiple_of(self.options.check_every) {
            self.check_all()?;
        }
        Ok(())
    }

    fn check_budget(&mut self) -> Check {
        let stats = self.core.stats();
        let memory = self.mmu.mapped() + self.mmu.populated();
        let in_flight = self.schedule.pages();
        let over = stats.over_limit - self.over_limit;
        self.over_limit = stats.over_limit;
        if over > 0 {
            self.allowance = self.allowance.max(memory + in_flight) + 512 * over;
        }
        if memory > self.allowance + in_flight {
            breach!(
                "{memory} pages of memory ({} mapped, {} in frames) with {in_flight} in flight: {} are allowed (limit {})",
                self.mmu.mapped(),
                self.mmu.populated(),
                self.allowance,
                self.limit
            );
        }
        self.allowance = self.limit.max(self.allowance.min(memory + in_flight));
        Ok(())
    }

    /// The core's own invariants, and its agreement with the memory about every page.
    ///
    /// # Errors
    /// What does not hold.
    pub fn check_all(&self) -> Check {
        if let Err(what) = self.core.check() {
            breach!("core.check(): {what}");
        }
        for region in &self.regions {
            for page in region.range.pages() {
                self.check_page(page)?;
            }
        }
        Ok(())
    }

    fn check_page(&self, page: PageIndex) -> Check {
        let (core, here) = (self.core.page_state(page), self.mmu.page(page));
        let agree = match core {
            PageState::InFlight => true,
            PageState::Resident | PageState::LazyFree { mapped: true } => {
                matches!(here, Slot::Mapped(_))
            }
            PageState::Poisoned => here == Slot::Poisoned,
            PageState::Empty
            | PageState::Limbo
            | PageState::LazyFree { mapped: false }
            | PageState::Swapped => here == Slot::Empty,
        };
        if !agree {
            breach!(at page, "the core takes {page} to be {core:?}, but it is {here:?}");
        }
        Ok(())
    }

    /// What must hold when nothing is under way: the gauges are the memory's and the store's own numbers.
    ///
    /// # Errors
    /// What does not hold.
    pub fn check_gauges(&self) -> Check {
        self.check_all()?;
        let stats = self.core.stats();
        let gauges = [
            ("nr_mapped", stats.nr_mapped, self.mmu.mapped()),
            (
                "nr_limbo + nr_free_frames",
                stats.nr_limbo + stats.nr_free_frames,
                self.mmu.populated(),
            ),
            ("nr_limit", stats.nr_limit, self.limit),
        ];
        for (name, said, is) in gauges {
            if said != is {
                breach!("{name} is {said}, must be {is}: {stats:?}");
            }
        }
        Ok(())
    }

    /// Pages of the high mark.
    #[must_use]
    pub fn high_mark(&self) -> PageCount {
        PageCount((self.limit * u64::from(self.profile.config.high_mark) / 1024) as u32)
    }
}
