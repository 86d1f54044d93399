//! Tests that memory that cannot leave does not keep the rest from leaving, decision by decision.
//!
//! Programs that read their own memory by `process_vm_readv` or direct I/O, or had registered it with io_uring, hung
//! under `millpond run`. A page held by the kernel was repeatedly chosen as the next victim, and when all pages that
//! reclaim chose were held, a fault retried forever.

mod common;

use common::{Bench, Driven};
use millpond_core::limits::{MIN_LIMIT_PAGES, RECLAIM_BATCH};
use millpond_core::{
    Advice, Command, Config, Core, Event, FolioId, GroupId, Kind, LEAF_PAGES, Order, OrderPolicy,
    Outcome, PageCount, PageIndex, PageRange, PageState, Reclaimer, RegionId, Reply,
};
use std::collections::HashSet;

const ORDER: u8 = 5;
const FOLIOS: u32 = MIN_LIMIT_PAGES >> ORDER;

fn fault(bench: &mut Bench, page: PageIndex, max_order: Order) -> (Reply, Vec<Command>) {
    bench.send(Event::Fault {
        page,
        max_order,
        within: PageRange::ALL,
    })
}

/// Makes a core whose memory is full, and a region with nothing in memory.
fn full() -> (Bench, PageRange, (RegionId, PageRange)) {
    full_of(Bench::new())
}

fn full_of(mut bench: Bench) -> (Bench, PageRange, (RegionId, PageRange)) {
    let (_, range) = bench.create(MIN_LIMIT_PAGES, ORDER);
    for n in 0..FOLIOS {
        // Some of the pages have come in with the window of an earlier one.
        let (_, commands) = fault(&mut bench, range.start.plus(n << ORDER), Order::MAX);
        bench.work(commands);
    }
    assert_eq!(bench.0.stats().nr_mapped, u64::from(MIN_LIMIT_PAGES));
    let more = bench.create(512, 0);
    (bench, range, more)
}

/// Runs one batch of reclaim, and answers each take-out with `answer`. Returns the folios of the take-outs.
fn reclaim(bench: &mut Bench, answer: Outcome) -> Vec<FolioId> {
    reclaim_by(bench, |_| answer)
}

/// Does the same with an answer that depends on the pages of each folio.
fn reclaim_by(bench: &mut Bench, answer: impl Fn(PageRange) -> Outcome) -> Vec<FolioId> {
    let (pages, by) = (PageCount(64), Reclaimer::Direct);
    let (reply, commands) = bench.send(Event::Reclaim { pages, by });
    assert_eq!(reply, Reply::Done);
    let mut asked = Vec::new();
    for command in commands {
        let Command::TakeOut { folio, at, .. } = command else {
            bench.work(vec![command]);
            continue;
        };
        asked.push(folio);
        let more = bench.tell(folio, answer(at));
        bench.work(more);
    }
    asked
}

/// Reclaims until there are no more take-outs. Returns the folios of the take-outs, in order.
fn reclaim_all(bench: &mut Bench, answer: Outcome) -> Vec<FolioId> {
    let mut all = Vec::new();
    loop {
        let asked = reclaim(bench, answer);
        if asked.is_empty() {
            return all;
        }
        all.extend(asked);
        assert!(
            all.len() <= 2 * FOLIOS as usize + 2 * RECLAIM_BATCH,
            "reclaim asks for ever"
        );
    }
}

#[test]
fn a_busy_folio_goes_behind_all_that_may_still_leave() {
    // No folio is watched, because a watched folio would be examined before its time.
    let config = Config::new(PageCount(32 * LEAF_PAGES), PageCount(MIN_LIMIT_PAGES));
    let core = Core::new(Config {
        workingset: false,
        ..config
    });
    let (mut bench, ..) = full_of(Bench(core.unwrap()));
    let busy: HashSet<_> = reclaim(&mut bench, Outcome::TakeOutBusy)
        .into_iter()
        .collect();
    assert!(!busy.is_empty());
    let mut left = HashSet::new();
    while left.len() + busy.len() < FOLIOS as usize {
        for folio in reclaim(&mut bench, Outcome::TakenOut) {
            assert!(
                !busy.contains(&folio),
                "{folio:?} is asked for again before others were"
            );
            left.insert(folio);
        }
    }
}

