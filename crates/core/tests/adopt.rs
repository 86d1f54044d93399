//! Tests of adopted memory: pages that were mapped before the core knew of them.

mod common;

use common::{Bench, Driven, part};
use millpond_core::limits::MIN_LIMIT_PAGES;
use millpond_core::{Event, Kind, PageCount, PageRange, PageState, Refusal, Reply};

fn adopt(bench: &mut Bench, at: PageRange) -> Reply {
    let (reply, commands) = bench.send(Event::Adopt { at });
    assert!(commands.is_empty(), "{commands:?}");
    reply
}

#[test]
fn adopted_blocks_are_resident_and_leave_and_return_like_others() {
    let mut bench = Bench::new();
    let range = bench.region(512, 9);
    for (start, end) in [(0, 4), (4, 8), (8, 9), (16, 32)] {
        assert_eq!(adopt(&mut bench, part(range, start..end)), Reply::Done);
    }
    let stats = bench.0.stats();
    assert_eq!((stats.nr_mapped, stats.touched, stats.pgfault), (25, 25, 0));
    assert_eq!(bench.state(range, 8), PageState::Resident);
    assert_eq!(bench.state(range, 9), PageState::Empty);
    bench.swap_out(range);
    assert_eq!(bench.state(range, 20), PageState::Swapped);
    bench.touch(part(range, 16..32));
    assert_eq!(bench.state(range, 31), PageState::Resident);
    assert_eq!(bench.0.stats().pgzero, 0, "no page came in as zeros");
}

/// Adopted memory is in memory whether or not it fits. Reclaim takes it back below the limit, as after a lowered limit.
#[test]
fn adopted_memory_may_exceed_the_limit_and_is_reclaimed() {
    let mut bench = Bench::new();
    let range = bench.region(2 * MIN_LIMIT_PAGES, 2);
    for number in (0..MIN_LIMIT_PAGES + 64).step_by(4) {
        let block = part(range, number..number + 4);
        assert_eq!(adopt(&mut bench, block), Reply::Done);
    }
    assert_eq!(bench.0.available(), PageCount::ZERO);
    while bench.0.available() == PageCount::ZERO {
        let commands = bench.reclaim(64);
        assert!(!commands.is_empty(), "nothing can be reclaimed");
        bench.work(commands);
    }
    let stats = bench.0.stats();
    assert!(stats.pswpout >= 64, "{stats:#?}");
    assert_eq!(stats.over_limit, 0);
}

#[test]
fn a_block_that_cannot_be_adopted_is_refused_without_effect() {
    let mut bench = Bench::new();
    let range = bench.region(512, 9);
    let small = bench.region(512, 0);
    let (_, file) = bench.create_of(Kind::File, 512, 9);
    bench.touch(part(range, 4..5));
    let before = bench.0.stats();
    let refused = Reply::Refused;
    for (at, refusal) in [
        (part(range, 0..8), Refusal::RegionInUse),
        (part(range, 4..5), Refusal::RegionInUse),
        (part(range, 9..11), Refusal::BadRange),
        (part(range, 16..19), Refusal::BadRange),
        (part(small, 0..2), Refusal::BadRange),
        (part(file, 0..4), Refusal::FileBacked),
        (
            PageRange::new(file.end(), PageCount(1)),
            Refusal::OutsideRegion,
        ),
    ] {
        assert_eq!(adopt(&mut bench, at), refused(refusal), "{at}");
    }
    assert_eq!(bench.0.stats(), before);
}
