//! Tests of snapshots, decision by decision: events by hand, commands answered by hand. `millpond/tests/snapshot.rs`
//! tests this behaviour on real memory.
//!
//! A test of a fixed bug tells its story at the top.

mod common;

use common::Driven;
use millpond_core::limits::{DISCARD_WALK, MIN_LIMIT_PAGES};
use millpond_core::{
    Advice, Command, Config, CopyFrom, Core, Event, FreeMode, LEAF_PAGES, Outcome, PageCount,
    PageIndex, PageRange, PageState, Reclaimer, Refusal, RegionId, Reply,
};

type Named = (RegionId, PageRange);

/// A core whose whole state is checked after every event.
struct Bench(Core);

impl Driven for Bench {
    fn core(&mut self) -> &mut Core {
        &mut self.0
    }
}

impl Bench {
    fn new() -> Self {
        Self::with(|_| ())
    }

    fn with(change: impl FnOnce(&mut Config)) -> Self {
        let mut config = Config::new(PageCount(128 * LEAF_PAGES), PageCount(MIN_LIMIT_PAGES));
        change(&mut config);
        Self(Core::new(config).unwrap())
    }

    /// Sends an event and carries out its commands.
    fn done(&mut self, event: Event) -> Reply {
        let (reply, commands) = self.send(event);
        self.work(commands);
        reply
    }

    fn touch(&mut self, page: PageIndex) {
        let (reply, commands) = self.fault(page);
        // The page may have come in with the window of an earlier one.
        let there = matches!(reply, Reply::Done | Reply::Present);
        assert!(there, "a fault at {page}: {reply:?}");
        self.work(commands);
    }

    /// Takes a snapshot. Returns base and copy.
    fn snapshot(&mut self, source: Named) -> (Named, Named) {
        let (base, copy) = (
            self.create(source.1.len.0, 0),
            self.create(source.1.len.0, 0),
        );
        let event = Event::Snapshot {
            region: source.0,
            base: base.0,
            copy: copy.0,
        };
        assert_eq!(self.done(event), Reply::Done);
        (base, copy)
    }

    fn discard(&mut self, mut range: PageRange) {
        loop {
            match self.done(Event::Discard { range }) {
                Reply::Done => return,
                Reply::More { from } => range = range.tail(from),
                reply => panic!("{reply:?}"),
            }
        }
    }

    /// Drops a region. Returns the base that is left with a single heir, if there is one.
    fn drop(&mut self, (region, range): Named) -> Option<Named> {
        let Reply::Detached { orphan, single } = self.done(Event::Detach { region }) else {
            panic!("{region:?} is not detached");
        };
        assert_eq!(orphan, None);
        self.discard(range);
        assert_eq!(self.done(Event::DropRegion { region }), Reply::Done);
        single
    }

    /// Merges a base into its only heir, from a page on, and drops it.
    fn merge(&mut self, (base, range): Named, mut from: PageIndex) {
        for _ in 0..1000 {
            match self.done(Event::Merge { base, from }) {
                Reply::More { from: next } => from = next,
                Reply::Reclaim { pages } => {
                    let by = Reclaimer::Direct;
                    self.done(Event::Reclaim { pages, by });
                }
                Reply::Detached { orphan, .. } => {
                    assert_eq!(orphan, Some((base, range)));
                    let reply = self.done(Event::DropRegion { region: base });
                    assert_eq!(reply, Reply::Done, "a merged base is empty");
                    return;
                }
                reply => panic!("a merge is answered with {reply:?}"),
            }
        }
        panic!("a merge comes to no end");
    }
}

/// A page that one heir marks is its own; the base's page is the other heir's.
#[test]
fn a_marked_page_is_not_dropped_under_the_other_heir() {
    let mut bench = Bench::new();
    let source = bench.create(2, 0);
    bench.touch(source.1.start);
    bench.touch(source.1.start.plus(1));
    let (base, copy) = bench.snapshot(source);
    // The first page is copied before it is freed, the second freed while it is inherited.
    bench.touch(source.1.start);
    let (range, mode) = (source.1, FreeMode::Shared);
    assert_eq!(bench.done(Event::LazyFree { range, mode }), Reply::Done);
    assert_eq!(bench.0.page_state(source.1.start.plus(1)), PageState::Empty);
    let (pages, by) = (PageCount(1), Reclaimer::Direct);
    bench.done(Event::Reclaim { pages, by });
    assert_eq!(bench.0.stats().pglazyfreed, 1);
    assert_eq!(bench.0.page_state(source.1.start), PageState::Empty);
    for (page, from) in copy.1.pages().zip(base.1.pages()) {
        assert_eq!(bench.0.page_state(from), PageState::Resident);
        let commands = bench.fault(page).1;
        let [Command::Copy { from: source, .. }] = commands[..] else {
            panic!("{commands:?}");
        };
        assert_eq!(source, CopyFrom::Mapped(from));
        bench.work(commands);
    }
}

/// A mark that was made before the snapshot is shared. An heir that uses the page removes the mark, so that the other
/// reads the same.
#[test]
fn a_mark_that_is_shared_goes_when_one_heir_uses_the_page() {
    let mut bench = Bench::new();
    let source = bench.create(1, 0);
    bench.touch(source.1.start);
    let (range, mode) = (source.1, FreeMode::Shared);
    assert_eq!(bench.done(Event::LazyFree { range, mode }), Reply::Done);
    let (base, copy) = bench.snapshot(source);
    let marked = PageState::LazyFree { mapped: false };
    assert_eq!(bench.0.page_state(base.1.start), marked);
    bench.touch(copy.1.start);
    assert_eq!(bench.0.page_state(base.1.start), PageState::Limbo);
    assert_eq!(bench.0.page_state(source.1.start), PageState::Inherited);
}

