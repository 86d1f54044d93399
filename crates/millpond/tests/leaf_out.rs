//! Leaves of small folios are taken out by their page tables, while threads write to them.

mod common;

use common::page_model::word;
use common::{PAGE, Rng, is_over, stress_time};
use millpond::{Delivery, Manager, ManagerBuilder, Order, StoreKind};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

const THREADS: usize = 3;
/// Pages of a region: three times as many as fit.
const PAGES: usize = 24 << 10;
/// Pages that each thread writes to again and again, spread over all leaves: they leave with the others and come back.
const HOT: usize = 256;

/// A manager with a budget of a third of the region's size.
fn third() -> ManagerBuilder {
    Manager::builder()
        .order(millpond::Order::new(4).unwrap())
        .ram(32 << 20)
        .store(StoreKind::compressed_ram())
        .delivery(Delivery::InThread)
}

/// Adds to words of this thread's own, on the page that `page` names for the nth time, until it is over. No increment
/// may be lost, on the way and in the end.
fn count(
    base: usize,
    thread: usize,
    mut page: impl FnMut(usize) -> usize,
    over: impl Fn() -> bool,
) {
    let mut counts = vec![0u64; PAGES];
    while !over() {
        for n in 0..10_000 {
            let page = page(n);
            let before = word(base, page, thread).fetch_add(1, Relaxed);
            assert_eq!(before, counts[page], "page {page}");
            counts[page] += 1;
        }
    }
    for (page, &count) in counts.iter().enumerate() {
        assert_eq!(word(base, page, thread).load(Relaxed), count, "page {page}");
    }
}

fn say_what_was_skipped(moves: bool) {
    if !moves {
        eprintln!("skipped in part: leaves leave by their tables where the kernel can move pages");
    }
}

/// Every thread adds to words of its own on pages that all of them use, at random, in a third of the memory that this
/// would take. If a page of a leaf that is being taken out were mapped unnoticed, the increments on it would be lost
/// with the leaf.
#[test]
fn no_increment_is_lost_when_leaves_are_taken_out() {
    let manager = third().background_reclaim(true).build().unwrap();
    let region = manager.region_with(PAGES * PAGE, Order::ZERO).unwrap();
    let base = region.as_ptr() as usize;
    let end = Instant::now() + stress_time();
    let moves = manager.capabilities().moves_pages;
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let manager = &manager;
            scope.spawn(move || {
                let mut rng = Rng(0x1eaf + thread as u64);
                let page = |n: usize| match n % 4 {
                    0 => rng.below(HOT) * (PAGES / HOT),
                    _ => rng.below(PAGES),
                };
                count(base, thread, page, || {
                    is_over(end, !moves || manager.stats().vm.takeout_leaf > 0)
                });
            });
        }
    });
    say_what_was_skipped(moves);
}

/// Pages that are locked at one time: one in every fourth leaf. When more leaves stay, soon no more are tried.
const LOCKED: usize = 12;

/// A page of a leaf that is being taken out is occasionally locked, so the leaf stays. Other threads reclaim while the
/// answer is reported in parts: a thread that continued with the leaf used to stop the program.
#[test]
fn leaves_that_stay_lose_nothing_while_others_reclaim() {
    let manager = third().background_reclaim(true).build().unwrap();
    let region = manager.region_with(PAGES * PAGE, Order::ZERO).unwrap();
    let base = region.as_ptr() as usize;
    let end = Instant::now() + stress_time();
    let moves = manager.capabilities().moves_pages;
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let stop = &stop;
            scope.spawn(move || {
                let mut rng = Rng(0x57a5 + thread as u64);
                count(base, thread, |_| rng.below(PAGES), || stop.load(Relaxed));
            });
        }
        let mut rng = Rng(0x10c);
        let mut locked = VecDeque::new();
        loop {
            let page = (base + rng.below(PAGES) * PAGE) as *mut libc::c_void;
            // SAFETY: the page is the region's, which outlives the call; nothing relies on the locks.
            unsafe { libc::mlock2(page, PAGE, libc::MLOCK_ONFAULT as libc::c_uint) };
            locked.push_back(page);
            if locked.len() > LOCKED {
                let page = locked.pop_front().unwrap();
                // SAFETY: the page is the region's, which outlives the call.
                unsafe { libc::munlock(page, PAGE) };
            }
            std::thread::sleep(Duration::from_micros(500));
            let vm = manager.stats().vm;
            let shown = vm.takeout_leaf > 0 && vm.takeout_leaf_stayed > 0;
            if is_over(end, shown || !moves) {
                break;
            }
        }
        stop.store(true, Relaxed);
    });
    say_what_was_skipped(moves);
}

/// Leaves that leave cut the region into several mappings of the kernel's. Memory that is handed over by tables goes as
/// one mapping, so a region that is copied or grows must be one again, and is cut anew afterwards.
#[test]
fn a_region_with_leaves_out_can_be_copied_and_grown() {
    let manager = third().build().unwrap();
    let moves = manager.capabilities().moves_pages;
    let mut region = manager.region_with(PAGES * PAGE, Order::ZERO).unwrap();
    let mut values = vec![0u64; PAGES];
    let mut rng = Rng(0xc0b1);
    for round in 1..=3 {
        let before = manager.stats().vm.takeout_leaf;
        let left = |manager: &Manager| !moves || manager.stats().vm.takeout_leaf > before;
        for n in 0.. {
            let page = rng.below(PAGES);
            values[page] += round;
            region.as_mut_slice()[page * PAGE..][..8].copy_from_slice(&values[page].to_le_bytes());
            if n % 1000 == 999 && n > PAGES && left(&manager) {
                break;
            }
        }
        let copied = values.clone();
        let mut copy = region.snapshot().unwrap();
        for page in (0..PAGES).step_by(7) {
            values[page] += 1;
            region.as_mut_slice()[page * PAGE] = values[page].to_le_bytes()[0];
            values[page] = first_word(region.as_slice(), page);
        }
        region.grow(region.len() + (4 << 20)).unwrap();
        for page in 0..PAGES {
            assert_eq!(
                first_word(region.as_slice(), page),
                values[page],
                "page {page}"
            );
            assert_eq!(
                first_word(copy.as_slice(), page),
                copied[page],
                "page {page}"
            );
        }
        copy.as_mut_slice()[0] = 1;
    }
}

fn first_word(memory: &[u8], page: usize) -> u64 {
    u64::from_le_bytes(memory[page * PAGE..][..8].try_into().unwrap())
}
