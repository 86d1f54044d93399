//! `sim`'s memory behind the driver's traits, together with the oracle.
//!
//! Each call is one moment of the schedule: the scheduler may run other threads before it, but not within it. That is
//! what the kernel promises for its calls. Behaviour that is up to the kernel (a copy instead of a move, a page that it
//! holds for a while) is drawn from the seed.
//!
//! In addition to `sim`'s contract, memory knows which pages are open. Pages mapped at rest must be open: a page in a
//! place without a region was brought in for an ended one. Newly made memory must be empty, since real memory would
//! silently drop what is there.

use crate::kernel::Kernel;
use crate::pages::{bytes_of, pages_of};
use millpond_core::{
    CopyFrom, FillOrInstallError, FilledAndInstalled, Frame, InstallError, LEAF_PAGES, LeafPages,
    LoadError, Mmu, PageCount, PageIndex, PageRange, Placed, PoolLayout, TakeOutError,
};
use millpond_driver::memory::Memory;
use millpond_mmu::MmuError;
use millpond_sim::mmu::{BLANK, SimMmu};
use millpond_sim::oracle::Oracle;
use millpond_sim::report::Check;
use millpond_sim::rng::Rng;
use millpond_sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// How often the kernel does something inconvenient, per mille.
#[derive(Clone, Copy, Debug, Default)]
pub struct Moods {
    /// Installs that copy instead of moving.
    pub copies: u32,
    /// Take-outs that meet a busy page.
    pub busy: u32,
    /// Loads into new frames that bypass the frame.
    pub direct: u32,
}

/// Memory, and its expected contents.
pub struct State {
    /// The arena and the frames.
    pub mmu: SimMmu,
    /// The expected contents of each page.
    pub oracle: Oracle,
    /// A hash of all touches so far, in order: equal schedules have equal hashes.
    pub digest: u64,
    open: Vec<bool>,
    /// Number of loads at which the store failed, for any pages.
    failed_loads: u64,
    moods: Moods,
    rng: Rng,
}

/// Simulated memory; see the [module](self).
pub struct Simulated {
    state: Mutex<State>,
    calls: AtomicU32,
    arena: PageRange,
    /// The threads that sleep at absent pages, if a handler serves faults.
    pub kernel: Option<Kernel>,
}

fn must<T>(check: Check<T>) -> T {
    check.unwrap_or_else(|failure| panic!("{}", failure.what))
}

impl State {
    /// Adds a touch to the digest.
    pub fn note_touch(&mut self, by: usize, page: PageIndex, word: u64) {
        for part in [by as u64, u64::from(page.0), word] {
            self.digest = (self.digest ^ part)
                .wrapping_mul(0x0100_0000_01b3)
                .rotate_left(7);
        }
    }

    /// Whether a page is open.
    #[must_use]
    pub fn is_open(&self, page: PageIndex) -> bool {
        self.open[page.0 as usize]
    }

    fn set_open(&mut self, range: PageRange, open: bool) {
        self.open[range.start.0 as usize..range.end().0 as usize].fill(open);
    }

    /// Whether the range contains both open and closed pages: these are two mappings.
    fn is_split(&self, at: PageRange) -> bool {
        let first = self.open[at.start.0 as usize];
        at.pages().any(|page| self.open[page.0 as usize] != first)
    }

    fn copies(&mut self) -> bool {
        self.rng.chance(self.moods.copies)
    }

    fn mapped_in(&self, range: PageRange) -> Option<PageIndex> {
        range.pages().find(|&page| self.mmu.is_mapped(page))
    }

    /// Zeroes a page if it is mapped, like a thread of the program that stops at a missing page.
    fn zero_page(&mut self, page: PageIndex) -> bool {
        let mapped = self.mmu.is_mapped(page);
        if mapped {
            for (line, &word) in BLANK.iter().enumerate() {
                self.mmu.write(page, line, word);
            }
        }
        mapped
    }
}

impl Simulated {
    /// Empty memory.
    #[must_use]
    pub fn new(
        arena: PageCount,
        pool: PoolLayout,
        moods: Moods,
        kernel: Option<Kernel>,
        rng: Rng,
    ) -> Self {
        Self {
            state: Mutex::new(State {
                mmu: SimMmu::new(arena, pool),
                oracle: Oracle::new(arena),
                digest: 0,
                open: vec![false; arena.0 as usize],
                failed_loads: 0,
                moods,
                rng,
            }),
            calls: AtomicU32::new(0),
            arena: PageRange::new(PageIndex(0), arena),
            kernel,
        }
    }

