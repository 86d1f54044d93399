//! Freeing: memory that is given up goes back, immediately or in the background, and counts until it is back.

mod common;

use common::{MIB, PAGE, eventually, fill, holds, order, pages, small, status, ways};
use millpond::{FreeStats, FreeTuning, Manager, Region};
use std::sync::atomic::{AtomicBool, Ordering};

fn filled(manager: &Manager, bytes: usize) -> Region {
    let mut region = manager.region(bytes).unwrap();
    fill(&mut region, 0..bytes, 1);
    region
}

fn nothing_is_left(manager: &Manager, way: &str) {
    let stats = manager.stats();
    let vm = stats.vm;
    assert_eq!(
        (vm.nr_mapped, vm.nr_limbo, vm.nr_swapped, vm.nr_unhooked),
        (0, 0, 0, 0),
        "{way}"
    );
    assert_eq!((stats.store.slots, stats.free.queued), (0, 0), "{way}");
}

/// A region that is freed in the background gives up its addresses at once, whatever its folios' order.
#[test]
fn a_region_is_freed_in_the_background_and_its_addresses_at_once() {
    for (delivery, method) in ways() {
        for n in [0, 4, 9] {
            let way = format!("{delivery:?} {method:?} order {n}");
            let builder = small().delivery(delivery).take_out(method).order(order(n));
            let manager = builder.build().unwrap();
            // A part of the region is in memory, a part in limbo, and three quarters are in the store.
            let region = filled(&manager, 48 * MIB);
            let neighbour = filled(&manager, MIB);
            let at = region.as_ptr();
            region.free_async();
            let mut next = manager.region(48 * MIB).unwrap();
            assert_eq!(next.as_ptr(), at, "{way}: the addresses are free");
            fill(&mut next, 0..MIB, 7);
            manager.quiesce();
            assert!(
                holds(&next, 0..MIB, 7) && holds(&neighbour, 0..MIB, 1),
                "{way}"
            );
            assert!(manager.stats().free.by_workers > 0, "{way}");
            drop((next, neighbour));
            nothing_is_left(&manager, &way);
        }
    }
}

/// Figures of freeing 120 MiB with this tuning, which stays in force. Half of the budget may stay in the pool; the rest
/// goes by batches.
fn freed_with(manager: &Manager, tuning: FreeTuning) -> FreeStats {
    manager.set_free_tuning(tuning);
    let region = filled(manager, 120 * MIB);
    let before = manager.stats().free;
    drop(region);
    nothing_is_left(manager, "drop");
    let after = manager.stats().free;
    assert_eq!(after.tuning, tuning, "the figures say how it is tuned");
    FreeStats {
        batches: after.batches - before.batches,
        by_workers: after.by_workers - before.by_workers,
        bytes: after.bytes - before.bytes,
        slots: after.slots - before.slots,
        time: after.time - before.time,
        ..after
    }
}

fn for_tuning() -> Manager {
    Manager::builder()
        .store(millpond::StoreKind::compressed_ram())
        .order(millpond::Order::new(4).unwrap())
        .ram(128 << 20)
        .build()
        .unwrap()
}

fn worker_threads() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let named = |task: &std::fs::DirEntry| {
        let name = std::fs::read_to_string(task.path().join("comm"));
        name.is_ok_and(|name| name.trim() == "millpond-free")
    };
    tasks.flatten().filter(named).count()
}

/// Half of the time of the first `free_async` used to go into the creation of a thread.
#[test]
fn a_worker_is_there_before_much_memory_is_freed() {
    common::alone("a_worker_is_there_before_much_memory_is_freed", || {
        // The manager with little memory is older, so its thread looks first.
        let has_little = for_tuning();
        let little = filled(&has_little, 8 * MIB);
        let has_much = for_tuning();
        let much = filled(&has_much, 100 * MIB);
        assert!(eventually(|| worker_threads() > 0));
        assert_eq!(worker_threads(), 1, "none for so little");
        much.free_async();
        has_much.quiesce();
        assert_eq!(worker_threads(), 1, "none but the one that was there");
        nothing_is_left(&has_much, "free_async");
        assert!(holds(&little, 0..8 * MIB, 1));
    });
}

