//! A program's calls, as opposed to its touches of memory: discard, pin, advise, populate.
//!
//! Each call is an event for the core, repeated until the core reports that it is done, with a wait or a fault in
//! between if the core requests one. Memory that a discard gathers is given back like freed memory (`free.rs`), inside
//! the gate, as threads may wait for it.

use crate::driver::Driver;
use crate::fault::{FaultError, Patience};
use crate::memory::Memory;
use crate::signals::SignalsBlocked;
use crate::state::pauses::Pauses;
use crate::state::queue::FreedBy;
use millpond_core::{
    Advice, Commands, Event, LEAF_PAGES, PAGE_SIZE, PageCount, PageIndex, PageRange, PageState,
    Refusal, Reply,
};

/// Why a range is not pinned.
pub enum PinRefusal {
    /// The budget, or the max, of this many bytes is too small for the pin in addition to everything else.
    NoRoom(u64),
    /// The core refuses the pin.
    Core(Refusal),
}

impl From<Refusal> for PinRefusal {
    fn from(refusal: Refusal) -> Self {
        Self::Core(refusal)
    }
}

impl<M: Memory> Driver<M> {
    /// Sends `event` for `range`, and again for the rest, until it is done.
    ///
    /// # Errors
    /// The core's refusal, or the page that could not be brought in.
    pub fn operate(
        &self,
        range: PageRange,
        event: impl Fn(PageRange) -> Event,
    ) -> Result<(), Refusal> {
        let _quiet = SignalsBlocked::new();
        self.operate_with(&mut Commands::new(), range, FreedBy::Owner, event)
    }

    /// Forgets the contents of `range`, a chunk at a time ([`FreeTuning`](crate::state::queue::FreeTuning)).
    ///
    /// # Errors
    /// The core's refusal. A pinned page leads to a refusal before anything is changed, unless the page was pinned
    /// during the call.
    pub fn discard(&self, mut rest: PageRange) -> Result<(), Refusal> {
        let _quiet = SignalsBlocked::new();
        let chunk = self.freer.chunk();
        if rest.len <= chunk {
            return self.discard_chunk(&mut Commands::new(), rest, FreedBy::Owner);
        }
        if let Some(page) = self.first_pinned(rest) {
            return Err(Refusal::Pinned { page });
        }
        let mut commands = Commands::new();
        self.with_large_batch(&mut commands, |commands| {
            let mut pauses = Pauses::new();
            while let Some(start) = self.first_in_use(rest) {
                rest = rest.tail(start);
                // Chunks end at the ends of leaves, so that no folio is split between two chunks.
                let end = PageIndex((rest.start.0 + chunk.0) / LEAF_PAGES * LEAF_PAGES);
                let len = PageCount(end.0 - rest.start.0).min(rest.len);
                let here = PageRange::new(rest.start, len);
                self.discard_chunk(commands, here, FreedBy::Owner)?;
                rest = rest.tail(here.end());
                pauses.pause_if_due();
            }
            Ok(())
        })
    }

    /// Discards one chunk, with signals blocked. `by` names the thread that gives the gathered memory back.
    pub fn discard_chunk(
        &self,
        commands: &mut Commands,
        range: PageRange,
        by: FreedBy,
    ) -> Result<(), Refusal> {
        self.operate_with(commands, range, by, |range| Event::Discard { range })
    }

    fn operate_with(
        &self,
        commands: &mut Commands,
        mut range: PageRange,
        by: FreedBy,
        event: impl Fn(PageRange) -> Event,
    ) -> Result<(), Refusal> {
        let _inside = self.gate.enter();
        let mut pauses = Pauses::new();
        loop {
            let mut core = self.lock();
            let reply = core.handle(event(range), commands);
            let gathered = !commands.batch().is_empty();
            match reply {
                Reply::Wait { .. } if commands.is_empty() && !gathered => {
                    drop(self.wait_settled(core));
                    continue;
                }
                _ => drop(core),
            }
            self.carry_out(commands);
            if gathered {
                self.give_back(commands.batch(), by);
            }
            match reply {
                Reply::Done => return Ok(()),
                Reply::More { from } => {
                    range = range.tail(from);
                    pauses.pause_if_due();
                }
                Reply::Wait { .. } => {}
                Reply::NeedsResident { page } => self.bring_in_first(page)?,
                Reply::Refused(refusal) => return Err(refusal),
                Reply::Present
                | Reply::Scattered { .. }
                | Reply::Reclaim { .. }
                | Reply::ReclaimGroup { .. }
                | Reply::Group { .. }
                | Reply::Seen { .. }
                | Reply::WaitForBase { .. }
                | Reply::Detached { .. }
                | Reply::Region { .. } => {
                    unreachable!("{reply:?} is no answer to this")
                }
            }
        }
    }

