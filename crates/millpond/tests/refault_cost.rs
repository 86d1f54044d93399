//! The cost of a major fault is measured, whatever the kind of store suggests.

mod common;

use common::{MIB, PAGE, Rng, eventually, order, page_is, small, write_page};
use millpond::StoreKind;
use std::path::Path;

/// A file is assumed to be on a disk. This one is in memory, and its loads are found to be cheaper.
#[test]
fn a_file_in_memory_is_found_to_be_cheaper_than_a_disk() {
    let shm = Path::new("/dev/shm");
    if !shm.is_dir() {
        println!("skipped: no tmpfs at /dev/shm");
        return;
    }
    let file = StoreKind::File {
        path: Some(shm.to_owned()),
        max_bytes: None,
        force_tmpfs: true,
    };
    let manager = small().store(file).build().unwrap();
    assert_eq!(manager.stats().refault_cost, 16.0, "before any fault");
    let pages = 24 * MIB / PAGE;
    let mut region = manager.region_with(pages * PAGE, order(0)).unwrap();
    for (number, page) in region.as_mut_slice().chunks_exact_mut(PAGE).enumerate() {
        write_page(page, number as u64);
    }
    let mut chance = Rng(7);
    let told = eventually(|| {
        for _ in 0..100 {
            let number = chance.below(pages);
            let page = &region.as_slice()[number * PAGE..][..PAGE];
            assert!(page_is(page, number as u64));
        }
        manager.stats().refault_cost != 16.0
    });
    let stats = manager.stats();
    assert!(told, "{:?}", stats.faults);
    assert!(stats.faults.load.count >= 64 && stats.faults.rescue.count >= 64);
    // The file is read by a call and copied in, without a disk: that takes a few times as long as moving it in.
    assert!((0.5..12.0).contains(&stats.refault_cost), "{stats:?}");
}
