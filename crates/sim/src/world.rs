//! The world around the core: everything that happens goes through this module and is checked in it.
//!
//! [`World::hold`] is the only caller of `Core::handle`. It logs, counts and collects the commands, like a driver that
//! holds the core's lock. [`World::give_out`] corresponds to the driver's release of that lock: it puts the commands
//! where they belong and checks everything that must hold at every moment. [`World::send`] does both.
//! [`World::advance`] carries out one command or reports one completion.

use std::collections::BTreeMap;

use millpond_core::tables::volatile::VolatileBook;
use millpond_core::{
    Command, Commands, Core, Event, FoldPart, FolioId, GroupId, Kind, LeafPages, Outcome,
    PageCount, PageIndex, PageRange, RegionId, Reply, Rule, VmStat,
};

use crate::actor::{Actor, Blocked, Ear};
use crate::disk::Disk;
use crate::durable::Durable;
use crate::gather::{Batch, Batches};
use crate::groups::SimGroup;
use crate::mmu::SimMmu;
use crate::names;
use crate::oracle::Oracle;
use crate::profile::{Options, Profile, Sabotage};
use crate::report::{Check, Coverage, Entry, Log, breach, command_folio, command_range};
use crate::rng::Rng;
use crate::schedule::{self, Pending, Schedule};
use crate::snapshot::SimBase;
use crate::store::SimStore;
use crate::sync::Syncing;
use crate::volatile::Volatile;

/// A region of the simulated program.
#[derive(Clone, Copy, Debug)]
pub struct SimRegion {
    /// The region's name.
    pub id: RegionId,
    /// The region's pages.
    pub range: PageRange,
    /// The order with which the region was made, or the largest.
    pub order: u8,
    /// The largest order that a folio in the region may have: pages that moved here keep theirs.
    pub largest: u8,
    /// Whether faults choose the order.
    pub adaptive: bool,
    /// Operations that are working in the region.
    pub users: u32,
    /// No operation may begin in the region any more, or for now.
    pub closing: bool,
    /// The base from which the region inherits.
    pub base: Option<RegionId>,
    /// The group of the region's memory.
    pub group: GroupId,
    /// What the region's pages are.
    pub kind: Kind,
}

/// The core, the simulated memory and store, the actors, and the judge.
#[derive(Debug)]
pub struct World {
    /// The core under test.
    pub core: Core,
    /// The simulated memory.
    pub mmu: SimMmu,
    /// The simulated store.
    pub store: SimStore,
    /// The files, at the addresses of their regions.
    pub disk: Disk,
    /// What a crash may leave of shared files.
    pub durable: Durable,
    /// The syncs under way, by actor.
    pub(crate) syncs: BTreeMap<usize, Syncing>,
    /// Pages of private regions whose written contents the store has, or had.
    pub(crate) own: Vec<bool>,
    /// Pages that have left the memory of a file's region.
    pub(crate) file_left: Vec<bool>,
    /// The contents that pages must have.
    pub oracle: Oracle,
    /// The commands under way.
    pub schedule: Schedule,
    /// The actors.
    pub actors: Vec<Actor>,
    /// The live regions.
    pub regions: Vec<SimRegion>,
    /// The hidden regions that snapshots left behind.
    pub bases: Vec<SimBase>,
    /// The groups, except the root.
    pub groups: Vec<SimGroup>,
    /// The memory that each actor has unhooked and is freeing, by actor.
    pub(crate) batches: BTreeMap<usize, Batch>,
    /// The memory that discards have gathered and that is being freed.
    pub(crate) discarded: Batches,
    /// The actor that has closed the gate: while it is closed no operation starts, and those already started end.
    pub gate: Option<usize>,
    /// The kind of this world.
    pub profile: Profile,
    /// The caller's options for the run.
    pub options: Options,
    /// The run's randomness.
    pub rng: Rng,
    /// The log of what happened.
    pub log: Log,
    /// The counts of observed cases.
    pub coverage: Coverage,
    /// Steps of the scheduler so far.
    pub step: u64,
    /// Events so far.
    pub events: u64,
    /// The limit that the core was last given.
    pub limit: u64,
    /// Whether new faults may be injected.
    pub calm: bool,
    /// The store accepts nothing and will not for a while; protections stay.
    pub siege: bool,
    /// The kernel holds all pages: nothing can be taken out.
    pub held: bool,
    /// The pages where several threads work at once.
    pub hot: PageRange,
    /// Background reclaim runs: memory is between its marks.
    pub reclaiming: bool,
    /// The last written value: each write takes a new one.
    pub stamp: u64,
    /// The driver's book of volatile ranges, from the core's crate.
    pub book: VolatileBook,
    /// The volatile ranges, oldest first, as their owners know them.
    pub volatile: Vec<Volatile>,
    /// The number of purges under way.
    pub purging: u32,
    /// The place of each folio when a command last named it; saves do not name the place.
    pub(crate) folio_at: BTreeMap<FolioId, PageRange>,
    /// Pages that were lazily freed and not used since, according to the core when it last dealt with them.
    pub(crate) marked: Vec<bool>,
    /// Pages whose group has changed since they were last in memory.
    pub(crate) foreign: Vec<bool>,
    /// The event that last reported each page as zeroed in place.
    pub(crate) zeroed: Vec<u64>,
    pub(crate) allowance: u64,
    pub(crate) over_limit: u64,
    /// The number of events up to which the whole state was checked.
    pub(crate) checked: u64,
    pub(crate) commands: Commands,
}

