//! Tests that the part of a leaf in memory leaves for a stream that needs the whole leaf, decision by decision.

mod common;

use common::{Driven, NEW};
use millpond_core::gather::Gather;
use millpond_core::limits::MIN_LIMIT_PAGES;
use millpond_core::{
    Advice, Command, Config, Core, Event, Kind, LEAF_PAGES, Order, OrderPolicy, Outcome, PageCount,
    PageIndex, PageRange, PageState, Reclaimer, Reply,
};

const LEAVES: u32 = 10;
/// Leaves that a stream passes before the single reads are forgotten.
const FORGOTTEN: u32 = 4;
/// One page in this many is in memory when the stream comes.
const APART: u32 = 6;

const ADAPTIVE: OrderPolicy = OrderPolicy::Adaptive { max: Order::MAX };

/// A region that was filled in order and is in the store, with some pages of each leaf in memory.
struct World {
    core: Core,
    events: u32,
    range: PageRange,
    /// Whether pages have been written since they came in, so that they differ from the store's copies.
    written: bool,
    /// The pages that the last fault brought in.
    came: Vec<PageRange>,
}

impl Driven for World {
    fn core(&mut self) -> &mut Core {
        &mut self.core
    }

    fn is_check_due(&mut self) -> bool {
        self.events += 1;
        self.events.is_multiple_of(64)
    }
}

impl World {
    fn new() -> Self {
        Self::with(ADAPTIVE, true, false)
    }

    fn with(order: OrderPolicy, allowed: bool, written: bool) -> Self {
        let config = Config::new(PageCount(32 * LEAF_PAGES), PageCount(MIN_LIMIT_PAGES));
        let mut world = Self {
            core: Core::new(config).unwrap(),
            events: 0,
            range: PageRange::new(PageIndex(0), PageCount(0)),
            written: true,
            came: Vec::new(),
        };
        world.send(Event::TakeLeaves { on: allowed });
        let (pages, kind) = (PageCount(LEAVES * LEAF_PAGES), Kind::Anonymous);
        match world.send(Event::CreateRegion { pages, order, kind }).0 {
            Reply::Region { range, .. } => world.range = range,
            reply => panic!("{reply:?}"),
        }
        let range = world.range;
        world.stream(range.pages());
        world.all(range, |range| Event::Advise {
            range,
            advice: Advice::PageOut,
        });
        while world.core.stats().nr_limbo > 0 {
            world.reclaim(PageCount(range.len.0));
        }
        world.written = false;
        world.advise(Advice::Random);
        // The last page of each leaf is inside, so that no stream continues from it.
        let (lower, upper): (Vec<_>, Vec<_>) = range
            .pages()
            .step_by(APART as usize)
            .partition(|page| page.0 % LEAF_PAGES < LEAF_PAGES / 2);
        for page in upper.into_iter().chain(lower) {
            world.touch(page);
            assert_eq!(world.came.len(), 1);
        }
        world.advise(Advice::Normal);
        world.written = written;
        world
    }

    fn advise(&mut self, advice: Advice) {
        let range = self.range;
        let (reply, _) = self.send(Event::Advise { range, advice });
        assert_eq!(reply, Reply::Done);
    }

    fn leaf(&self, n: u32) -> PageRange {
        PageRange::block(self.range.start.plus(n * LEAF_PAGES), Order::MAX)
    }

    fn stream(&mut self, pages: impl Iterator<Item = PageIndex>) {
        pages.for_each(|page| self.touch(page));
    }

    /// Touches a page, and carries out everything that this requires. The core decides whether to reclaim first.
    fn touch(&mut self, page: PageIndex) {
        self.came.clear();
        if self.core.page_state(page) == PageState::Resident {
            return;
        }
        loop {
            let (reply, commands) = self.fault(page);
            self.carry_out(commands);
            match reply {
                Reply::Done | Reply::Present => return,
                Reply::Reclaim { pages } => {
                    let want = self.core.wanted(pages);
                    while self.core.available() < want && self.reclaim(want) {}
                }
                Reply::Scattered { pages } => {
                    let mut gather = Gather::with_pages(1);
                    self.core.gather_scattered(pages, &mut gather);
                    assert_eq!(self.give_back(&mut gather), None);
                }
                reply => panic!("{reply:?} at {page}"),
            }
        }
    }

    fn fault(&mut self, page: PageIndex) -> (Reply, Vec<Command>) {
        let max_order = Order::MAX;
        self.send(Event::Fault {
            page,
            max_order,
            within: PageRange::ALL,
        })
    }

    /// Sends an event for all of `range`.
    fn all(&mut self, mut range: PageRange, event: impl Fn(PageRange) -> Event) {
        loop {
            let (reply, commands) = self.send(event(range));
            self.carry_out(commands);
            match reply {
                Reply::More { from } => range = range.tail(from),
                reply => return assert_eq!(reply, Reply::Done),
            }
        }
    }

    /// Runs one batch of reclaim. Returns whether it did anything.
    fn reclaim(&mut self, pages: PageCount) -> bool {
        let by = Reclaimer::Direct;
        let (reply, commands) = self.send(Event::Reclaim { pages, by });
        let any = !commands.is_empty();
        self.carry_out(commands);
        any || matches!(reply, Reply::More { .. })
    }