/// Beyond the threshold batches go to the workers, of which there are as many as were asked for, and the free is
/// complete when it returns.
#[test]
fn the_number_of_workers_can_be_changed_while_it_runs() {
    common::alone("the_number_of_workers_can_be_changed_while_it_runs", || {
        let manager = for_tuning();
        for (workers, most) in [(0, 0), (1, 1), (3, 3), (0, 3)] {
            let tuning = FreeTuning {
                workers,
                batch_pages: 1024,
                chunk_bytes: 2 * MIB,
            };
            let freed = freed_with(&manager, tuning);
            assert!(freed.batches >= 20, "{freed:?}");
            assert_eq!(freed.by_workers > 0, workers > 0, "{freed:?}");
            let threads = worker_threads();
            assert!(
                threads <= most && threads >= workers.min(1),
                "{threads} threads for {workers} workers"
            );
        }
    });
}

/// Below the threshold the freeing thread gives batches back itself; beyond it the workers help.
#[test]
fn the_threshold_can_be_changed_while_it_runs() {
    let manager = for_tuning();
    let from = |pages| FreeTuning {
        workers: 1,
        batch_pages: pages,
        chunk_bytes: 4 * MIB,
    };
    let alone = freed_with(&manager, from(32 << 10));
    assert!(alone.batches > 0 && alone.by_workers == 0, "{alone:?}");
    // If a tick falls between, the reclaim thread trims the pool, and its batches are no worker's. That was seen on
    // loaded machines, where these milliseconds are long.
    let one_is = |pages, is: fn(&FreeStats) -> bool| {
        let tries: Vec<_> = (0..10).map(|_| freed_with(&manager, from(pages))).collect();
        assert!(tries.iter().any(is), "{tries:?}");
    };
    // Two batches are below the threshold, or more if one ended early at a folio in flight.
    one_is(2 << 10, |helped| {
        helped.by_workers > 0 && (2..=4).contains(&(helped.batches - helped.by_workers))
    });
    one_is(0, |all| all.batches > 0 && all.batches == all.by_workers);
}

/// Memory that a worker gave to the pool used to count as freed by its owner. If all of a part went to the pool, no
/// worker seemed to work in the background (seen in a test of spaces, one run of thirty).
#[test]
fn memory_that_a_worker_gives_to_the_pool_counts_as_its_work() {
    let manager = Manager::builder()
        .store(millpond::StoreKind::compressed_ram())
        .order(millpond::Order::new(4).unwrap())
        .ram(24 << 20)
        .build()
        .unwrap();
    manager.set_free_tuning(FreeTuning {
        workers: 1,
        batch_pages: 0,
        chunk_bytes: 2 * MIB,
    });
    let order = order(5);
    for _ in 0..4 {
        // Most of the region is in the store.
        let mut region = manager.region_with(64 * MIB, order).unwrap();
        region.as_mut_slice().fill(7);
        let before = manager.stats().free;
        region.free_async();
        manager.quiesce();
        let after = manager.stats().free;
        let by_workers = after.by_workers - before.by_workers;
        // A tick may come and give back spare frames that it finds: three batches of 4 MiB, not 21 of 27.
        let others = after.batches - before.batches - by_workers;
        assert!(by_workers > 20 && others <= 3, "{others}: {after:?}");
    }
}

/// The chunk bounds how much goes to the kernel at once, and all of it is counted.
#[test]
fn the_chunk_can_be_changed_while_it_runs() {
    let manager = for_tuning();
    for chunk in [2 * MIB, 8 * MIB, 32 * MIB] {
        let tuning = FreeTuning {
            chunk_bytes: chunk,
            ..FreeTuning::default()
        };
        let freed = freed_with(&manager, tuning);
        assert!(
            freed.bytes >= 30 * MIB as u64 && freed.bytes <= freed.batches * chunk as u64,
            "{freed:?}"
        );
        assert!(!freed.time.is_zero(), "{freed:?}");
    }
}

