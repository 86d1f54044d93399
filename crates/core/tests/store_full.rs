//! Tests of a full store, whose room is used before memory goes above the limit, decision by decision.
//!
//! Found by experiment: 111 MiB were written and read with a file system that has room for 99, in a budget that would
//! have held the rest, and all of it ended up in memory. A page that was read kept its slot, a page that was written to
//! found no second one, and new room was noticed only once a second.

mod common;

use common::{Driven, NEW};
use millpond_core::limits::MIN_LIMIT_PAGES;
use millpond_core::{
    Advice, Command, Config, Core, Event, LEAF_PAGES, Order, Outcome, PageCount, PageIndex,
    PageRange, PageState, Reclaimer, Reply,
};

/// Slots that are in use for a moment in addition to the pages: a folio that comes in also has a place in memory, and
/// one that leaves is in both places.
const RESERVE: u32 = 32;

/// A core in front of a store with limited room. Every page that is saved was written to since it came in.
struct Tight {
    core: Core,
    room: u32,
    events: u32,
}

impl Driven for Tight {
    fn core(&mut self) -> &mut Core {
        &mut self.core
    }

    fn is_check_due(&mut self) -> bool {
        self.events += 1;
        self.events.is_multiple_of(500)
    }
}

impl Tight {
    fn new(room: u32) -> Self {
        let config = Config::new(PageCount(32 * LEAF_PAGES), PageCount(MIN_LIMIT_PAGES));
        let core = Core::new(config).unwrap();
        Self {
            core,
            room,
            events: 0,
        }
    }

    /// Carries commands out.
    fn answer(&mut self, commands: Vec<Command>) {
        for command in commands {
            let more = match command {
                Command::Save { folio, .. } => {
                    let held = self.core.slots_in_use();
                    // The slot to which the folio is being saved is also in use.
                    match held <= self.room {
                        true => self.tell(folio, Outcome::Stored),
                        false => self.tell(folio, Outcome::StoreFull),
                    }
                }
                Command::TakeOut { folio, .. } => self.tell(folio, Outcome::TakenOut),
                Command::Load { folio, .. }
                | Command::Zero { folio, .. }
                | Command::Rescue { folio, .. } => self.tell(folio, NEW),
                other => {
                    self.work(vec![other]);
                    continue;
                }
            };
            self.answer(more);
        }
    }

    /// Writes to a page, reclaiming until that succeeds.
    fn write(&mut self, page: PageIndex) {
        for _ in 0..1000 {
            let (reply, commands) = self.fault(page);
            self.answer(commands);
            let Reply::Reclaim { pages } = reply else {
                return;
            };
            let by = Reclaimer::Direct;
            let pages = PageCount(pages.0.max(64));
            let (reply, commands) = self.send(Event::Reclaim { pages, by });
            assert_eq!(reply, Reply::Done);
            self.answer(commands);
        }
        panic!("{page} is reclaimed for, for ever");
    }

    fn region(&mut self, pages: u32) -> PageRange {
        self.create(pages, 0).1
    }

    fn over(&self) -> u64 {
        self.core.stats().over_limit
    }
}

/// A program makes three passes over a region that just fits into memory and store together.
#[test]
fn data_that_fits_memory_plus_store_stays_within_the_limit() {
    let room = MIN_LIMIT_PAGES / 2;
    let mut tight = Tight::new(room);
    let pages = MIN_LIMIT_PAGES + room - RESERVE;
    let range = tight.region(pages);
    for round in 0..3 {
        for page in range.pages() {
            tight.write(page);
            assert_eq!(tight.over(), 0, "round {round}, {page} of {range}");
        }
    }
    assert!(tight.core.stats().store_failed > 0, "it was never full");
}

/// Only the pages for which neither memory nor store has room are above the limit.
#[test]
fn only_data_beyond_memory_plus_store_exceeds_the_limit() {
    let room = MIN_LIMIT_PAGES / 2;
    let excess = 100;
    let mut tight = Tight::new(room);
    let range = tight.region(MIN_LIMIT_PAGES + room + excess);
    let mut most = 0;
    for _ in 0..3 {
        for page in range.pages() {
            tight.write(page);
            let stats = tight.core.stats();
            most = most.max(stats.nr_mapped + stats.nr_limbo);
        }
    }
    let over = most - u64::from(MIN_LIMIT_PAGES);
    assert!(over >= u64::from(excess), "{over} pages over, of {excess}");
    assert!(
        over <= u64::from(excess) + 64,
        "{over} pages over, of {excess}"
    );
    assert_eq!(tight.core.held_twice(), 0);
}

