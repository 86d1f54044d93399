//! Tests of lazy free and purges, decision by decision: events by hand, commands answered by hand. `millpond/tests`
//! tests this behaviour on real memory.

mod common;

use common::{Bench, Driven, part};
use millpond_core::gather::Gather;
use millpond_core::limits::RECLAIM_BATCH;
use millpond_core::{
    Advice, Command, Event, FreeMode, LEAF_PAGES, Outcome, PageCount, PageIndex, PageRange,
    PageState, Refusal, Reply,
};

const SHARED: FreeMode = FreeMode::Shared;
const EXCLUSIVE: FreeMode = FreeMode::Exclusive;
const ZEROED: PageState = PageState::LazyFree { mapped: true };
const CAPTURED: PageState = PageState::LazyFree { mapped: false };

/// A folio that was zeroed in place and is no longer zero is in use, whether the glance, the look at the captured
/// folio or a recount detects it; and then its contents stay.
#[test]
fn a_write_to_a_cleared_folio_is_detected_by_every_check() {
    for order in [0, 4] {
        let mut bench = Bench::new();
        let range = bench.filled(3 << order, order);
        let given = bench.free(range, EXCLUSIVE);
        assert_eq!(given.len(), 3);
        assert!(
            given
                .iter()
                .all(|c| matches!(c, Command::ZeroInPlace { .. }))
        );
        let n = 1 << order;

        let commands = bench.reclaim(2 * n);
        let [
            Command::TakeOutIfBlank { folio: first, .. },
            Command::TakeOutIfBlank { folio: second, .. },
        ] = commands[..]
        else {
            panic!("{commands:?}");
        };
        // The glance shows the write: the folio stays mapped.
        bench.tell(first, Outcome::Written);
        assert_eq!(bench.state(range, 0), PageState::Resident);
        // The look at the captured folio shows the write: the folio is in limbo, like any folio in use that was taken
        // out.
        bench.tell(second, Outcome::TakenOut);
        assert_eq!(bench.state(range, n), PageState::Limbo);
        // A recount shows the write.
        let pages = PageCount(n);
        let (reply, commands) = bench.send(Event::RecountLazyFree { left: pages });
        assert_eq!(reply, Reply::Seen { pages });
        let [Command::Look { folio: third, .. }] = commands[..] else {
            panic!("{commands:?}");
        };
        bench.tell(third, Outcome::Written);
        assert_eq!(bench.state(range, 2 * n), PageState::Resident);

        let stats = bench.0.stats();
        let counts = (stats.pglazyfree, stats.pglazyfreed, stats.pglazyfree_reused);
        assert_eq!(counts, (3 * u64::from(n), 0, 3 * u64::from(n)));
        assert_eq!(stats.nr_lazyfree, 0);
        let (_, commands) = bench.fault(range.start.plus(n));
        assert!(
            matches!(commands[..], [Command::Rescue { .. }]),
            "{commands:?}"
        );
    }
}

/// Memory that its owner zeroed is marked without a command, at the young end of the list. A later write is detected
/// as with any other mark.
#[test]
fn memory_zeroed_by_its_owner_is_marked_late_and_checked_as_usual() {
    for order in [0, 4] {
        let n = 1 << order;
        let mut bench = Bench::new();
        let range = bench.filled(3 * n, order);
        assert!(bench.free(range, FreeMode::AlreadyZeroed).is_empty());
        assert_eq!(bench.state(range, 0), ZEROED);
        assert_eq!(bench.0.stats().nr_lazyfree, 3 * u64::from(n));

        let commands = bench.reclaim(2 * n);
        let [
            Command::TakeOutIfBlank { folio: first, .. },
            Command::TakeOutIfBlank { folio: second, .. },
        ] = commands[..]
        else {
            panic!("{commands:?}");
        };
        bench.tell(first, Outcome::Written);
        bench.tell(second, Outcome::TakenOutBlank);
        assert_eq!(bench.state(range, 0), PageState::Resident);
        assert_eq!(bench.state(range, n), PageState::Empty);
        let stats = bench.0.stats();
        let counts = (stats.pglazyfree, stats.pglazyfreed, stats.pglazyfree_reused);
        let n = u64::from(n);
        assert_eq!(counts, (3 * n, n, n));
    }
}

