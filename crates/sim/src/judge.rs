//! The judge: rules that hold at every moment, and rules that hold at rest.
//!
//! The rules for every moment are the budget, the counters of lazily freed memory, and what reclaim may do with that
//! memory. Every few events (because the cost of the check grows with the state) the core's own invariants are checked,
//! and its agreement with memory and oracle about each page.
//!
//! The budget rule: populated memory is at most the limit plus the folios in flight. When the limit is lowered, or the
//! core says that it served a fault above the limit, memory may exceed it for a time; the allowance then follows the
//! memory down and never up again.
//!
//! Lazily freed memory is dropped and never saved, so reclaim may neither save a marked page nor take it out to limbo.
//! A page that the core would drop without a check, because it is marked and not mapped, may be zeros as far as the
//! program knows.

use millpond_core::check::PageState;
use millpond_core::{
    Command, Event, FreeMode, LEAF_PAGES, PageCount, PageIndex, PageRange, Reply, VmStat,
};

use crate::mmu::{BLANK, Slot};
use crate::report::{Check, Coverage, breach, command_folio, command_range, event_range};
use crate::world::{SimRegion, World};

/// Number of pages of regions, hidden or not, beyond which the whole state is checked less often.
const CHECKED_PAGES: u64 = 10 * 1024;

impl World {
    pub(crate) fn check_state(&mut self) -> Check {
        self.check_budget()?;
        self.check_counters()?;
        if self.events - self.checked >= self.check_interval() {
            self.checked = self.events;
            self.check_all()?;
        }
        Ok(())
    }

    /// The number of events between two checks of the whole state. The more state there is, the less often it is
    /// checked, unless it has to be checked after every event.
    fn check_interval(&self) -> u64 {
        let every = self.options.check_every;
        let pages: u64 = self.ranges().map(|range| u64::from(range.len.0)).sum();
        if every > 1 {
            every.max(every * pages / CHECKED_PAGES)
        } else {
            every
        }
    }

    /// Checks that each lazily freed page is dropped, used again, or still waits; some are discarded or lazily freed
    /// once more.
    fn check_counters(&self) -> Check {
        let stats = self.core.stats();
        if stats.pglazyfree < stats.pglazyfreed + stats.pglazyfree_reused + stats.nr_lazyfree {
            breach!("more lazily freed pages went and are there than came: {stats:?}");
        }
        Ok(())
    }

    /// Checks that the commands resulting from `event` do not contradict the marks, and updates the marks.
    ///
    /// # Errors
    /// Reclaim saves or keeps a lazily freed page that was not used since.
    pub(crate) fn check_marks(&mut self, event: &Event, given: &[Command]) -> Check {
        let uses = !matches!(
            event,
            Event::Reclaim { .. }
                | Event::ReclaimGroup { .. }
                | Event::TrimLazyFree
                | Event::GiveFreedBack { .. }
                | Event::RecountLazyFree { .. }
                | Event::Advise { .. }
        );
        let concerned = |command: &Command| {
            command_range(command)
                .or_else(|| command_folio(command).and_then(|f| self.folio_at.get(&f).copied()))
        };
        let mut changed: Vec<PageRange> = given.iter().filter_map(concerned).collect();
        for command in given {
            let keeps = matches!(command, Command::Save { .. } | Command::TakeOut { .. });
            let marked = |at: PageRange| at.pages().find(|page| self.marked[page.0 as usize]);
            if let (true, false, Some(page)) = (keeps, uses, concerned(command).and_then(marked)) {
                breach!(at page, "{event:?} gives {command:?}, but {page} was lazily freed");
            }
        }
        let told = match *event {
            Event::Completed { folio, .. } => self.folio_at.get(&folio).copied(),
            _ => event_range(event),
        };
        changed.extend(told);
        changed.extend(self.silently_changed(event, given));
        for page in changed.iter().flat_map(|range| range.pages()) {
            if let Some(marked) = self.marked.get_mut(page.0 as usize) {
                *marked = matches!(self.core.page_state(page), PageState::LazyFree { .. });
            }
        }
        Ok(())
    }

    /// Finds marks that were lost silently. A mapped folio for which reclaim has no place in the pool loses its mark
    /// without a command that would show it. The loss shows in the counts: fewer pages are marked, and fewer than that
    /// were dropped.
    pub(crate) fn find_lost_marks(&mut self, event: &Event, before: &VmStat) {
        let may_lose = matches!(
            event,
            Event::Reclaim { .. } | Event::ReclaimGroup { .. } | Event::TrimLazyFree
        );
        if !may_lose {
            return;
        }
        let now = self.core.stats();
        if before.nr_lazyfree - now.nr_lazyfree > now.pglazyfreed - before.pglazyfreed {
            Coverage::count(&mut self.coverage.injected, "no place to drop");
            for page in (0..).map(PageIndex).take(self.marked.len()) {
                let state = self.core.page_state(page);
                self.marked[page.0 as usize] = matches!(state, PageState::LazyFree { .. });
            }
        }
    }

