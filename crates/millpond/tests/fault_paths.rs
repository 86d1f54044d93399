//! Faults are counted by the path that they took, and all of them together.

mod common;

use common::{FOLIO, MIB, PAGE, eventually, small};
use millpond::{Advice, FaultLatencies, Manager, Order};
use std::sync::Barrier;
use std::thread;

/// Checks that the figures of no path contradict each other, and that together they are the overall figures.
fn consistent(manager: &Manager) -> FaultLatencies {
    let stats = manager.stats();
    let by = stats.faults;
    let paths = [
        by.spurious,
        by.first_touch,
        by.rescue,
        by.load,
        by.read,
        by.waited,
        by.reclaimed,
    ];
    for path in paths {
        assert!(
            path.p50_ns <= path.p99_ns && path.p99_ns <= path.max_ns,
            "{by:?}"
        );
        assert_eq!(path.count == 0, path.max_ns == 0, "{by:?}");
    }
    let count: u64 = paths.iter().map(|path| path.count).sum();
    assert_eq!(stats.latency.count, count);
    let longest = paths.iter().map(|path| path.max_ns).max();
    assert_eq!(Some(stats.latency.max_ns), longest);
    by
}

#[test]
fn each_fault_is_counted_where_it_belongs() {
    let manager = small().build().unwrap();
    let mut region = manager.region(64 * MIB).unwrap();
    region.as_mut_slice()[0] = 1;
    region.as_mut_slice()[FOLIO] = 2;
    assert_eq!(consistent(&manager).first_touch.count, 2);

    region.advise(0..2 * FOLIO, Advice::PageOut).unwrap();
    assert_eq!(region.as_slice()[FOLIO], 2);
    assert_eq!(consistent(&manager).rescue.count, 1);

    // The region is four times the budget: the pages that are touched first are in the store, and memory has to be
    // made.
    for byte in region.as_mut_slice().iter_mut().step_by(PAGE) {
        *byte = 3;
    }
    let filled = consistent(&manager);
    assert!(filled.reclaimed.count > 0, "{filled:?}");
    let sum: u64 = region
        .as_slice()
        .iter()
        .step_by(PAGE)
        .map(|&byte| u64::from(byte))
        .sum();
    assert_eq!(sum, 3 * common::pages(64 * MIB));
    assert!(consistent(&manager).load.count > 0);
}

/// Two threads want the same 2 MiB at once: one of them finds the page under way.
#[test]
fn waiting_for_another_thread_is_counted_separately() {
    const ROUNDS: usize = 8;
    let manager = small().build().unwrap();
    let waited = eventually(|| {
        let region = manager.region_with(ROUNDS * 2 * MIB, Order::MAX).unwrap();
        let start = Barrier::new(2);
        thread::scope(|scope| {
            for half in [0, MIB] {
                let (region, start) = (&region, &start);
                scope.spawn(move || {
                    for round in 0..ROUNDS {
                        start.wait();
                        assert_eq!(region.as_slice()[round * 2 * MIB + half], 0);
                    }
                });
            }
        });
        consistent(&manager).waited.count > 0
    });
    assert!(waited, "{:?}", manager.stats().faults);
}
