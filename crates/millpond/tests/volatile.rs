//! Volatile ranges: the owner says when the contents can go and asks whether they did; in between nothing is watched.
//! Each range goes as a whole or not at all, the oldest first.

mod common;

use common::{
    FOLIO, MIB, PAGE, Rng, alone, fill, holds, is_over, is_zero, order, press, small, stress_time,
    ways,
};
use millpond::{Contents, RangeError, Region, StoreKind, VolatileError};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Instant;

/// Marks a range whose bytes no test reads until it asks for them.
fn mark(region: &Region, range: Range<usize>) {
    // SAFETY: the tests hold no reference to bytes of a range while it is volatile.
    unsafe { region.mark_volatile(range).unwrap() }
}

#[test]
fn volatile_contents_survive_while_memory_suffices() {
    for (delivery, method) in ways() {
        let manager = small().delivery(delivery).take_out(method).build().unwrap();
        let mut region = manager.region(4 * MIB).unwrap();
        fill(&mut region, 0..4 * MIB, 7);
        mark(&region, 0..4 * MIB);
        assert_eq!(
            region.mark_nonvolatile(0..4 * MIB).unwrap(),
            Contents::Survived
        );
        assert!(holds(&region, 0..4 * MIB, 7));
        assert_eq!(manager.stats().volatile_purges, 0);
    }
}

#[test]
fn pressure_purges_whole_ranges_oldest_first_without_store_io() {
    const RANGE: usize = MIB;
    for (delivery, method) in ways() {
        for folios in [0, 4] {
            let manager = small().delivery(delivery).take_out(method).build().unwrap();
            let mut region = manager.region_with(12 * RANGE, order(folios)).unwrap();
            fill(&mut region, 0..12 * RANGE, 0);
            // The ranges are marked neither in the order of their addresses nor in that of their making.
            let by_age: Vec<usize> = (0..12).map(|n| n * 5 % 12).collect();
            for &n in &by_age {
                mark(&region, n * RANGE..(n + 1) * RANGE);
            }
            press(&manager, 8 * MIB);
            let mut purged = Vec::new();
            for &n in &by_age {
                let range = n * RANGE..(n + 1) * RANGE;
                match region.mark_nonvolatile(range.clone()).unwrap() {
                    Contents::Survived => {
                        purged.push(false);
                        assert!(holds(&region, range, (n * RANGE / PAGE) as u64));
                    }
                    Contents::Purged => {
                        purged.push(true);
                        assert!(is_zero(&region, range));
                    }
                }
            }
            let stats = manager.stats();
            let gone = purged.iter().filter(|&&gone| gone).count();
            let name = format!("{delivery:?} {method:?} order {folios}: {purged:?}");
            assert!(purged.is_sorted_by(|a, b| a >= b), "{name}");
            assert_eq!(gone as u64, stats.volatile_purges, "{name}");
            // 8 MiB were wanted and 4 were left: not much less and not much more had to go.
            assert!((3..=8).contains(&gone), "{name}");
            assert_eq!((stats.vm.pswpout, stats.vm.pswpin), (0, 0), "{name}");
        }
    }
}

/// Objects shorter than a folio, or not aligned with one, used to be purged in the book, but their folios were skipped:
/// all objects of a cache of 16 KiB each were lost, and not a single page became free. This test found it.
#[test]
fn volatile_parts_of_folios_are_purged_too() {
    const OBJECT: usize = 4 * PAGE;
    for (delivery, method) in ways() {
        let manager = small().delivery(delivery).take_out(method).build().unwrap();
        let mut region = manager.region_with(12 * MIB, order(4)).unwrap();
        fill(&mut region, 0..12 * MIB, 0);
        let objects = 12 * MIB / OBJECT;
        for n in 0..objects {
            mark(&region, n * OBJECT..(n + 1) * OBJECT);
        }
        press(&manager, 8 * MIB);
        let stats = manager.stats();
        let name = format!("{delivery:?} {method:?}");
        assert_eq!(stats.vm.pswpout, 0, "{name}: {stats:#?}");
        let survived = (0..objects).filter(|n| {
            let range = n * OBJECT..(n + 1) * OBJECT;
            region.mark_nonvolatile(range).unwrap() == Contents::Survived
        });
        // About 1,500 of 3,072 pages had to go.
        let survived = survived.count() * OBJECT / MIB;
        assert!(
            (4..=9).contains(&survived),
            "{name}: {survived} MiB survived"
        );
    }
}

