//! Tests of shadows and refaults, and of the bounds on remembered history. `tests/policy.rs` of `millpond-replay`
//! tests how good the choice of victims is.

mod common;

use common::{Bench, Driven, part};
use millpond_core::limits::{MIN_LIMIT_PAGES, PAGES_PER_PAST_TABLE};
use millpond_core::policy::curve;
use millpond_core::{
    Command, Commands, Config, Core, Event, FreeMode, Kind, LEAF_PAGES, Order, Outcome, PageCount,
    PageIndex, PageRange, PageState, Reclaimer, Reply,
};

/// A core whose limit is lowered to a few pages, so that histories are short.
fn small(limit: u32, shadow_bits: u8) -> Bench {
    let config = Config {
        shadow_bits,
        ..Config::new(PageCount(32 * LEAF_PAGES), PageCount(MIN_LIMIT_PAGES))
    };
    let mut bench = Bench(Core::new(config).unwrap());
    let pages = PageCount(limit);
    bench.send(Event::SetLimit { pages });
    bench
}

/// Touches a page, reclaiming until that succeeds. Returns whether it came from the store.
fn touch(bench: &mut Bench, page: PageIndex) -> bool {
    let before = bench.0.stats().pgmajfault;
    for _ in 0..100 {
        let (reply, commands) = bench.fault(page);
        bench.work(commands);
        match reply {
            Reply::Reclaim { pages } => {
                let commands = bench.reclaim(pages.0);
                bench.work(commands);
            }
            _ => return bench.0.stats().pgmajfault > before,
        }
    }
    panic!("{page} is reclaimed for, for ever");
}

/// A few pages are used often, many rarely: the few are recognized, and recognized again after they had to leave.
#[test]
fn early_refaults_are_activated_and_active_pages_restored() {
    for bits in [12, 16, 32] {
        let mut bench = small(64, bits);
        let region = bench.region(512, 0);
        let (mut refaults, mut n) = (0_u64, 12345_u32);
        for _ in 0..6000 {
            n = n.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let page = if n >> 31 == 0 {
                n >> 16 & 31
            } else {
                32 + (n >> 16) % 300
            };
            refaults += u64::from(touch(&mut bench, region.start.plus(page)));
        }
        let stats = bench.0.stats();
        assert!(refaults > 0);
        assert_eq!(stats.workingset_refault_anon, refaults, "{bits} bits");
        assert!(stats.workingset_activate_anon > 0, "{bits} bits: {stats:?}");
        assert!(stats.workingset_restore_anon > 0, "{bits} bits: {stats:?}");
        assert!(stats.workingset_restore_anon <= stats.workingset_activate_anon);
        let sampled = stats.refaults_at[0];
        assert!(
            sampled.abs_diff(refaults) < refaults / 5,
            "{sampled} of {refaults}"
        );
    }
}

/// A page that comes back after fewer uses of others than the oldest active folio has seen is active. A page that comes
/// back later is not.
#[test]
fn a_refault_is_near_if_it_is_younger_than_the_oldest_active_folio() {
    let mut bench = small(64, 32);
    let region = bench.region(512, 0);
    let page = |n| region.start.plus(n);
    (0..80).for_each(|n| _ = touch(&mut bench, page(n)));
    // The first refault finds no active folio, and becomes active itself. Pages that left before it was used are not
    // near.
    assert!(touch(&mut bench, page(3)));
    assert_eq!(bench.0.stats().workingset_activate_anon, 1);
    assert!(touch(&mut bench, page(1)));
    let stats = bench.0.stats();
    assert_eq!(
        (
            stats.workingset_refault_anon,
            stats.workingset_activate_anon
        ),
        (2, 1)
    );
}

/// In an unannounced loop of twice the memory's length, the rule of reuse finally wins, and half of the loop is kept.
#[test]
fn a_loop_keeps_a_part_with_narrow_shadows_too() {
    for bits in [12, 16, 32] {
        let mut bench = small(64, bits);
        let region = bench.region(128, 0);
        let mut loads = 0;
        for n in 0..128 * 30 {
            let load = touch(&mut bench, region.start.plus(n % 128));
            loads += u32::from(load && n >= 128 * 20);
        }
        assert!(loads < 128 * 10 * 6 / 10, "{bits} bits: {loads} loads");
    }
}

/// Uses a page. The core only learns of it if it is not mapped. Returns how many pages came from the store.
fn use_page(bench: &mut Bench, region: PageRange, n: u32) -> u64 {
    let before = bench.0.stats().pswpin;
    if bench.state(region, n) != PageState::Resident {
        touch(bench, region.start.plus(n));
    }
    bench.0.stats().pswpin - before
}