impl World {
    /// Makes the world of `seed`.
    ///
    /// # Errors
    /// The core refused the configuration.
    pub fn new(seed: u64, options: Options) -> Check<Self> {
        let mut rng = Rng::new(seed);
        let mut profile = Profile::of(seed, &mut rng);
        profile.freeing = options.freeing.unwrap_or(profile.freeing);
        profile.snapshots = options.snapshots.unwrap_or(profile.snapshots);
        profile.remaps = options.remaps.unwrap_or(profile.remaps);
        let config = profile.config;
        let core = match Core::new(config) {
            Ok(core) => core,
            Err(error) => breach!("the core refuses {config:?}: {error:?}"),
        };
        let mut mmu = SimMmu::new(config.arena, config.pool.on_nodes(config.nodes));
        let mut store = SimStore::new(profile.store_pages);
        let mut disk = Disk::new(config.arena);
        match options.sabotage {
            Some(Sabotage::Disk(how)) => disk.sabotage = Some(how),
            Some(Sabotage::Mmu(how)) => mmu.sabotage = Some(how),
            Some(Sabotage::StaleStore(every)) => store.stale_every = Some(every),
            _ => {}
        }
        Ok(Self {
            core,
            mmu,
            store,
            disk,
            durable: Durable::default(),
            syncs: BTreeMap::new(),
            own: vec![false; config.arena.0 as usize],
            file_left: vec![false; config.arena.0 as usize],
            oracle: Oracle::new(config.arena),
            schedule: Schedule::default(),
            actors: (0..profile.threads + 2).map(|_| Actor::default()).collect(),
            regions: Vec::new(),
            bases: Vec::new(),
            groups: Vec::new(),
            batches: BTreeMap::new(),
            discarded: Batches::default(),
            gate: None,
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
            held: false,
            hot: PageRange::default(),
            reclaiming: false,
            stamp: 0,
            book: VolatileBook::new(),
            volatile: Vec::new(),
            purging: 0,
            folio_at: BTreeMap::new(),
            zeroed: vec![0; config.arena.0 as usize],
            foreign: vec![false; config.arena.0 as usize],
            marked: vec![false; config.arena.0 as usize],
            allowance: u64::from(config.limit.0),
            over_limit: 0,
            checked: 0,
            commands: Commands::new(),
        })
    }

    /// Passes an event to the core on behalf of `by`.
    ///
    /// # Errors
    /// A rule was broken.
    pub fn send(&mut self, by: usize, event: Event) -> Check<Reply> {
        let reply = self.hold(by, event)?;
        self.give_out(by)?;
        Ok(reply)
    }

    /// Counts the work of workingset detection in one event.
    fn count_workingset(&mut self, before: &VmStat) {
        let now = self.core.stats();
        let seen = [
            now.workingset_refault_anon > before.workingset_refault_anon,
            now.workingset_activate_anon > before.workingset_activate_anon,
            now.workingset_restore_anon > before.workingset_restore_anon,
            now.workingset_nodes > 0,
            self.core.rule() == Rule::Reuse,
            now.refaults_at[0] > before.refaults_at[0],
            // A larger memory would have had the page.
            now.refaults_at[0] - before.refaults_at[0] > now.refaults_at[4] - before.refaults_at[4],
            now.drop_behind > before.drop_behind,
        ];
        for (name, seen) in names::WORKINGSET.into_iter().zip(seen) {
            if seen {
                Coverage::count(&mut self.coverage.workingset, name);
            }
        }
    }

