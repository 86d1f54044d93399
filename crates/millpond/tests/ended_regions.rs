//! Requests for a region end with it, and requests with another region's values are refused.

mod common;

use common::MIB;
use millpond::{Advice, Manager, Order, Region};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

fn manager() -> Manager {
    let builder = Manager::builder().ram(64 << 20).order(Order::ZERO);
    builder.build().unwrap()
}

/// Makes a region whose pages are all in the store, and on their way back.
fn on_its_way(manager: &Manager) -> Region {
    let mut region = manager.region(16 * MIB).unwrap();
    for page in region.as_mut_slice().chunks_exact_mut(4096) {
        page[..8].fill(7);
    }
    region.advise(0..16 * MIB, Advice::PageOut).unwrap();
    region.prefetch(0..16 * MIB).unwrap();
    region
}

/// Gives a thread time to bring in pages that it must not bring in any more.
fn go_on() {
    std::thread::sleep(Duration::from_millis(3));
}

/// When a region was dropped while the prefetching thread worked on it, its pages used to be brought in anyway: at
/// addresses that belonged to no region, or to the next one. After 400 rounds of this, 11,498 pages stayed mapped.
#[test]
fn a_prefetch_ends_with_its_region() {
    let manager = manager();
    for round in 0..60 {
        let region = on_its_way(&manager);
        // Any moment will do: the thread is somewhere in the region.
        std::thread::sleep(Duration::from_micros(200 + 30 * round));
        match round % 2 {
            0 => drop(region),
            _ => region.free_async(),
        }
        // The next region may lie there, and no thread has touched it.
        let next = manager.region(16 * MIB).unwrap();
        go_on();
        let stats = next.stats();
        assert_eq!((stats.resident, stats.swapped), (0, 0), "round {round}");
    }
    manager.quiesce();
    assert_eq!(manager.stats().vm.nr_mapped, 0);
}

/// A region that shrinks or moves also gives up addresses. Prefetches requested there used to continue.
#[test]
fn a_prefetch_ends_where_its_region_gave_pages_up() {
    let manager = manager();
    for round in 0..20 {
        let mut region = on_its_way(&manager);
        std::thread::sleep(Duration::from_micros(200 + 90 * round));
        if round % 2 == 0 {
            region.shrink(4096).unwrap();
        } else {
            let moved = region.remap_anywhere(0..16 * MIB, 16 * MIB).unwrap();
            go_on();
            assert_eq!(region.stats().resident, 0, "round {round}");
            drop(region);
            assert!(moved.as_slice().iter().step_by(4096).all(|&byte| byte == 7));
            continue;
        }
        let next = manager.region(8 * MIB).unwrap();
        go_on();
        assert_eq!(next.stats().resident, 0, "round {round}");
    }
    manager.quiesce();
    assert_eq!(manager.stats().vm.nr_mapped, 0);
}

/// All managers number their pages alike, so a pin of one manager's region used to be mistaken for a pin of another's.
/// A page of the other region was unpinned although it had never been pinned, and the pinned page stayed pinned
/// forever. A pin of a region that had ended was taken for a pin of the region that lay there next.
#[test]
fn a_pin_is_let_go_of_only_by_its_own_region() {
    let (one, other) = (manager(), manager());
    let (mut ours, mut theirs) = (one.region(MIB).unwrap(), other.region(MIB).unwrap());
    ours.as_mut_slice().fill(7);
    theirs.as_mut_slice().fill(8);
    let our_pin = ours.pin(0..4096).unwrap().leak();
    let their_pin = theirs.pin(0..4096).unwrap().leak();
    let refused = catch_unwind(AssertUnwindSafe(|| theirs.unpin(our_pin)));
    assert!(refused.is_err(), "a pin of another manager was taken");
    // Both regions are pinned as they were.
    assert!(ours.discard(0..4096).is_err());
    assert!(theirs.discard(0..4096).is_err());
    theirs.unpin(their_pin);
    theirs.discard(0..4096).unwrap();
}
