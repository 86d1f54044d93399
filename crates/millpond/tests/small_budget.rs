//! Memory that a manager takes for itself before anything is touched. redis in 27 MiB, of which the program itself took
//! 16 MiB, used to run for 50 seconds, and then for 23. The tables had an entry for each leaf of 64 GiB of addresses,
//! and these were written when the tables were made, which took another megabyte. That was a quarter of the memory left
//! for frames and store, and redis' data no longer fit into compressed RAM.

/// Resident bytes of this process.
fn resident() -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: usize = text.split(' ').nth(1).unwrap().parse().unwrap();
    pages * millpond::PAGE_SIZE
}

#[test]
fn addresses_that_nobody_touches_take_no_tables() {
    // Memory that the first manager of a process loads and keeps is not its own.
    drop(
        millpond::Manager::builder()
            .store(millpond::StoreKind::compressed_ram())
            .order(millpond::Order::new(4).unwrap())
            .ram(16 << 20)
            .build()
            .unwrap(),
    );
    let before = resident();
    let manager = millpond::Manager::builder()
        .store(millpond::StoreKind::compressed_ram())
        .order(millpond::Order::new(4).unwrap())
        .ram(16 << 20)
        .build()
        .unwrap();
    let taken = resident() - before;
    let reported = manager.stats().metadata_bytes;
    assert!(reported < 512 << 10, "{reported} bytes reported");
    assert!(taken < 1 << 20, "{taken} bytes taken, {reported} reported");
}
