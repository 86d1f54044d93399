//! One seed from beginning to end: chaos, then calm.
//!
//! Safety alone is cheap: a core that answers "wait" forever never breaks a rule. So after the chaos the world turns
//! friendly: the store is healthy and large, there are no new faults, and pins and protections are released. Then
//! everything must make progress again: every operation ends, background reclaim reaches its high mark, every page can
//! be read and is right, and after all regions have been discarded and dropped, nothing is left in memory or store.
//! Each of these must happen within a bounded number of steps.

use std::panic::{AssertUnwindSafe, catch_unwind};

use millpond_core::limits::MAX_PINS;
use millpond_core::{
    Event, FreeMode, Kind, Order, PageCount, PageRange, Reclaimer, Refusal, Reply,
};

use crate::actor::{
    Actor, BACKGROUND, Blocked, DropStage, FreeStage, OPERATOR, Op, ProtectStage, Ranges,
    UnmarkStage,
};
use crate::profile::Options;
use crate::report::{Check, Coverage, Failure, Log, breach};
use crate::rng::Rng;
use crate::snapshot::SnapshotStage;
use crate::store::Weather;
use crate::sync::SyncStage;
use crate::world::{SimRegion, World};

/// Steps that the end of a run may take, in each of its stages.
const MAX_CALM_STEPS: u64 = 400_000;
/// The thread that ends the run.
pub(crate) const LAST: usize = 2;

/// The outcome of a seed.
#[derive(Debug)]
pub struct Run {
    /// The seed.
    pub seed: u64,
    /// The failure of the run, if there was one.
    pub failure: Option<Failure>,
    /// The log of everything that happened.
    pub log: Log,
    /// The counts of covered cases.
    pub coverage: Coverage,
    /// Events passed to the core.
    pub events: u64,
    /// Steps of the scheduler.
    pub steps: u64,
}

/// Runs a seed.
#[must_use]
pub fn run(seed: u64, options: Options) -> Run {
    let mut world = match World::new(seed, options) {
        Ok(world) => world,
        Err(failure) => {
            let (log, coverage) = (Log::default(), Coverage::default());
            return Run {
                seed,
                failure: Some(failure),
                log,
                coverage,
                events: 0,
                steps: 0,
            };
        }
    };
    let result = catch_unwind(AssertUnwindSafe(|| world.live()));
    let failure = match result {
        Ok(Ok(())) => None,
        Ok(Err(failure)) => Some(failure),
        Err(payload) => {
            let text = payload
                .downcast_ref::<String>()
                .cloned()
                .or_else(|| payload.downcast_ref::<&str>().map(ToString::to_string))
                .unwrap_or_default();
            Some(Failure {
                what: format!("panic: {text}"),
                page: None,
            })
        }
    };
    let World {
        log,
        coverage,
        events,
        step,
        ..
    } = world;
    Run {
        seed,
        failure,
        log,
        coverage,
        events,
        steps: step,
    }
}

impl World {
    fn live(&mut self) -> Check {
        self.settle_down()?;
        while self.events < self.options.events {
            self.tick()?;
        }
        self.come_to_rest()?;
        for _ in 0..self.core.stats().leaf_evicted {
            Coverage::count(
                &mut self.coverage.answers,
                "a leaf was evicted for a stream",
            );
        }
        Ok(())
    }

    /// Makes the first regions.
    fn settle_down(&mut self) -> Check {
        let on = self.profile.takes_leaves;
        self.expect(Event::TakeLeaves { on }, Reply::Done)?;
        self.make_groups()?;
        let mut pages = 0;
        while pages < self.profile.footprint && self.regions.len() < 6 {
            let (len, order) = self.draw_region();
            self.create_region(LAST, len, order)?;
            pages += len;
        }
        Ok(())
    }

    /// Takes one step of the actor that is next.
    fn tick(&mut self) -> Check {
        self.step += 1;
        if let Some(i) = self.gate {
            return self.become_quiet(i);
        }
        let advance_first = self.rng.chance(500);
        if advance_first && self.advance()? {
            return Ok(());
        }
        let i = self.rng.below(self.actors.len() as u32) as usize;
        if self.act(i)? || !advance_first && self.advance()? {
            return Ok(());
        }
        for i in 0..self.actors.len() {
            if self.act(i)? {
                return Ok(());
            }
        }
        if self.advance()? {
            return Ok(());
        }
        self.skip_time()
    }