    /// Carries commands out in a world in which everything works.
    fn carry_out(&mut self, commands: Vec<Command>) {
        for command in commands {
            match command {
                Command::Save {
                    folio, previous, ..
                } => {
                    let unchanged = previous.is_some() && !self.written;
                    let outcome = match unchanged {
                        true => Outcome::Unchanged,
                        false => Outcome::Stored,
                    };
                    let next = self.tell(folio, outcome);
                    self.carry_out(next);
                }
                Command::Load { at, .. } | Command::Fold { at, .. } => {
                    self.came.push(at);
                    self.work_as(vec![command], NEW);
                }
                _ => self.work_as(vec![command], NEW),
            }
        }
    }

    fn evicted(&self) -> u64 {
        self.core.stats().leaf_evicted
    }
}

#[test]
fn a_stream_reloads_evicted_leaves_as_large_folios() {
    for down in [false, true] {
        let mut world = World::new();
        let pages = world.range.pages();
        let mut pages: Vec<_> = pages.collect();
        if down {
            pages.reverse();
        }
        // Single reads came before, and no stream is known yet.
        let (first, rest) = pages.split_at((FORGOTTEN * LEAF_PAGES) as usize);
        world.stream(first.iter().copied());
        assert_eq!(world.evicted(), 0, "down: {down}");
        let before = world.core.stats();
        world.stream(rest.iter().copied());
        let stats = world.core.stats();
        let leaves = u64::from(LEAVES - FORGOTTEN);
        assert_eq!(world.evicted(), leaves, "down: {down}");
        assert_eq!(stats.pswpout, before.pswpout, "nothing is written");
        // The pages come in the largest folios that a budget of this size allows.
        let faults = stats.pgmajfault - before.pgmajfault;
        assert!(faults <= 9 * leaves, "{faults} faults");
    }
}

/// The fault that requests the leaf finds it empty, and brings in its own page.
#[test]
fn leaf_is_evicted_completely_before_the_stream_comes_back() {
    let mut world = World::new();
    (0..FORGOTTEN).for_each(|n| world.stream(world.leaf(n).pages()));
    let leaf = world.leaf(FORGOTTEN);
    let page = leaf.start;
    let (reply, commands) = world.fault(page);
    let Reply::Reclaim { pages } = reply else {
        panic!("{reply:?}");
    };
    assert!(commands.is_empty());
    let want = world.core.wanted(pages);
    let is_there = |page: &PageIndex| world.core.page_state(*page) == PageState::Resident;
    let there = leaf.pages().filter(is_there).count() as u32;
    assert_eq!(want.0, world.core.available().0 + there);
    while world.core.available() < want {
        assert!(world.reclaim(want));
    }
    let state = |page| world.core.page_state(page);
    assert!(leaf.pages().all(|page| state(page) == PageState::Swapped));
    world.touch(page);
    assert_eq!(world.came[0], PageRange::new(page, PageCount(64)));
}

#[test]
fn refaults_outside_the_stream_prevent_leaf_evictions() {
    let mut world = World::new();
    let far = world.leaf(LEAVES - 1);
    let mut others = far.pages().filter(|page| page.0 % APART == 3);
    for n in 0..LEAVES - 1 {
        for page in world.leaf(n).pages() {
            world.touch(page);
            if page.0.is_multiple_of(LEAF_PAGES / 8) {
                others.next().into_iter().for_each(|page| world.touch(page));
            }
        }
    }
    assert_eq!(world.evicted(), 0);
}

#[test]
fn a_leaf_that_would_not_come_whole_stays() {
    // Pages that were never saved are in no slot.
    let mut world = World::new();
    let range = world.range;
    world.written = true;
    world.advise(Advice::Random);
    for leaf in range.leaf_starts() {
        for page in (0..20).map(|n| leaf.plus(n * APART)) {
            let range = PageRange::new(page, PageCount(1));
            world.all(range, |range| Event::Discard { range });
            world.touch(page);
        }
    }
    world.advise(Advice::Normal);
    world.stream(range.pages());
    assert_eq!(world.evicted(), 0);
    // Nor does a leaf come whole if leaves may not leave by their tables, or if all folios have one size.
    for (order, allowed) in [(ADAPTIVE, false), (Order::ZERO.into(), true)] {
        let mut world = World::with(order, allowed, false);
        world.stream(range.pages());
        assert_eq!(world.evicted(), 0);
    }
}

/// A change is only detected when the page is saved, so evicting the leaf is tried less and less often.
#[test]
fn leaves_that_were_written_are_tried_less_and_less_often() {
    let mut world = World::with(ADAPTIVE, true, true);
    world.stream(world.range.pages());
    // One leaf is tried, one is not, one is, two are not, and the last one is.
    assert_eq!((LEAVES - FORGOTTEN, world.evicted()), (6, 3));
}

/// A pinned page keeps its leaf in memory, and the stream continues with the absent pages.
#[test]
fn a_pinned_page_keeps_its_leaf_and_the_stream_continues() {
    let mut world = World::new();
    let is_there = |page: &PageIndex| world.core.page_state(*page) == PageState::Resident;
    let pinned = world
        .leaf(FORGOTTEN)
        .pages()
        .filter(is_there)
        .nth(7)
        .unwrap();
    let pinned = PageRange::new(pinned, PageCount(1));
    assert_eq!(world.send(Event::Pin { range: pinned }).0, Reply::Done);
    world.stream(world.range.pages());
    assert_eq!(world.core.page_state(pinned.start), PageState::Resident);
    // The pinned leaf counts as a failure, so the next one is not tried.
    assert_eq!(world.evicted(), u64::from(LEAVES - FORGOTTEN - 2));
}
