//! Lazily freed bytes are always reported separately from resident ones, the kernel agrees, and a cap holds.

mod common;

use common::lazily::{Case, Free, each_case, old_or_zeros, settle};
use common::{
    FOLIO, MIB, alone, eventually, fill, holds, order, pages, press, small, smaps_rollup,
};
use millpond::{Advice, Manager, Region};

const LEN: usize = 8 * MIB;

/// Bytes that are resident, lazily freed, and in limbo. The region's figures and the manager's must agree once nothing
/// is under way. (A fault ends for the program a moment before a handler has told the manager so.)
fn where_is_it(manager: &Manager, region: &Region, case: &Case) -> (usize, usize, usize) {
    let mut found = Default::default();
    let agree = eventually(|| {
        let of_manager = manager.stats();
        let of_region = region.stats();
        let said = (
            of_manager.resident_bytes(),
            of_manager.lazyfree_bytes(),
            of_manager.limbo_bytes(),
        );
        found = (of_region.resident, of_region.lazyfree, of_region.limbo);
        let in_ram = of_manager.vm.nr_mapped + of_manager.vm.nr_limbo;
        found == said && found.0 + found.1 + found.2 == in_ram * 4096
    });
    assert!(agree, "{}: {found:?} and {:#?}", case.name, manager.stats());
    (found.0 as usize, found.1 as usize, found.2 as usize)
}

#[test]
fn bytes_are_reported_where_they_are_at_every_stage() {
    each_case(&[0, 4, 9], |builder, case| {
        let manager = builder.build().unwrap();
        let mut region = manager.region_with(LEN, order(case.order)).unwrap();
        let whole_folios = case.order == 9;
        assert_eq!(where_is_it(&manager, &region, case), (0, 0, 0));
        fill(&mut region, 0..LEN, 1);
        assert_eq!(where_is_it(&manager, &region, case), (LEN, 0, 0));

        case.free.one(&mut region, 0..LEN / 2);
        let half = LEN / 2;
        assert_eq!(
            where_is_it(&manager, &region, case),
            (half, half, 0),
            "{}",
            case.name
        );
        // A range that is freed twice counts once.
        case.free.one(&mut region, 0..half);
        assert_eq!(
            where_is_it(&manager, &region, case),
            (half, half, 0),
            "{}",
            case.name
        );

        // A quarter is written to, at places that a glance at the start of a page does not see.
        for at in (0..half / 2).step_by(4096) {
            region.as_mut_slice()[at + 3000] = 1;
        }
        let rest = half / 2;
        assert_eq!(
            where_is_it(&manager, &region, case),
            (LEN - rest, rest, 0),
            "{}",
            case.name
        );

        // Memory that is paged out counts as neither; lazily freed memory goes first anyway, and stays.
        for used in [0..half / 2, half..LEN] {
            region.populate(used).unwrap();
        }
        region.advise(0..LEN, Advice::PageOut).unwrap();
        let (resident, lazyfree, limbo) = where_is_it(&manager, &region, case);
        assert_eq!((resident, lazyfree), (0, rest), "{}", case.name);
        assert_eq!(limbo, LEN - rest, "{}", case.name);
        region.populate(half..LEN).unwrap();
        let (resident, lazyfree, _) = where_is_it(&manager, &region, case);
        assert_eq!((resident, lazyfree), (half, rest), "{}", case.name);

        // A discard leaves nothing. And one folio of the rest is pinned, and so in use. (The discard is by address:
        // memory that its owner alone discards is kept as lazily freed, as far as demand goes; see `reuse.rs`.)
        // SAFETY: nothing refers to the bytes.
        unsafe { region.discard_shared(half / 2..half * 3 / 4).unwrap() };
        let pinned = if whole_folios { 0 } else { FOLIO };
        if pinned > 0 {
            drop(region.pin(half * 3 / 4..half * 3 / 4 + pinned).unwrap());
        }
        let (resident, lazyfree, _) = where_is_it(&manager, &region, case);
        let expected = match whole_folios {
            // The only folio that was left had to come back to be split, which uses it.
            true => (half + rest / 2, 0),
            false => (half + pinned, rest / 2 - pinned),
        };
        assert_eq!((resident, lazyfree), expected, "{}", case.name);

        // The rest is dropped under pressure, and only that counts as dropped.
        let dropped = manager.stats().vm.pglazyfreed;
        assert_eq!(dropped, 0, "{}", case.name);
        press(&manager, 15 * MIB);
        let (_, now, _) = where_is_it(&manager, &region, case);
        assert_eq!(now, 0, "{}", case.name);
        assert_eq!(
            manager.stats().vm.pglazyfreed,
            pages(lazyfree),
            "{}",
            case.name
        );
        // SAFETY: nothing refers to the bytes.
        unsafe { region.discard_shared(0..LEN).unwrap() };
        assert_eq!(
            where_is_it(&manager, &region, case),
            (0, 0, 0),
            "{}",
            case.name
        );
    });
}