    /// Skips to the next step at which an actor can do something, if none can now.
    pub(crate) fn skip_time(&mut self) -> Check {
        let wakes = self.actors.iter().filter_map(|a| match a.blocked {
            Blocked::Until(step) => Some(step),
            _ => None,
        });
        match wakes
            .chain(self.schedule.next_step())
            .filter(|&step| step > self.step)
            .min()
        {
            Some(step) => self.step = step - 1,
            None if self.calm && self.at_rest() => {}
            None => breach!(
                "nobody can move: {}; {:?}",
                self.who_waits(),
                self.core.stats()
            ),
        }
        Ok(())
    }

    fn who_waits(&self) -> String {
        let busy = self
            .actors
            .iter()
            .enumerate()
            .filter(|(_, a)| a.op.is_some());
        let text: Vec<_> = busy.map(|(i, a)| format!("actor {i}: {a:?}")).collect();
        text.join("; ")
    }

    /// Lets actor `i` take a step if it can, and returns whether it did.
    fn act(&mut self, i: usize) -> Check<bool> {
        if !self.is_ready(i) {
            return Ok(false);
        }
        let actor = &self.actors[i];
        let busy = actor.op.is_some() || actor.fault.is_some() || actor.again.is_some();
        if busy || actor.reclaim.is_some() || actor.purge.is_some() {
            self.step_actor(i)?;
            return Ok(true);
        }
        match i {
            BACKGROUND => self.background(),
            // A save that failed before the calm may be reported after it: the driver tries again from time to time.
            OPERATOR
                if self.calm
                    && !self.siege
                    && (self.core.store_blocked() || self.core.files_blocked()) =>
            {
                self.send(OPERATOR, Event::RetryStore)?;
                self.actors[OPERATOR].blocked = Blocked::Until(self.step + 500);
                Ok(true)
            }
            _ if self.calm => Ok(false),
            OPERATOR => self.operate().map(|()| true),
            _ => self.choose(i).map(|()| true),
        }
    }

    /// Makes background reclaim go from below the low mark up to the high one.
    fn background(&mut self) -> Check<bool> {
        if self.core.below_low_mark() {
            self.reclaiming = true;
        }
        let missing = self.high_mark().0.saturating_sub(self.core.available().0);
        if missing == 0 {
            self.reclaiming = false;
        }
        if self.reclaiming && !self.begin_purge(BACKGROUND)? {
            self.reclaim(BACKGROUND, PageCount(missing), Reclaimer::Background)?;
        }
        Ok(self.reclaiming)
    }

    fn at_rest(&self) -> bool {
        // Under siege background reclaim has no chance, and announced protections stay. So does an actor that wants to
        // drop a region in use by one of them (seed 11028227 took that for a thread that never ends; seed 6471214 read
        // what such a thread was dropping).
        let stays = ProtectStage::Held { announced: true };
        let protects = |a: &Actor| match a.op {
            Some(Op::Protect { stage, .. }) => self.siege && stage == stays,
            Some(
                Op::Drop {
                    range,
                    stage: DropStage::Quiet,
                }
                | Op::Snapshot {
                    range,
                    stage: SnapshotStage::Quiet,
                },
            ) => {
                let used = |region: &SimRegion| region.range == range && region.users > 0;
                self.siege && self.regions.iter().any(used)
            }
            _ => self.siege && self.waits_to_remap(a),
        };
        let idle = |a: &Actor| (a.op.is_none() || protects(a)) && a.fault.is_none();
        self.schedule.is_empty()
            && self.purging == 0
            && self.actors.iter().all(idle)
            && (self.siege || !self.reclaiming)
    }

    pub(crate) fn until_rest(&mut self, what: &str) -> Check {
        let end = self.step + MAX_CALM_STEPS;
        let mut ticks = 0;
        while !self.at_rest() {
            self.tick()?;
            ticks += 1;
            if self.step > end || ticks > MAX_CALM_STEPS {
                let (who, stats) = (self.who_waits(), self.core.stats());
                breach!("{what} does not come to an end: {who}; {stats:?}");
            }
        }
        self.check_gauges()?;
        self.check_ended()
    }

