//! The threads of the program: they touch pages as a processor does, and call the driver as the facade does.

use crate::memory::State;
use crate::world::{Act, Plot, World};
use millpond_core::{Advice, Event, PageCount, PageIndex, PageRange, Refusal};
use millpond_driver::FaultError;
use millpond_driver::error::MoveError;
use millpond_driver::operate::PinRefusal;
use millpond_driver::prefetch;
use millpond_mmu::Resolution;
use millpond_sim::mmu::{LINES, Slot};
use millpond_sim::report::Check;
use millpond_sim::rng::Rng;
use millpond_sync::thread;
use std::sync::{Arc, PoisonError};

/// Tries at a page after which a thread lets the others run first.
const PATIENT_TRIES: u32 = 64;

/// A thread of the program.
pub struct Thread {
    pub(crate) world: Arc<World>,
    /// Its number, which identifies it to the oracle.
    pub(crate) me: usize,
    pub(crate) rng: Rng,
    stamp: u64,
}

pub(crate) fn must<T>(check: Check<T>) -> T {
    check.unwrap_or_else(|failure| panic!("{}", failure.what))
}

impl Thread {
    /// Makes the thread with this number.
    #[must_use]
    pub fn new(world: Arc<World>, me: usize, rng: Rng) -> Self {
        Self {
            world,
            me,
            rng,
            stamp: (me as u64 + 1) << 32,
        }
    }

    /// Runs the thread.
    pub fn live(mut self) {
        for _ in 0..self.world.profile.acts {
            let act = self.rng.pick(&self.world.profile.likes);
            self.act(act);
        }
    }

    fn act(&mut self, act: Act) {
        self.world.note(self.me, format_args!("{act:?}"));
        match act {
            Act::Touch => self.shared(Self::touch_some),
            Act::Discard if self.rng.chance(300) => self.shared(Self::discard_shared),
            Act::Discard => self.alone(Self::discard),
            Act::LazyFree if self.rng.chance(300) => self.shared(Self::lazy_free_shared),
            Act::LazyFree => self.alone(Self::lazy_free),
            Act::Volatile => self.alone(Self::mark_or_ask),
            Act::Replace => self.replace(),
            Act::Remap => self.remap(),
            Act::RemapWatched => self.remap_watched(),
            Act::Regroup => self.shared(Self::regroup),
            Act::Resize => self.alone(Self::resize),
            Act::Snapshot => self.snapshot(),
            Act::Prefetch => self.shared(Self::prefetch),
            Act::Pin => self.shared(Self::pin),
            Act::Advise => self.shared(Self::advise),
            Act::Budget => self.set_budget(),
            Act::Look => self.look(),
        }
    }

    /// The number of a place for a region.
    pub(crate) fn any_plot(&mut self) -> usize {
        self.rng.below(self.world.plots.len() as u32) as usize
    }

    /// Does something with a region that others may use at the same time.
    fn shared(&mut self, act: fn(&mut Self, &Plot)) {
        let world = Arc::clone(&self.world);
        let place = &world.plots[self.any_plot()];
        let plot = place.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(plot) = &*plot {
            act(self, plot);
        }
    }

    /// Does something with a region in exclusive use.
    fn alone(&mut self, act: fn(&mut Self, &mut Plot)) {
        let world = Arc::clone(&self.world);
        let place = &world.plots[self.any_plot()];
        let mut plot = place.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(plot) = &mut *plot {
            act(self, plot);
        }
    }

    /// Some pages of `range`.
    pub(crate) fn some_of(&mut self, range: PageRange, most: u32) -> PageRange {
        let len = self.rng.between(1, most.min(range.len.0));
        let start = self.rng.below(range.len.0 - len + 1);
        PageRange::new(range.start.plus(start), PageCount(len))
    }

    fn touch_some(&mut self, plot: &Plot) {
        let range = self.some_of(plot.named.1, 80);
        self.touch_all(range, self.world.profile.writes);
    }

    /// Touches the pages of `range`, `writes` of a thousand by a write.
    pub fn touch_all(&mut self, range: PageRange, writes: u32) {
        for page in range.pages() {
            let write = self.rng.chance(writes);
            self.touch(page, write);
        }
    }

