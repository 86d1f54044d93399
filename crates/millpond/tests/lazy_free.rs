//! Lazy free on real memory: what happens to the memory, as docs/TESTING.md lists it. The calls are in
//! `lazy_free_calls.rs`, races in `lazy_free_races.rs`, the reported figures in `lazy_accounting.rs`, and volatile
//! ranges in `volatile.rs`.

mod common;

use common::lazily::{Free, each_case, old_or_zeros, settle};
use common::{
    FOLIO, MIB, PAGE, eventually, fill, holds, is_zero, order, page_is, pages, press, small, ways,
};
use millpond::{Advice, StoreKind};
use std::ops::Range;

/// A freed page reads as it did or as zeros, without races. Once it reads as zeros it stays zeros, and a write keeps
/// the page.
#[test]
fn a_freed_page_is_old_or_zeros_and_a_write_keeps_it() {
    each_case(&[0, 4, 9], |builder, case| {
        let manager = builder.build().unwrap();
        let mut region = manager.region_with(6 * MIB, order(case.order)).unwrap();
        fill(&mut region, 0..6 * MIB, 1);
        case.free.one(&mut region, 0..6 * MIB);
        // One byte of every third page is written, mostly where a glance at the page's start does not see it.
        let written = |page: usize| page.is_multiple_of(3).then_some(page * PAGE + page % PAGE);
        for page in 0..6 * MIB / PAGE {
            if let Some(at) = written(page) {
                region.as_mut_slice()[at] = 0xa5;
            }
        }
        let mut were_zeros = vec![false; 6 * MIB / PAGE];
        for _ in 0..2 {
            press(&manager, 14 * MIB);
            for (page, were_zeros) in were_zeros.iter_mut().enumerate() {
                let mut bytes = [0; PAGE];
                bytes.copy_from_slice(&region.as_slice()[page * PAGE..][..PAGE]);
                if let Some(at) = written(page) {
                    assert_eq!(
                        bytes[at % PAGE],
                        0xa5,
                        "{}: page {page} lost a write",
                        case.name
                    );
                    let mut old = [0; PAGE];
                    common::write_page(&mut old, 1 + page as u64);
                    bytes[at % PAGE] = old[at % PAGE];
                    let zeros = bytes.iter().filter(|&&byte| byte != 0).count() <= 1;
                    assert!(zeros || bytes == old, "{}: page {page}", case.name);
                    continue;
                }
                let zeros = bytes.iter().all(|&byte| byte == 0);
                assert!(
                    zeros || page_is(&bytes, 1 + page as u64),
                    "{}: page {page}",
                    case.name
                );
                assert!(
                    zeros || !*were_zeros,
                    "{}: page {page} came back",
                    case.name
                );
                *were_zeros = zeros;
            }
        }
    });
}

/// Under pressure freed memory is dropped, and none of it goes to the store or comes from it.
#[test]
fn under_pressure_freed_memory_is_dropped_without_store_io() {
    each_case(&[0, 4, 9], |builder, case| {
        let manager = builder.build().unwrap();
        let mut region = manager.region_with(10 * MIB, order(case.order)).unwrap();
        fill(&mut region, 0..10 * MIB, 1);
        case.free.one(&mut region, 0..8 * MIB);
        assert_eq!(
            manager.stats().vm.pglazyfree,
            pages(8 * MIB),
            "{}",
            case.name
        );
        assert_eq!(manager.stats().vm.pglazyfreed, 0, "{}", case.name);
        press(&manager, 12 * MIB);
        let stats = manager.stats();
        let io = (stats.vm.pswpout, stats.vm.pswpin, stats.store.slots);
        assert_eq!(io, (0, 0, 0), "{}", case.name);
        // 14 MiB were used beside the freed 8, in a budget of 16; background reclaim goes half a MiB further.
        let dropped = stats.vm.pglazyfreed;
        let enough = pages(6 * MIB)..=pages(8 * MIB);
        assert!(
            enough.contains(&dropped),
            "{}: {dropped} dropped",
            case.name
        );
        let zeros = old_or_zeros(&region, 0..8 * MIB, 1).expect("old or zeros");
        assert!(zeros as u64 >= dropped, "{}", case.name);
        assert!(
            holds(&region, 8 * MIB..10 * MIB, 1 + pages(8 * MIB)),
            "{}",
            case.name
        );
    });
}