/// Slots of pages that had gone to the store are released with the batches.
#[test]
fn slots_are_released_with_the_batches() {
    let manager = small().build().unwrap();
    let region = filled(&manager, 120 * MIB);
    let (slots, before) = (manager.stats().store.slots, manager.stats().free.slots);
    assert!(slots > 0);
    drop(region);
    nothing_is_left(&manager, "drop");
    assert_eq!(manager.stats().free.slots - before, slots);
}

/// Memory that is being freed counts at every moment until it is given back, and never twice.
#[test]
fn the_budget_holds_while_memory_is_freed_in_the_background() {
    common::alone(
        "the_budget_holds_while_memory_is_freed_in_the_background",
        || {
            let manager = Manager::builder()
                .store(millpond::StoreKind::compressed_ram())
                .order(millpond::Order::new(4).unwrap())
                .ram(64 << 20)
                .build()
                .unwrap();
            let before = status(std::process::id(), "VmRSS:");
            let over = AtomicBool::new(false);
            let done = AtomicBool::new(false);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    while !done.load(Ordering::Relaxed) {
                        let now = status(std::process::id(), "VmRSS:");
                        over.fetch_or(now > before + 72 * MIB as u64, Ordering::Relaxed);
                    }
                });
                for _ in 0..12 {
                    filled(&manager, 48 * MIB).free_async();
                }
                manager.quiesce();
                done.store(true, Ordering::Relaxed);
            });
            assert!(!over.into_inner(), "more than the budget was resident");
            nothing_is_left(&manager, "twelve regions");
        },
    );
}

/// Frames circulate through the pool, and an idle program gives them back. (Memory that its exclusive owner discards
/// need not circulate at all: `reuse.rs`.)
#[test]
fn discarded_frames_serve_later_faults_and_are_freed_when_idle() {
    for (delivery, method) in ways() {
        let manager = Manager::builder()
            .store(millpond::StoreKind::compressed_ram())
            .order(millpond::Order::new(4).unwrap())
            .ram(64 << 20)
            .delivery(delivery)
            .take_out(method)
            .build()
            .unwrap();
        let mut region = filled(&manager, 16 * MIB);
        // SAFETY: no reference to the region's bytes is alive.
        let discard = |region: &Region| unsafe { region.discard_shared(0..16 * MIB) }.unwrap();
        // On a busy machine a discard can take so long that the first frames have gone back before it ends.
        let mut most = 0;
        for _ in 0..10 {
            discard(&region);
            most = manager.stats().vm.nr_free_frames.max(most);
            if most > pages(8 * MIB) {
                break;
            }
            fill(&mut region, 0..16 * MIB, 2);
        }
        assert!(
            most > pages(8 * MIB),
            "{delivery:?} {method:?}: {most} pages are kept"
        );
        fill(&mut region, 0..16 * MIB, 3);
        assert!(holds(&region, 0..16 * MIB, 3));
        discard(&region);
        let rested = || manager.stats().vm.nr_free_frames == 0;
        assert!(eventually(rested), "{delivery:?} {method:?}");
    }
}

/// Snapshots of a region that is freed in the background keep what they share.
#[test]
fn a_snapshot_outlives_its_source_that_is_freed_in_the_background() {
    let manager = small().build().unwrap();
    for _ in 0..8 {
        let mut source = filled(&manager, 12 * MIB);
        let snapshot = source.snapshot().unwrap();
        source.as_mut_slice()[..MIB].fill(9);
        source.free_async();
        assert!(holds(&snapshot, 0..12 * MIB, 1));
        snapshot.free_async();
    }
    manager.quiesce();
    nothing_is_left(&manager, "snapshots");
}

