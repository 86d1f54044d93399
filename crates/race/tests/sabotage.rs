//! The driver with one fix removed at a time: each must be detected, and the same seeds must pass with the fix.

use millpond_driver::sabotage::Sabotage;
use millpond_race::{Options, Scheduler, run};

/// Seeds in which a fault must be found.
const SEEDS: u64 = 400;

fn fails(seed: u64, scheduler: Scheduler, sabotage: Option<Sabotage>) -> Option<String> {
    let options = Options {
        scheduler,
        sabotage,
        log: false,
    };
    run(seed, options).err()
}

/// Looks for a seed that finds the fault; with the fix the same seed must pass. Answers what was found.
fn found(sabotage: Sabotage) -> String {
    let tries = (1..=SEEDS)
        .flat_map(|seed| [Scheduler::Random, Scheduler::Pct].map(|scheduler| (seed, scheduler)));
    for (seed, scheduler) in tries {
        if let Some(what) = fails(seed, scheduler, Some(sabotage)) {
            println!("{sabotage:?}: seed {seed}, {scheduler:?}: {what}");
            let with_the_fix = fails(seed, scheduler, None);
            assert_eq!(with_the_fix, None, "seed {seed}, {scheduler:?}");
            return what;
        }
    }
    panic!("{sabotage:?} is not found in {SEEDS} seeds");
}

#[test]
fn a_prefetch_that_outlives_its_region_is_found() {
    found(Sabotage::PrefetchOutlives);
}

#[test]
fn a_book_reported_out_of_order_is_found() {
    let what = found(Sabotage::ToldOutOfOrder);
    assert!(what.contains("in the book of what is kept"), "{what}");
}

#[test]
fn a_lost_wake_up_is_found() {
    let what = found(Sabotage::LostWakeUp);
    assert!(what.contains("deadlock"), "{what}");
}

#[test]
fn a_fault_that_is_left_at_a_closed_gate_is_found() {
    let what = found(Sabotage::FaultForgotten);
    assert!(what.contains("deadlock"), "{what}");
}

#[test]
fn a_batch_that_is_given_back_twice_is_found() {
    found(Sabotage::GivenBackTwice);
}
