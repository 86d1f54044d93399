//! Jobs that are queued when a manager ends.

use crate::{Manager, Order};
use std::sync::Arc;

/// The end of a manager gives all queued memory back in batches. (From outside the manager's figures cannot be read any
/// more.)
#[test]
fn the_end_of_a_manager_gives_queued_memory_back_in_batches() {
    // The region has an order of its own so that it is not kept for the next region of that length.
    let order = Order::new(5).expect("128 KiB");
    let manager = Manager::builder()
        .store(crate::StoreKind::compressed_ram())
        .order(crate::Order::new(4).unwrap())
        .ram(128 << 20)
        .build()
        .unwrap();
    let driver = Arc::clone(manager.pond().driver());
    let mut region = manager.region_with(112 << 20, order).unwrap();
    region.as_mut_slice().fill(7);
    region.free_async();
    drop(manager);
    let (stats, vm) = (driver.freer.stats(), driver.lock().stats());
    assert_eq!(stats.queued, 0);
    // Half of the budget may be spare.
    assert!(stats.bytes >= 32 << 20, "{stats:?}");
    assert!(stats.by_workers > 0, "{stats:?}");
    let left = (vm.nr_mapped, vm.nr_limbo, vm.nr_swapped, vm.nr_unhooked);
    assert_eq!(left, (0, 0, 0, 0));
}
