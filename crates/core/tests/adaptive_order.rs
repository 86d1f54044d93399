//! Tests of windows, adaptive orders and folding, decision by decision.

use millpond_core::gather::Gather;
use millpond_core::limits::MIN_LIMIT_PAGES;
use millpond_core::{
    Advice, Command, Commands, Config, Core, Event, Frame, FreeMode, Kind, LEAF_PAGES, Order,
    OrderPolicy, Outcome, PageCount, PageIndex, PageRange, PageState, Reclaimer, Reply,
};

const LIMIT: u32 = 64 * LEAF_PAGES;

/// A core in a world that carries out every command.
struct World {
    core: Core,
    range: PageRange,
    /// The range that the program may use.
    usable: PageRange,
    /// The folios that the last fault brought in: each command's pages and the number of parts of a fold.
    brought: Vec<(PageRange, usize)>,
    /// Whether nothing is written to pages that were read.
    unchanged: bool,
    /// Whether folds are answered as if they spanned two mappings.
    split: bool,
    /// The ranges where zeros were mapped and, in `taken`, where folios were taken out, in this order, with their
    /// frames.
    zeroed: Vec<(PageRange, Option<Frame>)>,
    taken: Vec<(PageRange, Frame)>,
}

impl World {
    fn new(order: impl Into<OrderPolicy>) -> Self {
        let arena = PageCount(128 * LEAF_PAGES);
        let mut core = Core::new(Config::new(arena, PageCount(LIMIT))).unwrap();
        let event = Event::CreateRegion {
            pages: arena,
            order: order.into(),
            kind: Kind::Anonymous,
        };
        let Reply::Region { range, .. } = core.handle(event, &mut Commands::new()) else {
            panic!("no region");
        };
        Self {
            core,
            range,
            usable: PageRange::ALL,
            brought: Vec::new(),
            unchanged: false,
            split: false,
            zeroed: Vec::new(),
            taken: Vec::new(),
        }
    }

    fn adaptive() -> Self {
        Self::new(OrderPolicy::Adaptive { max: Order::MAX })
    }

    fn page(&self, n: u32) -> PageIndex {
        self.range.start.plus(n)
    }

    /// Touches page `n`. Returns the orders of the folios that came in; none if the page was present.
    fn touch(&mut self, n: u32) -> Vec<u8> {
        self.touch_up_to(n, Order::MAX)
    }

    fn touch_up_to(&mut self, n: u32, max_order: Order) -> Vec<u8> {
        self.brought.clear();
        let page = self.page(n);
        loop {
            let mut out = Commands::new();
            let event = Event::Fault {
                page,
                max_order,
                within: self.usable,
            };
            match self.core.handle(event, &mut out) {
                Reply::Done => {
                    self.answer(&mut out);
                    break;
                }
                Reply::Present => break,
                Reply::Reclaim { pages } => {
                    let by = Reclaimer::Direct;
                    self.core.handle(Event::Reclaim { pages, by }, &mut out);
                    self.answer(&mut out);
                }
                Reply::Scattered { pages } => {
                    let mut gather = Gather::with_pages(1);
                    self.core.gather_scattered(pages, &mut gather);
                    assert!(!gather.is_empty());
                    _ = self.core.gathered(&gather);
                }
                other => panic!("{other:?}"),
            }
        }
        let order = |(at, _): &(PageRange, usize)| at.len.0.trailing_zeros() as u8;
        self.brought.iter().map(order).collect()
    }

    fn answer(&mut self, out: &mut Commands) {
        while !out.is_empty() {
            let events: Vec<_> = out.iter().filter_map(|c| self.carry_out(c, out)).collect();
            out.clear();
            for event in events {
                let mut more = Commands::new();
                self.core.handle(event, &mut more);
                self.answer(&mut more);
            }
        }
        self.core.check().unwrap();
    }

