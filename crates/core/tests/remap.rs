//! Tests of remap, decision by decision.

mod common;

use common::{Bench, Driven, NEW, part};
use millpond_core::{
    Command, Event, Kind, LEAF_PAGES, PageCount, PageRange, PageState, Refusal, RegionId, Reply,
};

fn remap(bench: &mut Bench, from: PageRange, to: PageRange) -> Reply {
    let (reply, commands) = bench.send(Event::Remap { from, to });
    bench.work(commands);
    reply
}

fn resize(bench: &mut Bench, region: RegionId, pages: u32) -> Reply {
    let pages = PageCount(pages);
    bench.send(Event::Resize { region, pages }).0
}

fn region(bench: &mut Bench, pages: u32) -> (RegionId, PageRange) {
    let order = millpond_core::Order::ZERO.into();
    match bench
        .send(Event::CreateRegion {
            pages: PageCount(pages),
            order,
            kind: Kind::Anonymous,
        })
        .0
    {
        Reply::Region { region, range } => (region, range),
        reply => panic!("{reply:?}"),
    }
}

#[test]
fn entries_of_every_kind_move_and_no_folio_is_touched() {
    let mut bench = Bench::new();
    let from = bench.filled(3 * LEAF_PAGES, 4);
    bench.page_out(part(from, 16..32));
    bench.swap_out(part(from, 32..48));
    bench.free(part(from, 64..80), millpond_core::FreeMode::Exclusive);
    let states = |bench: &Bench, range: PageRange| -> Vec<PageState> {
        range.pages().map(|page| bench.0.page_state(page)).collect()
    };
    let before = (states(&bench, from), bench.0.stats());
    let to = bench.region(4 * LEAF_PAGES, 4);
    let place = part(to, 0..3 * LEAF_PAGES);
    assert_eq!(remap(&mut bench, from, place), Reply::Done);
    assert_eq!((states(&bench, place), bench.0.stats()), before);
    assert!(
        states(&bench, from)
            .iter()
            .all(|&state| state == PageState::Empty)
    );
    // A folio that arrives belongs to its new place.
    let [Command::Load { at, .. }] = bench.fault(place.start.plus(40)).1[..] else {
        panic!("the slot moved along")
    };
    assert_eq!(at, part(place, 32..48));
}

#[test]
fn partial_leaves_move_by_entry_and_straddling_folios_are_split() {
    let mut bench = Bench::new();
    let (from, to) = (
        bench.filled(3 * LEAF_PAGES, 4),
        bench.region(3 * LEAF_PAGES, 4),
    );
    let pages = 8..2 * LEAF_PAGES + 40;
    assert_eq!(
        remap(&mut bench, part(from, pages.clone()), part(to, pages)),
        Reply::Done
    );
    let resident = |bench: &Bench, range, page| bench.state(range, page) == PageState::Resident;
    let edges = [7, 8, 2 * LEAF_PAGES + 39, 2 * LEAF_PAGES + 40];
    assert_eq!(
        edges.map(|page| resident(&bench, from, page)),
        [true, false, false, true]
    );
    assert_eq!(
        edges.map(|page| resident(&bench, to, page)),
        [false, true, true, false]
    );
}

#[test]
fn a_folio_in_limbo_at_an_end_comes_back_first() {
    let mut bench = Bench::new();
    let (from, to) = (bench.filled(32, 4), bench.region(32, 4));
    bench.page_out(from);
    let needs = Reply::NeedsResident {
        page: from.start.plus(8),
    };
    assert_eq!(remap(&mut bench, part(from, 8..32), part(to, 8..32)), needs);
    bench.touch(part(from, 0..1));
    assert_eq!(
        remap(&mut bench, part(from, 8..32), part(to, 8..32)),
        Reply::Done
    );
    assert_eq!(bench.state(to, 31), PageState::Limbo);
}

#[test]
fn impossible_moves_are_refused_and_change_nothing() {
    let mut bench = Bench::new();
    let (from, to) = (bench.filled(64, 4), bench.filled(64, 4));
    let empty = bench.region(64, 4);
    let refused = |bench: &mut Bench, from, to| match remap(bench, from, to) {
        Reply::Refused(why) => why,
        reply => panic!("{reply:?}"),
    };
    assert_eq!(refused(&mut bench, from, to), Refusal::RegionInUse);
    assert_eq!(
        refused(&mut bench, part(from, 0..32), part(empty, 8..40)),
        Refusal::BadRange
    );
    assert_eq!(refused(&mut bench, from, from), Refusal::BadRange);
    assert_eq!(
        refused(&mut bench, part(from, 0..32), empty),
        Refusal::BadRange
    );
    let beyond = PageRange::new(empty.start, PageCount(LEAF_PAGES));
    let long = PageRange::new(from.start, PageCount(LEAF_PAGES));
    assert_eq!(refused(&mut bench, long, beyond), Refusal::OutsideRegion);
    assert_eq!(
        bench
            .send(Event::Pin {
                range: part(from, 9..10)
            })
            .0,
        Reply::Done
    );
    let pinned = Refusal::Pinned {
        page: from.start.plus(9),
    };
    assert_eq!(refused(&mut bench, from, empty), pinned);
    assert_eq!(
        bench
            .send(Event::Unpin {
                range: part(from, 9..10)
            })
            .0,
        Reply::Done
    );
    let other = bench.region(16, 4);
    let [Command::Zero { folio, .. }] = bench.fault(other.start).1[..] else {
        panic!("a fault brings zeros in")
    };
    assert_eq!(refused(&mut bench, from, empty), Refusal::Busy);
    bench.tell(folio, NEW);
    assert_eq!(remap(&mut bench, from, empty), Reply::Done);
}

#[test]
fn a_region_grows_into_the_leaves_after_it_and_returns_them() {
    let mut bench = Bench::new();
    let (id, range) = region(&mut bench, LEAF_PAGES);
    let (next, _) = region(&mut bench, 1);
    assert_eq!(
        resize(&mut bench, id, 2 * LEAF_PAGES),
        Reply::Refused(Refusal::NoAddressSpace)
    );
    assert_eq!(
        bench.send(Event::DropRegion { region: next }).0,
        Reply::Done
    );
    let longer = PageRange::new(range.start, PageCount(2 * LEAF_PAGES));
    assert_eq!(
        resize(&mut bench, id, 2 * LEAF_PAGES),
        Reply::Region {
            region: id,
            range: longer
        }
    );
    bench.touch(part(longer, LEAF_PAGES..LEAF_PAGES + 1));
    assert_eq!(
        resize(&mut bench, id, 8),
        Reply::Refused(Refusal::RegionInUse)
    );
    let tail = part(longer, 8..2 * LEAF_PAGES);
    bench.all(tail, |range| Event::Discard { range });
    let shorter = PageRange::new(range.start, PageCount(8));
    assert_eq!(
        resize(&mut bench, id, 8),
        Reply::Region {
            region: id,
            range: shorter
        }
    );
    let outside = bench.fault(range.start.plus(8)).0;
    assert_eq!(outside, Reply::Refused(Refusal::OutsideRegion));
    assert_eq!(resize(&mut bench, id, 0), Reply::Refused(Refusal::BadRange));
    assert_eq!(
        resize(&mut bench, next, 1),
        Reply::Refused(Refusal::UnknownRegion)
    );
}
