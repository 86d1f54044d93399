//! Folios of up to 2 MiB: one fault can want more than reclaim frees in a batch.

mod common;

use common::{MIB, PAGE, small};
use millpond::Order;
use std::sync::mpsc;
use std::time::Duration;

/// A fault for a large folio used to ask forever. It said how much memory was *missing*, and direct reclaim stopped as
/// soon as that much was *available*. With 438 unused pages a folio of 512 lacks 74; 438 is more than 74, so nothing
/// was reclaimed and the fault asked again. (Folios up to 512 KiB were saved by the minimum batch of 128 pages.) Now
/// reclaim's goal is the sum of the unused and the missing pages. Racing threads with folios of 2 MiB found this.
#[test]
fn a_fault_for_a_large_folio_is_served_when_a_part_of_it_is_unused() {
    let (done, finished) = mpsc::channel();
    std::thread::spawn(move || {
        let manager = small().build().unwrap();
        let order = |order| Order::new(order).unwrap();
        let mut pages = manager.region_with(MIB, order(0)).unwrap();
        let mut large = manager.region_with(64 * MIB, order(9)).unwrap();
        // So many single pages that large folios leave between 128 and 512 pages of the budget.
        for page in pages.as_mut_slice().chunks_mut(PAGE).take(100) {
            page[0] = 1;
        }
        for (n, folio) in large.as_mut_slice().chunks_mut(2 * MIB).enumerate() {
            folio[0] = n as u8;
        }
        let right = large.as_slice().chunks(2 * MIB).enumerate();
        assert!(right.into_iter().all(|(n, folio)| folio[0] == n as u8));
        done.send(()).unwrap();
    });
    let in_time = finished.recv_timeout(Duration::from_secs(30));
    assert!(in_time.is_ok(), "the fault reclaims for ever, or failed");
}