    fn carry_out(&mut self, command: Command, all: &Commands) -> Option<Event> {
        let done = |folio, outcome| Some(Event::Completed { folio, outcome });
        let moved = Outcome::Installed { frame_kept: false };
        match command {
            Command::Zero { at, frame, .. } => self.zeroed.push((at, frame)),
            Command::TakeOut { at, frame, .. } => self.taken.push((at, frame)),
            _ => {}
        }
        match command {
            Command::Zero { folio, at, .. } | Command::Load { folio, at, .. } => {
                self.brought.push((at, 1));
                done(folio, moved)
            }
            Command::Fold {
                folio, at, parts, ..
            } => {
                self.brought.push((at, all.parts(parts).len()));
                let split = Outcome::InstallSplit { frame_kept: true };
                done(folio, if self.split { split } else { moved })
            }
            Command::Rescue { folio, .. } => done(folio, moved),
            Command::TakeOut { folio, .. } => done(folio, Outcome::TakenOut),
            Command::Save {
                folio, previous, ..
            } if previous.is_some() && self.unchanged => done(folio, Outcome::Unchanged),
            Command::Save { folio, .. } => done(folio, Outcome::Stored),
            Command::Zap { folio, .. } => done(folio, Outcome::Zapped),
            Command::FreeFrame { frame } => Some(Event::FrameFreed { frame }),
            Command::Release { slot } => Some(Event::SlotReleased { slot }),
            Command::Poison { folio, .. } => done(folio, Outcome::Poisoned),
            Command::Wake { .. } => None,
            other => panic!("{other:?}"),
        }
    }

    /// Sends the first `n` pages to the store.
    fn evict(&mut self, n: u32) {
        let range = PageRange::new(self.range.start, PageCount(n));
        let swapped = |core: &Core| {
            range
                .pages()
                .all(|p| core.page_state(p) == PageState::Swapped)
        };
        for _ in 0..1000 {
            if swapped(&self.core) {
                return;
            }
            let mut out = Commands::new();
            let advice = Advice::PageOut;
            self.core.handle(Event::Advise { range, advice }, &mut out);
            self.answer(&mut out);
            let event = Event::Reclaim {
                pages: PageCount(LEAF_PAGES),
                by: Reclaimer::Background,
            };
            self.core.handle(event, &mut out);
            self.answer(&mut out);
        }
        panic!("{range} does not leave");
    }

    /// Makes a world with slots of one page, where a stream would need larger ones.
    fn fragmented() -> Self {
        let mut world = Self::adaptive();
        for n in 0..64 {
            world.touch(n);
        }
        world.evict(64);
        for n in [3, 9, 14, 20, 41, 33, 55, 60] {
            assert_eq!(world.touch(n), [0], "page {n}");
        }
        world.evict(64);
        world
    }
}

#[test]
fn a_stream_of_first_touches_doubles_its_steps_to_two_mib() {
    let mut world = World::adaptive();
    let orders: Vec<_> = (0..2048).flat_map(|n| world.touch(n)).collect();
    assert_eq!(orders, [0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 9, 9]);
}

#[test]
fn a_long_stream_takes_several_leaves_with_one_fault() {
    for order in [Order::MAX.into(), OrderPolicy::Adaptive { max: Order::MAX }] {
        let mut world = World::new(order);
        let mut leaf = 0;
        let mut steps = Vec::new();
        while leaf < 64 {
            let faults = (0..LEAF_PAGES).map(|n| world.touch(leaf * LEAF_PAGES + n));
            let orders: Vec<u8> = faults.flatten().collect();
            let whole = orders.iter().filter(|&&order| order == 9).count();
            steps.push(whole);
            leaf += whole.max(1) as u32;
        }
        // A run of two leaves brings in one leaf more than it requests, a run of four two more, and an eighth of
        // memory stays free.
        let small = order != Order::MAX.into();
        assert_eq!(
            steps[..6],
            [usize::from(!small), 1, 2, 3, 4, 4],
            "{order:?}"
        );
        assert!(steps.ends_with(&[1, 1, 1, 1, 1, 1]), "{steps:?}");
    }
}

/// The last leaf that comes in with others is the region's last.
#[test]
fn window_of_several_leaves_stops_at_region_end_or_a_resident_leaf() {
    let mut world = World::new(Order::MAX);
    world.touch(6 * LEAF_PAGES + 3);
    let mut touch = |leaf: u32| world.touch(leaf * LEAF_PAGES).len();
    assert_eq!([0, 1, 2].map(&mut touch), [1, 1, 2]);
    assert_eq!(touch(4), 2, "leaf 6 is there already");
    // In a downward run no other leaf comes in.
    assert_eq!([20, 19, 18, 17, 16].map(&mut touch), [1; 5]);
}