    /// Brings in every page of `range`, one folio after another.
    pub fn populate(&self, range: PageRange) -> Result<(), (PageIndex, FaultError)> {
        // The advice is refused if there is no region, which is detected below.
        let advice = Advice::WillNeed;
        let _ = self.operate(range, |range| Event::Advise { range, advice });
        let _quiet = SignalsBlocked::new();
        let _inside = self.gate.enter();
        for page in range.pages() {
            self.fault_in(page, Patience::Wait)
                .map_err(|error| (page, error))?;
        }
        Ok(())
    }

    /// Pins `range`, bringing in the pages that are absent.
    pub fn pin(&self, range: PageRange) -> Result<(), PinRefusal> {
        let _quiet = SignalsBlocked::new();
        {
            let _inside = self.gate.enter();
            self.room_to_pin(range)?;
        }
        Ok(self.pin_in_any_case(range)?)
    }

    /// Pins `range` as [`pin`](Self::pin) does, however little memory that leaves to everything else. The pages present
    /// from the front on are pinned before the next page is brought in: otherwise a reclaiming thread could take pages
    /// out while others come in, for as long as both continue.
    pub fn pin_in_any_case(&self, range: PageRange) -> Result<(), Refusal> {
        let _quiet = SignalsBlocked::new();
        let mut rest = range;
        if let Err(refusal) = self.pin_from_front(&mut rest) {
            let pinned = PageRange::new(range.start, PageCount(range.len.0 - rest.len.0));
            if !pinned.is_empty() {
                self.operate(pinned, |range| Event::Unpin { range })
                    .expect("these pages were pinned");
            }
            return Err(refusal);
        }
        self.mmu.pinned(range);
        Ok(())
    }

    /// Pins pages of `rest`, and reduces it to the pages that are still to be pinned.
    fn pin_from_front(&self, rest: &mut PageRange) -> Result<(), Refusal> {
        let _inside = self.gate.enter();
        let mut commands = Commands::new();
        let mut here = *rest;
        while !rest.is_empty() {
            let mut core = self.lock();
            let reply = core.handle(Event::Pin { range: here }, &mut commands);
            match reply {
                Reply::Done => {
                    *rest = rest.tail(here.end());
                    here = *rest;
                }
                Reply::Wait { page } | Reply::NeedsResident { page } if page > here.start => {
                    here = PageRange::new(here.start, PageCount(page.0 - here.start.0));
                }
                Reply::Wait { .. } if commands.is_empty() => {
                    core = self.wait_settled(core);
                }
                _ => {}
            }
            drop(core);
            self.carry_out(&mut commands);
            match reply {
                Reply::NeedsResident { page } if page == here.start => self.make_resident(page)?,
                Reply::Done | Reply::Wait { .. } | Reply::NeedsResident { .. } => {}
                Reply::Refused(refusal) => return Err(refusal),
                other => unreachable!("{other:?} is no answer to a pin"),
            }
        }
        Ok(())
    }

    /// Ends one pin of each page of `range`.
    pub fn unpin(&self, range: PageRange) -> Result<(), Refusal> {
        self.operate(range, |range| Event::Unpin { range })?;
        self.mmu.unpinned(range);
        Ok(())
    }