/// A stream over five times the memory passes a set that is in use: the set stays, and the pages behind the stream
/// leave. The same pages in another order are not a stream.
#[test]
fn a_stream_longer_than_memory_leaves_a_set_alone() {
    const STREAM: u32 = 5 * 512;
    let mut bench = small(512, 32);
    let set = bench.region(256, 0);
    let stream = bench.region(STREAM, 0);
    let pass = |bench: &mut Bench, pages: u32, step: u32| {
        let mut loads = 0;
        for n in 0..pages {
            use_page(bench, stream, n * step % STREAM);
            // The order is random enough for this test.
            loads += use_page(bench, set, n * 197 % 256);
        }
        loads
    };
    pass(&mut bench, STREAM, 1);
    assert_eq!(bench.0.stats().drop_behind, 0, "new memory");
    let loads = pass(&mut bench, STREAM, 1);
    let dropped = bench.0.stats().drop_behind;
    assert!(loads < 128, "{loads} loads of the set");
    assert!(dropped > u64::from(STREAM) * 3 / 4, "{dropped}");
    pass(&mut bench, 256, 997);
    let more = bench.0.stats().drop_behind - dropped;
    assert!(more < 16, "{more} of no stream");
}

/// The driver's faults read a stream over a file ahead of the program. The pages right behind such a fault were once
/// dropped: the program had yet to use them, and read them again.
#[test]
fn pages_read_ahead_of_a_file_stream_stay_until_they_are_used() {
    const LIMIT: u32 = 512;
    let mut bench = small(LIMIT, 32);
    let (_, stream) = bench.create_of(Kind::File, 5 * LIMIT, 0);
    let ahead = bench.0.read_ahead_most().0;
    assert_eq!(ahead, LIMIT / 8);
    for n in 0..stream.len.0 {
        if bench.state(stream, n) == PageState::Resident {
            continue;
        }
        touch(&mut bench, stream.start.plus(n));
        for before in n.saturating_sub(ahead)..n {
            let state = bench.state(stream, before);
            assert_ne!(state, PageState::Empty, "{before} at {n}");
        }
    }
    let dropped = bench.0.stats().drop_behind;
    assert!(dropped > u64::from(stream.len.0) / 2, "{dropped}");
}

/// A stream that turns round at its end needs the pages that it has just left: that is detected, and they are kept.
#[test]
fn pages_of_a_stream_that_turns_round_are_kept() {
    const PAGES: u32 = 1024;
    let mut bench = small(512, 32);
    let region = bench.region(PAGES, 0);
    let mut sweep = |upwards: bool| {
        let place = |n| if upwards { n } else { PAGES - 1 - n };
        let pages = (0..PAGES).map(|n| use_page(&mut bench, region, place(n)));
        pages.sum::<u64>()
    };
    let loads: Vec<_> = (0..24).map(|n| sweep(n % 2 == 0)).collect();
    // With replacement by last use alone, half of each sweep is present.
    let late: u64 = loads[8..].iter().sum();
    assert!(late < 16 * 512 * 5 / 4, "{loads:?}");
}

/// Shadows and the counts of every leaf stay consistent when pages are dropped, moved and given back. The check after
/// each event verifies that.
#[test]
fn dropped_pages_leave_shadows_that_move_and_go() {
    let mut bench = Bench::new();
    let range = bench.filled(2 * LEAF_PAGES, 0);
    let kept = part(range, 0..1);
    bench.free(part(range, 1..2 * LEAF_PAGES), FreeMode::Exclusive);
    while bench.0.lazyfree_pages() > PageCount(0) {
        let commands = bench.reclaim(128);
        bench.work(commands);
    }
    // One leaf has a page besides its shadows, the other only shadows.
    assert_eq!(bench.0.stats().workingset_nodes, 1);
    assert_eq!(bench.state(range, 5), PageState::Empty);
    // The pages come back: each is a refault, and its leaf has more than shadows.
    let refaults = |bench: &Bench| bench.0.stats().workingset_refault_anon;
    // (A stream would bring in some pages unrequested.)
    for n in [0, 8, 16] {
        bench.touch(part(range, LEAF_PAGES + n..LEAF_PAGES + n + 1));
    }
    assert_eq!((refaults(&bench), bench.0.stats().workingset_nodes), (3, 0));
    // Shadows move with their leaf, and entry by entry.
    let target = bench.region(2 * LEAF_PAGES, 0);
    bench.send(Event::Remap {
        from: part(range, LEAF_PAGES..2 * LEAF_PAGES),
        to: part(target, 0..LEAF_PAGES),
    });
    bench.touch(part(target, 100..101));
    bench.touch(part(target, 300..301));
    assert_eq!(refaults(&bench), 5);
    // The shadow of a discarded page is meaningless once its region is gone.
    bench.all(range, |range| Event::Discard { range });
    bench.all(target, |range| Event::Discard { range });
    assert_eq!(bench.state(kept, 0), PageState::Empty);
}