/// A part of the contents may be in limbo or in the store when the range is purged: that part is forgotten with the
/// rest.
#[test]
fn a_purge_includes_pages_in_the_store() {
    let manager = small().build().unwrap();
    let mut region = manager.region_with(4 * MIB, order(4)).unwrap();
    fill(&mut region, 0..4 * MIB, 3);
    // Half of the range goes to the store, a quarter into limbo.
    region
        .advise(0..2 * MIB, millpond::Advice::PageOut)
        .unwrap();
    press(&manager, 14 * MIB);
    region
        .advise(2 * MIB..3 * MIB, millpond::Advice::PageOut)
        .unwrap();
    assert!(region.stats().swapped > 0);
    mark(&region, 0..4 * MIB);
    press(&manager, 30 * MIB);
    assert_eq!(
        region.mark_nonvolatile(0..4 * MIB).unwrap(),
        Contents::Purged
    );
    assert_eq!(region.stats().swapped, 0);
    assert!(is_zero(&region, 0..4 * MIB));
    assert_eq!(manager.stats().volatile_purges, 1);
}

#[test]
fn ranges_that_cannot_be_marked_are_named_and_nothing_changes() {
    let manager = small().build().unwrap();
    let len = MIB;
    let mut region = manager.region(len).unwrap();
    fill(&mut region, 0..len, 1);
    // SAFETY: nothing reads the bytes of volatile ranges.
    let mark = |range| unsafe { region.mark_volatile(range) };
    let bad = |start, end| VolatileError::from(RangeError::Bad { start, end, len });
    for (start, end) in [
        (0, 0),
        (PAGE, PAGE),
        (2 * PAGE, PAGE),
        (0, len + PAGE),
        (len, len + PAGE),
        (usize::MAX - PAGE + 1, PAGE),
    ] {
        assert_eq!(mark(start..end).unwrap_err(), bad(start, end));
        assert_eq!(
            region.mark_nonvolatile(start..end).unwrap_err(),
            bad(start, end)
        );
    }
    for (start, end) in [(1, PAGE), (0, PAGE + 1), (PAGE - 1, 2 * PAGE)] {
        let unaligned = VolatileError::from(RangeError::Unaligned { start, end });
        assert_eq!(mark(start..end).unwrap_err(), unaligned);
        assert_eq!(region.mark_nonvolatile(start..end).unwrap_err(), unaligned);
    }
    let guard = region.pin(5 * PAGE..6 * PAGE).unwrap();
    let pinned = VolatileError::from(RangeError::Pinned { offset: 5 * PAGE });
    assert_eq!(mark(0..8 * PAGE).unwrap_err(), pinned);
    assert_eq!(mark(0..5 * PAGE), Ok(()));
    assert_eq!(region.mark_nonvolatile(0..5 * PAGE), Ok(Contents::Survived));
    drop(guard);

    mark(4 * PAGE..8 * PAGE).unwrap();
    for (start, end, offset) in [(4, 8, 4), (0, 5, 4), (7, 9, 7), (5, 6, 5), (0, 256, 4)] {
        let overlaps = VolatileError::Overlaps {
            offset: offset * PAGE,
        };
        assert_eq!(mark(start * PAGE..end * PAGE).unwrap_err(), overlaps);
    }
    for (start, end) in [(4, 7), (5, 8), (0, 4), (4, 12)] {
        let (start, end) = (start * PAGE, end * PAGE);
        let unknown = VolatileError::NotVolatile { start, end };
        assert_eq!(region.mark_nonvolatile(start..end).unwrap_err(), unknown);
    }
    assert_eq!(
        region.mark_nonvolatile(4 * PAGE..8 * PAGE),
        Ok(Contents::Survived)
    );
    let again = region.mark_nonvolatile(4 * PAGE..8 * PAGE);
    assert!(matches!(again, Err(VolatileError::NotVolatile { .. })));
    assert!(holds(&region, 0..len, 1));
}

