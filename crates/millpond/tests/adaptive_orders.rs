//! Regions whose folio orders follow the pattern of faults: their contents, and how much is brought in.

mod common;

use common::{MIB, PAGE, Rng, page_is, small, stress_time, ways, write_page};
use millpond::{Advice, Delivery, Order, OrderPolicy, TakeOutMethod};
use std::time::Instant;

const ADAPTIVE: OrderPolicy = OrderPolicy::Adaptive { max: Order::MAX };

/// Streams up and down, strides and scattered touches go over four budgets, and everything is compared.
#[test]
fn every_page_reads_back_unchanged_in_every_pattern() {
    for (delivery, take_out) in ways() {
        let manager = small()
            .delivery(delivery)
            .take_out(take_out)
            .build()
            .unwrap();
        let mut region = manager.region_with(64 * MIB, ADAPTIVE).unwrap();
        let pages = region.len() / PAGE;
        let mut written = vec![0u64; pages];
        let mut rng = Rng(0x5eed);
        let started = Instant::now();
        let mut round = 1;
        while started.elapsed() < stress_time() / 3 || round < 6 {
            let memory = region.as_mut_slice();
            let order: Vec<usize> = match round % 5 {
                0 => (0..pages).rev().collect(),
                1 => (0..pages).collect(),
                2 => (0..pages).step_by(3).collect(),
                3 => (0..2000).map(|_| rng.below(pages)).collect(),
                _ => (0..300)
                    .flat_map(|_| {
                        let start = rng.below(pages - 16);
                        start..start + 16
                    })
                    .collect(),
            };
            for page in order {
                let bytes = &mut memory[page * PAGE..][..PAGE];
                if written[page] > 0 {
                    assert!(page_is(bytes, written[page]), "page {page}, round {round}");
                }
                if rng.below(3) > 0 || written[page] == 0 {
                    written[page] = (page as u64) << 20 | round;
                    write_page(bytes, written[page]);
                }
            }
            round += 1;
        }
        for (page, bytes) in region.as_slice().chunks_exact(PAGE).enumerate() {
            assert!(page_is(bytes, written[page]), "page {page} at the end");
        }
        assert!(manager.stats().vm.folio_fold > 0, "nothing was folded up");
    }
}

fn in_thread() -> millpond::Manager {
    small()
        .delivery(Delivery::InThread)
        .take_out(TakeOutMethod::Auto)
        .build()
        .unwrap()
}

/// In one region, a stream takes few faults, and scattered reads bring in few unrequested pages.
#[test]
fn a_stream_takes_large_steps_and_scattered_reads_small_ones() {
    let manager = in_thread();
    let mut region = manager.region_with(64 * MIB, ADAPTIVE).unwrap();
    let pages = region.len() / PAGE;
    for (page, bytes) in region.as_mut_slice().chunks_exact_mut(PAGE).enumerate() {
        write_page(bytes, page as u64);
    }
    let filled = manager.stats().vm;
    assert!(
        filled.pgfault < pages as u64 / 16,
        "{} faults for {pages} pages",
        filled.pgfault
    );
    let mut rng = Rng(7);
    for _ in 0..3000 {
        let page = rng.below(pages);
        assert!(page_is(
            &region.as_slice()[page * PAGE..][..PAGE],
            page as u64
        ));
    }
    let read = manager.stats().vm.since(&filled);
    let unasked = read.pswpin - read.pgmajfault;
    assert!(
        unasked * 20 <= read.pgmajfault,
        "{unasked} pages unasked for {} faults",
        read.pgmajfault
    );
}

/// One byte in each 64 KiB takes as much memory as single pages do.
#[test]
fn a_sparse_toucher_stays_small() {
    let manager = in_thread();
    let region = manager.region_with(512 * MIB, ADAPTIVE).unwrap();
    let touched = region.len() / (64 << 10);
    for n in 0..touched {
        // SAFETY: the byte is within the region, which nothing else uses.
        unsafe { region.as_ptr().add(n * (64 << 10)).write_volatile(1) };
    }
    let most = touched as u64 * 11 / 10;
    assert!(manager.stats().vm.touched <= most);
}

#[test]
fn pages_that_will_be_overwritten_are_not_read_back() {
    let manager = in_thread();
    let mut region = manager.region_with(48 * MIB, ADAPTIVE).unwrap();
    for (page, bytes) in region.as_mut_slice().chunks_exact_mut(PAGE).enumerate() {
        write_page(bytes, page as u64);
    }
    let half = region.len() / 2;
    region.advise(0..half, Advice::PageOut).unwrap();
    let before = manager.stats();
    region.will_overwrite(0..half).unwrap();
    assert!(manager.stats().store.slots < before.store.slots);
    for (page, bytes) in region.as_mut_slice()[..half]
        .chunks_exact_mut(PAGE)
        .enumerate()
    {
        write_page(bytes, page as u64 + 1);
    }
    let after = manager.stats().vm.since(&before.vm);
    assert_eq!(after.pswpin, 0);
    for (page, bytes) in region.as_slice()[..half].chunks_exact(PAGE).enumerate() {
        assert!(page_is(bytes, page as u64 + 1));
    }
}

#[test]
fn bad_ranges_to_overwrite_are_named() {
    let manager = in_thread();
    let mut region = manager.region_with(MIB, ADAPTIVE).unwrap();
    let error = region.will_overwrite(0..2 * MIB).unwrap_err().to_string();
    assert!(error.contains("0..2097152"), "{error}");
    let error = region.will_overwrite(1..PAGE).unwrap_err().to_string();
    assert!(error.contains("1..4096"), "{error}");
}

/// A second thread interrupts each thread that moves pages. So with in-thread delivery it works only where that is rare
/// and the work is long: for a stream that fills.
#[test]
fn the_background_thread_helps_only_a_stream_that_fills() {
    // The budget is so large that a folio is less than the mark at which background reclaim begins.
    let manager = small()
        .ram(64 * MIB as u64)
        .delivery(Delivery::InThread)
        .build()
        .unwrap();
    let mut region = manager.region_with(256 * MIB, ADAPTIVE).unwrap();
    let pages = region.len() / PAGE;
    for (page, bytes) in region.as_mut_slice().chunks_exact_mut(PAGE).enumerate() {
        write_page(bytes, page as u64);
    }
    let helped = manager.stats().vm.pgsteal_kswapd;
    assert!(helped > 0, "{:?}", manager.stats().vm);

    // The background thread may be at work still.
    let mut before = helped;
    let quiet = common::eventually(|| {
        std::thread::sleep(std::time::Duration::from_millis(20));
        std::mem::replace(&mut before, manager.stats().vm.pgsteal_kswapd) == before
    });
    assert!(quiet);
    let mut rng = Rng(7);
    for _ in 0..2000 {
        let page = rng.below(pages);
        assert!(page_is(
            &region.as_slice()[page * PAGE..][..PAGE],
            page as u64
        ));
    }
    let after = manager.stats().vm;
    assert_eq!(after.pgsteal_kswapd, before);
    assert!(after.pgsteal_direct > 0);
}