/// scikit-learn's KMeans hung under `millpond run`. Pages of a leaf had been touched one by one, a stream reached the
/// leaf with a window of the whole leaf, and all folios of the leaf stopped being watched so that it leaves as a
/// whole. The folios that were already present were on the list of watched folios at the time. Later they were
/// removed from the list of the others, stayed at the old end of their own list, and were repeatedly chosen as the
/// next victim while they were in flight.
#[test]
fn folios_resident_before_a_stream_stay_on_their_list() {
    let mut world = World::adaptive();
    for leaf in 1..40 {
        for n in [leaf * 71 % LEAF_PAGES, leaf * 233 % LEAF_PAGES] {
            world.touch(leaf * LEAF_PAGES + n);
        }
    }
    for n in 0..40 * LEAF_PAGES {
        world.touch(n);
    }
}

#[test]
fn a_sparse_toucher_gets_single_pages() {
    let mut world = World::adaptive();
    for n in (0..8192).step_by(16) {
        assert_eq!(world.touch(n), [0]);
    }
}

#[test]
fn a_folio_takes_at_most_a_share_of_the_budget() {
    let mut world = World::adaptive();
    let pages = PageCount(4096);
    world
        .core
        .handle(Event::SetLimit { pages }, &mut Commands::new());
    let largest = (0..2048).flat_map(|n| world.touch(n)).max();
    assert_eq!(largest, Some(6));
}

#[test]
fn a_page_of_a_large_slot_comes_back_small_when_it_is_touched_alone() {
    let mut world = World::adaptive();
    for n in 0..1024 {
        world.touch(n);
    }
    world.evict(1024);
    for n in [700, 30, 301, 999, 10, 650, 480, 720] {
        assert_eq!(world.touch(n), [0]);
    }
}

#[test]
fn a_stream_folds_pages_scattered_by_random_touches() {
    let mut world = World::fragmented();
    let (mut faults, mut parts) = (0, 0);
    for n in 0..64 {
        world.touch(n);
        faults += usize::from(!world.brought.is_empty());
        parts = parts.max(world.brought.iter().map(|b| b.1).max().unwrap_or(0));
    }
    assert!(faults <= 8, "{faults} faults");
    assert!(parts > 2, "{parts} parts at most");
    assert!(world.core.stats().folio_fold > 0);
    // The pages are together now, and stay together.
    world.evict(64);
    let folds = world.core.stats().folio_fold;
    let orders: Vec<_> = (0..64).flat_map(|n| world.touch(n)).collect();
    assert!(orders.len() <= 8, "{orders:?}");
    assert!(world.core.stats().folio_fold <= folds + 1);
}

#[test]
fn a_fold_that_cannot_be_mapped_whole_changes_nothing() {
    let mut world = World::fragmented();
    let advice = Advice::Sequential;
    let range = PageRange::new(world.range.start, PageCount(64));
    world
        .core
        .handle(Event::Advise { range, advice }, &mut Commands::new());
    world.split = true;
    let before = world.core.stats();
    world.touch(0);
    assert!(world.brought.iter().any(|&(_, parts)| parts > 1));
    for n in 0..16 {
        assert_eq!(world.core.page_state(world.page(n)), PageState::Swapped);
    }
    assert_eq!(world.core.stats().pswpin, before.pswpin);
    for n in 0..64 {
        assert!(world.touch_up_to(n, Order::ZERO).len() <= 1);
    }
}

/// A fault that found no memory used to end the run that it continued: when it was repeated after reclaim, the stream
/// started over with single pages, at every other leaf once memory was full.
#[test]
fn a_stream_goes_on_through_reclaim() {
    let max = Order::new(6).unwrap();
    let mut world = World::new(OrderPolicy::Adaptive { max });
    let pages = LIMIT + 32 * LEAF_PAGES;
    let faults = (0..pages).filter(|&n| !world.touch(n).is_empty()).count();
    assert!(world.core.stats().allocstall > 8);
    let ideal = (pages >> 6) as usize;
    assert!(faults <= ideal + 6, "{faults} faults for {ideal} folios");
}

/// A stream over folios of a fixed order takes up to 32 of them per fault if they are new, eight if they are loaded.
/// All folios have that order. A folio that is touched out of sequence comes alone.
#[test]
fn a_stream_takes_several_folios_of_a_fixed_order_with_one_fault() {
    for order in [0, 2, 4] {
        let mut world = World::new(Order::new(order).unwrap());
        let pages = 4 * LEAF_PAGES;
        for most in [32_u32, 8] {
            let mut faults = 0;
            for n in 0..pages {
                let came = world.touch(n);
                assert!(came.len() <= most as usize, "{came:?}");
                assert!(came.iter().all(|&other| other == order), "{came:?}");
                faults += u32::from(!came.is_empty());
            }
            let ideal = pages >> order >> most.ilog2();
            assert!(
                (ideal..ideal + 16).contains(&faults),
                "{faults} faults at order {order}"
            );
            world.evict(pages);
        }
        for n in [77, 1300, 200, 1900, 530, 40] {
            assert_eq!(world.touch(n), [order], "page {n}");
        }
    }
}