    /// Passes an event to the core on behalf of `by`, and keeps the commands until [`World::give_out`]: nothing can
    /// happen in between.
    ///
    /// # Errors
    /// A rule was broken.
    pub fn hold(&mut self, by: usize, event: Event) -> Check<Reply> {
        self.log.push(self.step, Entry::Sent(by, event));
        self.events += 1;
        Coverage::count(&mut self.coverage.events, names::event(&event));
        let held = self.commands.len();
        let before = self.core.stats();
        let (groups, owners) = (self.groups_before(&event), self.owners_before(&event));
        let reply = self.core.handle(event, &mut self.commands);
        Coverage::count(&mut self.coverage.replies, names::reply(&reply));
        self.count_workingset(&before);
        self.judge_file(&event, &before)?;
        self.log.push(self.step, Entry::Answered(reply));
        if let Event::SetLimit { pages } = event {
            self.limit = u64::from(pages.0);
            self.allowance = self.allowance.max(self.limit);
        }
        let commands: Vec<Command> = self.commands.iter().skip(held).collect();
        if matches!(reply, Reply::Refused(_)) && !commands.is_empty() {
            breach!("{event:?} is refused, yet gives {commands:?}");
        }
        for command in &commands {
            Coverage::count(&mut self.coverage.commands, names::command(command));
            self.log.push(self.step, Entry::Asked(*command));
        }
        self.count_copies(&commands);
        self.check_marks(&event, &commands)?;
        self.find_lost_marks(&event, &before);
        self.check_order(&event, &commands, &before)?;
        self.check_protection(&groups, &commands)?;
        self.follow_owners(&event, reply, (&owners, &before), &commands)?;
        self.allow_moves(&event);
        Ok(reply)
    }

    /// Puts the collected commands under way.
    ///
    /// # Errors
    /// A rule was broken.
    pub fn give_out(&mut self, by: usize) -> Check {
        let parts = |command: &Command| match command {
            Command::Fold { parts, .. } => self.commands.parts(*parts).to_vec(),
            _ => Vec::new(),
        };
        let commands: Vec<_> = self.commands.iter().map(|c| (c, parts(&c))).collect();
        let leaf = *self.commands.leaf_pages();
        self.commands.clear();
        for (command, parts) in commands {
            self.take_in(by, command, parts, leaf)?;
        }
        self.take_batch(by)?;
        self.check_state()
    }

    /// Puts a command under way, or carries it out when it needs no answer.
    ///
    /// A frame is freed immediately, because the commands that follow may need the room; only the answer is late.
    fn take_in(
        &mut self,
        owner: usize,
        command: Command,
        parts: Vec<FoldPart>,
        leaf: LeafPages,
    ) -> Check {
        let mut answer = None;
        match command {
            Command::Wake { at } => {
                if !self.swallows_wake(at) {
                    self.wake(at, Ear::Wakes);
                }
                return Ok(());
            }
            Command::FreeFrame { frame } => {
                self.schedule.expect_no_clash(&command, &[])?;
                self.mmu.free_frame(frame)?;
                answer = Some(schedule::answer(&command, None));
            }
            Command::Zero { at, .. }
            | Command::Load { at, .. }
            | Command::Fold { at, .. }
            | Command::Copy { at, .. }
            | Command::Read { at, .. }
            | Command::WriteBack { at, .. }
            | Command::Rescue { at, .. } => self.expect_in_region(at)?,
            Command::TakeOut { at, .. }
            | Command::TakeOutIfBlank { at, .. }
            | Command::TakeOutLeaf { at, .. }
            | Command::ZeroInPlace { at, .. }
            | Command::Look { at, .. }
            | Command::Poison { at, .. }
            | Command::Zap { at, .. } => self.expect_in_region_or_base(at)?,
            Command::Save { .. } | Command::Release { .. } => {}
        }
        if let (Some(folio), Some(at)) = (command_folio(&command), command_range(&command)) {
            self.folio_at.insert(folio, at);
        }
        if let Command::TakeOutLeaf { at, .. } = command {
            for place in leaf.iter() {
                let page = at.start.plus(place);
                if let Some(folio) = self.core.folio_of(page) {
                    self.folio_at
                        .insert(folio, PageRange::new(page, PageCount(1)));
                }
            }
        }
        let not_before = self.step + self.delay();
        let lenders = match command {
            Command::Copy { at, .. } => self.lenders_of(at),
            _ => Vec::new(),
        };
        self.schedule.add(Pending {
            command,
            parts,
            leaf,
            lenders,
            owner,
            answer,
            not_before,
            batch: None,
        })?;
        self.actors[owner].outstanding += 1;
        Ok(())
    }

    pub(crate) fn delay(&mut self) -> u64 {
        if !self.calm && self.rng.chance(self.profile.slow) {
            u64::from(self.rng.below(self.profile.slow_steps))
        } else {
            0
        }
    }

