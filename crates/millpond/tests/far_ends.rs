//! A thread reads at the far end of a pipe and of a socket what other threads send there from memory four times the
//! budget.
//!
//! With `write`, the kernel copies a region's bytes. With `vmsplice` and `MSG_ZEROCOPY` the kernel refers to the pages
//! until they have been read, without pinning them. A region's guard has to pin them: without it the frames can hold
//! other data by the time they are read.

mod common;

use common::far_end::{FarEnd, Kind};
use common::{MIB, PAGE, Rng, can, small, stress_time, ways, write_page};
use millpond::{Delivery, Manager, Region};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const LEN: usize = 64 * MIB;
/// Pages that are given to the far end at a time.
const RUN: usize = 16;
/// Pages that come in before the far end reads: twice the budget, so that all frames that were free are used.
const MEANWHILE: u64 = 8192;
/// Times that pages are given at least, however long that takes.
const ROUNDS: usize = 6;
/// How long it may take until this many pages came in, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(5);

/// Gives runs of pages to the far end of `kind` for a while, while a thread pushes everything out.
fn give_while_memory_is_short(manager: &Manager, kind: Kind) {
    let mut region = manager.region(LEN).unwrap();
    for (number, page) in region.as_mut_slice().chunks_exact_mut(PAGE).enumerate() {
        write_page(page, number as u64);
    }
    let over = AtomicBool::new(false);
    let given = std::thread::scope(|scope| {
        let (region, over) = (&region, &over);
        scope.spawn(move || press(region, over));
        // The pressing thread has to end even if a page is wrong: otherwise it would run forever, and the test with it.
        let _over = Ends(over);
        let mut far_end = FarEnd::new(kind);
        let mut rng = Rng(0xfa2);
        let end = Instant::now() + stress_time() / 4;
        for round in 0.. {
            if round >= ROUNDS && Instant::now() >= end {
                break;
            }
            give(region, manager, &mut far_end, &mut rng);
        }
        far_end.finish()
    });
    assert!(given > 0, "nothing was given: the test tested nothing");
    let vm = manager.stats().vm;
    assert!(
        vm.pswpin > 0,
        "nothing was reclaimed: the test tested nothing"
    );
}

/// Ends the pressing thread when the giving ends, in whichever way.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Reads all over the region, so that the given pages would leave if they could.
fn press(region: &Region, over: &AtomicBool) {
    let mut rng = Rng(0x9e55);
    let mut sum = 0u8;
    while !over.load(Ordering::Relaxed) {
        let page = rng.below(LEN / PAGE);
        sum = sum.wrapping_add(region.as_slice()[page * PAGE]);
    }
    std::hint::black_box(sum);
}

/// Fills the far end with runs of pages, all of them pinned until they have been read and checked.
fn give(region: &Region, manager: &Manager, far_end: &mut FarEnd, rng: &mut Rng) {
    let mut guards = Vec::new();
    for _ in 0..12 {
        let first = rng.below(LEN / PAGE - RUN);
        let range = first * PAGE..(first + RUN) * PAGE;
        guards.push(region.pin(range.clone()).unwrap());
        far_end.give(&region.as_slice()[range], first as u64);
    }
    // Gives other threads time to use the frames, were they free to be used.
    let loaded = || manager.stats().vm.pswpin;
    let (before, given) = (loaded(), Instant::now());
    while loaded() < before + MEANWHILE && given.elapsed() < PATIENCE {
        std::thread::sleep(Duration::from_millis(1));
    }
    far_end.check();
}

fn for_all_ways(kind: Kind) {
    for (delivery, method) in ways() {
        let manager = small().delivery(delivery).take_out(method).build().unwrap();
        give_while_memory_is_short(&manager, kind);
    }
}

#[test]
fn bytes_written_to_a_pipe_are_read_from_it() {
    for_all_ways(Kind::Written);
}

#[test]
fn pinned_pages_that_a_pipe_refers_to_stay() {
    for_all_ways(Kind::Spliced);
}

#[test]
fn pinned_pages_that_a_socket_refers_to_stay() {
    for_all_ways(Kind::SentWithoutCopy);
}

/// With a handler a region's bytes may be given to the kernel without a guard, where it copies them.
#[test]
fn bytes_written_without_a_pin_are_read() {
    if !can(Delivery::Handler) {
        return;
    }
    let manager = small().delivery(Delivery::Handler).build().unwrap();
    let mut region = manager.region(LEN).unwrap();
    for (number, page) in region.as_mut_slice().chunks_exact_mut(PAGE).enumerate() {
        write_page(page, number as u64);
    }
    let mut far_end = FarEnd::new(Kind::Written);
    let mut rng = Rng(0xc0b1);
    let end = Instant::now() + stress_time() / 4;
    while Instant::now() < end {
        let first = rng.below(LEN / PAGE - RUN);
        far_end.give(
            &region.as_slice()[first * PAGE..(first + RUN) * PAGE],
            first as u64,
        );
        far_end.check();
    }
    assert!(far_end.finish() > 0);
    assert!(manager.stats().vm.pswpin > 0);
}