    fn come_to_rest(&mut self) -> Check {
        self.calm = true;
        self.mend_files();
        let is_held = Rng::new(self.rng.clone().word() ^ 5).chance(200);
        if self.rng.chance(300) {
            self.withstand_a_siege()?;
        }
        self.store.weather = Weather::default();
        self.store.capacity = u64::MAX;
        self.expect(Event::RetryStore, Reply::Done)?;
        if is_held {
            self.withstand_a_hold()?;
        }
        self.until_rest("the work of the threads")?;
        self.let_everything_move()?;
        self.merge_what_was_left()?;
        self.unmark_everything()?;
        self.count_freed_memory()?;
        self.read_everything()?;
        self.pin_to_the_brim()?;
        self.reach_high_mark()?;
        self.let_time_pass()?;
        self.read_everything()?;
        self.sync_everything()?;
        self.drop_everything()
    }

    /// Runs for a while with a store that accepts nothing and is not repaired. The work that threads have begun ends
    /// nonetheless, above the limit if necessary, and every page can be read. Protections do not change during this
    /// time.
    fn withstand_a_siege(&mut self) -> Check {
        self.store.weather = Weather {
            full: true,
            ..Weather::default()
        };
        self.siege = true;
        self.until_rest("the work of the threads under siege")?;
        self.read_everything()?;
        self.siege = false;
        Ok(())
    }

    /// Runs for a while with a kernel that holds every mapped page, so that nothing can be taken out. The work that
    /// threads have begun ends nonetheless, above the limit, and every page can be read. When the kernel releases the
    /// pages, everything is as before.
    fn withstand_a_hold(&mut self) -> Check {
        (self.siege, self.held) = (true, true);
        self.until_rest("the work of the threads while all is held")?;
        self.read_everything()?;
        (self.siege, self.held) = (false, false);
        Coverage::count(&mut self.coverage.answers, "all memory was held");
        self.tick_core()
    }

    /// Makes the core retry, after some ticks, pages that could not be moved for no reason given by the program.
    fn let_everything_move(&mut self) -> Check {
        let mut ticks = self.core.stats().nr_unevictable;
        while self.core.stats().nr_unevictable > 0 {
            self.tick_core()?;
            self.until_rest("a tick")?;
            match ticks.checked_sub(1) {
                Some(left) => ticks = left,
                None => breach!("pages stay unevictable: {:?}", self.core.stats()),
            }
        }
        Ok(())
    }

    /// Checks that background reclaim reaches its goal with a healthy store.
    fn reach_high_mark(&mut self) -> Check {
        self.reclaiming = true;
        self.until_rest("background reclaim")?;
        let (available, mark) = (self.core.available(), self.high_mark());
        if available < mark {
            breach!(
                "background reclaim rests with {} pages available, below {}",
                available.0,
                mark.0
            );
        }
        Ok(())
    }

    /// Lets a time pass in which no thread needs memory, so that no frame is kept for later. The next read has to do
    /// without.
    fn let_time_pass(&mut self) -> Check {
        for _ in 0..=u32::BITS {
            self.tick_core()?;
            self.until_rest("a tick")?;
        }
        match self.core.stats().nr_free_frames {
            0 => Ok(()),
            left => breach!("{left} pages of frames are spare, though nobody wants any"),
        }
    }

    /// A thread with nothing else to do.
    fn reader(&self) -> usize {
        let idle = |i: &usize| self.actors[*i].op.is_none();
        (LAST..self.actors.len()).find(idle).unwrap_or(OPERATOR)
    }

    fn read_everything(&mut self) -> Check {
        for range in self.regions.iter().map(|r| r.range).collect::<Vec<_>>() {
            let (next, left) = (range.start, range.len.0);
            let reader = self.reader();
            self.actors[reader].op = Some(Op::Access {
                range,
                next,
                stride: 1,
                left,
                writes: 0,
            });
            self.until_rest("reading everything")?;
        }
        Ok(())
    }

    /// Checks that everything written to shared files is on the device after a sync.
    fn sync_everything(&mut self) -> Check {
        let shared = |r: &&SimRegion| matches!(r.kind, Kind::File | Kind::Direct);
        let ranges: Vec<_> = self
            .regions
            .iter()
            .filter(shared)
            .map(|r| r.range)
            .collect();
        for range in ranges {
            let stage = SyncStage::Begin;
            self.actors[LAST].op = Some(Op::Sync { range, stage });
            self.until_rest("a sync")?;
            let pages = range.pages();
            for page in pages
                .filter(|page| self.durable.is_certain(*page))
                .collect::<Vec<_>>()
            {
                let left = self.disk.after_crash(page, &mut self.rng);
                self.oracle.read(page, left)?;
            }
        }
        Ok(())
    }

