//! Regions of one manager, each with orders of its own, on real memory.

mod common;

use common::{FOLIO, MIB, PAGE, page_is, small, write_page};
use millpond::{Advice, Manager, Order, OrderPolicy, Region, RegionError};

fn order(n: u8) -> Order {
    Order::new(n).unwrap()
}

/// Number of faults that reading every page of `region` in order takes.
fn faults_of_a_stream(manager: &Manager, region: &Region) -> u64 {
    let before = manager.stats().vm.pgfault;
    assert!(
        region
            .as_slice()
            .iter()
            .step_by(PAGE)
            .all(|&byte| byte == 0)
    );
    manager.stats().vm.pgfault - before
}

#[test]
fn each_region_keeps_to_its_own_orders() {
    let manager = small().order(order(2)).build().unwrap();
    let make = |policy: OrderPolicy| Region::builder().order(policy).build(&manager, MIB);
    let pages = common::pages(MIB);
    // With the advice each fault brings in one folio; without it a stream takes more of them with one fault.
    let alone = |region: Region| {
        region.advise(0..MIB, Advice::Random).unwrap();
        faults_of_a_stream(&manager, &region)
    };

    let single = || make(OrderPolicy::Fixed(Order::ZERO)).unwrap();
    assert_eq!(alone(single()), pages);
    let stream = faults_of_a_stream(&manager, &single());
    assert!((pages / 32..pages / 32 + 8).contains(&stream), "{stream}");
    let large = make(OrderPolicy::Fixed(order(4))).unwrap();
    assert_eq!(alone(large), pages / 16);
    // An adaptive region brings in one page, and twice as many with each fault that goes on: from the sixth on the
    // largest order.
    let adaptive = make(OrderPolicy::Adaptive { max: order(4) }).unwrap();
    assert_eq!(faults_of_a_stream(&manager, &adaptive), pages / 16 + 3);
    let bounded = make(OrderPolicy::Adaptive { max: order(1) }).unwrap();
    assert_eq!(faults_of_a_stream(&manager, &bounded), pages / 2 + 1);
    // A region without an order has the manager's own.
    let plain = Region::builder().build(&manager, MIB).unwrap();
    assert_eq!(alone(plain), pages / 4);
    assert_eq!(alone(manager.region(MIB).unwrap()), pages / 4);
}

/// A fault brings in one folio of the region's order, also when the pages come back from the store.
#[test]
fn swapped_pages_come_back_in_their_regions_own_order() {
    let manager = small().build().unwrap();
    for (policy, step) in [
        (OrderPolicy::Fixed(Order::ZERO), PAGE),
        (OrderPolicy::Fixed(order(4)), FOLIO),
        (OrderPolicy::Adaptive { max: order(4) }, PAGE),
    ] {
        let builder = Region::builder().order(policy);
        let mut region = builder.build(&manager, 64 * MIB).unwrap();
        for (page, bytes) in region.as_mut_slice().chunks_exact_mut(PAGE).enumerate() {
            write_page(bytes, page as u64);
        }
        // The places are scattered, so that an adaptive region sees no run. They are far behind the pages that were
        // written last, and beyond those that came in before anything had to leave, which may stay for longer: so all
        // of them are out.
        let scattered = [19 * MIB, 27 * MIB, 23 * MIB];
        for at in scattered {
            let before = manager.stats().vm;
            assert!(page_is(
                &region.as_slice()[at..][..PAGE],
                (at / PAGE) as u64
            ));
            let after = manager.stats().vm;
            let brought = (after.pswpin - before.pswpin) as usize * PAGE;
            if at == scattered[0] && matches!(policy, OrderPolicy::Adaptive { .. }) {
                // The first fault may follow the habit that filling left: the long run has not ended before.
                continue;
            }
            assert_eq!(brought, step, "{policy:?} at {at}");
        }
    }
}

#[test]
fn lengths_that_cannot_work_are_refused_with_their_values() {
    let manager = small().address_space(256 << 20).build().unwrap();
    let builder = Region::builder().order(Order::ZERO);
    assert_eq!(builder.build(&manager, 0).unwrap_err(), RegionError::Empty);
    assert!(matches!(
        builder.build(&manager, 1 << 30),
        Err(RegionError::NoAddressSpace { bytes, space }) if bytes == 1 << 30 && space == 256 << 20
    ));
    let region = builder.build(&manager, 5000).unwrap();
    assert_eq!(region.len(), 5000);
}
