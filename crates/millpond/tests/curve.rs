//! Compares the predicted savings of more memory with managers that have more. The test runs on real memory: take-outs,
//! loads and the background thread are the usual ones, and the limit is what the budget leaves.

mod common;

use common::{MIB, PAGE, Rng, order, page_is, write_page};
use millpond::{Stats, StoreKind};

/// Pages of the set: 24 MiB.
const PAGES: usize = 6144;
const ROUNDS: usize = 12;

/// Uses the set at random in a budget of `ram` bytes.
fn figures(ram: usize) -> Stats {
    let manager = millpond::Manager::builder()
        .ram(ram as u64)
        .order(order(0))
        .store(StoreKind::compressed_ram())
        .store_outside_budget(true)
        .build()
        .unwrap();
    let mut region = manager.region(PAGES * PAGE).unwrap();
    for (number, page) in region.as_mut_slice().chunks_exact_mut(PAGE).enumerate() {
        write_page(page, number as u64);
    }
    let mut chance = Rng(7);
    for _ in 0..ROUNDS * PAGES {
        let number = chance.below(PAGES);
        let page = &region.as_slice()[number * PAGE..][..PAGE];
        assert!(page_is(page, number as u64));
    }
    manager.stats()
}

#[test]
fn savings_of_a_larger_budget_are_predicted_within_a_tenth() {
    let small = figures(16 * MIB);
    assert!(small.vm.pgmajfault > 10_000, "{small:?}");
    for larger in [18, 20, 22] {
        let large = figures(larger * MIB);
        let more = large.vm.nr_limit - small.vm.nr_limit;
        let promised = small.avoided(more * PAGE as u64).unwrap();
        let truth = 1.0 - large.vm.pgmajfault as f64 / small.vm.pgmajfault as f64;
        assert!(
            (promised - truth).abs() < 0.1,
            "{larger} MiB: {promised:.3} promised, {truth:.3} in truth"
        );
    }
}