    /// The memory at this moment of the schedule. The lock is the standard library's and never contended: the scheduler
    /// runs one thread at a time, and a thread must not let another one run while it holds this.
    pub fn now(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets other threads run, if the scheduler wants it.
    pub fn pause(&self) {
        self.calls.fetch_add(1, Ordering::SeqCst);
    }

    /// Wakes the threads that sleep in a range where something was mapped.
    fn came_in<T, E>(&self, at: PageRange, placed: Result<T, E>) -> Result<T, E> {
        if let (Some(kernel), Ok(_)) = (&self.kernel, &placed) {
            kernel.wake(at);
        }
        placed
    }

    /// The memory after a pause, for one call.
    fn next(&self) -> MutexGuard<'_, State> {
        self.pause();
        self.now()
    }
}

impl Mmu for Simulated {
    fn install_zero(&self, at: PageRange, frame: Option<Frame>) -> Result<Placed, InstallError> {
        let mut state = self.next();
        if state.is_split(at) {
            return Err(InstallError::Split);
        }
        let copy = state.copies();
        let placed = must(state.mmu.install_zero(at, frame, copy));
        drop(state);
        self.came_in(at, placed)
    }

    fn fill(
        &self,
        frame: Frame,
        fresh: bool,
        fill: &mut dyn FnMut(&mut [u8]) -> Result<(), LoadError>,
    ) -> Result<(), LoadError> {
        let mut bytes = vec![0; frame.order().bytes()];
        let filled = fill(&mut bytes);
        let contents = filled.is_ok().then(|| pages_of(&bytes));
        let mut state = self.next();
        state.failed_loads += u64::from(filled.is_err());
        must(state.mmu.fill(frame, fresh, contents));
        filled
    }

    fn install(&self, frame: Frame, at: PageRange) -> Result<Placed, InstallError> {
        let mut state = self.next();
        if state.is_split(at) {
            return Err(InstallError::Split);
        }
        let copy = state.copies();
        let placed = must(state.mmu.install(frame, at, copy, false));
        drop(state);
        self.came_in(at, placed)
    }

    fn fill_and_install(
        &self,
        frame: Frame,
        fresh: bool,
        at: PageRange,
        fill: &mut dyn FnMut(&mut [u8]) -> Result<(), LoadError>,
    ) -> FilledAndInstalled {
        let direct = {
            let mut state = self.now();
            let often = state.moods.direct;
            fresh && state.rng.chance(often)
        };
        if !direct {
            return FilledAndInstalled::through_frame(self.fill(frame, fresh, fill), || {
                self.install(frame, at)
            });
        }
        let mut bytes = vec![0; frame.order().bytes()];
        let outcome = match fill(&mut bytes) {
            Err(error) => {
                self.now().failed_loads += 1;
                Err(FillOrInstallError::Fill(error))
            }
            Ok(()) => {
                let mut state = self.next();
                must(state.mmu.fill(frame, true, Some(pages_of(&bytes))));
                let installed = match state.is_split(at) {
                    true => Err(InstallError::Split),
                    false => must(state.mmu.install(frame, at, false, false)),
                };
                drop(state);
                let installed = self.came_in(at, installed);
                installed.map(|_| ()).map_err(FillOrInstallError::Install)
            }
        };
        FilledAndInstalled::past_frame(outcome)
    }

    fn copy(
        &self,
        at: PageRange,
        from: CopyFrom,
        frame: Option<Frame>,
    ) -> Result<Placed, InstallError> {
        let mut state = self.next();
        if state.is_split(at) {
            return Err(InstallError::Split);
        }
        let copy = state.copies();
        let placed = must(state.mmu.copy(at, from, frame, copy));
        drop(state);
        self.came_in(at, placed)
    }

    fn take_out(&self, at: PageRange, frame: Frame) -> Result<(), TakeOutError> {
        let mut state = self.next();
        let often = state.moods.busy;
        let busy = state.rng.chance(often);
        must(state.mmu.take_out(at, frame, busy))
    }

    fn take_out_leaf(
        &self,
        at: PageRange,
        frame: Frame,
        pages: &LeafPages,
    ) -> Result<(), TakeOutError> {
        let mut state = self.next();
        let often = state.moods.busy;
        let busy = state.rng.chance(often);
        must(state.mmu.take_out_leaf(at, frame, pages, busy))
    }

