//! Measures how long a fault takes: takes a folio out, touches it and times the touch. It does so for each delivery
//! and order, first alone and then while a thread runs on another processor. Run it with
//! `cargo run --release -p millpond-mmu --example latency`.

#[path = "../tests/common/mod.rs"]
mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Instant;

use common::{Tiny, usable};
use millpond_mmu::{Delivery, TakeOutMethod};

const FAULTS: usize = 4000;

fn main() {
    println!(
        "{:<10} {:>6} {:>8}  {:>8} {:>8} {:>8}",
        "delivery", "KiB", "beside", "p10 µs", "p50 µs", "p99 µs"
    );
    for delivery in [Delivery::InThread, Delivery::Handler] {
        if !usable(delivery, TakeOutMethod::Auto) {
            continue;
        }
        for order in [0, 2, 4, 9] {
            for beside in [false, true] {
                let mut times = measure(delivery, order, beside);
                times.sort_unstable();
                let at = |percent: usize| times[times.len() * percent / 100] as f64 / 1000.0;
                let (kib, beside) = (4 << order, if beside { "a thread" } else { "nobody" });
                let name = format!("{delivery:?}");
                println!(
                    "{name:<10} {kib:>6} {beside:>8}  {:>8.1} {:>8.1} {:>8.1}",
                    at(10),
                    at(50),
                    at(99)
                );
            }
        }
    }
}

fn measure(delivery: Delivery, order: u8, beside: bool) -> Vec<u64> {
    let tiny = Tiny::new(delivery, TakeOutMethod::Auto, 2, order);
    let stop = Arc::new(AtomicBool::new(false));
    let runner = beside.then(|| {
        let stop = Arc::clone(&stop);
        std::thread::spawn(move || {
            while !stop.load(Relaxed) {
                std::hint::spin_loop();
            }
        })
    });
    let times = (0..FAULTS / (1 << (order / 3)))
        .map(|n| {
            let folio = n % tiny.folios();
            tiny.evict(folio);
            let since = Instant::now();
            tiny.counter(folio, 0).fetch_add(1, Relaxed);
            since.elapsed().as_nanos() as u64
        })
        .collect();
    stop.store(true, Relaxed);
    if let Some(runner) = runner {
        runner.join().expect("the runner only spins");
    }
    tiny.end();
    times
}