#[test]
fn if_all_is_busy_one_page_exceeds_the_limit_until_a_change() {
    let (mut bench, _, (_, more)) = full();
    let (reply, _) = fault(&mut bench, more.start, Order::MAX);
    assert!(matches!(reply, Reply::Reclaim { .. }), "{reply:?}");
    let asked = reclaim_all(&mut bench, Outcome::TakeOutBusy);
    let each: HashSet<_> = asked.iter().collect();
    assert_eq!(each.len(), FOLIOS as usize, "each was asked for");

    let (reply, commands) = fault(&mut bench, more.start, Order::ZERO);
    assert_eq!(reply, Reply::Done);
    bench.work(commands);
    assert_eq!(bench.0.stats().over_limit, 1);
    assert_eq!(bench.0.excess().refused, PageCount(MIN_LIMIT_PAGES));

    // The page that came in has not been refused, and can leave for the next one. After a tick all pages may.
    assert_eq!(bench.send(Event::Tick).0, Reply::Done);
    let (reply, _) = fault(&mut bench, more.start.plus(1), Order::ZERO);
    assert!(matches!(reply, Reply::Reclaim { .. }), "{reply:?}");
    assert!(!reclaim(&mut bench, Outcome::TakenOut).is_empty());
}

/// Two hundred threads that wait in `read` hold 16 KiB each, in folios of 256 KiB. A process with a budget of 32 MiB
/// took 55.
#[test]
fn only_the_held_parts_of_large_folios_stay() {
    const HELD: u32 = 4;
    const APART: u32 = 64;
    let mut bench = Bench::new();
    let order = "adaptive:6".parse::<OrderPolicy>().unwrap();
    let (pages, kind) = (PageCount(MIN_LIMIT_PAGES), Kind::Anonymous);
    let Reply::Region { range, .. } = bench.send(Event::CreateRegion { pages, order, kind }).0
    else {
        panic!("no region")
    };
    let advice = Advice::Sequential;
    bench.send(Event::Advise { range, advice });
    for n in 0..MIN_LIMIT_PAGES {
        let page = range.start.plus(n);
        if bench.0.page_state(page) != PageState::Resident {
            let (_, commands) = fault(&mut bench, page, Order::MAX);
            bench.work(commands);
        }
    }
    let (_, more) = bench.create(512, 0);
    let (reply, _) = fault(&mut bench, more.start, Order::ZERO);
    assert!(matches!(reply, Reply::Reclaim { .. }), "{reply:?}");
    let answer = |at: PageRange| {
        let (start, end) = (at.start.0 - range.start.0, at.end().0 - range.start.0);
        match start % APART < HELD || start.next_multiple_of(APART) < end {
            true => Outcome::TakeOutBusy,
            false => Outcome::TakenOut,
        }
    };
    for _ in 0..2000 {
        if reclaim_by(&mut bench, answer).is_empty() {
            break;
        }
    }
    assert_eq!(
        bench.0.stats().nr_mapped,
        u64::from(MIN_LIMIT_PAGES / APART * HELD)
    );
    // Every held part was requested and refused since memory last left, so the next fault need not wait.
    assert!(bench.0.all_refused(GroupId::ROOT));
}

#[test]
fn pinned_memory_is_not_waited_for() {
    let (mut bench, range, (_, more)) = full();
    assert_eq!(bench.send(Event::Pin { range }).0, Reply::Done);
    assert!(reclaim(&mut bench, Outcome::TakenOut).is_empty());
    let (reply, commands) = fault(&mut bench, more.start, Order::ZERO);
    assert_eq!(reply, Reply::Done);
    bench.work(commands);
    assert_eq!(bench.0.excess().stays, PageCount(MIN_LIMIT_PAGES));
    assert_eq!(bench.send(Event::Unpin { range }).0, Reply::Done);
    let (reply, _) = fault(&mut bench, more.start.plus(1), Order::ZERO);
    assert!(matches!(reply, Reply::Reclaim { .. }), "{reply:?}");
}

/// A fault waits for memory that another thread gives back.
#[test]
fn no_fault_exceeds_the_limit_while_a_command_is_in_flight() {
    let (mut bench, range, (_, more)) = full();
    let (pages, by) = (PageCount(64), Reclaimer::Direct);
    let (_, commands) = bench.send(Event::Reclaim { pages, by });
    assert!(!commands.is_empty());
    let rest: Vec<_> = reclaim_all(&mut bench, Outcome::TakeOutBusy);
    assert!(rest.len() < FOLIOS as usize + 1, "{}", range.len.0);
    let (reply, _) = fault(&mut bench, more.start, Order::ZERO);
    assert!(matches!(reply, Reply::Reclaim { .. }), "{reply:?}");
    bench.work(commands);
}

#[test]
fn an_immovable_page_is_retried_after_a_tick() {
    let mut bench = Bench::new();
    let (_, range) = bench.create(1, 0);
    let (_, commands) = fault(&mut bench, range.start, Order::MAX);
    bench.work(commands);
    assert_eq!(reclaim(&mut bench, Outcome::TakeOutImmovable).len(), 1);
    assert_eq!(bench.0.stats().nr_unevictable, 1);
    assert!(reclaim(&mut bench, Outcome::TakenOut).is_empty());
    assert_eq!(bench.send(Event::Tick).0, Reply::Done);
    assert_eq!(bench.0.stats().nr_unevictable, 0);
    assert_eq!(reclaim(&mut bench, Outcome::TakenOut).len(), 1);
}
