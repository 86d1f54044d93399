//! Leaves that are partly in memory are evicted for a stream and come back whole, while threads write to them.

mod common;

use common::page_model::word;
use common::{PAGE, Rng, is_over, stress_time};
use millpond::{Delivery, Manager, OrderPolicy, StoreKind};
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

const LEAF: usize = 512;
/// Pages of the region: twice as many as fit.
const PAGES: usize = 16 << 10;
const THREADS: usize = 3;
/// Index of the word that no thread writes to after it was filled.
const FILLED: usize = THREADS;

fn half() -> Manager {
    let manager = Manager::builder()
        .order(millpond::Order::new(4).unwrap())
        .ram((PAGES * PAGE / 2) as u64)
        .store(StoreKind::compressed_ram())
        .store_outside_budget(true)
        .delivery(Delivery::InThread);
    manager.build().unwrap()
}

fn filled(manager: &Manager) -> millpond::Region {
    let adaptive: OrderPolicy = "adaptive".parse().unwrap();
    let region = manager.region_with(PAGES * PAGE, adaptive).unwrap();
    let base = region.as_ptr() as usize;
    for page in 0..PAGES {
        word(base, page, FILLED).store(page as u64 + 1, Relaxed);
    }
    region
}

fn is_as_filled(base: usize, page: usize) {
    let found = word(base, page, FILLED).load(Relaxed);
    assert_eq!(found, page as u64 + 1, "page {page}");
}

/// Random reads leave every leaf in pieces. A stream reads them whole, finds every page as it was, and writes nothing.
#[test]
fn a_stream_after_random_reads_gets_leaves_whole() {
    let manager = half();
    let region = filled(&manager);
    let base = region.as_ptr() as usize;
    let mut rng = Rng(0xc1ea);
    for _ in 0..2 * PAGES {
        is_as_filled(base, rng.below(PAGES));
    }
    // Pages that were never saved are in no slot, and leave in the first lap.
    let mut evicted = 0;
    for _ in 0..2 {
        for _ in 0..PAGES / 4 {
            is_as_filled(base, rng.below(PAGES));
        }
        (0..PAGES).for_each(|page| is_as_filled(base, page));
        evicted = manager.stats().vm.leaf_evicted;
    }
    if manager.capabilities().moves_pages {
        assert!(evicted >= 8, "{evicted} of {} leaves", 2 * PAGES / LEAF);
    }
}

/// Threads read at random, write to a quarter of the leaves, and go through all of them in order. Each must find what
/// it has written. A page that a leaf left behind when it was evicted, or that came back with old contents, would show.
#[test]
fn no_write_is_lost_when_leaves_are_evicted() {
    let manager = half();
    let region = filled(&manager);
    let base = region.as_ptr() as usize;
    let end = Instant::now() + stress_time();
    let moves = manager.capabilities().moves_pages;
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let manager = &manager;
            scope.spawn(move || {
                let mut rng = Rng(0xc1ea + thread as u64);
                let mut counts = vec![0u64; PAGES];
                while !is_over(end, !moves || manager.stats().vm.leaf_evicted > 0) {
                    for _ in 0..PAGES / 8 {
                        let page = rng.below(PAGES);
                        if (page / LEAF).is_multiple_of(4) {
                            let before = word(base, page, thread).fetch_add(1, Relaxed);
                            assert_eq!(before, counts[page], "page {page}");
                            counts[page] += 1;
                        }
                        is_as_filled(base, page);
                    }
                    for (page, &count) in counts.iter().enumerate() {
                        assert_eq!(word(base, page, thread).load(Relaxed), count, "page {page}");
                        is_as_filled(base, page);
                    }
                }
            });
        }
    });
    if !moves {
        eprintln!("skipped in part: leaves are evicted where the kernel can move pages");
    }
}