/// After memory was dropped from a thousand GiB of address space, the number of shadows stays within the bound. The
/// oldest are forgotten first.
#[test]
fn a_thousand_gibibytes_leave_a_bounded_number_of_shadows() {
    let arena = PageCount(1000 << 18);
    let mut config = Config::new(arena, PageCount(MIN_LIMIT_PAGES));
    config.records = 2 * MIN_LIMIT_PAGES;
    let mut core = Core::new(config).unwrap();
    let mut out = Commands::new();
    core.handle(
        Event::CreateRegion {
            pages: arena,
            order: Order::ZERO.into(),
            kind: Kind::Anonymous,
        },
        &mut out,
    );
    let by = Reclaimer::Background;
    let most = u64::from(MIN_LIMIT_PAGES / PAGES_PER_PAST_TABLE + 1);
    let leaves = arena.0 / LEAF_PAGES;
    for leaf in 0..leaves {
        let page = PageIndex(leaf * LEAF_PAGES + leaf % 7);
        let max_order = Order::ZERO;
        send(
            &mut core,
            &mut out,
            Event::Fault {
                page,
                max_order,
                within: PageRange::ALL,
            },
        );
        let range = PageRange::new(page, PageCount(1));
        let mode = FreeMode::Exclusive;
        send(&mut core, &mut out, Event::LazyFree { range, mode });
        if leaf % 16 == 15 {
            let pages = PageCount(16);
            send(&mut core, &mut out, Event::Reclaim { pages, by });
            assert!(core.stats().workingset_nodes <= most, "{:?}", core.stats());
        }
    }
    let stats = core.stats();
    assert_eq!(stats.pglazyfreed, u64::from(leaves));
    assert_eq!(
        stats.workingset_nodereclaim + stats.workingset_nodes,
        u64::from(leaves)
    );
    // The youngest shadow is remembered, the oldest is not.
    let refaults = |core: &Core| core.stats().workingset_refault_anon;
    for (leaf, known) in [(leaves - 1, 1), (0, 0)] {
        let (before, page) = (refaults(&core), PageIndex(leaf * LEAF_PAGES + leaf % 7));
        let max_order = Order::ZERO;
        send(
            &mut core,
            &mut out,
            Event::Fault {
                page,
                max_order,
                within: PageRange::ALL,
            },
        );
        assert_eq!(refaults(&core) - before, known, "leaf {leaf}");
    }
}

/// Sends an event, and carries out all of its commands successfully.
fn send(core: &mut Core, out: &mut Commands, event: Event) {
    core.handle(event, out);
    while !out.is_empty() {
        let commands: Vec<Command> = out.iter().collect();
        out.clear();
        for command in commands {
            let done = |folio, outcome| Event::Completed { folio, outcome };
            let event = match command {
                Command::Zero { folio, .. } => done(folio, common::NEW),
                Command::ZeroInPlace { folio, .. } => done(folio, Outcome::Zeroed),
                Command::TakeOutIfBlank { folio, .. } => done(folio, Outcome::TakenOutBlank),
                Command::TakeOut { folio, .. } => done(folio, Outcome::TakenOut),
                Command::FreeFrame { frame } => Event::FrameFreed { frame },
                other => panic!("{other:?}"),
            };
            core.handle(event, out);
        }
    }
}

/// Memory holds the part of a loop that fits, and the curve shows that. The first touch of a page is a miss in any
/// memory.
#[test]
fn the_curve_rises_by_the_part_of_a_loop_that_fits() {
    let mut bench = small(64, 32);
    let region = bench.region(512, 0);
    for n in 0..128 {
        touch(&mut bench, region.start.plus(n));
    }
    assert_eq!(bench.0.stats().refaults_at, [0; curve::SIZES]);
    assert_eq!(bench.0.stats().avoided(PageCount(64)), None);
    for n in 0..30 * 128 {
        touch(&mut bench, region.start.plus(n % 128));
    }
    let stats = bench.0.stats();
    let shares = [0, 8, 16, 32, 64, 128, 1000].map(|more| stats.avoided(PageCount(more)).unwrap());
    assert!(shares.is_sorted(), "{shares:?}");
    assert!((shares[3] - 0.5).abs() < 0.1, "{shares:?}");
    // The sample of so few pages may be slightly larger than its nominal share.
    assert!(shares[5] > 0.95, "{shares:?}");
}

/// Without workingset detection nothing is remembered about pages that leave, and nothing is learnt from pages that
/// come back; memory is assigned by last use.
#[test]
fn without_detection_refaults_count_as_new_pages() {
    let config = Config {
        workingset: false,
        ..Config::new(PageCount(32 * LEAF_PAGES), PageCount(MIN_LIMIT_PAGES))
    };
    let mut bench = Bench(Core::new(config).unwrap());
    let pages = PageCount(64);
    bench.send(Event::SetLimit { pages });
    let region = bench.region(512, 0);
    let mut came_back = 0;
    for n in 0..1000 {
        came_back += u32::from(touch(&mut bench, region.start.plus(n % 100)));
    }
    let stats = bench.0.stats();
    // In a loop longer than memory, with replacement by last use, no page is present when its turn comes.
    assert_eq!(came_back, 900);
    assert_eq!(stats.pgmajfault, 900);
    let learnt = stats.workingset_refault_anon + stats.pgactivate + stats.workingset_nodes;
    assert_eq!((learnt, stats.refaults_at), (0, [0; curve::SIZES]));
}
