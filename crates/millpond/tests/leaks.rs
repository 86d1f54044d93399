//! Dropped regions leave nothing behind. This file has one test, as it looks at the memory of the whole process.

mod common;

use common::{MIB, PAGE, small, smaps_rollup, write_page};

/// Unmapping must leak neither address space nor memory.
#[test]
fn dropped_regions_leak_neither_addresses_nor_memory() {
    let manager = small().address_space(256 << 20).build().unwrap();
    let mut before = 0;
    for round in 0..300 {
        let mut region = manager.region(40 * MIB).unwrap();
        for page in region.as_mut_slice().chunks_exact_mut(16 * PAGE) {
            write_page(&mut page[..PAGE], round);
        }
        drop(region);
        let stats = manager.stats();
        assert_eq!(
            stats.vm.nr_mapped + stats.vm.nr_limbo + stats.vm.nr_swapped,
            0,
            "round {round}"
        );
        assert_eq!(stats.store.slots, 0, "round {round} left slots behind");
        if round == 50 {
            before = smaps_rollup(std::process::id(), "Rss:");
        }
    }
    let after = smaps_rollup(std::process::id(), "Rss:");
    assert!(
        after < before + 4 * MIB as u64,
        "resident grew from {before} to {after}"
    );
}
