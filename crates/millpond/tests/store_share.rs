//! Compressed RAM in front of a file gets the share of the budget from which the program gains, and nothing is lost on
//! the way.
//!
//! python3 that uses all of 273 MiB of small objects in 150 MiB takes half as long where compressed RAM has six tenths
//! of what is left as where it has a third. One that uses 125 MiB of them, which nearly fit, takes a fifth as long with
//! hardly any compressed RAM.

mod common;

use common::{MIB, PAGE, Rng, can, fill, page_is, stress_time, write_page};
use millpond::{Advice, Delivery, Manager, OrderPolicy, Region, StoreKind};
use std::ops::Range;
use std::time::{Duration, Instant};

const RAM: usize = 48 * MIB;
/// Pages of the region: twice as many as memory holds, or three halves of those that it holds compressed to a third.
const PAGES: usize = 96 * MIB / PAGE;

/// A region of [`PAGES`] pages, in a manager of [`RAM`] bytes with compressed RAM before a file.
fn region(delivery: Delivery) -> (Manager, Region) {
    let directory = Some(std::env::temp_dir());
    let builder = Manager::builder()
        .order(millpond::Order::new(4).unwrap())
        .ram(RAM as u64)
        .store(StoreKind::Auto { directory })
        .delivery(delivery);
    let manager = builder.build().unwrap();
    let adaptive: OrderPolicy = "adaptive".parse().unwrap();
    let region = manager.region_with(PAGES * PAGE, adaptive).unwrap();
    (manager, region)
}

fn filled(delivery: Delivery) -> (Manager, Region) {
    let (manager, mut region) = region(delivery);
    fill(&mut region, 0..PAGES * PAGE, 0);
    (manager, region)
}

/// Reads pages at random, and writes them back, until compressed RAM has so much of the budget.
fn use_until(
    manager: &Manager,
    region: &mut Region,
    pages: Range<usize>,
    is_so: impl Fn(u64) -> bool,
) {
    let mut rng = Rng(0x5_4a8e);
    let end = Instant::now() + Duration::from_secs(120);
    let ram_bytes = || manager.stats().store.ram_bytes;
    while !is_so(ram_bytes()) {
        for _ in 0..10_000 {
            let number = pages.start + rng.below(pages.len());
            let page = &mut region.as_mut_slice()[number * PAGE..][..PAGE];
            assert!(page_is(page, number as u64), "page {number}");
            if number.is_multiple_of(8) {
                write_page(page, number as u64);
            }
        }
        assert!(
            Instant::now() < end,
            "compressed RAM has {} bytes",
            ram_bytes()
        );
    }
}

fn follows_the_program(delivery: Delivery) {
    let (manager, mut region) = filled(delivery);
    let budget = RAM as u64;
    let nearly_fits = 0..40 * MIB / PAGE;
    let is_small = |ram| ram < budget / 100 * 28;
    use_until(&manager, &mut region, nearly_fits, is_small);
    let is_large = |ram| ram > budget / 100 * 30;
    use_until(&manager, &mut region, 0..PAGES, is_large);
    assert!(common::holds(&region, 0..PAGES * PAGE, 0));
    let peak = manager.stats().peak_bytes;
    // Data that is on its way out as one folio is compressed before it goes.
    assert!(peak <= budget + (2 << 20), "{peak} of {budget}");
}

#[test]
fn compressed_ram_grows_and_shrinks_as_it_benefits_the_program() {
    follows_the_program(Delivery::InThread);
}

#[test]
fn compressed_ram_grows_and_shrinks_with_a_handler_as_well() {
    if can(Delivery::Handler) {
        follows_the_program(Delivery::Handler);
    }
}