/// A page that is mapped and in the store gives its slot up for a page that is in neither.
#[test]
fn slots_of_mapped_pages_are_released_before_exceeding_the_limit() {
    let half = MIN_LIMIT_PAGES / 2;
    let mut tight = Tight::new(half);
    let old = tight.region(half - RESERVE);
    let new = tight.region(MIN_LIMIT_PAGES);
    for page in old.pages().chain(new.pages()) {
        tight.write(page);
    }
    // The old half comes in and keeps its slots, as far as it fits despite the store's refusals.
    for page in old.pages() {
        tight.write(page);
    }
    assert_eq!(tight.over(), 0);
    for page in new.pages() {
        tight.write(page);
    }
    assert_eq!(tight.over(), 0);
    let swapped = |range: PageRange| {
        let state = |page| tight.core.page_state(page);
        range
            .pages()
            .filter(|&page| state(page) == PageState::Swapped)
            .count()
    };
    assert!(swapped(old) + swapped(new) > 0);
}

/// The store was tried again as soon as it had forgotten anything: nine folios of sixteen pages were refused for each
/// loaded page.
#[test]
fn a_full_store_is_retried_once_it_freed_as_much_as_it_refused() {
    let mut bench = Tight::new(u32::MAX);
    let (region, range) = bench.create(64, 4);
    let _ = region;
    for page in range.pages().step_by(16) {
        bench.write(page);
    }
    let advice = Advice::PageOut;
    let (_, commands) = bench.send(Event::Advise { range, advice });
    bench.answer(commands);
    let by = Reclaimer::Direct;
    let pages = PageCount(48);
    let (_, commands) = bench.send(Event::Reclaim { pages, by });
    let mut saves = commands.into_iter().filter_map(|command| match command {
        Command::Save { folio, .. } => Some(folio),
        _ => None,
    });
    let (stored, refused) = (saves.next().unwrap(), saves.next().unwrap());
    bench.tell(stored, Outcome::Stored);
    bench.tell(refused, Outcome::StoreFull);
    saves.for_each(|folio| drop(bench.tell(folio, Outcome::StoreFull)));
    assert!(bench.core.store_full());
    // The folio that is in the store comes back page by page, and each page is forgotten there.
    let out = range
        .pages()
        .filter(|&page| bench.core.page_state(page) == PageState::Swapped);
    for (n, page) in out.collect::<Vec<_>>().into_iter().enumerate() {
        assert!(bench.core.store_full(), "after {n} pages of 16");
        let (reply, commands) = bench.send(Event::Fault {
            page,
            max_order: Order::ZERO,
            within: PageRange::ALL,
        });
        assert_eq!(reply, Reply::Done);
        let forgets = |command: &Command| matches!(command, Command::Load { forgets: true, .. });
        assert_eq!(
            commands.iter().any(forgets),
            n < 15,
            "the last one releases it"
        );
        bench.answer(commands);
    }
    assert!(!bench.core.store_full());
}

/// A page that comes back alone from a slot of sixteen is forgotten there, and leaves as if it had never been stored.
/// A watched page is an exception, because it shows what copies would save.
#[test]
fn a_page_loaded_alone_keeps_no_copy_in_its_slot() {
    let mut bench = Tight::new(u32::MAX);
    let range = bench.create(512, 4).1;
    for page in range.pages().step_by(16) {
        bench.write(page);
    }
    let page_out = |bench: &mut Tight| {
        let advice = Advice::PageOut;
        let (_, commands) = bench.send(Event::Advise { range, advice });
        bench.answer(commands);
        let by = Reclaimer::Direct;
        while bench.core.stats().nr_limbo > 0 {
            let pages = PageCount(512);
            let (_, commands) = bench.send(Event::Reclaim { pages, by });
            bench.answer(commands);
        }
    };
    page_out(&mut bench);
    let alone = |bench: &mut Tight, page| {
        let max_order = Order::ZERO;
        let within = PageRange::ALL;
        let event = Event::Fault {
            page,
            max_order,
            within,
        };
        let commands = bench.send(event).1;
        let forgets = commands
            .iter()
            .any(|command| matches!(command, Command::Load { forgets: true, .. }));
        bench.answer(commands);
        forgets
    };
    assert!(
        !alone(&mut bench, range.start.plus(3)),
        "copies are kept at first"
    );
    bench.send(Event::KeepCopies { keep: false });
    let pages: Vec<_> = range.pages().filter(|page| page.0 % 16 == 7).collect();
    let forgot = pages
        .iter()
        .filter(|&&page| alone(&mut bench, page))
        .count();
    assert!(forgot > pages.len() / 2, "{forgot} of {}", pages.len());
    bench.send(Event::KeepCopies { keep: true });
    assert!(!alone(&mut bench, range.start.plus(9)));
}
