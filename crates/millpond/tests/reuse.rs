//! Memory that is given up and will be wanted again stays in place, and is given back when it is not wanted.

mod common;

use common::{MIB, PAGE, eventually, fill, holds, is_zero, order, pages};
use millpond::{Manager, Region};
use std::sync::atomic::{AtomicBool, Ordering};

const SIZE: usize = 8 * MIB;

fn manager(n: u8) -> Manager {
    let builder = Manager::builder()
        .store(millpond::StoreKind::compressed_ram())
        .ram(64 << 20)
        .order(order(n));
    builder.build().unwrap()
}

/// Faults that `use_it` takes to write to each page.
fn faults_of(manager: &Manager, use_it: impl FnOnce()) -> u64 {
    let before = manager.stats().vm.pgfault;
    use_it();
    manager.stats().vm.pgfault - before
}

#[test]
fn discarded_memory_that_is_used_again_does_not_fault() {
    for n in [0, 4] {
        let manager = manager(n);
        let mut region = manager.region(SIZE).unwrap();
        for round in 0..4 {
            fill(&mut region, 0..SIZE, round);
            region.discard(0..SIZE).unwrap();
            let vm = manager.stats().vm;
            assert_eq!((vm.nr_lazyfree, vm.nr_free_frames), (pages(SIZE), 0), "{n}");
            assert!(is_zero(&region, 0..SIZE));
        }
        // On a busy machine this thread can rest for so long that the first pages have gone back before it uses them.
        let once_more = |_| {
            let faults = faults_of(&manager, || fill(&mut region, 0..SIZE, 9));
            if faults > 0 {
                region.discard(0..SIZE).unwrap();
            }
            faults
        };
        assert!((0..10).map(once_more).any(|faults| faults == 0), "{n}");
        // A part of the region is discarded, and the rest, which was used, stays.
        region.discard(MIB..2 * MIB).unwrap();
        assert!(is_zero(&region, MIB..2 * MIB));
        let kept = || manager.stats().vm.nr_lazyfree;
        assert!(eventually(|| kept() == 0), "{} pages are kept", kept());
        assert!(holds(&region, 0..MIB, 9));
        assert!(holds(&region, 2 * MIB..SIZE, 9 + pages(2 * MIB)));
        assert_eq!(manager.stats().vm.nr_mapped, pages(SIZE - MIB));
    }
}

/// Folios that are too large to be worth zeroing go through the pool, as before.
#[test]
fn large_folios_are_taken_out() {
    let manager = manager(9);
    let mut region = manager.region(SIZE).unwrap();
    fill(&mut region, 0..SIZE, 1);
    region.discard(0..SIZE).unwrap();
    let vm = manager.stats().vm;
    assert_eq!((vm.nr_lazyfree, vm.nr_free_frames), (0, pages(SIZE)));
}

#[test]
fn a_freed_region_is_reused_for_the_next_one_of_its_length() {
    let manager = manager(4);
    let freed = |round: u64| {
        let mut region = manager.region(SIZE).unwrap();
        assert!(is_zero(&region, 0..SIZE), "round {round}");
        let faults = faults_of(&manager, || fill(&mut region, 0..SIZE, round));
        region.free_async();
        faults
    };
    assert!((0..4).map(freed).skip(1).all(|faults| faults == 0));
    // Another length, or another order, makes another region; each reads as zeros.
    let longer = manager.region(SIZE + PAGE).unwrap();
    let finer = manager.region_with(SIZE, order(0)).unwrap();
    assert!(is_zero(&longer, 0..SIZE + PAGE) && is_zero(&finer, 0..SIZE));
    drop((longer, finer));
    manager.quiesce();
    let vm = manager.stats().vm;
    assert_eq!((vm.nr_mapped, vm.nr_limbo, vm.nr_unhooked), (0, 0, 0));
}

#[test]
fn a_freed_region_that_is_not_reused_is_given_back() {
    let manager = manager(4);
    let mut region = manager.region(SIZE).unwrap();
    fill(&mut region, 0..SIZE, 1);
    region.free_async();
    let in_use = || manager.stats().vm.nr_mapped + manager.stats().vm.nr_free_frames;
    assert!(eventually(|| in_use() == 0), "{} pages are kept", in_use());
}

/// Kept memory has other names after a move, and must not be missed then.
#[test]
fn kept_memory_does_not_outlive_a_move() {
    let manager = manager(4);
    for way in 0..3 {
        let mut region = manager.region(SIZE).unwrap();
        fill(&mut region, 0..SIZE, 1);
        region.discard(0..SIZE).unwrap();
        let other: Region = match way {
            0 => region.remap_anywhere(0..SIZE, SIZE).unwrap(),
            1 => region.snapshot().unwrap(),
            _ => {
                let neighbour = manager.region(MIB).unwrap();
                region.grow(2 * SIZE).unwrap();
                neighbour
            }
        };
        let kept = || manager.stats().vm.nr_lazyfree;
        assert!(
            eventually(|| kept() == 0),
            "{way}: {} pages are kept",
            kept()
        );
        assert!(is_zero(&region, 0..SIZE));
        drop((region, other));
    }
}

/// A write that comes while ticks give memory back is not lost.
#[test]
fn a_write_to_memory_being_given_back_is_not_lost() {
    let manager = manager(4);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // Demand comes and goes in this thread.
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                let mut other = manager.region(4 * MIB).unwrap();
                fill(&mut other, 0..4 * MIB, 5);
                other.free_async();
                std::thread::sleep(std::time::Duration::from_millis(70));
            }
        });
        let mut region = manager.region(SIZE).unwrap();
        let end = std::time::Instant::now() + common::stress_time();
        let mut round = 0;
        while std::time::Instant::now() < end {
            round += 1;
            region.discard(0..SIZE).unwrap();
            for at in (0..SIZE).step_by(PAGE) {
                if at.is_multiple_of(64 * PAGE) {
                    std::thread::sleep(std::time::Duration::from_millis(4));
                }
                let page = &mut region.as_mut_slice()[at..][..PAGE];
                assert!(page.iter().all(|&byte| byte == 0), "round {round}, {at}");
                page[round % PAGE] = 7;
            }
            let mut written = region.as_slice().chunks_exact(PAGE);
            assert!(written.all(|page| page[round % PAGE] == 7), "round {round}");
        }
        stop.store(true, Ordering::Relaxed);
    });
}