/// Marking and unmarking take two operations on a book, whatever the length. (The book's memory comes from the
/// program's allocator, which is told here to keep its memory.)
#[cfg(target_arch = "x86_64")]
#[test]
fn marking_and_unmarking_make_no_system_call() {
    use common::calls::system_calls_of;
    alone("marking_and_unmarking_make_no_system_call", || {
        // SAFETY: the arguments are numbers.
        unsafe {
            libc::mallopt(libc::M_TRIM_THRESHOLD, 1 << 30);
            libc::mallopt(libc::M_TOP_PAD, 1 << 20);
        }
        for (delivery, method) in ways() {
            let manager = small().delivery(delivery).take_out(method).build().unwrap();
            let mut region = manager.region_with(8 * MIB, order(4)).unwrap();
            fill(&mut region, 0..8 * MIB, 0);
            let objects = || (0..8 * MIB).step_by(FOLIO).map(|at| at..at + FOLIO);
            let round = || {
                objects().for_each(|range| mark(&region, range));
                objects().for_each(|range| {
                    assert_eq!(region.mark_nonvolatile(range), Ok(Contents::Survived));
                });
                mark(&region, 0..8 * MIB);
                assert_eq!(region.mark_nonvolatile(0..8 * MIB), Ok(Contents::Survived));
            };
            round();
            // The first look may move the heap's end, which is not fixed.
            if system_calls_of(round).is_none() {
                return;
            }
            let calls = system_calls_of(round);
            assert_eq!(calls, Some(vec![]), "{delivery:?} {method:?}");
            // The calls did nothing to the memory either.
            let calls = system_calls_of(|| assert!(holds(&region, 0..8 * MIB, 0)));
            assert_eq!(calls, Some(vec![]));
            let calls = system_calls_of(|| assert!(manager.stats().ram > 0));
            assert_ne!(calls, Some(vec![]), "system calls are not seen");
        }
    });
}

/// Without a store, once that has been detected, volatile ranges are still purged.
#[test]
fn without_a_store_volatile_memory_is_purged_within_the_budget() {
    for (delivery, method) in ways() {
        let manager = small()
            .store(StoreKind::None)
            .delivery(delivery)
            .take_out(method)
            .build()
            .unwrap();
        let mut region = manager.region(12 * MIB).unwrap();
        fill(&mut region, 0..12 * MIB, 5);
        // The regions need more than there is room for: the budget is exceeded by data that cannot go anywhere.
        let mut more = manager.region(6 * MIB).unwrap();
        fill(&mut more, 0..6 * MIB, 6);
        let before = manager.stats().vm;
        assert!(before.over_limit > 0);
        mark(&region, 0..12 * MIB);
        let mut wanted = manager.region(4 * MIB).unwrap();
        fill(&mut wanted, 0..4 * MIB, 7);
        let after = manager.stats();
        let name = format!("{delivery:?} {method:?}");
        assert_eq!(after.vm.over_limit, before.over_limit, "{name}");
        assert_eq!(region.mark_nonvolatile(0..12 * MIB), Ok(Contents::Purged));
        assert_eq!(manager.stats().volatile_purges, 1, "{name}");
        assert!(is_zero(&region, 0..12 * MIB));
        assert!(holds(&more, 0..6 * MIB, 6) && holds(&wanted, 0..4 * MIB, 7));
    }
}

#[test]
fn a_dropped_region_takes_its_marks_with_it() {
    for (delivery, method) in ways() {
        let manager = small()
            .address_space(64 << 20)
            .delivery(delivery)
            .take_out(method)
            .build()
            .unwrap();
        let place = {
            let mut region = manager.region(8 * MIB).unwrap();
            fill(&mut region, 0..8 * MIB, 1);
            mark(&region, 0..4 * MIB);
            mark(&region, 4 * MIB..8 * MIB);
            region.as_ptr() as usize
        };
        // A new region, which was never marked, has the addresses of the region that has ended.
        let mut region = manager.region(8 * MIB).unwrap();
        assert_eq!(region.as_ptr() as usize, place);
        fill(&mut region, 0..8 * MIB, 2);
        press(&manager, 24 * MIB);
        assert_eq!(manager.stats().volatile_purges, 0);
        assert!(holds(&region, 0..8 * MIB, 2));
        mark(&region, 2 * MIB..6 * MIB);
        assert!(region.mark_nonvolatile(2 * MIB..6 * MIB).is_ok());
    }
}