/// Page `number` of objects as a program has them, which zstd makes a third smaller than LZ4 does.
fn write_objects(page: &mut [u8], number: usize) {
    let mut rng = Rng(number as u64 + 1);
    for object in page.as_chunks_mut::<32>().0 {
        let words = [
            0x7f31_0000_0000 | (rng.below(1 << 20) as u64) << 4,
            rng.below(64) as u64,
            5,
            0x7f31_4444_0010,
        ];
        let words = words.map(u64::to_ne_bytes);
        object.copy_from_slice(words.as_flattened());
    }
}

/// What is not used becomes denser in the background, and is what it was when it is read, in the order of pages and
/// not.
fn becomes_denser(delivery: Delivery) {
    let (manager, mut region) = region(delivery);
    for (number, page) in region.as_mut_slice().chunks_mut(PAGE).enumerate() {
        write_objects(page, number);
    }
    let end = Instant::now() + Duration::from_secs(120);
    let done = || manager.stats().recompress;
    let mut rng = Rng(11);
    let mut page = vec![0; PAGE];
    while done().bytes < 4 * MIB as u64 {
        // A part of it is in use during this.
        for _ in 0..100 {
            let number = rng.below(PAGES / 16);
            write_objects(&mut page, number);
            let is = &mut region.as_mut_slice()[number * PAGE..][..PAGE];
            assert!(is == page, "page {number}");
            is[0] = page[0];
        }
        std::thread::sleep(Duration::from_millis(5));
        assert!(Instant::now() < end, "{:?}", manager.stats());
    }
    let one = done();
    assert!(one.saved_bytes > 0 && one.time > Duration::ZERO, "{one:?}");
    for _ in 0..PAGES {
        let number = rng.below(PAGES);
        write_objects(&mut page, number);
        assert!(
            region.as_slice()[number * PAGE..][..PAGE] == page,
            "page {number}"
        );
    }
    for (number, is) in region.as_slice().chunks(PAGE).enumerate() {
        write_objects(&mut page, number);
        assert!(is == page, "page {number}");
    }
    let peak = manager.stats().peak_bytes;
    assert!(peak <= RAM as u64 + (2 << 20), "{peak} of {RAM}");
}

#[test]
fn unused_data_becomes_denser_and_reads_back() {
    becomes_denser(Delivery::InThread);
}

#[test]
fn unused_data_becomes_denser_with_a_handler_as_well() {
    if can(Delivery::Handler) {
        becomes_denser(Delivery::Handler);
    }
}

/// Threads read, write, and give up data that the housekeeping thread is moving to the file.
#[test]
fn data_can_be_used_and_released_while_it_moves() {
    let (manager, region) = filled(Delivery::InThread);
    drop(region);
    let adaptive: OrderPolicy = "adaptive".parse().unwrap();
    let budgets = [RAM, RAM / 3];
    let end = Instant::now() + stress_time();
    std::thread::scope(|scope| {
        for thread in 0..3_u64 {
            let manager = &manager;
            scope.spawn(move || {
                let len = 24 * MIB;
                let mut region = manager.region_with(len, adaptive).unwrap();
                let mut rng = Rng(thread + 1);
                fill(&mut region, 0..len, thread << 32);
                while Instant::now() < end {
                    let at = rng.below(len / PAGE / 64) * 64 * PAGE;
                    let range = at..at + 64 * PAGE;
                    let salt = (thread << 32) + (at / PAGE) as u64;
                    assert!(common::holds(&region, range.clone(), salt));
                    match rng.below(3) {
                        0 => region.discard(range.clone()).unwrap(),
                        1 => region.advise(range.clone(), Advice::PageOut).unwrap(),
                        _ => {}
                    }
                    fill(&mut region, range, salt);
                }
                assert!(common::holds(&region, 0..len, thread << 32));
            });
        }
        // A lower budget leaves the store less, so its data moves.
        for turn in 0.. {
            std::thread::sleep(Duration::from_millis(150));
            if Instant::now() >= end {
                break;
            }
            manager.set_ram(budgets[turn % 2] as u64).unwrap();
        }
    });
}