    /// Carries out one command or reports one completion, and returns whether there was one.
    ///
    /// # Errors
    /// A rule was broken.
    pub fn advance(&mut self) -> Check<bool> {
        if let Some(pending) = self.schedule.tell_again(self.step) {
            let answer = pending.answer.expect("a part of it was told");
            self.tell(pending, answer)?;
            return Ok(true);
        }
        let Some(place) = self.schedule.choose(self.step, &mut self.rng) else {
            return Ok(false);
        };
        let pending = self.schedule.get_mut(place).clone();
        if let (Some(batch), Some(_)) = (pending.batch, pending.answer) {
            self.tell_batch(batch)?;
            return Ok(true);
        }
        if let Some(answer) = pending.answer {
            self.schedule.remove(place);
            self.tell(pending, answer)?;
            return Ok(true);
        }
        let outcome = self.carry_out(pending.command, &pending.parts, &pending.leaf)?;
        self.log
            .push(self.step, Entry::CarriedOut(pending.command, outcome));
        let not_before = self.step + self.delay();
        let pending = self.schedule.get_mut(place);
        pending.answer = Some(schedule::answer(&pending.command, outcome));
        pending.not_before = not_before;
        if let Some(batch) = pending.batch {
            let command = pending.command;
            self.schedule.part_done(batch, not_before);
            self.overrun(command)?;
        }
        self.check_budget()?;
        Ok(true)
    }

    fn tell(&mut self, mut pending: Pending, answer: Event) -> Check {
        let Pending { owner, command, .. } = pending;
        if let Event::Completed { outcome, .. } = answer {
            Coverage::count(&mut self.coverage.outcomes, names::outcome(&outcome));
            if matches!(outcome, Outcome::InstallSplit { .. }) {
                self.actors[owner].split = true;
            }
        }
        if let Command::ZeroInPlace { part: at, .. } = command {
            let pages = at.start.0 as usize..at.end().0 as usize;
            self.zeroed[pages].fill(self.events);
        }
        match (answer, self.send(owner, answer)?) {
            (_, Reply::Done) => {}
            (Event::LeafTakenOut { taken, .. }, Reply::More { .. }) => {
                let what = match taken {
                    true => "a leaf was told in parts",
                    false => "a leaf that could not leave was told in parts",
                };
                Coverage::count(&mut self.coverage.answers, what);
                pending.not_before = self.step + 1 + self.delay();
                self.schedule.told_in_part(pending);
                return Ok(());
            }
            (_, reply) => breach!("{answer:?} is answered with {reply:?}"),
        }
        self.actors[owner].outstanding -= 1;
        if let Some(at) = self.place_of(&command)
            && !self.swallows_wake(at)
        {
            self.wake(at, Ear::Completions);
        }
        self.wake_owners();
        Ok(())
    }

    /// Whether no actor will be told what ended at `at`: this is sabotage.
    pub(crate) fn swallows_wake(&self, at: PageRange) -> bool {
        match self.options.sabotage {
            Some(Sabotage::SwallowWakes) => true,
            Some(Sabotage::SwallowBaseWakes) => self.is_in_base(at),
            _ => false,
        }
    }

    /// Makes the actors that wait for commands check again.
    pub(crate) fn wake_owners(&mut self) {
        for actor in &mut self.actors {
            if actor.blocked == Blocked::OnAny
                || actor.blocked == Blocked::OnCommands && actor.outstanding == 0
            {
                actor.blocked = Blocked::No;
            }
        }
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
        let lent = |p: &Pending| p.lenders.iter().any(|at| at.contains(page));
        self.core.is_leaving(page) || self.schedule.iter().any(|p| here(&p.command) || lent(p))
    }

    /// Lets the actors that wait at a page of `at` try again, if this kind of event wakes them.
    pub(crate) fn wake(&mut self, at: PageRange, told: Ear) {
        for actor in &mut self.actors {
            if let Blocked::OnPage { page, ear } = actor.blocked
                && at.contains(page)
                && ear <= told
            {
                actor.blocked = Blocked::No;
            }
        }
    }

    fn expect_in_region(&self, at: PageRange) -> Check {
        if self.regions.iter().any(|r| r.range.covers(at)) {
            return Ok(());
        }
        breach!(at at.start, "{at} lies in no live region")
    }

    /// Checks that `at` lies in a region or a base. No actor touches a base, so nothing is brought in there, but its
    /// memory may leave.
    pub(crate) fn expect_in_region_or_base(&self, at: PageRange) -> Check {
        if self.is_in_base(at) {
            return Ok(());
        }
        self.expect_in_region(at)
    }
}