/// A late mark touches only folios that are mapped and not in use: folios that are in limbo, in the store, pinned or
/// absent stay.
#[test]
fn a_late_mark_skips_folios_that_are_not_mapped() {
    let mut bench = Bench::new();
    let range = bench.filled(6 * 16, 4);
    let folio = |n: u32| part(range, 16 * n..16 * (n + 1));
    bench.swap_out(folio(2));
    bench.touch(part(range, 0..32));
    bench.touch(part(range, 48..96));
    let pinned = folio(3);
    assert_eq!(bench.send(Event::Pin { range: pinned }).0, Reply::Done);
    bench.page_out(folio(1));
    bench.free(folio(4), SHARED);
    let states = |bench: &Bench| [1, 2, 3, 4].map(|n| bench.state(range, 16 * n));
    let before = states(&bench);
    // The slots that the two mapped folios still had are not needed.
    let given = bench.free(range, FreeMode::AlreadyZeroed);
    assert!(
        given.iter().all(|c| matches!(c, Command::Release { .. })),
        "{given:?}"
    );
    assert_eq!(states(&bench), before);
    assert_eq!([0, 5].map(|n| bench.state(range, 16 * n)), [ZEROED; 2]);
}

/// A part of a larger folio is noted in its record, as when the core orders it to be zeroed in place.
#[test]
fn a_part_that_its_owner_cleared_is_noted_without_a_split() {
    let mut bench = Bench::new();
    let range = bench.filled(64, 6);
    assert!(
        bench
            .free(part(range, 16..32), FreeMode::AlreadyZeroed)
            .is_empty()
    );
    assert!(
        bench
            .free(part(range, 32..40), FreeMode::AlreadyZeroed)
            .is_empty()
    );
    let stats = bench.0.stats();
    assert_eq!((stats.nr_lazyfree, stats.folio_split), (24, 0));
    assert_eq!(bench.state(range, 39), ZEROED);
    assert_eq!(bench.state(range, 40), PageState::Resident);
    let commands = bench.reclaim(24);
    let gone = commands.iter().filter_map(|command| match command {
        Command::TakeOutIfBlank { at, .. } => Some(at.len.0),
        _ => None,
    });
    assert_eq!(gone.sum::<u32>(), 24, "{commands:?}");
}

/// A captured folio that is touched comes back unchanged, and is no longer free.
#[test]
fn a_touch_brings_a_captured_folio_back_and_takes_the_mark_away() {
    let mut bench = Bench::new();
    let range = bench.filled(16, 4);
    let given = bench.free(range, SHARED);
    assert!(matches!(given[..], [Command::TakeOut { .. }]), "{given:?}");
    assert_eq!(bench.state(range, 9), CAPTURED);
    let (_, commands) = bench.fault(range.start.plus(9));
    assert!(
        matches!(commands[..], [Command::Rescue { .. }]),
        "{commands:?}"
    );
    assert_eq!(bench.0.stats().nr_lazyfree, 0);
    bench.work(commands);
    assert_eq!(bench.state(range, 0), PageState::Resident);
    bench.reclaim(16);
    assert_eq!(bench.0.stats().pglazyfreed, 0);
}

/// A thread may fault during zeroing or a look, at a page that another thread has just mapped. It waits for nothing:
/// the pages are present.
#[test]
fn faults_do_not_wait_for_a_folio_being_cleared_or_checked() {
    let mut bench = Bench::new();
    let range = bench.filled(4, 2);
    let (_, zeroing) = bench.send(Event::LazyFree {
        range,
        mode: EXCLUSIVE,
    });
    assert_eq!(bench.fault(range.start), (Reply::Present, vec![]));
    bench.work(zeroing);
    let left = PageCount(4);
    let (_, look) = bench.send(Event::RecountLazyFree { left });
    assert_eq!(bench.fault(range.start), (Reply::Present, vec![]));
    bench.work(look);
    assert_eq!(bench.state(range, 3), ZEROED);
}

