//! Streams through new memory, whose huge pages the background thread prepares in advance.

mod common;

use common::{MIB, PAGE, alone, eventually, is_over, smaps_rollup, stress_time};
use millpond::{Manager, Order, OrderPolicy, StoreKind};
use std::time::{Duration, Instant};

const RAM: usize = 512 * MIB;

fn manager() -> Manager {
    let settings = Manager::builder()
        .store(millpond::StoreKind::compressed_ram())
        .order(millpond::Order::new(4).unwrap())
        .ram(RAM as u64);
    settings.store(StoreKind::compressed_ram()).build().unwrap()
}

/// Writes a byte of each page, which reads as zeros before.
fn stream(region: &mut [u8]) {
    for (number, page) in region.chunks_exact_mut(PAGE).enumerate() {
        let zeros = page.chunks_exact(8).all(|word| word == [0; 8]);
        assert!(zeros, "page {number} is not new");
        page[number % PAGE] = 1;
    }
}

fn is_marked(region: &[u8]) -> bool {
    let mut pages = region.chunks_exact(PAGE).enumerate();
    pages.all(|(number, page)| page[number % PAGE] == 1)
}

fn is_marked_by(region: &[u8], part: usize) -> bool {
    region.chunks_exact(part).all(is_marked)
}

fn adaptive() -> OrderPolicy {
    OrderPolicy::Adaptive { max: Order::MAX }
}

/// Two streams take the pages that the background thread prepares, while the budget moves above and below the room that
/// these pages need, and regions come and go.
#[test]
fn racing_streams_find_zeros_and_lose_nothing() {
    let manager = manager();
    let end = Instant::now() + stress_time();
    std::thread::scope(|scope| {
        let streams = [adaptive(), Order::MAX.into()].map(|order| {
            let manager = &manager;
            scope.spawn(move || {
                let mut rounds = 0;
                while !is_over(end, rounds > 1) {
                    let mut region = manager.region_with(96 * MIB, order).unwrap();
                    stream(region.as_mut_slice());
                    assert!(is_marked(region.as_slice()));
                    rounds += 1;
                }
            })
        });
        let mut ram = RAM;
        while !streams.iter().all(|stream| stream.is_finished()) {
            ram = if ram == RAM { RAM / 4 } else { RAM };
            manager.set_ram(ram as u64).unwrap();
            std::thread::sleep(Duration::from_millis(7));
        }
    });
}

/// Prepared pages are counted while they wait, and go back if no stream has come for them.
#[test]
fn prepared_pages_stay_within_the_budget_and_are_given_back() {
    alone(
        "prepared_pages_stay_within_the_budget_and_are_given_back",
        || {
            let resident = || smaps_rollup(std::process::id(), "Rss:");
            let before = resident();
            let manager = manager();
            let ready = || manager.stats().ahead_bytes;
            // Not every stream leaves a page ready: memory can be slow to get, and then none is asked for.
            let some = eventually(|| {
                let mut region = manager.region_with(RAM / 2, adaptive()).unwrap();
                stream(region.as_mut_slice());
                ready() > 0
            });
            if !some {
                eprintln!("skipped: the kernel has no huge pages, or slow ones");
                return;
            }
            assert!(eventually(|| ready() == 0), "{} bytes", ready());
            let mut region = manager.region_with(2 * RAM, adaptive()).unwrap();
            for part in region.as_mut_slice().chunks_mut(RAM / 16) {
                stream(part);
                let (resident, ready) = (resident() - before, ready());
                let most = RAM + 2 * MIB;
                assert!(resident <= most as u64, "{resident} bytes, {ready} ready");
            }
            assert!(is_marked_by(region.as_slice(), RAM / 16));
            let peak = manager.stats().peak_bytes;
            assert!(peak <= (RAM + MIB) as u64, "{peak} bytes at most");
        },
    );
}