/// A region's figures used to date from the last look at the manager's: memory written to since then still counted as
/// free.
#[test]
fn a_regions_figures_notice_memory_that_was_used_again() {
    let manager = small().build().unwrap();
    let mut region = manager.region(MIB).unwrap();
    fill(&mut region, 0..MIB, 1);
    region.lazy_free(0..MIB).unwrap();
    fill(&mut region, 0..MIB / 2, 2);
    let stats = region.stats();
    let half = MIB as u64 / 2;
    assert_eq!((stats.resident, stats.lazyfree), (half, half));
}

/// Half of a full region is lazily freed: the reported bytes are those of the kernel, within one per cent.
#[test]
fn reported_bytes_match_the_kernels_within_one_per_cent() {
    const LEN: usize = 64 * MIB;
    let test = "reported_bytes_match_the_kernels_within_one_per_cent";
    alone(test, || {
        each_case(&[4], |builder, case| {
            let manager = builder
                .ram(96 << 20)
                .lazyfree_max(32 << 20)
                .build()
                .unwrap();
            let mut region = manager.region_with(LEN, order(case.order)).unwrap();
            let anonymous = || smaps_rollup(std::process::id(), "Anonymous:");
            let base = anonymous();
            let agree = |region: &Region, resident: usize, lazyfree: usize| {
                where_is_it(&manager, region, case);
                let stats = manager.stats();
                let said = (stats.resident_bytes(), stats.lazyfree_bytes());
                assert_eq!(said, (resident as u64, lazyfree as u64), "{}", case.name);
                // A folio that was captured and came back by a copy leaves a frame behind, which is reported too.
                let spare = stats.vm.nr_free_frames * 4096;
                assert!(spare == 0 || case.free == Free::Shared, "{}", case.name);
                let (said, is) = (said.0 + said.1 + spare, anonymous() - base);
                assert!(
                    said.abs_diff(is) * 100 <= is,
                    "{}: {said} reported, {is} in smaps",
                    case.name
                );
            };
            fill(&mut region, 0..LEN, 1);
            settle(&region);
            agree(&region, LEN, 0);
            case.free.one(&mut region, 0..LEN / 2);
            agree(&region, LEN / 2, LEN / 2);
            fill(&mut region, 0..LEN / 4, 2);
            agree(&region, LEN / 4 * 3, LEN / 4);
            // A free beyond the cap of half drops a quarter, and the kernel has its memory back.
            case.free.one(&mut region, LEN / 2..LEN);
            agree(&region, LEN / 4, LEN / 2);
        });
    });
}

