//! A cache of query results in the program's own heap (the `lru` crate) gives way when managed memory is short, and
//! fills again when it is not: `cargo run --release -p millpond --example shrinker`.

use lru::LruCache;
use millpond::{GroupLimits, Manager, Region};
use std::sync::{Arc, Mutex};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let manager = Manager::builder()
        .store(millpond::StoreKind::compressed_ram())
        .order(millpond::Order::new(4).unwrap())
        .ram(64 << 20)
        .build()?;
    let queries = manager.group(&manager.root(), "queries", GroupLimits::new().max(32 << 20))?;
    let results = Arc::new(Mutex::new(LruCache::<u64, [u8; 256]>::unbounded()));
    for key in 0..100_000 {
        results.lock().unwrap().put(key, [key as u8; 256]);
    }

    let (counted, scanned) = (Arc::clone(&results), Arc::clone(&results));
    let guard = manager.register_shrinker(
        &queries,
        move || counted.lock().unwrap().len(),
        move |objects| {
            let mut results = scanned.lock().unwrap();
            (0..objects).filter(|_| results.pop_lru().is_some()).count()
        },
    )?;

    let report = |when: &str| {
        let asked = guard.stats();
        println!(
            "{when}: {} results cached, {} given up of {} looked at",
            results.lock().unwrap().len(),
            asked.freed,
            asked.scanned
        );
    };
    report("before");
    let mut table = Region::builder()
        .group(&queries)
        .build(&manager, 24 << 20)?;
    table.as_mut_slice().fill(1);
    report("a table that fits");
    let mut larger = Region::builder()
        .group(&queries)
        .build(&manager, 96 << 20)?;
    for (n, row) in larger.as_mut_slice().chunks_mut(1 << 16).enumerate() {
        // Rows are made while results are read: the callback waits for the lock, and the fault waits for no other
        // thread.
        let mut results = results.lock().unwrap();
        row.fill(results.get(&99_999).map_or(n as u8, |result| result[0]));
    }
    report("one three times as large as its group");
    println!("{:?}", queries.pressure().some);
    Ok(())
}