/// Pages in the store lose their slots at once when they are freed, and are not loaded again.
#[test]
fn freed_pages_in_the_store_are_forgotten_at_once_and_never_loaded() {
    each_case(&[0, 4, 9], |builder, case| {
        let manager = builder.build().unwrap();
        let mut region = manager.region_with(22 * MIB, order(case.order)).unwrap();
        fill(&mut region, 0..22 * MIB, 1);
        let before = manager.stats();
        assert!(before.store.slots > 0 && before.vm.nr_swapped > pages(5 * MIB));
        case.free.one(&mut region, 0..22 * MIB);
        let after = manager.stats();
        assert_eq!(
            (after.store.slots, after.vm.nr_swapped),
            (0, 0),
            "{}",
            case.name
        );
        assert_eq!(after.store.logical_bytes, 0, "{}", case.name);
        // The pages that were filled first were in the store.
        let zeros = old_or_zeros(&region, 0..6 * MIB, 1).expect("old or zeros");
        assert!(zeros as u64 > pages(5 * MIB), "{}", case.name);
        assert_eq!(manager.stats().vm.pswpin, before.vm.pswpin, "{}", case.name);
    });
}

/// A slot of which a part was freed still gives back the rest.
#[test]
fn a_partly_freed_slot_still_returns_its_other_pages() {
    each_case(&[4], |builder, case| {
        let manager = builder.build().unwrap();
        let mut region = manager.region_with(4 * MIB, order(4)).unwrap();
        fill(&mut region, 0..4 * MIB, 1);
        press(&manager, 24 * MIB);
        assert_eq!(
            manager.stats().vm.nr_swapped,
            pages(4 * MIB),
            "{}",
            case.name
        );
        let slots = manager.stats().store.slots;
        let middles: Vec<_> = (0..4 * MIB / FOLIO)
            .map(|n| n * FOLIO + 3 * PAGE..n * FOLIO + 10 * PAGE)
            .collect();
        case.free.try_vector(&mut region, &middles).unwrap();
        let stats = manager.stats();
        assert_eq!(stats.vm.nr_swapped, 9 * slots, "{}", case.name);
        for (n, middle) in middles.iter().enumerate() {
            let start = n * FOLIO;
            let salt = 1 + pages(start);
            assert!(is_zero(&region, middle.clone()), "{}", case.name);
            assert!(
                holds(&region, start..start + 3 * PAGE, salt),
                "{}",
                case.name
            );
            assert!(
                holds(&region, middle.end..start + FOLIO, salt + 10),
                "{}",
                case.name
            );
        }
        // The loaded part keeps its part of the slot, to go back there unwritten.
        assert_eq!(manager.stats().store.slots, slots, "{}", case.name);
        region.discard(0..4 * MIB).unwrap();
        let released = eventually(|| manager.stats().store.slots == 0);
        assert!(released, "{}", case.name);
    });
}

/// Freed folios leave the active list, and go before inactive folios that are older.
#[test]
fn freed_folios_leave_the_active_list_and_go_before_all_others() {
    each_case(&[0, 2, 4], |builder, case| {
        let manager = builder.build().unwrap();
        let mut cold = manager.region_with(6 * MIB, order(case.order)).unwrap();
        fill(&mut cold, 0..6 * MIB, 1);
        let mut hot = manager.region_with(8 * MIB, order(case.order)).unwrap();
        fill(&mut hot, 0..8 * MIB, 9);
        settle(&hot);
        hot.advise(0..8 * MIB, Advice::PageOut).unwrap();
        hot.populate(0..8 * MIB).unwrap();
        assert_eq!(
            manager.stats().vm.nr_active,
            pages(8 * MIB),
            "{}",
            case.name
        );
        case.free.one(&mut hot, 0..8 * MIB);
        let vm = manager.stats().vm;
        let lists = (vm.nr_active, vm.nr_inactive, vm.nr_lazyfree);
        assert_eq!(lists, (0, pages(6 * MIB), pages(8 * MIB)), "{}", case.name);
        press(&manager, 8 * MIB);
        let cold = cold.stats();
        let elsewhere = (cold.resident, cold.limbo, cold.swapped);
        assert_eq!(
            elsewhere,
            (6 * MIB as u64, 0, 0),
            "{}: all of it",
            case.name
        );
        assert!(manager.stats().vm.pglazyfreed > 0, "{}", case.name);
    });
}

