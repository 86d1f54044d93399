//! Snapshots on real memory: source and snapshot hold their own bytes from the moment when the snapshot is taken,
//! whether pages are in memory, in limbo or in the store, and whichever of the two is dropped first.

mod common;

use common::deliveries;
use millpond::{Manager, Order, OrderPolicy, Region, SnapshotError, StoreKind};

const MIB: usize = 1 << 20;
const PAGE: usize = millpond::PAGE_SIZE;

fn managers(ram: u64) -> Vec<Manager> {
    let mut all = Vec::new();
    for delivery in deliveries() {
        for order in [
            OrderPolicy::Fixed(Order::ZERO),
            OrderPolicy::Fixed(Order::new(4).unwrap()),
            OrderPolicy::Adaptive { max: Order::MAX },
        ] {
            let builder = Manager::builder()
                .ram(ram)
                .store(StoreKind::compressed_ram())
                .delivery(delivery)
                .order(order);
            all.push(builder.build().unwrap());
        }
    }
    all
}

/// The number that page `page` of generation `by` holds, in its first and last word.
fn word(page: usize, by: u64) -> u64 {
    (page as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ by
}

fn write(region: &mut Region, page: usize, by: u64) {
    let bytes = &mut region.as_mut_slice()[page * PAGE..][..PAGE];
    let (first, rest) = bytes.split_first_chunk_mut().unwrap();
    *first = word(page, by).to_le_bytes();
    *rest.last_chunk_mut().unwrap() = (!word(page, by)).to_le_bytes();
}

fn check(region: &Region, page: usize, by: Option<u64>, what: &str) {
    let bytes = &region.as_slice()[page * PAGE..][..PAGE];
    let (first, last) = (bytes.first_chunk().unwrap(), bytes.last_chunk().unwrap());
    let (want, end) = by.map_or((0, 0), |by| (word(page, by), !word(page, by)));
    assert_eq!(
        (u64::from_le_bytes(*first), u64::from_le_bytes(*last)),
        (want, end),
        "page {page} of the {what}, generation {by:?}"
    );
}

fn pages(region: &Region) -> usize {
    region.len() / PAGE
}

fn fill(region: &mut Region, by: u64) {
    for page in 0..pages(region) {
        write(region, page, by);
    }
}

fn check_all(region: &Region, by: impl Fn(usize) -> Option<u64>, what: &str) {
    for page in 0..pages(region) {
        check(region, page, by(page), what);
    }
}

#[test]
fn source_and_snapshot_do_not_see_each_others_writes() {
    for manager in managers(64 << 20) {
        let mut source = manager.region(8 * MIB).unwrap();
        fill(&mut source, 1);
        let mut snapshot = source.snapshot().unwrap();
        for page in (0..pages(&source)).step_by(3) {
            write(&mut source, page, 2);
        }
        for page in (0..pages(&source)).step_by(5) {
            write(&mut snapshot, page, 3);
        }
        let by = |step, by| move |page: usize| Some(if page.is_multiple_of(step) { by } else { 1 });
        check_all(&source, by(3, 2), "source");
        check_all(&snapshot, by(5, 3), "snapshot");
        assert_eq!(manager.stats().vm.snapshots, 1);
    }
}

#[test]
fn pages_in_limbo_and_in_the_store_are_shared_as_well() {
    for manager in managers(16 << 20) {
        let mut source = manager.region(48 * MIB).unwrap();
        fill(&mut source, 1);
        let snapshot = source.snapshot_read_only().unwrap();
        assert!(source.stats().inherited > 40 << 20);
        fill(&mut source, 2);
        check_all(&snapshot, |_| Some(1), "snapshot");
        check_all(&source, |_| Some(2), "source");
        drop(snapshot);
        check_all(&source, |_| Some(2), "source after its snapshot");
    }
}

#[test]
fn a_discard_in_one_does_not_affect_the_other() {
    for manager in managers(32 << 20) {
        let mut source = manager.region(4 * MIB).unwrap();
        fill(&mut source, 1);
        let mut snapshot = source.snapshot().unwrap();
        source.discard(MIB..2 * MIB).unwrap();
        snapshot.lazy_free(2 * MIB..3 * MIB).unwrap();
        snapshot.discard(3 * MIB..4 * MIB).unwrap();
        let in_mib = |page: usize| page * PAGE / MIB;
        check_all(&source, |page| (in_mib(page) != 1).then_some(1), "source");
        // Lazily freed bytes read as they did or as zeros: inherited bytes can only be hidden.
        check_all(
            &snapshot,
            |page| (in_mib(page) < 2).then_some(1),
            "snapshot",
        );
        drop(source);
        check_all(
            &snapshot,
            |page| (in_mib(page) < 2).then_some(1),
            "snapshot alone",
        );
    }
}

#[test]
fn any_order_of_drops_gives_all_memory_back() {
    for manager in managers(16 << 20) {
        for order in 0..6 {
            let mut source = manager.region(12 * MIB).unwrap();
            fill(&mut source, 1);
            let mut first = source.snapshot().unwrap();
            for page in (0..pages(&source)).step_by(2) {
                write(&mut source, page, 2);
            }
            let second = first.snapshot().unwrap();
            for page in (0..pages(&source)).step_by(3) {
                write(&mut first, page, 3);
            }
            let mut all = vec![(source, 2, 2), (first, 3, 3), (second, 1, 1)];
            for i in [order % 3, order / 3] {
                drop(all.remove(i % all.len()));
                for (region, step, by) in &all {
                    let by = |page: usize| Some(if page.is_multiple_of(*step) { *by } else { 1 });
                    check_all(region, by, "one that is left");
                }
            }
            drop(all);
        }
        let stats = manager.stats();
        assert_eq!(
            (stats.vm.nr_mapped, stats.vm.nr_limbo, stats.vm.nr_swapped),
            (0, 0, 0)
        );
        assert_eq!(stats.store.slots, 0, "{:?}", stats.store);
    }
}

#[test]
fn snapshots_that_come_and_go_leave_no_chain_behind() {
    for manager in managers(16 << 20) {
        let mut source = manager.region(4 * MIB).unwrap();
        fill(&mut source, 0);
        let mut last: Option<Region> = None;
        for round in 1..40 {
            let snapshot = source.snapshot().unwrap();
            for page in (round as usize % 7..pages(&source)).step_by(7) {
                write(&mut source, page, round);
            }
            if let Some(last) = last.replace(snapshot) {
                check(
                    &last,
                    0,
                    Some((0..round - 1).rev().find(|r| r % 7 == 0).unwrap_or(0)),
                    "last but one",
                );
            }
        }
        drop(last);
        let newest = |page: usize| (1..40).rev().find(|round| (page as u64) % 7 == round % 7);
        check_all(&source, newest, "source");
        let stats = source.stats();
        assert_eq!(stats.inherited, 0, "{stats:?}");
    }
}

#[test]
fn a_snapshot_of_a_pinned_page_is_refused() {
    let manager = Manager::builder()
        .store(millpond::StoreKind::compressed_ram())
        .order(millpond::Order::new(4).unwrap())
        .ram(16 << 20)
        .build()
        .unwrap();
    let mut region = manager.region(MIB).unwrap();
    fill(&mut region, 1);
    std::mem::forget(region.pin(3 * PAGE..4 * PAGE).unwrap());
    let refused = SnapshotError::Pinned { offset: 3 * PAGE };
    assert_eq!(region.snapshot().err(), Some(refused));
    check_all(&region, |_| Some(1), "refused source");
}

#[test]
fn a_snapshot_without_address_space_is_refused_without_effect() {
    let manager = Manager::builder()
        .store(millpond::StoreKind::compressed_ram())
        .order(millpond::Order::new(4).unwrap())
        .ram(16 << 20)
        .address_space(64 << 20)
        .build()
        .unwrap();
    let mut region = manager.region(24 * MIB).unwrap();
    write(&mut region, 7, 1);
    let error = region.snapshot().unwrap_err();
    assert!(
        matches!(error, SnapshotError::NoAddressSpace { .. }),
        "{error}"
    );
    check(&region, 7, Some(1), "source");
    drop(region);
    assert!(
        manager.region(60 * MIB).is_ok(),
        "the refused snapshot kept addresses"
    );
}