    /// Checks that each volatile range has survived or is zeros.
    fn unmark_everything(&mut self) -> Check {
        while let Some(volatile) = self.volatile.first_mut() {
            let (range, stage) = (volatile.range, UnmarkStage::Ask);
            volatile.leaving = true;
            self.actors[LAST].op = Some(Op::Unmark { range, stage });
            self.until_rest("taking back a volatile range")?;
        }
        match self.book.pages() {
            0 => Ok(()),
            pages => breach!("{pages} pages are volatile after all marks were taken back"),
        }
    }

    /// Checks that pages reported as lazily freed are, and that nothing is left above the cap.
    fn count_freed_memory(&mut self) -> Check {
        let left = self.core.lazyfree_pages();
        self.actors[LAST].op = Some(Op::Recount { left });
        self.until_rest("a recount")?;
        self.check_recounted()?;
        self.actors[LAST].op = Some(Op::Free {
            ranges: Ranges::default(),
            mode: FreeMode::Shared,
            stage: FreeStage::Trim,
        });
        self.until_rest("a trim")?;
        match self.core.lazyfree_over().0 {
            0 => Ok(()),
            over => breach!("{over} lazily freed pages are above the cap at rest"),
        }
    }

    /// Checks that a page can be pinned [`MAX_PINS`] times, not once more, and then unpinned as often.
    fn pin_to_the_brim(&mut self) -> Check {
        let mut pages = self.regions.iter().flat_map(|r| r.range.pages());
        let Some(page) = pages.find(|&page| self.mmu.is_mapped(page)) else {
            return Ok(());
        };
        let range = PageRange::new(page, PageCount(1));
        for _ in 0..MAX_PINS {
            self.expect(Event::Pin { range }, Reply::Done)?;
        }
        self.expect(
            Event::Pin { range },
            Reply::Refused(Refusal::PinOverflow { page }),
        )?;
        self.expect(
            Event::Discard { range },
            Reply::Refused(Refusal::Pinned { page }),
        )?;
        for _ in 0..MAX_PINS {
            self.expect(Event::Unpin { range }, Reply::Done)?;
        }
        self.expect(
            Event::Unpin { range },
            Reply::Refused(Refusal::NotPinned { page }),
        )?;
        self.check_all()
    }

    pub(crate) fn expect(&mut self, event: Event, wanted: Reply) -> Check {
        let reply = self.send(OPERATOR, event)?;
        if reply != wanted {
            breach!("{event:?} is answered with {reply:?}, must be {wanted:?}");
        }
        Ok(())
    }

    fn drop_everything(&mut self) -> Check {
        while !self.regions.is_empty() {
            let place = self.rng.below(self.regions.len() as u32) as usize;
            let range = self.regions[place].range;
            self.actors[LAST].op = Some(Op::Drop {
                range,
                stage: DropStage::Quiet,
            });
            self.until_rest("dropping everything")?;
        }
        let stats = self.core.stats();
        let gone = [
            ("nr_mapped", stats.nr_mapped),
            ("nr_limbo", stats.nr_limbo),
            ("nr_lazyfree", stats.nr_lazyfree),
            ("nr_swapped", stats.nr_swapped),
            ("nr_active", stats.nr_active),
            ("nr_inactive", stats.nr_inactive),
            ("nr_unevictable", stats.nr_unevictable),
            ("pages mapped", self.mmu.mapped()),
            ("slots in the store", self.store.slots() as u64),
            ("slots in use", u64::from(self.core.slots_in_use())),
            ("bases", self.bases.len() as u64),
        ];
        for (name, left) in gone {
            if left != 0 {
                let slots: Vec<_> = self.store.some_slots().collect();
                breach!(
                    "{name} is {left} after everything was dropped; slots {slots:?}; {stats:?}"
                );
            }
        }
        self.expect_all_addresses()
    }

    /// Checks that no region is left that is unknown to all actors.
    fn expect_all_addresses(&mut self) -> Check {
        let (pages, order) = (self.core.arena(), Order::ZERO.into());
        let kind = Kind::Anonymous;
        match self.send(OPERATOR, Event::CreateRegion { pages, order, kind })? {
            Reply::Region { region, .. } => self.expect(Event::DropRegion { region }, Reply::Done),
            other => breach!("all addresses are wanted when no region is left: {other:?}"),
        }
    }
}