/// A thread that purges a range does so piece by piece. If the region was dropped in the meantime, and another was made
/// at its addresses, the rest of the purge used to drop the other region's data.
#[test]
fn a_purge_under_way_does_not_reach_the_next_region_at_these_addresses() {
    const LEN: usize = 24 * MIB;
    const TAIL: Range<usize> = LEN - MIB..LEN;
    let manager = small()
        .ram(32 << 20)
        .address_space(256 << 20)
        .build()
        .unwrap();
    let end = Instant::now() + stress_time();
    let purges = || manager.stats().volatile_purges;
    let (mut met, mut salt) = (0, 0);
    while Instant::now() < end {
        salt += 1;
        // The folios are small and many, so a purge of them takes many pieces.
        let mut region = manager.region_with(LEN, order(0)).unwrap();
        for page in region.as_mut_slice().chunks_mut(PAGE) {
            page[0] = 1;
        }
        mark(&region, 0..LEN);
        let (place, before) = (region.as_ptr(), (purges(), region.stats().resident));
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| press(&manager, 24 * MIB));
            // These threads want the processors too, so that the purging thread is interrupted now and then.
            for _ in 0..4 {
                scope.spawn(|| {
                    while !stop.load(Relaxed) {
                        std::hint::spin_loop();
                    }
                });
            }
            while region.stats().resident + 64 * PAGE as u64 > before.1 && purges() == before.0 {
                std::hint::spin_loop();
            }
            met += u64::from(purges() == before.0);
            drop(region);
            let mut next = manager.region_with(LEN, order(0)).unwrap();
            assert_eq!(next.as_ptr(), place);
            fill(&mut next, TAIL, salt);
            while purges() == before.0 {
                std::hint::spin_loop();
            }
            stop.store(true, Relaxed);
            assert!(
                holds(&next, TAIL, salt),
                "pages of another region were purged"
            );
        });
    }
    println!("{met} purges met in {salt} rounds");
    assert!(met > 0, "no purge was under way: nothing was tested");
}

/// A cache that is twice the budget is used by several threads: each object is volatile while it is not looked at.
/// Objects that survived are right to the byte, purged ones are zeros, and objects that were not marked are there.
#[test]
fn a_cache_of_volatile_objects_never_shows_half_an_object() {
    const OBJECT: usize = 10 * PAGE;
    const OBJECTS: usize = 32 * MIB / OBJECT;
    const THREADS: usize = 3;
    let time = stress_time() / (ways().len() * 2) as u32;
    for (delivery, method) in ways() {
        for folios in [0, 4] {
            let name = format!("{delivery:?} {method:?} order {folios}");
            let manager = small().delivery(delivery).take_out(method).build().unwrap();
            let region = manager
                .region_with(OBJECTS * OBJECT, order(folios))
                .unwrap();
            let base = region.as_ptr() as usize;
            let (survived, purged) = (AtomicU64::new(0), AtomicU64::new(0));
            let end = Instant::now() + time;
            let use_cache = |me: usize| {
                let mut rng = Rng(0xcac4e + me as u64);
                // The contents of each of this thread's objects, and whether it is volatile.
                let mut known = vec![(0u64, false); OBJECTS / THREADS];
                let has_shown = || survived.load(Relaxed) > 0 && purged.load(Relaxed) > 0;
                while !is_over(end, has_shown()) {
                    let n = rng.below(known.len());
                    let object = n * THREADS + me;
                    let range = object * OBJECT..(object + 1) * OBJECT;
                    let (value, volatile) = &mut known[n];
                    if *volatile {
                        match region.mark_nonvolatile(range.clone()).unwrap() {
                            Contents::Survived => survived.fetch_add(1, Relaxed),
                            Contents::Purged => {
                                *value = 0;
                                purged.fetch_add(1, Relaxed)
                            }
                        };
                    }
                    // SAFETY: the object is this thread's, and not volatile now.
                    let words = unsafe {
                        let start = (base + range.start) as *mut u64;
                        std::slice::from_raw_parts_mut(start, OBJECT / 8)
                    };
                    let wrong = words.iter().position(|word| word != value);
                    assert_eq!(
                        wrong, None,
                        "{name}: object {object}, {value}, volatile: {volatile}"
                    );
                    if rng.below(2) == 0 {
                        *value += 1 + rng.next() % 1000;
                        words.fill(*value);
                    }
                    *volatile = rng.below(8) > 0;
                    if *volatile {
                        mark(&region, range);
                    }
                }
            };
            std::thread::scope(|scope| {
                for me in 0..THREADS {
                    scope.spawn(move || use_cache(me));
                }
            });
            let (survived, purged) = (survived.into_inner(), purged.into_inner());
            println!("{name}: {survived} survived, {purged} purged");
            assert!(survived > 0 && purged > 0, "{name} tested nothing");
        }
    }
}