/// No page of a stream comes in alone, so examining watched folios gains nothing: they leave with their neighbours.
/// When they did not, the watched folios of the first lap stayed, and memory filled with such folios.
#[test]
fn folios_behind_a_stream_are_not_watched() {
    let mut world = World::adaptive();
    let budget = MIN_LIMIT_PAGES;
    let limit = Event::SetLimit {
        pages: PageCount(budget),
    };
    world.core.handle(limit, &mut Commands::new());
    (0..3 * budget).for_each(|n| _ = world.touch(n));
    let stays = |n: &u32| {
        let state = world.core.page_state(world.page(*n));
        matches!(state, PageState::Resident | PageState::Limbo)
    };
    let first = (0..budget).filter(stays).count();
    assert_eq!(first, 0, "of {budget} pages that came first");
}

/// A stream of folios of 64 KiB gets a leaf with each fault, and the folios leave it together for a place in the pool
/// with the same layout: so the kernel moves one entry for each leaf, in both directions. Both layouts used to be lost
/// when memory became full in the middle of a leaf, and because of watched folios, which were taken out before the
/// others.
#[test]
fn a_stream_of_64_kib_comes_and_leaves_by_the_leaf() {
    const FOLIOS: usize = 32;
    let mut world = World::new(Order::new(4).unwrap());
    // The spare memory is of another order, so that the budget ends within a leaf.
    world.touch_up_to(127 * LEAF_PAGES + 77, Order::ZERO);
    for n in 0..120 * LEAF_PAGES {
        world.touch(n);
    }
    let begins = |frame: Frame| frame.index().is_multiple_of(FOLIOS as u32);
    let follow = |frames: &[Frame]| {
        let mut pairs = frames.windows(2);
        pairs.all(|pair| pair[0].index() + 1 == pair[1].index())
    };
    let whole = |frames: &[Frame]| begins(frames[0]) && follow(frames);
    let of_leaf = |leaf: u32| move |at: PageRange| at.start.leaf() == leaf;
    let first = world.range.start.leaf();
    for leaf in first + 2..first + 120 {
        let zeroed = world.zeroed.iter().filter(|(at, _)| of_leaf(leaf)(*at));
        let frames: Vec<_> = zeroed.filter_map(|(_, frame)| *frame).collect();
        assert!(
            frames.is_empty() || frames.len() == FOLIOS && whole(&frames),
            "{leaf}: {frames:?}"
        );
    }
    let last = world.taken.last().unwrap().0.start.leaf();
    assert!(last > first + 50);
    for leaf in first + 2..last {
        let is_first = |(at, _): &(PageRange, _)| of_leaf(leaf)(*at);
        let start = world.taken.iter().position(is_first).unwrap();
        let taken = &world.taken[start..start + FOLIOS];
        assert!(taken.iter().all(is_first), "{taken:?}");
        let frames: Vec<_> = taken.iter().map(|(_, frame)| *frame).collect();
        assert!(whole(&frames), "{leaf}: {frames:?}");
    }
}

/// Unrequested folios come in only where memory is free anyway. With all memory in use, they get only the memory left
/// over by a batch of reclaim.
#[test]
fn a_window_of_a_fixed_order_uses_only_free_memory() {
    let mut world = World::new(Order::new(2).unwrap());
    for n in 0..LIMIT {
        world.touch(n);
    }
    let full = world.core.stats();
    for n in LIMIT..LIMIT + 8 * LEAF_PAGES {
        let before = world.core.available();
        let came = world.touch(n).len() as u32;
        let stalled = world.core.stats().allocstall > full.allocstall;
        assert!(came <= 1 || stalled || 4 * came <= before.0);
    }
    assert!(world.core.stats().nr_mapped <= u64::from(LIMIT));
}