/// Dropping gives no command to the store. A captured folio goes without any command at all, and its frame serves the
/// next fault.
#[test]
fn dropping_makes_spare_frames_and_no_store_io() {
    for mode in [EXCLUSIVE, SHARED] {
        let mut bench = Bench::new();
        let range = bench.filled(64, 4);
        bench.free(range, mode);
        let commands = bench.reclaim(64);
        match mode {
            SHARED => assert_eq!(commands, []),
            _ => assert!(
                commands
                    .iter()
                    .all(|c| matches!(c, Command::TakeOutIfBlank { .. })),
                "{commands:?}"
            ),
        }
        bench.work(commands);
        let stats = bench.0.stats();
        let counts = (stats.pglazyfree, stats.pglazyfreed, stats.pgsteal_direct);
        assert_eq!(counts, (64, 64, 64), "{mode:?}");
        assert_eq!((stats.nr_mapped, stats.nr_free_frames), (0, 64), "{mode:?}");
        assert_eq!(bench.state(range, 0), PageState::Empty);
        let (_, commands) = bench.fault(range.start);
        assert!(
            matches!(commands[..], [Command::Zero { frame: Some(_), .. }]),
            "{commands:?}"
        );
    }
}

/// A slot is released by the free itself, at the last of its pages and not before.
#[test]
fn slots_are_released_by_the_free_itself() {
    for mode in [EXCLUSIVE, SHARED] {
        let mut bench = Bench::new();
        let range = bench.filled(16, 4);
        bench.swap_out(range);
        assert_eq!(bench.free(part(range, 3..16), mode), []);
        assert_eq!(bench.state(range, 3), PageState::Empty);
        assert_eq!(bench.state(range, 2), PageState::Swapped);
        let given = bench.free(part(range, 0..3), mode);
        assert!(matches!(given[..], [Command::Release { .. }]), "{given:?}");
        assert_eq!(bench.0.slots_in_use(), 0);
        assert_eq!(bench.0.stats().pglazyfree, 0, "nothing was in memory");
    }
}

/// A folio that is in memory again may still have a slot, and also loses it.
#[test]
fn lazy_free_releases_the_slot_of_a_resident_folio() {
    for mode in [EXCLUSIVE, SHARED] {
        let mut bench = Bench::new();
        let range = bench.filled(16, 4);
        bench.swap_out(range);
        bench.touch(range);
        assert_eq!(bench.0.slots_in_use(), 1);
        let given = bench.free(range, mode);
        assert!(
            given.iter().any(|c| matches!(c, Command::Release { .. })),
            "{given:?}"
        );
        assert_eq!(bench.0.slots_in_use(), 0);
    }
}

/// Freed folios leave the active list, and go before all inactive folios whatever their age and order: a batch that
/// is full of small folios takes out no others in addition.
#[test]
fn freed_folios_go_before_all_others_and_oldest_first() {
    for (order, mode) in [
        (0, EXCLUSIVE),
        (0, SHARED),
        (2, EXCLUSIVE),
        (4, EXCLUSIVE),
        (9, SHARED),
    ] {
        let mut bench = Bench::new();
        let cold = bench.filled(64, 0);
        let hot = bench.filled(1024, order);
        bench.page_out(hot);
        bench.touch(hot);
        assert_eq!(bench.0.stats().nr_active, u64::from(hot.len.0));
        // The upper half is freed first.
        let half = hot.len.0 / 2;
        let (older, younger) = (part(hot, half..2 * half), part(hot, 0..half));
        bench.free(older, mode);
        bench.free(younger, mode);
        let stats = bench.0.stats();
        assert_eq!((stats.nr_active, stats.nr_inactive), (0, 64));
        while bench.0.lazyfree_pages() > PageCount(half) {
            let commands = bench.reclaim(128);
            assert!(commands.len() <= RECLAIM_BATCH, "{commands:?}");
            bench.work(commands);
            let stats = bench.0.stats();
            assert_eq!(
                (stats.nr_inactive, stats.nr_limbo),
                (64, stats.nr_lazyfree - stats.nr_lazyfree_mapped)
            );
        }
        assert_eq!(bench.0.page_state(older.start), PageState::Empty);
        assert!(matches!(
            bench.0.page_state(PageIndex(younger.end().0 - 1)),
            PageState::LazyFree { .. }
        ));
        assert_eq!(bench.0.page_state(cold.start), PageState::Resident);
    }
}