/// Only the mark makes a page discardable; a copy in the store does not. Any use removes the mark, a read as well as a
/// write.
#[test]
fn a_clean_page_that_was_read_back_is_not_free() {
    each_case(&[0, 4], |builder, case| {
        let manager = builder.build().unwrap();
        let mut region = manager.region_with(4 * MIB, order(case.order)).unwrap();
        fill(&mut region, 0..4 * MIB, 1);
        for _ in 0..2 {
            press(&manager, 18 * MIB);
            assert!(region.stats().swapped > 0, "{}", case.name);
            assert!(holds(&region, 0..4 * MIB, 1), "{}", case.name);
        }
        assert!(manager.stats().vm.pswpout_unchanged > 0, "{}", case.name);
        assert_eq!(manager.stats().vm.pglazyfreed, 0, "{}", case.name);
        if case.free == Free::Shared {
            case.free.one(&mut region, 0..4 * MIB);
            assert!(holds(&region, 0..4 * MIB, 1), "{}: still old", case.name);
            assert_eq!(manager.stats().lazyfree_bytes(), 0, "{}", case.name);
            press(&manager, 18 * MIB);
            assert!(holds(&region, 0..4 * MIB, 1), "{}", case.name);
            assert_eq!(manager.stats().vm.pglazyfreed, 0, "{}", case.name);
        }
    });
}

/// Same-filled pages share no slot here, but each has a record of the same word; that must not join them.
#[test]
fn same_filled_pages_are_not_dropped_by_the_mark_of_another() {
    each_case(&[0, 4], |builder, case| {
        let manager = builder.build().unwrap();
        let len = 2 * MIB;
        let [mut freed, mut kept] = [0, 1].map(|_| {
            let mut region = manager.region_with(len, order(case.order)).unwrap();
            region.as_mut_slice().fill(0x5a);
            region
        });
        // The pages are first frames in memory, then records in the store.
        for in_store in [false, true] {
            freed.as_mut_slice().fill(0x5a);
            if in_store {
                press(&manager, 18 * MIB);
                assert!(manager.stats().store.same_filled > 0, "{}", case.name);
            }
            case.free.one(&mut freed, 0..len);
            press(&manager, 14 * MIB);
            assert!(
                kept.as_slice().iter().all(|&byte| byte == 0x5a),
                "{}",
                case.name
            );
            kept.as_mut_slice()[0] = 0x5a;
            let rest = freed
                .as_slice()
                .iter()
                .all(|&byte| byte == 0x5a || byte == 0);
            assert!(rest, "{}", case.name);
        }
    });
}

/// A folio is split only where an end of the freed range is inside it.
#[test]
fn a_folio_is_split_only_where_an_end_of_the_range_is_inside_it() {
    each_case(&[4], |builder, case| {
        let manager = builder.build().unwrap();
        let mut region = manager.region_with(4 * MIB, order(4)).unwrap();
        let mut splits = |range: Range<usize>| {
            fill(&mut region, 0..4 * MIB, 1);
            let before = manager.stats().vm;
            case.free
                .one(&mut region, range.start * PAGE..range.end * PAGE);
            let after = manager.stats().vm;
            let freed = after.pglazyfree - before.pglazyfree;
            assert_eq!(freed, range.len() as u64, "{}: {range:?}", case.name);
            let (start, end) = (range.start * PAGE, range.end * PAGE);
            assert!(holds(&region, 0..start, 1), "{}", case.name);
            assert!(
                holds(&region, end..4 * MIB, 1 + range.end as u64),
                "{}",
                case.name
            );
            after.folio_split - before.folio_split
        };
        // The ranges are first whole folios, then folios that were not touched yet, in halves down to the end's own
        // alignment. Where nothing else uses the bytes a part is zeroed in place, and split off when memory is wanted.
        let found = [0..16, 64..160, 168..192, 200..216, 228..232].map(&mut splits);
        let at_once = match case.free {
            Free::Shared => [0, 0, 1, 2, 2],
            Free::Exclusive => [0; 5],
        };
        assert_eq!(found, at_once, "{}", case.name);
        // These folios end there by now.
        assert_eq!(splits(228..232), 0, "{}", case.name);
    });
    // 2 MiB as one folio are captured and dropped as a whole.
    each_case(&[9], |builder, case| {
        let manager = builder.build().unwrap();
        let mut region = manager.region_with(8 * MIB, order(9)).unwrap();
        fill(&mut region, 0..8 * MIB, 1);
        case.free.one(&mut region, 2 * MIB..6 * MIB);
        press(&manager, 12 * MIB);
        let vm = manager.stats().vm;
        assert_eq!(
            (vm.folio_split, vm.pglazyfreed),
            (0, pages(4 * MIB)),
            "{}",
            case.name
        );
        assert!(is_zero(&region, 2 * MIB..6 * MIB) && holds(&region, 0..2 * MIB, 1));
    });
}

