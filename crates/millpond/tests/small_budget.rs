//! What a manager takes for itself before anything is touched. Found by redis in 27 MiB, of which the program itself
//! took 16: tables with an entry for each leaf of 64 GiB of addresses, written when they were made, took another
//! megabyte. That was a quarter of what was left for frames and store, its data did not fit into compressed RAM any
//! more, and it ran for 50 seconds instead of 23.

/// Resident bytes of this process.
fn resident() -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: usize = text.split(' ').nth(1).unwrap().parse().unwrap();
    pages * millpond::PAGE_SIZE
}

#[test]
fn addresses_that_nobody_touches_take_no_tables() {
    // What the first manager of a process loads and keeps is not its own.
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
