//! A core driven by hand: each test decides how commands are answered.
#![allow(dead_code, reason = "each test binary uses a part")]

use millpond_core::gather::Gather;
use millpond_core::limits::MIN_LIMIT_PAGES;
use millpond_core::{
    Advice, Command, Commands, Config, Core, Event, FolioId, FreeMode, Kind, LEAF_PAGES, Order,
    Outcome, PageCount, PageIndex, PageRange, PageState, Reclaimer, RegionId, Reply,
};

pub const NEW: Outcome = Outcome::Installed { frame_kept: false };

/// Drives a core by hand. Every event is followed by the whole-state check.
pub trait Driven {
    fn core(&mut self) -> &mut Core;

    /// Whether the whole state is checked now. In long histories it is only checked occasionally.
    fn is_check_due(&mut self) -> bool {
        true
    }

    fn fault(&mut self, page: PageIndex) -> (Reply, Vec<Command>) {
        let max_order = Order::MAX;
        self.send(Event::Fault {
            page,
            max_order,
            within: PageRange::ALL,
        })
    }

    /// Sends an event, and immediately frees what a discard gathers.
    fn send(&mut self, event: Event) -> (Reply, Vec<Command>) {
        let (reply, mut out) = self.hold(event);
        self.give_back(out.batch());
        (reply, out.iter().collect())
    }

    /// Sends an event. The caller must free what is gathered.
    fn hold(&mut self, event: Event) -> (Reply, Commands) {
        let mut out = Commands::new();
        let reply = self.core().handle(event, &mut out);
        if self.is_check_due() {
            let checked = self.core().check();
            checked.unwrap_or_else(|what| panic!("after {event:?}: {what}"));
        }
        (reply, out)
    }

    /// Frees a batch. Returns the range for which threads waited.
    fn give_back(&mut self, gather: &mut Gather) -> Option<PageRange> {
        let wake = self.core().gathered(gather);
        gather.clear();
        if self.is_check_due() {
            self.core().check().unwrap();
        }
        wake
    }

    fn tell(&mut self, folio: FolioId, outcome: Outcome) -> Vec<Command> {
        self.send(Event::Completed { folio, outcome }).1
    }

    fn create(&mut self, pages: u32, order: u8) -> (RegionId, PageRange) {
        self.create_of(Kind::Anonymous, pages, order)
    }

    fn create_of(&mut self, kind: Kind, pages: u32, order: u8) -> (RegionId, PageRange) {
        let (pages, order) = (PageCount(pages), Order::new(order).unwrap().into());
        match self.send(Event::CreateRegion { pages, order, kind }).0 {
            Reply::Region { region, range } => (region, range),
            reply => panic!("{reply:?}"),
        }
    }

    /// Carries commands out in a world in which everything works and nothing is written to. Installs end as `install`.
    fn work_as(&mut self, commands: Vec<Command>, install: Outcome) {
        for command in commands {
            let next = match command {
                Command::Zero { folio, .. }
                | Command::Load { folio, .. }
                | Command::Fold { folio, .. }
                | Command::Copy { folio, .. }
                | Command::Read { folio, .. }
                | Command::Rescue { folio, .. } => self.tell(folio, install),
                Command::TakeOut { folio, .. } => self.tell(folio, Outcome::TakenOut),
                Command::TakeOutIfBlank { folio, .. } => self.tell(folio, Outcome::TakenOutBlank),
                Command::TakeOutLeaf { at, .. } => {
                    let mut next = Vec::new();
                    loop {
                        let (reply, more) = self.send(Event::LeafTakenOut { at, taken: true });
                        next.extend(more);
                        if reply == Reply::Done {
                            break next;
                        }
                    }
                }
                Command::ZeroInPlace { folio, .. } => self.tell(folio, Outcome::Zeroed),
                Command::Look { folio, .. } => self.tell(folio, Outcome::Blank),
                Command::Save { folio, .. } | Command::WriteBack { folio, .. } => {
                    self.tell(folio, Outcome::Stored)
                }
                Command::Zap { folio, .. } => self.tell(folio, Outcome::Zapped),
                Command::FreeFrame { frame } => self.send(Event::FrameFreed { frame }).1,
                Command::Release { slot } => self.send(Event::SlotReleased { slot }).1,
                Command::Poison { folio, .. } => self.tell(folio, Outcome::Poisoned),
                Command::Wake { .. } => continue,
            };
            self.work_as(next, install);
        }
    }

    fn work(&mut self, commands: Vec<Command>) {
        self.work_as(commands, NEW);
    }
}

/// A core whose whole state is checked after every event.
pub struct Bench(pub Core);

impl Driven for Bench {
    fn core(&mut self) -> &mut Core {
        &mut self.0
    }
}

impl Bench {
    pub fn new() -> Self {
        Self::with_cap(u32::MAX)
    }

    pub fn with_cap(pages: u32) -> Self {
        let config = Config::new(PageCount(32 * LEAF_PAGES), PageCount(MIN_LIMIT_PAGES));
        let lazyfree_max = PageCount(pages);
        Self(
            Core::new(Config {
                lazyfree_max,
                ..config
            })
            .unwrap(),
        )
    }

    /// Makes a region whose pages are all resident.
    pub fn filled(&mut self, pages: u32, order: u8) -> PageRange {
        let range = self.region(pages, order);
        self.touch(range);
        range
    }

    pub fn region(&mut self, pages: u32, order: u8) -> PageRange {
        self.create(pages, order).1
    }

    pub fn touch(&mut self, range: PageRange) {
        for page in range.pages() {
            let commands = self.fault(page).1;
            self.work(commands);
        }
    }

    /// Sends an event for all of `range`, repeatedly if necessary. Returns all commands except releases and frees.
    pub fn all(
        &mut self,
        mut range: PageRange,
        event: impl Fn(PageRange) -> Event,
    ) -> Vec<Command> {
        let mut given = Vec::new();
        loop {
            let (reply, commands) = self.send(event(range));
            given.extend(&commands);
            self.work(commands);
            match reply {
                Reply::Done => return given,
                Reply::More { from } => {
                    range = range.tail(from);
                }
                Reply::NeedsResident { page } => {
                    let commands = self.fault(page).1;
                    self.work(commands);
                }
                reply => panic!("{reply:?}"),
            }
        }
    }

    pub fn free(&mut self, range: PageRange, mode: FreeMode) -> Vec<Command> {
        self.all(range, |range| Event::LazyFree { range, mode })
    }

    pub fn page_out(&mut self, range: PageRange) {
        let advice = Advice::PageOut;
        self.all(range, |range| Event::Advise { range, advice });
    }

    pub fn reclaim(&mut self, pages: u32) -> Vec<Command> {
        let (pages, by) = (PageCount(pages), Reclaimer::Direct);
        self.send(Event::Reclaim { pages, by }).1
    }

    /// Sends all memory to the store. All of it must be in `range`.
    pub fn swap_out(&mut self, range: PageRange) {
        self.page_out(range);
        while self.0.stats().nr_limbo > 0 {
            let commands = self.reclaim(range.len.0);
            self.work(commands);
        }
        assert_eq!(self.state(range, 0), PageState::Swapped);
    }

    pub fn state(&self, range: PageRange, page: u32) -> PageState {
        self.0.page_state(range.start.plus(page))
    }
}

pub fn part(range: PageRange, pages: std::ops::Range<u32>) -> PageRange {
    PageRange::new(
        range.start.plus(pages.start),
        PageCount(pages.end - pages.start),
    )
}