/// A clean folio that was read back leaves by a save that names its former slot.
#[test]
fn a_clean_folio_that_was_read_back_leaves_by_a_save() {
    let mut bench = Bench::new();
    let range = bench.filled(16, 4);
    bench.swap_out(range);
    bench.touch(range);
    bench.page_out(range);
    let commands = bench.reclaim(16);
    assert!(
        matches!(
            commands[..],
            [Command::Save {
                previous: Some(_),
                ..
            }]
        ),
        "{commands:?}"
    );
}

/// A folio is split at once if others may use the bytes, and otherwise when memory is needed.
#[test]
fn a_folio_is_split_only_where_an_end_is_inside_it() {
    for mode in [EXCLUSIVE, SHARED] {
        let mut bench = Bench::new();
        let range = bench.filled(96, 4);
        let mut splits = |pages: std::ops::Range<u32>| {
            let before = bench.0.stats();
            bench.free(part(range, pages.clone()), mode);
            let after = bench.0.stats();
            assert_eq!(
                after.pglazyfree - before.pglazyfree,
                u64::from(pages.end - pages.start)
            );
            after.folio_split - before.folio_split
        };
        assert_eq!(
            [0..16, 40..64, 68..72].map(&mut splits),
            if mode == SHARED { [0, 1, 2] } else { [0; 3] },
            "{mode:?}"
        );
        let states: Vec<_> = [39, 40, 67, 68, 71, 72, 95]
            .map(|page| matches!(bench.state(range, page), PageState::LazyFree { .. }))
            .into();
        assert_eq!(
            states,
            [false, true, false, true, true, false, false],
            "{mode:?}"
        );
    }
}

/// Part of a captured folio is freed again, so all of it must come back to be split; the other part is in use then.
#[test]
fn a_part_of_a_captured_folio_comes_back_to_be_split() {
    let mut bench = Bench::new();
    let range = bench.filled(16, 4);
    bench.free(range, SHARED);
    bench.free(part(range, 0..8), SHARED);
    assert_eq!(bench.state(range, 0), CAPTURED);
    assert_eq!(bench.state(range, 8), PageState::Resident);
}

/// A refused range keeps its contents, whatever the mode.
#[test]
fn refused_ranges_change_nothing() {
    for mode in [EXCLUSIVE, SHARED, FreeMode::ReadsZeros] {
        let mut bench = Bench::new();
        let range = bench.filled(16, 4);
        let pinned = part(range, 9..10);
        assert_eq!(bench.send(Event::Pin { range: pinned }).0, Reply::Done);
        let before = bench.0.stats();
        let page = pinned.start;
        let outside = PageRange::new(PageIndex(32 * LEAF_PAGES - 1), PageCount(2));
        let empty = PageRange::new(range.start, PageCount(0));
        for (range, refusal) in [
            (range, Refusal::Pinned { page }),
            (part(range, 8..10), Refusal::Pinned { page }),
            (outside, Refusal::BadRange),
            (empty, Refusal::BadRange),
        ] {
            let answer = bench.send(Event::LazyFree { range, mode });
            assert_eq!(answer, (Reply::Refused(refusal), vec![]), "{mode:?}");
        }
        assert_eq!(bench.0.stats(), before, "{mode:?}");
        assert_eq!(bench.send(Event::Unpin { range: pinned }).0, Reply::Done);
        bench.free(range, mode);
        assert_eq!(bench.0.stats().nr_lazyfree, 16, "{mode:?}");
    }
}

/// Memory that must read as zeros at once is zeroed in place if its folios are small, and dropped if not.
#[test]
fn memory_that_must_read_zeros_is_cleared_or_dropped() {
    let mut bench = Bench::new();
    let small = bench.filled(16, 4);
    let large = bench.filled(512, 9);
    let limbo = bench.filled(16, 4);
    bench.page_out(limbo);
    let mode = FreeMode::ReadsZeros;
    assert!(matches!(
        bench.free(small, mode)[..],
        [Command::ZeroInPlace { .. }]
    ));
    assert!(matches!(bench.free(large, mode)[..], [Command::Zap { .. }]));
    assert_eq!(bench.free(limbo, mode), []);
    let states = [small, large, limbo].map(|range| bench.state(range, 0));
    assert_eq!(states, [ZEROED, PageState::Empty, PageState::Empty]);
}