    /// Checks that reclaim turns to other memory only when no lazily freed memory is left to drop, and that a lazy free
    /// splits folios only at its ends.
    ///
    /// # Errors
    /// The core did otherwise.
    pub(crate) fn check_order(&self, event: &Event, given: &[Command], before: &VmStat) -> Check {
        let now = self.core.stats();
        match *event {
            Event::Reclaim { .. } => {
                let others = |c: &Command| {
                    matches!(
                        c,
                        Command::Save { .. }
                            | Command::TakeOut { .. }
                            | Command::TakeOutLeaf { .. }
                    )
                };
                let freed = |c: &Command| matches!(c, Command::TakeOutIfBlank { .. });
                let drops = now.pglazyfreed > before.pglazyfreed || given.iter().any(freed);
                if let (true, Some(other)) = (drops, given.iter().find(|c| others(c)))
                    && let Some(page) = self.freed_page()
                {
                    breach!(at page, "{event:?} gives {other:?} before {page}, which was lazily freed");
                }
            }
            Event::TrimLazyFree if now != *before || !given.is_empty() => {
                let pages = self.ranges().flat_map(|range| range.pages());
                let left = pages.filter(|page| {
                    matches!(self.core.page_state(*page), PageState::LazyFree { .. })
                });
                let cap = self.profile.config.lazyfree_max.0;
                let looked_at = self.schedule.iter().map(|p| match p.command {
                    Command::Look { part, .. } => part.len.0,
                    _ => 0,
                });
                let left = left.count() as u32 + looked_at.sum::<u32>();
                let capped = |g: &crate::groups::SimGroup| {
                    g.limits.lazyfree_max != millpond_core::GroupLimits::NONE
                };
                if !self.groups.iter().any(capped) && left + LEAF_PAGES <= cap {
                    breach!("a trim to {cap} pages leaves {left}: {given:?}");
                }
            }
            Event::LazyFree { range, .. } if now.folio_split > before.folio_split => {
                let of = |r: &&SimRegion| r.range.covers(range);
                let order = self.regions.iter().find(of).map_or(0, |r| r.largest);
                if (range.start.0 | range.end().0).trailing_zeros() >= u32::from(order) {
                    breach!(at range.start, "{event:?} splits a folio, but none straddles its ends");
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// A lazily freed page that waits to be dropped.
    fn freed_page(&self) -> Option<PageIndex> {
        if self.core.lazyfree_pages() == PageCount::ZERO {
            return None;
        }
        let mut pages = self.ranges().flat_map(|range| range.pages());
        pages.find(|page| matches!(self.core.page_state(*page), PageState::LazyFree { .. }))
    }

    /// Checks that no page of `at` is read after a program has announced that it will remove the right to read it. The
    /// core reads a page to find out whether it was used again. A program that frees memory after such an announcement
    /// makes its own mistake.
    ///
    /// # Errors
    /// A page of `at` is read nonetheless.
    pub(crate) fn expect_readable(&self, at: PageRange) -> Check {
        for protection in &self.mmu.protections {
            let taken = |page: &PageIndex| {
                protection.range.contains(*page)
                    && protection
                        .announced
                        .is_some_and(|event| self.zeroed[page.0 as usize] < event)
            };
            if let Some(page) = at.pages().find(taken) {
                breach!(at page, "{page} is looked at, but the program has announced a protection");
            }
        }
        Ok(())
    }

    /// Checks that the pages that a lazy free of `range` has passed, as `reply` says, are no longer in the store, nor
    /// in limbo unmarked. Of pages that must read as zeros, nothing is left except what is in flight.
    ///
    /// # Errors
    /// A page was skipped.
    pub(crate) fn check_freed(&self, range: PageRange, mode: FreeMode, reply: Reply) -> Check {
        if mode == FreeMode::AlreadyZeroed {
            return Ok(());
        }
        for page in passed(range, reply) {
            let state = self.core.page_state(page);
            let right = match state {
                PageState::Empty | PageState::InFlight => true,
                // A page that cannot move or has no room in the pool stays as it is.
                PageState::LazyFree { .. } | PageState::Resident => mode != FreeMode::ReadsZeros,
                PageState::Limbo => mode == FreeMode::Stored,
                PageState::Swapped | PageState::Poisoned | PageState::Inherited => false,
            };
            if !right {
                breach!(at page, "{page} is {state:?} after a lazy free ({mode:?}) of {range} went past it");
            }
        }
        Ok(())
    }

    /// Checks that the pages that a purge of `range` has passed, as `reply` says, are no longer in the store.
    ///
    /// # Errors
    /// A page was skipped.
    pub(crate) fn check_purged(&self, range: PageRange, reply: Reply) -> Check {
        let kept = |page: &PageIndex| {
            let state = self.core.page_state(*page);
            matches!(state, PageState::Swapped | PageState::Inherited)
        };
        match passed(range, reply).find(kept) {
            Some(page) => {
                breach!(at page, "{page} is in the store or in a base after a purge of {range} went past it")
            }
            None => Ok(()),
        }
    }

    pub(crate) fn check_budget(&mut self) -> Check {
        let stats = self.core.stats();
        let memory = self.mmu.mapped() + self.mmu.populated();
        let in_flight = self.schedule.pages();
        let over = stats.over_limit - self.over_limit;
        self.over_limit = stats.over_limit;
        if over > 0 {
            self.expect_nothing_freed()?;
            let blocked = self.core.store_blocked() || self.core.files_blocked();
            let waits = stats.nr_limbo > 0 && !blocked;
            if waits {
                breach!("a fault was served above the limit, while limbo could be saved");
            }
            let twice = self.core.held_twice();
            if self.core.store_full() && stats.nr_limbo > 0 && twice > 0 {
                breach!(
                    "a fault was served above the limit, while a full store has {twice} folios that are mapped"
                );
            }
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
        self.check_group_budgets()?;
        Ok(())
    }

    /// Checks, if a fault was served above the limit, that nothing is left that could have been dropped without the
    /// store.
    fn expect_nothing_freed(&self) -> Check {
        match self.freed_page() {
            Some(page) => {
                breach!(at page, "a fault was served above the limit, while {page} is lazily freed")
            }
            None => Ok(()),
        }
    }

    /// Checks the core's own invariants, and its agreement with memory and oracle about every page.
    ///
    /// # Errors
    /// An invariant does not hold.
    pub fn check_all(&self) -> Check {
        if let Err(what) = self.core.check() {
            breach!("core.check(): {what}");
        }
        for page in self.ranges().flat_map(|range| range.pages()) {
            self.check_page(page)?;
        }
        self.check_chains()
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
            | PageState::Inherited
            | PageState::Limbo
            | PageState::LazyFree { mapped: false }
            | PageState::Swapped => here == Slot::Empty,
        };
        if !agree && !self.is_unhooked(page) {
            breach!(at page, "the core takes {page} to be {core:?}, but it is {here:?}");
        }
        let lazy = core == (PageState::LazyFree { mapped: false });
        if lazy && !self.oracle.may_be_zeros(page) {
            breach!(at page, "{page} would be dropped at any time, but was written to since it was freed");
        }
        if core == PageState::Inherited {
            self.check_inherited(page)?;
        }
        Ok(())
    }

    /// Checks what must hold when nothing is under way: the gauges are the memory's and the store's own numbers.
    ///
    /// # Errors
    /// A gauge is wrong.
    pub fn check_gauges(&self) -> Check {
        self.check_all()?;
        let stats = self.core.stats();
        let (mut freed, mut freed_mapped) = (0, 0);
        for page in self.ranges().flat_map(|range| range.pages()) {
            if let PageState::LazyFree { mapped } = self.core.page_state(page) {
                freed += 1;
                freed_mapped += u64::from(mapped);
            }
        }
        let gauges = [
            ("nr_lazyfree", stats.nr_lazyfree, freed),
            ("nr_lazyfree_mapped", stats.nr_lazyfree_mapped, freed_mapped),
            ("nr_mapped", stats.nr_mapped, self.mmu.mapped()),
            ("nr_unhooked", stats.nr_unhooked, 0),
            (
                "nr_limbo + nr_free_frames",
                stats.nr_limbo + stats.nr_free_frames,
                self.mmu.populated(),
            ),
            ("nr_limit", stats.nr_limit, self.limit),
        ];
        self.check_group_gauges()?;
        for (name, said, is) in gauges {
            if said != is {
                breach!("{name} is {said}, must be {is}: {stats:?}");
            }
        }
        Ok(())
    }

    /// Checks what must hold after a recount while no other actor works: a page that is reported as free, and could
    /// have been written to unnoticed, was not written to.
    ///
    /// # Errors
    /// Such a page was written to.
    pub fn check_recounted(&self) -> Check {
        for page in self.ranges().flat_map(|range| range.pages()) {
            let state = self.core.page_state(page);
            let here = self.mmu.page(page);
            if state == (PageState::LazyFree { mapped: true }) && here != Slot::Mapped(BLANK) {
                breach!(at page, "{page} is {state:?} after a recount, but is {here:?}");
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

/// The pages of `range` that an event with the answer `reply` has handled.
fn passed(range: PageRange, reply: Reply) -> impl Iterator<Item = PageIndex> {
    let end = match reply {
        Reply::Done => range.end(),
        Reply::More { from } => from,
        _ => range.start,
    };
    range.pages().take_while(move |page| *page < end)
}