    /// Pins `range` if that needs no wait for any page. Returns whether it did.
    pub fn try_pin(&self, range: PageRange) -> Result<bool, PinRefusal> {
        let _quiet = SignalsBlocked::new();
        // A thread that closed the gate may hold it for milliseconds.
        let Some(_inside) = self.gate.try_enter() else {
            return Ok(false);
        };
        self.room_to_pin(range)?;
        let mut commands = Commands::new();
        loop {
            let reply = self.lock().handle(Event::Pin { range }, &mut commands);
            let has_work = !commands.is_empty();
            self.carry_out(&mut commands);
            match reply {
                Reply::Done => {
                    self.mmu.pinned(range);
                    return Ok(true);
                }
                // Our own commands, at the ends of the range, do not count as waiting.
                Reply::Wait { .. } if has_work => {}
                Reply::Wait { .. } | Reply::NeedsResident { .. } => return Ok(false),
                Reply::Refused(refusal) => return Err(refusal.into()),
                other => unreachable!("{other:?} is no answer to a pin"),
            }
        }
    }

    /// Checks whether pinning these pages leaves a quarter of the budget, and of each max of their groups, to
    /// everything else. The error contains the budget or max that is too small. For threads inside the gate.
    fn room_to_pin(&self, pages: PageRange) -> Result<(), PinRefusal> {
        let stuck = self.lock().stats().nr_unevictable * PAGE_SIZE as u64;
        let ram = self.governor.ram();
        if stuck + pages.len.bytes() > ram / 4 * 3 {
            return Err(PinRefusal::NoRoom(ram));
        }
        let core = self.lock();
        for group in core.group_path(core.group_at(pages.start)) {
            let Some(stat) = core.group_stat(group) else {
                continue;
            };
            let max = stat.limits.max.bytes();
            let stuck = stat.vm.nr_unevictable * PAGE_SIZE as u64;
            if stuck + pages.len.bytes() > max / 4 * 3 {
                return Err(PinRefusal::NoRoom(max));
            }
        }
        Ok(())
    }

    fn first_in_use(&self, range: PageRange) -> Option<PageIndex> {
        let _inside = self.gate.enter();
        self.lock().first_in_use(range)
    }

    /// The first page of `range` that is pinned.
    pub fn first_pinned(&self, range: PageRange) -> Option<PageIndex> {
        let _quiet = SignalsBlocked::new();
        let _inside = self.gate.enter();
        self.lock().first_pinned(range)
    }

    /// Calls `see` with the state of each page. The lock is released now and then.
    pub fn each_state(&self, range: PageRange, mut see: impl FnMut(PageState)) {
        let _quiet = SignalsBlocked::new();
        let _inside = self.gate.enter();
        let mut pages = range.pages().peekable();
        while pages.peek().is_some() {
            let core = self.lock();
            for page in pages.by_ref().take(LEAF_PAGES as usize) {
                see(core.page_state(page));
            }
        }
    }

    /// Brings `page` in.
    ///
    /// # Errors
    /// The reason why the page cannot be brought in.
    pub fn make_resident(&self, page: PageIndex) -> Result<(), Refusal> {
        match self.fault_in(page, Patience::Wait) {
            Ok(_) => Ok(()),
            Err(FaultError::Lost) => Err(Refusal::Poisoned { page }),
            Err(FaultError::Outside) => Err(Refusal::OutsideRegion),
            Err(FaultError::OutOfRecords) => Err(Refusal::OutOfRecords),
        }
    }

    /// Brings in `page` for a call that is repeated afterwards. If the page is lost in the meantime, the core decides
    /// what that means: a call that frees or discards a page does not need its contents.
    pub fn bring_in_first(&self, page: PageIndex) -> Result<(), Refusal> {
        match self.make_resident(page) {
            Err(Refusal::Poisoned { .. }) => Ok(()),
            brought => brought,
        }
    }

    /// Sends an event that needs no range and gives no commands.
    pub fn tell(&self, event: Event) -> Reply {
        let _quiet = SignalsBlocked::new();
        let _inside = self.gate.enter();
        let mut commands = Commands::new();
        let reply = self.lock().handle(event, &mut commands);
        self.carry_out(&mut commands);
        reply
    }
}