/// Random reads used to leave a region in pieces: each page that came in alone was saved alone, although nothing had
/// changed, and the next stream had to fold all of them and save them again.
#[test]
fn a_page_read_alone_goes_back_to_its_old_slot() {
    let mut world = World::new(Order::new(4).unwrap());
    for n in 0..64 {
        world.touch(n);
    }
    world.evict(64);
    let (slots, written) = (world.core.slots_in_use(), world.core.stats().pswpout);
    assert_eq!(slots, 4);
    world.unchanged = true;
    for n in [3, 17, 18, 31, 5] {
        assert_eq!(world.touch_up_to(n, Order::ZERO), [0]);
    }
    world.evict(64);
    assert_eq!(world.core.slots_in_use(), slots);
    assert_eq!(world.core.stats().pswpout, written);
    for n in [0, 16, 32, 48] {
        assert_eq!(world.touch(n), [4], "page {n}");
    }
    // A page that was written to leaves its slot, which stays for the others.
    world.evict(64);
    assert_eq!(world.touch_up_to(3, Order::ZERO), [0]);
    world.unchanged = false;
    world.evict(64);
    assert_eq!(world.core.slots_in_use(), slots + 1);
    assert_eq!(world.core.stats().pswpout, written + 1);
}

#[test]
fn pages_about_to_be_overwritten_are_not_read_back() {
    let mut world = World::adaptive();
    for n in 0..64 {
        world.touch(n);
    }
    world.evict(64);
    let range = PageRange::new(world.range.start, PageCount(64));
    let mut out = Commands::new();
    let mode = FreeMode::Stored;
    assert_eq!(
        world.core.handle(Event::LazyFree { range, mode }, &mut out),
        Reply::Done
    );
    world.answer(&mut out);
    for n in 0..64 {
        world.touch(n);
    }
    assert_eq!(world.core.stats().pswpin, 0);
    assert_eq!(world.core.slots_in_use(), 0);
}

/// Seed 13178127. A page that was about to be overwritten was being read, and the read failed after the call had
/// passed the page. The page was poisoned, and the announced write met an error about contents that were not needed.
#[test]
fn an_announced_overwrite_waits_for_reads_in_flight() {
    let mut world = World::adaptive();
    world.touch(0);
    world.evict(1);
    let (page, mut out) = (world.page(0), Commands::new());
    let max_order = Order::MAX;
    let fault = Event::Fault {
        page,
        max_order,
        within: PageRange::ALL,
    };
    assert_eq!(world.core.handle(fault, &mut out), Reply::Done);
    let folio = match out.iter().next() {
        Some(Command::Load { folio, .. }) => folio,
        other => panic!("{other:?}"),
    };
    out.clear();
    let range = PageRange::new(page, PageCount(1));
    let mode = FreeMode::Stored;
    let overwrite = Event::LazyFree { range, mode };
    assert_eq!(world.core.handle(overwrite, &mut out), Reply::Wait { page });
    let outcome = Outcome::LoadFailed { frame_kept: true };
    world
        .core
        .handle(Event::Completed { folio, outcome }, &mut out);
    world.answer(&mut out);
    assert_eq!(world.core.page_state(page), PageState::Poisoned);
    assert_eq!(world.core.handle(overwrite, &mut out), Reply::Done);
    world.answer(&mut out);
    assert_eq!(world.core.page_state(page), PageState::Empty);
}

/// Pages next to the window that were closed to the program used to be brought in too, as single folios if they were
/// not contiguous, and took memory from pages that the program could use: a third to a half of a heap in which every
/// other 16 KiB was closed.
#[test]
fn a_window_ends_at_memory_closed_to_the_program() {
    let mut world = World::adaptive();
    // The border is not the end of a block, and is well inside the range that a long stream brings in at once.
    let end = 3 * LEAF_PAGES + 77;
    world.usable = PageRange::new(world.page(0), PageCount(end));
    let mut at = 0;
    while at < end {
        world.touch(at);
        let folios: Vec<_> = world.brought.iter().map(|(at, _)| *at).collect();
        for folio in &folios {
            assert!(world.usable.covers(*folio), "{folio} at {at}");
        }
        at = folios
            .iter()
            .map(|folio| folio.end().0)
            .max()
            .unwrap_or(at + 1)
            - world.range.start.0;
    }
    assert_eq!(world.core.page_state(world.page(end)), PageState::Empty);
    // Pages beyond the border come in alone when they are requested, and so do pages that were present before.
    world.evict(8);
    world.usable = PageRange::new(world.page(5), PageCount(1));
    assert_eq!(world.touch(5), [0]);
    assert_eq!(world.brought, [(world.usable, 1)]);
}