    fn zero_in_place(&self, at: PageRange) {
        must(self.next().mmu.zero_in_place(at));
    }

    fn is_blank(&self, at: PageRange, glance: bool) -> bool {
        must(self.next().mmu.is_blank(at, glance))
    }

    fn read_frame(&self, frame: Frame, see: &mut dyn FnMut(&[u8])) {
        let bytes = bytes_of(must(self.next().mmu.frame(frame)));
        see(&bytes);
    }

    fn zap(&self, ranges: &[PageRange]) {
        for &range in ranges {
            must(self.next().mmu.zap_all(range));
        }
    }

    fn free_frames(&self, frames: &[Frame]) {
        for &frame in frames {
            must(self.next().mmu.free_frame(frame));
        }
    }

    fn wake(&self, at: PageRange) {
        self.pause();
        if let Some(kernel) = &self.kernel {
            kernel.wake(at);
        }
    }

    fn poison(&self, at: PageRange) {
        let mut state = self.next();
        assert!(
            state.failed_loads > 0,
            "{at} is lost, and no load has failed"
        );
        // A store does not know for which pages it loads, so any failed load may have been for these.
        state.oracle.load_failed(at);
        must(state.oracle.poisoned(at));
        must(state.mmu.poison(at));
        drop(state);
        if let Some(kernel) = &self.kernel {
            kernel.wake(at);
        }
    }
}

impl Memory for Simulated {
    fn arena(&self) -> PageRange {
        self.arena
    }

    fn address(&self, page: PageIndex) -> usize {
        page.0 as usize * millpond_core::PAGE_SIZE
    }

    fn open(&self, range: PageRange) -> Result<(), MmuError> {
        self.next().set_open(range, true);
        Ok(())
    }

    /// A page that came in along with another one may be mapped here: then the core refuses to give up the range.
    fn close(&self, range: PageRange) -> Result<(), MmuError> {
        self.next().set_open(range, false);
        Ok(())
    }

    fn renew(&self, range: PageRange) -> Result<(), MmuError> {
        let mut state = self.next();
        let mapped = state.mapped_in(range);
        assert_eq!(mapped, None, "{range} is made new with pages mapped");
        state.set_open(range, false);
        Ok(())
    }

    /// The open pages around `page`, up to the ends of its leaf.
    fn usable_around(&self, page: PageIndex) -> PageRange {
        let state = self.now();
        let leaf = page.0 - page.0 % LEAF_PAGES..page.0 - page.0 % LEAF_PAGES + LEAF_PAGES;
        let is_open = |number: &u32| state.is_open(PageIndex(*number));
        let before = (leaf.start..page.0).rev().take_while(is_open).count() as u32;
        let behind = (page.0 + 1..leaf.end).take_while(is_open).count() as u32;
        PageRange::new(PageIndex(page.0 - before), PageCount(before + 1 + behind))
    }

    fn present_pages(&self, range: PageRange, visit: &mut dyn FnMut(PageRange)) {
        let mapped: Vec<_> = {
            let state = self.next();
            let pages = range.pages();
            pages.filter(|&page| state.mmu.is_mapped(page)).collect()
        };
        for page in mapped {
            visit(PageRange::new(page, PageCount(1)));
        }
    }

    /// Zeroes page by page. A page is zeroed in one step, since the oracle cannot represent half a page.
    unsafe fn zero_if_mapped(&self, at: PageRange) -> bool {
        at.pages().all(|page| self.next().zero_page(page))
    }

    unsafe fn hand_over(
        &self,
        from: PageRange,
        to: PageRange,
        _beside: (PageCount, PageCount),
    ) -> Result<(), MmuError> {
        let mut state = self.next();
        must(state.mmu.hand_over(from, to));
        for (page, onto) in from.pages().zip(to.pages()) {
            state.open[onto.0 as usize] = state.open[page.0 as usize];
        }
        Ok(())
    }

    /// Threads touch both ranges, so the oracle's knowledge moves at the same moment as the pages.
    unsafe fn hand_over_watched(
        &self,
        from: PageRange,
        to: PageRange,
        keep: bool,
    ) -> Result<(), MmuError> {
        let mut state = self.next();
        must(state.mmu.hand_over(from, to));
        must(state.oracle.relocate(from, to));
        for (page, onto) in from.pages().zip(to.pages()) {
            state.open[onto.0 as usize] = state.open[page.0 as usize];
        }
        state.set_open(from, keep);
        Ok(())
    }
}