/// A large free is done in pieces, between which other threads get the locks that they need.
#[test]
fn others_go_on_while_a_large_region_is_freed() {
    let manager = Manager::builder()
        .store(millpond::StoreKind::compressed_ram())
        .order(millpond::Order::new(4).unwrap())
        .ram(768 << 20)
        .build()
        .unwrap();
    let mut region = manager.region(512 * MIB).unwrap();
    for page in region.as_mut_slice().chunks_mut(PAGE) {
        page[0] = 1;
    }
    region.free_async();
    // How long each of these waits is a question for the bench.
    let mut made = 0;
    while manager.stats().free.queued > 0 {
        let mut small = manager.region(64 * PAGE).unwrap();
        small.as_mut_slice()[0] = 1;
        made += 1;
    }
    assert!(made > 0, "nothing could be done meanwhile");
    manager.quiesce();
    nothing_is_left(&manager, "a large region");
}

/// A lowered budget is met when the call returns.
#[test]
fn a_budget_can_shrink_and_grow_again() {
    for (delivery, method) in ways() {
        let builder = small().ram(64 << 20).delivery(delivery).take_out(method);
        let manager = builder.build().unwrap();
        let region = filled(&manager, 60 * MIB);
        let in_use = || {
            let vm = manager.stats().vm;
            vm.nr_mapped + vm.nr_limbo + vm.nr_free_frames
        };
        assert!(in_use() > pages(48 * MIB));
        manager.set_ram(16 << 20).unwrap();
        assert!(
            in_use() <= pages(16 * MIB),
            "{delivery:?} {method:?}: {} pages",
            in_use()
        );
        assert!(holds(&region, 0..60 * MIB, 1), "{delivery:?} {method:?}");
        assert!(
            in_use() <= pages(17 * MIB),
            "{delivery:?} {method:?}: {} pages",
            in_use()
        );
        manager.set_ram(64 << 20).unwrap();
        assert!(holds(&region, 0..60 * MIB, 1), "{delivery:?} {method:?}");
        assert!(in_use() > pages(48 * MIB), "{delivery:?} {method:?}");
        let refused = [1 << 20, 65 << 20].map(|bytes| manager.set_ram(bytes).is_err());
        assert_eq!(refused, [true; 2]);
    }
}

/// Memory that a lower budget leaves no room for goes to the kernel by batches.
#[test]
fn a_lower_budget_is_given_back_in_batches() {
    for (delivery, method) in ways() {
        let builder = small().ram(64 << 20).delivery(delivery).take_out(method);
        let manager = builder.build().unwrap();
        let region = filled(&manager, 56 * MIB);
        let before = manager.stats().free;
        manager.set_ram(16 << 20).unwrap();
        let after = manager.stats().free;
        let (batches, bytes) = (after.batches - before.batches, after.bytes - before.bytes);
        // All the memory above the new budget went, except for folios that reclaim drains one by one to make places for
        // others.
        assert!(
            batches > 0 && bytes >= 16 * MIB as u64,
            "{delivery:?} {method:?}: {batches} batches, {bytes} bytes"
        );
        assert!(holds(&region, 0..56 * MIB, 1), "{delivery:?} {method:?}");
    }
}

/// Lazily freed memory beyond its cap goes to the kernel by batches, and not to the pool, whatever faults ask for.
#[test]
fn lazily_freed_memory_beyond_its_cap_is_given_back_in_batches() {
    for (delivery, method) in ways() {
        let manager = Manager::builder()
            .store(millpond::StoreKind::compressed_ram())
            .order(millpond::Order::new(4).unwrap())
            .ram(64 << 20)
            .lazyfree_max(8 << 20)
            .delivery(delivery)
            .take_out(method)
            .build()
            .unwrap();
        let mut region = filled(&manager, 32 * MIB);
        let before = manager.stats().free;
        region.lazy_free(0..32 * MIB).unwrap();
        let (vm, after) = (manager.stats().vm, manager.stats().free);
        let way = format!("{delivery:?} {method:?}: {vm:?} {after:?}");
        assert!(vm.pglazyfreed >= pages(20 * MIB), "{way}");
        assert!(after.batches > before.batches, "{way}");
        assert!(after.bytes - before.bytes >= 20 * MIB as u64, "{way}");
        assert!(vm.nr_lazyfree <= pages(8 * MIB), "{way}");
    }
}
