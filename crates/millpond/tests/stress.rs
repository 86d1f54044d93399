//! Threads count in memory that is four times the budget while it is reclaimed. No count may be lost.
//!
//! The tests cover every way of delivery and of taking out, folios of several sizes, and concurrent forks with exec.
//! They run longer with MILLPOND_STRESS_SECS=60.

mod common;

use common::{MIB, PAGE, Rng, small, stress_time, ways};
use millpond::{Advice, Manager, Order, Region};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

const THREADS: usize = 4;
const LEN: usize = 64 * MIB;
const COUNTERS: usize = LEN / PAGE;

/// The counter of page `page`, at a place in the page that differs from page to page.
fn counter(region: &Region, page: usize) -> &AtomicU64 {
    let at = region.as_ptr() as usize + page * PAGE + page % 511 * 8;
    // SAFETY: the word is inside the region and aligned; all threads use it as an atomic.
    unsafe { &*(at as *const AtomicU64) }
}

/// Counts all over the region from several threads while `beside` runs; returns how often each page was counted.
fn count_all_over(manager: &Manager, order: u8, beside: impl Fn(&Region) + Sync) {
    let region = manager
        .region_with(LEN, Order::new(order).unwrap())
        .unwrap();
    let truth: Vec<AtomicU64> = (0..COUNTERS).map(|_| AtomicU64::new(0)).collect();
    let stop = AtomicBool::new(false);
    let end = Instant::now() + stress_time();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (region, truth, stop) = (&region, &truth, &stop);
            scope.spawn(move || {
                let mut rng = Rng(0x5eed + thread as u64);
                while !stop.load(Ordering::Relaxed) {
                    let page = rng.below(COUNTERS);
                    counter(region, page).fetch_add(1, Ordering::Relaxed);
                    truth[page].fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        while Instant::now() < end {
            beside(&region);
        }
        stop.store(true, Ordering::Relaxed);
    });
    let lost = (0..COUNTERS)
        .filter(|&page| {
            counter(&region, page).load(Ordering::Relaxed) != truth[page].load(Ordering::Relaxed)
        })
        .count();
    assert_eq!(
        lost,
        0,
        "{lost} of {COUNTERS} counters are wrong; {:#?}",
        manager.stats()
    );
    assert!(
        manager.stats().vm.pswpin > 0,
        "nothing was reclaimed: the test tested nothing"
    );
}

#[test]
fn no_count_is_lost_while_memory_is_reclaimed() {
    for (delivery, method) in ways() {
        for order in [0, 4] {
            let manager = small().delivery(delivery).take_out(method).build().unwrap();
            count_all_over(&manager, order, |_| {
                std::thread::sleep(std::time::Duration::from_millis(10))
            });
        }
    }
}

#[test]
fn no_count_is_lost_during_page_out_and_populate() {
    for (delivery, method) in ways() {
        let manager = small().delivery(delivery).take_out(method).build().unwrap();
        let rng = std::sync::Mutex::new(Rng(99));
        count_all_over(&manager, 3, |region| {
            let (start, len) = {
                let mut rng = rng.lock().unwrap();
                (
                    rng.below(LEN - MIB) / PAGE * PAGE,
                    (1 + rng.below(64)) * PAGE,
                )
            };
            region.advise(start..start + len, Advice::PageOut).unwrap();
            region.populate(start..start + len).unwrap();
            drop(region.pin(start..start + PAGE).unwrap());
        });
    }
}

#[test]
fn no_count_is_lost_during_fork_and_exec() {
    for (delivery, method) in ways() {
        let manager = small().delivery(delivery).take_out(method).build().unwrap();
        count_all_over(&manager, 4, |_| {
            // SAFETY: the child calls nothing but execv and _exit, with arguments that are static.
            let child = unsafe { libc::fork() };
            if child == 0 {
                let path = c"/bin/true".as_ptr();
                let argv = [path, std::ptr::null()];
                // SAFETY: the child calls nothing but execv and _exit, with arguments that are static.
                unsafe {
                    libc::execv(path, argv.as_ptr());
                    libc::_exit(1);
                }
            }
            let mut status = 0;
            // SAFETY: the status is written to a variable of this function.
            assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
            assert_eq!(status, 0, "/bin/true did not run in the child");
        });
    }
}

#[test]
fn readers_see_what_was_written_whatever_happens_to_the_pages() {
    for (delivery, method) in ways() {
        let manager = small().delivery(delivery).take_out(method).build().unwrap();
        let mut region = manager.region(LEN).unwrap();
        for (number, page) in region.as_mut_slice().chunks_exact_mut(PAGE).enumerate() {
            common::write_page(page, number as u64);
        }
        let end = Instant::now() + stress_time();
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let region = &region;
                scope.spawn(move || {
                    let mut rng = Rng(7 + thread as u64);
                    while Instant::now() < end {
                        let number = rng.below(COUNTERS);
                        let page = &region.as_slice()[number * PAGE..][..PAGE];
                        assert!(
                            common::page_is(page, number as u64),
                            "page {number} is torn"
                        );
                    }
                });
            }
        });
    }
}