/// Only the excess over the cap goes, oldest first, and its frames go back to the kernel.
#[test]
fn the_cap_drops_the_oldest_and_gives_the_frames_back() {
    for mode in [EXCLUSIVE, SHARED] {
        let mut bench = Bench::with_cap(32);
        let range = bench.filled(64, 4);
        bench.free(range, mode);
        assert_eq!(bench.0.lazyfree_over(), PageCount(32));
        while bench.0.lazyfree_over() > PageCount::ZERO {
            let over = bench.0.lazyfree_over();
            let (_, commands) = bench.send(Event::TrimLazyFree);
            assert!(!commands.is_empty() || bench.0.lazyfree_over() < over);
            bench.work(commands);
        }
        goes_to_the_kernel(&mut bench, 32);
        let states = [0, 16, 32, 48].map(|page| bench.state(range, page));
        let kept = if mode == SHARED { CAPTURED } else { ZEROED };
        assert_eq!(states, [PageState::Empty, PageState::Empty, kept, kept]);
        let stats = bench.0.stats();
        assert_eq!(
            (stats.pglazyfreed, stats.nr_free_frames),
            (32, 0),
            "{mode:?}"
        );
        assert_eq!(bench.send(Event::TrimLazyFree).1, [], "{mode:?}");
    }
}

/// A folio that was zeroed in place and cannot move is not dropped, and no longer counts as free.
#[test]
fn a_cleared_folio_that_cannot_be_taken_out_stays() {
    for outcome in [Outcome::TakeOutBusy, Outcome::TakeOutImmovable] {
        let mut bench = Bench::new();
        let range = bench.filled(1, 0);
        bench.free(range, EXCLUSIVE);
        let commands = bench.reclaim(1);
        let [Command::TakeOutIfBlank { folio, .. }] = commands[..] else {
            panic!("{commands:?}");
        };
        bench.tell(folio, outcome);
        assert_eq!(bench.state(range, 0), PageState::Resident);
        let stats = bench.0.stats();
        assert_eq!((stats.nr_lazyfree, stats.pglazyfreed), (0, 0));
    }
}

/// News of a protection removes the mark of folios that would be read to see whether they were used, and waits for a
/// look in progress. See `lazily_freed_memory_made_inaccessible_is_not_inspected` in
/// `millpond/tests/lazy_free_calls.rs`.
#[test]
fn protected_memory_is_not_looked_at() {
    let mut bench = Bench::new();
    let range = bench.filled(64, 4);
    bench.free(part(range, 0..32), EXCLUSIVE);
    bench.free(part(range, 32..64), SHARED);
    let commands = bench.reclaim(16);
    let [Command::TakeOutIfBlank { folio, at, .. }] = commands[..] else {
        panic!("{commands:?}");
    };
    let all = Event::Protected { range };
    assert_eq!(bench.send(all), (Reply::Wait { page: at.start }, vec![]));
    // The waiting thread is woken when the look has ended.
    let wake = Command::Wake { at };
    assert_eq!(bench.tell(folio, Outcome::TakenOutBlank), [wake]);
    assert_eq!(bench.send(all).0, Reply::Done);
    let states = [0, 16, 32].map(|page| bench.state(range, page));
    assert_eq!(states, [PageState::Empty, PageState::Resident, CAPTURED]);
    assert_eq!(bench.0.stats().pglazyfree_reused, 0);
}

/// A purge drops as much of the range as it can at once, wherever it is, and splits folios at the ends of the range.
#[test]
fn a_purge_takes_a_range_wherever_it_is() {
    let mut bench = Bench::new();
    let range = bench.region(80, 4);
    bench.touch(part(range, 0..16));
    bench.swap_out(part(range, 0..16));
    bench.touch(part(range, 16..80));
    bench.page_out(part(range, 16..32));
    bench.free(part(range, 32..48), EXCLUSIVE);
    let purged = part(range, 0..68);
    let given = bench.all(purged, |range| Event::Purge { range });
    let io = |c: &Command| matches!(c, Command::Save { .. } | Command::Load { .. });
    assert!(!given.iter().any(io), "{given:?}");
    assert!(
        purged
            .pages()
            .all(|page| bench.0.page_state(page) == PageState::Empty)
    );
    assert!((68..80).all(|page| bench.state(range, page) == PageState::Resident));
    // All frames serve the next faults.
    assert_eq!(bench.0.stats().nr_free_frames, 52);
    assert_eq!(
        (bench.0.slots_in_use(), bench.0.stats().pglazyfreed),
        (0, 0)
    );
}