/// A folio that was freed in part is split when memory is wanted.
#[test]
fn a_folio_that_was_freed_in_part_is_split_when_memory_is_wanted() {
    for (delivery, method) in ways() {
        let manager = small().delivery(delivery).take_out(method).build().unwrap();
        let mut region = manager.region_with(8 * MIB, order(4)).unwrap();
        fill(&mut region, 0..8 * MIB, 1);
        // The freed parts are the second quarter of each folio.
        let parts: Vec<_> = (0..8 * MIB)
            .step_by(FOLIO)
            .map(|at| at + FOLIO / 4..at + FOLIO / 2)
            .collect();
        region.lazy_free_vectored(&parts).unwrap();
        let vm = manager.stats().vm;
        let folios = parts.len() as u64;
        assert_eq!(
            (vm.deferred_split, vm.folio_split),
            (folios, 0),
            "{delivery:?} {method:?}"
        );
        assert_eq!(vm.nr_lazyfree, pages(2 * MIB), "{delivery:?} {method:?}");
        assert_eq!(region.stats().lazyfree, 2 * MIB as u64);
        // Half of the parts are used again.
        for part in parts.iter().step_by(2) {
            fill(&mut region, part.clone(), 7);
        }
        press(&manager, 12 * MIB);
        let vm = manager.stats().vm;
        assert_eq!(vm.pglazyfreed, pages(MIB), "{delivery:?} {method:?}");
        for (n, part) in parts.iter().enumerate() {
            match n % 2 {
                0 => assert!(
                    holds(&region, part.clone(), 7),
                    "{delivery:?} {method:?}: {part:?}"
                ),
                _ => assert!(
                    is_zero(&region, part.clone()),
                    "{delivery:?} {method:?}: {part:?}"
                ),
            }
            let first = (n * FOLIO / PAGE) as u64;
            let quarter = n * FOLIO..part.start;
            assert!(
                holds(&region, quarter, 1 + first),
                "{delivery:?} {method:?}: {n}"
            );
        }
    }
}

/// Lazy free works the same without a store. The first version of the kernel's `MADV_FREE` gave pages back at once
/// where there was no swap.
#[test]
fn lazy_free_works_the_same_without_a_store() {
    each_case(&[0, 4, 9], |builder, case| {
        let manager = builder.store(StoreKind::None).build().unwrap();
        let mut region = manager.region_with(10 * MIB, order(case.order)).unwrap();
        fill(&mut region, 0..10 * MIB, 1);
        case.free.one(&mut region, 0..8 * MIB);
        // No memory is given back before it is wanted.
        assert_eq!(
            manager.stats().lazyfree_bytes(),
            8 * MIB as u64,
            "{}",
            case.name
        );
        press(&manager, 12 * MIB);
        let vm = manager.stats().vm;
        assert!(vm.pglazyfreed >= pages(6 * MIB), "{}: {vm:#?}", case.name);
        assert_eq!((vm.over_limit, vm.pswpout), (0, 0), "{}", case.name);
        assert!(
            old_or_zeros(&region, 0..8 * MIB, 1).is_some(),
            "{}",
            case.name
        );
        assert!(
            holds(&region, 8 * MIB..10 * MIB, 1 + pages(8 * MIB)),
            "{}",
            case.name
        );

        // Lazily freed memory also goes first after the region has shown that nothing else can leave.
        fill(&mut region, 0..10 * MIB, 1);
        press(&manager, 10 * MIB);
        let over = manager.stats().vm.over_limit;
        assert!(over > 0, "{}", case.name);
        case.free.one(&mut region, 0..8 * MIB);
        press(&manager, 10 * MIB);
        assert_eq!(manager.stats().vm.over_limit, over, "{}", case.name);
        assert!(
            holds(&region, 8 * MIB..10 * MIB, 1 + pages(8 * MIB)),
            "{}",
            case.name
        );
    });
}
