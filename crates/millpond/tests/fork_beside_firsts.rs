//! A child that is forked while another thread of its parent performs a one-time initialization, or holds a static's
//! lock.
//!
//! The kernel's capabilities were probed once, in some hundred microseconds, while other threads waited for the result.
//! In a child forked at that moment no thread completes the probe, and the construction of the child's manager waited
//! forever. The lock around the default manager could be caught in the same way by any thread that collected into it.

#[path = "common/forked.rs"]
mod forked;

use forked::{forked, status};
use millpond::{Delivery, Manager};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

/// Exit status of a child that did what it was forked for.
const WELL: i32 = 40;
/// Microseconds by which the forks of two rounds differ.
const STEP: u64 = 10;
/// A child that has not ended after this time never will.
const LONG: Duration = Duration::from_secs(10);

/// Builds a manager whose memory works. It ends with the process.
fn build() {
    // Little address space, so that most of the time is what is done once.
    let builder = Manager::builder().ram(16 << 20).address_space(32 << 20);
    let builder = builder.delivery(Delivery::InThread).publish("first");
    let manager = builder.build().unwrap();
    let mut region = manager.region(1 << 20).unwrap();
    region.as_mut_slice()[..1 << 16].fill(9);
    assert!(region.as_slice()[..1 << 16].iter().all(|&byte| byte == 9));
    std::mem::forget((manager, region));
}

/// A process that forks this many microseconds into the construction of its first manager, and whose child builds one,
/// too.
fn forks_after(micros: u64) -> i32 {
    static IS_BEGUN: AtomicBool = AtomicBool::new(false);
    std::thread::spawn(|| {
        IS_BEGUN.store(true, SeqCst);
        build();
    });
    while !IS_BEGUN.load(SeqCst) {
        std::hint::spin_loop();
    }
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_micros(micros) {
        std::hint::spin_loop();
    }
    let child = forked(|| {
        build();
        WELL
    });
    status(child, LONG).unwrap_or(0)
}

#[test]
fn a_child_forked_during_the_parents_first_build_builds_a_manager() {
    for round in 0..400 {
        let micros = round * STEP;
        let ended = status(forked(|| forks_after(micros)), 2 * LONG);
        assert_eq!(ended, Some(WELL), "forked after {micros} microseconds");
    }
}

/// Forks 300 children while threads constantly ask for the default manager.
fn forks_beside_collectors() -> i32 {
    Manager::builder()
        .ram(16 << 20)
        .build()
        .unwrap()
        .make_default();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !stop.load(SeqCst) {
                    assert!(Manager::get_default().is_some());
                }
            });
        }
        let mut answers = (0..300).map(|_| {
            let child = forked(|| {
                let inherited = Manager::get_default();
                if inherited.is_some() { 0 } else { WELL }
            });
            status(child, LONG)
        });
        let is_well = answers.all(|answer| answer == Some(WELL));
        stop.store(true, SeqCst);
        if is_well { WELL } else { 0 }
    })
}

#[test]
fn a_forked_child_has_no_default_manager() {
    let ended = status(forked(forks_beside_collectors), 10 * LONG);
    assert_eq!(ended, Some(WELL));
}
