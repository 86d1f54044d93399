//! Leaves of small folios leave by their tables, while threads write to them.

mod common;

use common::page_model::word;
use common::{PAGE, Rng, is_over, stress_time};
use millpond::{Delivery, Manager, Order, StoreKind};
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

const THREADS: usize = 3;
const PAGES: usize = 24 << 10;
/// Pages of each thread that it writes to again and again, spread over all leaves: they leave with the others and come back.
const HOT: usize = 256;

/// Every thread adds to words of its own on pages that all of them use, at random, in a third of the memory that this would take.
/// A page that were mapped behind the back of a leaf that leaves would take what was added there with it.
#[test]
fn no_increment_is_lost_with_a_leaf() {
    let manager = Manager::builder()
        .ram(32 << 20)
        .store(StoreKind::compressed_ram())
        .delivery(Delivery::InThread)
        .background_reclaim(true)
        .build()
        .unwrap();
    let region = manager.region_with(PAGES * PAGE, Order::ZERO).unwrap();
    let base = region.as_ptr() as usize;
    let end = Instant::now() + stress_time();
    let moves = manager.capabilities().moves_pages;
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let manager = &manager;
            scope.spawn(move || {
                let mut rng = Rng(0x1eaf + thread as u64);
                let mut counts = vec![0u64; PAGES];
                loop {
                    for n in 0..10_000 {
                        let page = match n % 4 {
                            0 => rng.below(HOT) * (PAGES / HOT),
                            _ => rng.below(PAGES),
                        };
                        let before = word(base, page, thread).fetch_add(1, Relaxed);
                        assert_eq!(before, counts[page], "page {page}");
                        counts[page] += 1;
                    }
                    let shown = !moves || manager.stats().vm.takeout_leaf > 0;
                    if is_over(end, shown) {
                        break;
                    }
                }
                for (page, &count) in counts.iter().enumerate() {
                    assert_eq!(word(base, page, thread).load(Relaxed), count, "page {page}");
                }
            });
        }
    });
    if !moves {
        eprintln!("skipped in part: leaves leave by their tables where the kernel can move pages");
    }
}