/// It used to be possible to shorten a region by pages that it inherits: a merge would have moved these to the next
/// region. (Found by reading.)
#[test]
fn a_region_cannot_shrink_by_pages_that_it_inherits() {
    let mut bench = Bench::new();
    let source = bench.create(2 * LEAF_PAGES, 0);
    let last = source.1.start.plus(2 * LEAF_PAGES - 1);
    bench.touch(last);
    let (_, copy) = bench.snapshot(source);
    let (region, pages) = (copy.0, PageCount(LEAF_PAGES));
    let in_use = Reply::Refused(Refusal::RegionInUse);
    assert_eq!(bench.done(Event::Resize { region, pages }), in_use);
    bench.discard(PageRange::new(copy.1.start, PageCount(LEAF_PAGES)));
    assert_eq!(bench.done(Event::Resize { region, pages }), in_use);
}

/// A take-out for which the pool had no place was mistaken for one that had begun: the merge passed the folio and
/// ended, and its contents were lost with the base. (Found by reading, and by the simulator, seeds 3, 10 and others.)
#[test]
fn a_merge_without_a_place_in_the_pool_loses_nothing() {
    for order in [0, 3] {
        let mut bench = Bench::with(|config| config.pool.frames[..4].fill(4));
        let source = bench.create(8 << order, order);
        for n in 0..8 {
            bench.touch(source.1.start.plus(n << order));
        }
        let (base, copy) = bench.snapshot(source);
        assert_eq!(bench.drop(source), Some(base));
        bench.merge(base, base.1.start);
        for page in copy.1.pages() {
            let state = bench.0.page_state(page);
            let kept = matches!(state, PageState::Limbo | PageState::Swapped);
            assert!(kept, "{page} is {state:?}");
        }
    }
}

/// A merge drops a page for which the heir has its own. It once left zeros in place of the page, so as to hide the
/// page of a base below. Then the merge ended, and the base could not be dropped: addresses and a table were lost for
/// good. (Found by reading, and by the simulator, seeds 6, 8 and others.)
#[test]
fn a_merge_leaves_no_entries_that_hide_a_lower_base() {
    let mut bench = Bench::new();
    let source = bench.create(4, 0);
    bench.touch(source.1.start);
    let (_, _first) = bench.snapshot(source);
    bench.touch(source.1.start);
    let (range, advice) = (source.1, Advice::PageOut);
    assert_eq!(bench.done(Event::Advise { range, advice }), Reply::Done);
    let (base, second) = bench.snapshot(source);
    assert_eq!(bench.0.page_state(base.1.start), PageState::Limbo);
    bench.touch(source.1.start);
    assert_eq!(bench.drop(second), Some(base));
    bench.merge(base, base.1.start);
    assert_eq!(bench.0.page_state(source.1.start), PageState::Resident);
}

/// A page that once could not be moved counts as immovable until an event reports a change of its protection, and no
/// event does so for a base: the page was never merged, nor evicted. (Simulator, seed 13.)
#[test]
fn a_merge_retries_a_page_that_once_could_not_move() {
    let mut bench = Bench::new();
    let source = bench.create(2, 0);
    bench.touch(source.1.start);
    let (range, advice) = (source.1, Advice::PageOut);
    let commands = bench.send(Event::Advise { range, advice }).1;
    let [Command::TakeOut { folio, .. }] = commands[..] else {
        panic!("{commands:?}");
    };
    bench.tell(folio, Outcome::TakeOutImmovable);
    let (base, copy) = bench.snapshot(source);
    assert_eq!(bench.drop(source), Some(base));
    bench.merge(base, base.1.start);
    assert_eq!(bench.0.page_state(copy.1.start), PageState::Limbo);
}

/// Two bases of a chain are merged by two threads: the lower one into the upper one, and that one into its heir.
/// Pages that came up from below, behind the page where the upper merge was, were once lost when that merge ended.
/// (Found by reading.)
#[test]
fn two_merges_of_one_chain_lose_nothing() {
    let mut bench = Bench::new();
    let source = bench.create(DISCARD_WALK + 8, 0);
    bench.touch(source.1.start);
    let (lower, first) = bench.snapshot(source);
    let (upper, second) = bench.snapshot(source);
    assert_eq!(bench.drop(first), Some(lower));
    assert_eq!(bench.drop(second), Some(upper));
    let from = upper.1.start.plus(DISCARD_WALK);
    let event = Event::Merge {
        base: upper.0,
        from: upper.1.start,
    };
    assert_eq!(bench.done(event), Reply::More { from });
    bench.merge(lower, lower.1.start);
    bench.merge(upper, from);
    assert_eq!(bench.0.page_state(source.1.start), PageState::Limbo);
}

/// A late handler serves a fault of a region that is ending. The page came in between the free and the end, stayed
/// mapped for the core, and the region's addresses were never freed.
#[test]
fn a_fault_in_a_region_that_has_been_detached_brings_nothing_in() {
    let mut bench = Bench::new();
    let (region, range) = bench.create(8, 0);
    bench.touch(range.start);
    assert!(matches!(
        bench.done(Event::Detach { region }),
        Reply::Detached { .. }
    ));
    let (reply, commands) = bench.fault(range.start.plus(1));
    assert_eq!(reply, Reply::Refused(Refusal::OutsideRegion));
    assert!(commands.is_empty());
}