/// Beyond the cap the oldest go first, their memory goes back to the system, and no memory that is used again is
/// touched.
#[test]
fn memory_beyond_the_cap_is_given_back_oldest_first() {
    let test = "memory_beyond_the_cap_is_given_back_oldest_first";
    alone(test, || {
        each_case(&[0, 4], |builder, case| {
            let manager = builder.ram(32 << 20).lazyfree_max(4 << 20).build().unwrap();
            let mut blocks: Vec<Region> = (0..10)
                .map(|_| manager.region_with(MIB, order(case.order)).unwrap())
                .collect();
            for block in &mut blocks {
                fill(block, 0..MIB, 1);
                settle(block);
            }
            let resident = || smaps_rollup(std::process::id(), "Anonymous:");
            let before = resident();
            // The order is by age, not by address. Number 4 is used again, so it does not count.
            let by_age = [7, 4, 1, 8, 5, 2, 9, 6, 3, 0];
            for (age, &n) in by_age.iter().enumerate() {
                case.free.one(&mut blocks[n], 0..MIB);
                if n == 4 {
                    fill(&mut blocks[n], 0..MIB, 100);
                }
                let stats = manager.stats();
                let most = (age + 1 - usize::from(age > 0)).min(4);
                assert_eq!(
                    stats.lazyfree_bytes(),
                    (most * MIB) as u64,
                    "{}: {age}",
                    case.name
                );
            }
            for (age, &n) in by_age.iter().enumerate() {
                let stats = blocks[n].stats();
                let expected = match (n, age) {
                    (4, _) => (MIB as u64, 0),
                    (_, 6..) => (0, MIB as u64),
                    _ => (0, 0),
                };
                assert_eq!(
                    (stats.resident, stats.lazyfree),
                    expected,
                    "{}: {n}",
                    case.name
                );
            }
            let stats = manager.stats();
            assert_eq!(stats.vm.pglazyfreed, pages(5 * MIB), "{}", case.name);
            assert_eq!(stats.vm.pswpout, 0, "{}", case.name);
            let spare = stats.vm.nr_free_frames * 4096;
            let gone = before + spare - resident();
            let all = 5 * MIB as u64;
            assert!(
                (all / 100 * 95..=all).contains(&gone),
                "{}: {gone} went back",
                case.name
            );
            assert!(holds(&blocks[4], 0..MIB, 100), "{}", case.name);
            for n in [7, 1, 8, 9, 0] {
                assert!(
                    old_or_zeros(&blocks[n], 0..MIB, 1).is_some(),
                    "{}",
                    case.name
                );
            }
        });
    });
}

#[test]
fn a_cap_of_zero_gives_everything_back_at_once() {
    each_case(&[0, 4, 9], |builder, case| {
        let manager = builder.lazyfree_max(0).build().unwrap();
        let mut region = manager.region_with(4 * MIB, order(case.order)).unwrap();
        fill(&mut region, 0..4 * MIB, 1);
        case.free.one(&mut region, 2 * MIB..4 * MIB);
        let vm = manager.stats().vm;
        assert_eq!(
            (vm.nr_mapped + vm.nr_limbo, vm.nr_free_frames),
            (pages(2 * MIB), 0),
            "{}",
            case.name
        );
        assert_eq!(
            (vm.nr_lazyfree, vm.pglazyfreed),
            (0, pages(2 * MIB)),
            "{}",
            case.name
        );
        assert!(holds(&region, 0..2 * MIB, 1), "{}", case.name);
    });
}

/// An allocator that reuses the memory that it frees loses nothing to the cap: memory in use is recognized and skipped.
#[test]
fn the_cap_does_not_touch_memory_in_use_again() {
    each_case(&[0, 4], |builder, case| {
        let manager = builder.lazyfree_max(1 << 20).build().unwrap();
        let mut region = manager.region_with(8 * MIB, order(case.order)).unwrap();
        fill(&mut region, 0..8 * MIB, 1);
        for round in 1..4 {
            for at in (0..8 * MIB).step_by(4 * FOLIO) {
                case.free.one(&mut region, at..at + 4 * FOLIO);
                fill(&mut region, at..at + 4 * FOLIO, round * 1000 + pages(at));
            }
            assert!(holds(&region, 0..8 * MIB, round * 1000), "{}", case.name);
        }
        assert_eq!(manager.stats().vm.pglazyfreed, 0, "{}", case.name);
        assert_eq!(small().build().unwrap().stats().lazyfree_bytes(), 0);
    });
}
