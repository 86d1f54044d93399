//! A thread waits awake for reads of a file while it is the only one that faults, and asleep while several do
//! (`store/src/file/awake.rs`).
//!
//! From outside there is only one sign of this: the kernel's ring of answers among the mappings of the process, from
//! the first awake read until the store is closed.

mod common;

use common::{MIB, PAGE, Rng, alone, deliveries, fill, holds, is_over, small, stress_time};
use millpond::{Delivery, Manager, OrderPolicy, Region, StoreKind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Bytes of the region: three times the budget.
const SIZE: usize = 48 * MIB;

fn manager(delivery: Delivery) -> Manager {
    let settings = small().store(StoreKind::file()).delivery(delivery);
    settings.build().unwrap()
}

fn filled(manager: &Manager) -> Region {
    let order: OrderPolicy = "adaptive".parse().unwrap();
    let mut region = manager.region_with(SIZE, order).unwrap();
    fill(&mut region, 0..SIZE, 0);
    region
}

/// Reads a number of pages at random, and compares them.
fn read(region: &Region, rng: &mut Rng, count: usize) {
    for _ in 0..count {
        let page = rng.below(SIZE / PAGE);
        let at = page * PAGE..(page + 1) * PAGE;
        let is_right = holds(region, at, page as u64);
        assert!(is_right, "page {page} has other bytes");
    }
}

fn has_ring() -> bool {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    maps.contains("/[aio]")
}

/// Whether this kernel offers such a ring at all.
fn is_offered() -> bool {
    std::fs::exists("/proc/sys/fs/aio-max-nr").unwrap_or(false)
}

#[test]
fn a_single_faulting_threads_reads_are_awaited_without_sleeping() {
    if !is_offered() {
        println!("skipped: this kernel has no asynchronous reads");
        return;
    }
    alone(
        "a_single_faulting_threads_reads_are_awaited_without_sleeping",
        || {
            for delivery in deliveries() {
                let manager = manager(delivery);
                let region = filled(&manager);
                let mut rng = Rng(7);
                let end = Instant::now() + Duration::from_secs(20);
                while !has_ring() && Instant::now() < end {
                    read(&region, &mut rng, 500);
                }
                assert!(has_ring(), "{delivery:?}");
                drop((region, manager));
                assert!(!has_ring(), "{delivery:?}: left behind");
            }
        },
    );
}

/// A second thread comes and goes, so that reads alternate between awake and asleep, and overlap.
#[test]
fn racing_readers_that_come_and_go_read_what_was_written() {
    for delivery in deliveries() {
        let manager = manager(delivery);
        let region = filled(&manager);
        let end = Instant::now() + stress_time() / 2;
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut rng = Rng(11);
                while !over.load(Ordering::Relaxed) {
                    read(&region, &mut rng, 100);
                }
            });
            let mut rng = Rng(13);
            let mut rounds = 0;
            while !is_over(end, rounds > 1) {
                read(&region, &mut rng, 300);
                // The pause is longer than a thread that has faulted is remembered.
                std::thread::sleep(Duration::from_millis(1100));
                rounds += 1;
            }
            over.store(true, Ordering::Relaxed);
        });
    }
}