/// A purge does not wait. Folios that are in flight, pinned, or in limbo and only partly in the range are skipped. A
/// later call for the range discards them.
#[test]
fn a_purge_skips_folios_it_would_have_to_wait_for() {
    let mut bench = Bench::new();
    let range = bench.filled(64, 4);
    let pinned = part(range, 0..4);
    bench.send(Event::Pin { range: pinned });
    bench.page_out(part(range, 48..64));
    let (advice, flying) = (Advice::PageOut, part(range, 16..32));
    let (_, commands) = bench.send(Event::Advise {
        range: flying,
        advice,
    });
    let purge = Event::Purge {
        range: part(range, 0..56),
    };
    let (reply, given) = bench.send(purge);
    assert_eq!(reply, Reply::Done);
    bench.work(given);
    bench.work(commands);
    let states = [0, 4, 16, 32, 48, 56].map(|page| bench.state(range, page));
    use PageState::{Empty, Limbo, Resident};
    assert_eq!(states, [Resident, Empty, Limbo, Empty, Limbo, Limbo]);
    bench.send(Event::Unpin { range: pinned });
    bench.all(part(range, 0..56), |range| Event::Discard { range });
    assert_eq!(bench.state(range, 55), Empty);
    assert_eq!(bench.state(range, 56), Resident);
}

/// Memory that was kept in place goes back to the kernel, and nowhere else, when it is no longer needed. Folios that
/// were used again stay, and so do those that others have in flight.
#[test]
fn kept_memory_is_given_back_except_what_was_used_again() {
    let mut bench = Bench::new();
    let range = bench.filled(6 * 16, 4);
    let folio = |n: u32| part(range, 16 * n..16 * (n + 1));
    bench.free(part(range, 0..64), FreeMode::ReadsZeros);
    bench.free(folio(4), SHARED);
    // The last folio is in use, and only a part of the fourth is requested.
    let asked = part(range, 0..56);
    let (reply, commands) = bench.send(Event::GiveFreedBack { range: asked });
    assert_eq!(reply, Reply::Done);
    let [
        Command::TakeOutIfBlank { folio: first, .. },
        Command::TakeOutIfBlank { folio: second, .. },
        Command::TakeOutIfBlank { folio: third, .. },
    ] = commands[..]
    else {
        panic!("{commands:?}");
    };
    // If the request is repeated before the commands have completed, the core gives no new commands.
    let (reply, again) = bench.send(Event::GiveFreedBack { range: asked });
    assert_eq!((reply, again.len()), (Reply::Done, 0));
    bench.tell(first, Outcome::Written);
    bench.tell(second, Outcome::TakenOut);
    let answer = bench.tell(third, Outcome::TakenOutBlank);
    assert_eq!(answer.len(), 0, "{answer:?}");
    goes_to_the_kernel(&mut bench, 16);
    let states = [0, 1, 2, 3, 4, 5].map(|n| bench.state(range, 16 * n));
    let resident = PageState::Resident;
    let expected = [
        resident,
        PageState::Limbo,
        PageState::Empty,
        ZEROED,
        CAPTURED,
        resident,
    ];
    assert_eq!(states, expected);
    // Only the core has a captured folio.
    let (_, commands) = bench.send(Event::GiveFreedBack { range: folio(4) });
    assert_eq!(commands.len(), 0, "{commands:?}");
    goes_to_the_kernel(&mut bench, 16);
}

/// Checks that frames go to the kernel although demand would keep them in the pool.
fn goes_to_the_kernel(bench: &mut Bench, pages: u32) {
    let mut gather = Gather::with_pages(0);
    bench.0.gather_spare(PageCount(1000), &mut gather);
    assert_eq!(gather.pages(), PageCount(pages));
    assert_eq!(bench.0.gathered(&gather), None);
}