    /// Touches a page as a processor does: repeatedly until it is present.
    ///
    /// A thread whose page is repeatedly taken out before the thread gets to it lets all others run first after a
    /// while, as a kernel's scheduler would. PCT would run the two threads of the highest priority forever: one brings
    /// a page in, the other takes it out and waits for a third, which is in the middle of a write that would free
    /// memory.
    pub(crate) fn touch(&mut self, page: PageIndex, write: bool) {
        for tries in 1_u32.. {
            self.world.memory().pause();
            if self.touched(page, write) {
                return;
            }
            if tries.is_multiple_of(PATIENT_TRIES) {
                thread::yield_now();
            }
            let memory = self.world.memory();
            match &memory.kernel {
                Some(kernel) => kernel.sleep(page, || !memory.now().mmu.is_mapped(page)),
                None => {
                    let began = memory.now().oracle.now();
                    if self.world.driver.serve(page) == Resolution::Lost {
                        self.sees_loss(page, began);
                        return;
                    }
                }
            }
        }
    }

    /// Touches a page if it is mapped now.
    fn touched(&mut self, page: PageIndex, write: bool) -> bool {
        let line = self.rng.below(LINES as u32) as usize;
        let zero = self.rng.chance(100);
        self.stamp += 1;
        let value = if zero { 0 } else { self.stamp };
        let mut state = self.world.memory().now();
        let State { mmu, oracle, .. } = &mut *state;
        match mmu.page(page) {
            Slot::Mapped(_) if write => {
                mmu.write(page, line, value);
                oracle.write(page, line, value);
            }
            Slot::Mapped(content) => must(oracle.read(page, content)),
            Slot::Empty => return false,
            Slot::Poisoned => must(oracle.saw_poison(page)),
        }
        state.note_touch(self.me, page, value);
        true
    }

    /// A call that began at this moment reports a page as lost, which must have been true at some time since.
    fn sees_loss(&self, page: PageIndex, began: u64) {
        let state = self.world.memory().now();
        must(state.oracle.saw_poison_since(page, began));
    }

    /// Moves a region to another group.
    fn regroup(&mut self, plot: &Plot) {
        let group = self.rng.pick(&self.world.groups);
        let moved = self.world.driver.move_region(plot.named, group);
        assert!(
            matches!(moved, Ok(()) | Err(MoveError::Busy)),
            "{:?} does not move to {group:?}: {moved:?}",
            plot.named
        );
    }

    fn prefetch(&mut self, plot: &Plot) {
        let range = self.some_of(plot.named.1, 64);
        prefetch::ask(&self.world.driver, range).expect("threads can be made");
    }

    fn advise(&mut self, plot: &Plot) {
        let range = self.some_of(plot.named.1, 32);
        let driver = &self.world.driver;
        let began = self.world.memory().now().oracle.now();
        let advice = match self.rng.below(4) {
            0 => Advice::Cold,
            1 | 2 => Advice::PageOut,
            _ => match driver.populate(range) {
                Err((page, FaultError::Lost)) => return self.sees_loss(page, began),
                populated => return populated.expect("the range is in a region"),
            },
        };
        let advised = driver.operate(range, |range| Event::Advise { range, advice });
        advised.expect("the range is in a region");
    }

    /// Pins pages, if there is room, and touches them: none of them faults.
    fn pin(&mut self, plot: &Plot) {
        if !plot.volatile.is_empty() {
            return;
        }
        let range = self.some_of(plot.named.1, 8);
        let driver = Arc::clone(&self.world.driver);
        let began = self.world.memory().now().oracle.now();
        let pinned = match self.rng.chance(500) {
            true => driver.pin(range).map(|()| true),
            false => driver.try_pin(range),
        };
        match pinned {
            Ok(true) => {}
            Ok(false) | Err(PinRefusal::NoRoom(_)) => return,
            Err(PinRefusal::Core(Refusal::PinOverflow { .. })) => return,
            Err(PinRefusal::Core(Refusal::Poisoned { page })) => {
                return self.sees_loss(page, began);
            }
            Err(PinRefusal::Core(refusal)) => panic!("{range} cannot be pinned: {refusal:?}"),
        }
        must(self.world.memory().now().mmu.pin(range));
        for page in range.pages() {
            self.world.memory().pause();
            let write = self.rng.chance(500);
            assert!(self.touched(page, write), "{page} is pinned, and not there");
        }
        self.world.memory().now().mmu.unpin(range);
        let unpinned = driver.unpin(range);
        unpinned.expect("it was pinned");
    }

    fn set_budget(&mut self) {
        let most = self.world.driver.most_ram();
        let part = u64::from(self.rng.between(6, 8));
        self.world.driver.set_ram(most / 8 * part);
    }

    fn look(&mut self) {
        match self.rng.below(3) {
            0 => drop(self.world.driver.stats()),
            1 => self.world.driver.recount_lazyfree(),
            _ => self.world.driver.give_kept_back(),
        }
    }
}
