//! Seeds that are run for every change, and the promise that a seed always produces the same history.

use millpond_race::{Options, Scheduler, run};

/// The seeds: arbitrary ones, which give the breadth. A bug found by a seed has a test of its own in `found.rs`, since
/// a later change of the program's threads gives every seed a different history.
const SEEDS: std::ops::Range<u64> = 1..120;

fn passes(seed: u64, scheduler: Scheduler) -> u64 {
    let options = Options {
        scheduler,
        sabotage: None,
        log: false,
    };
    run(seed, options).unwrap_or_else(|what| panic!("seed {seed}, {scheduler:?}: {what}"))
}

#[test]
fn random_schedules_pass() {
    for seed in SEEDS {
        passes(seed, Scheduler::Random);
    }
}

#[test]
fn schedules_of_few_changes_pass() {
    for seed in SEEDS {
        passes(seed, Scheduler::Pct);
    }
}

#[test]
fn a_seed_is_always_the_same_history() {
    for scheduler in [Scheduler::Random, Scheduler::Pct] {
        let histories: Vec<u64> = (1..12).map(|seed| passes(seed, scheduler)).collect();
        let again: Vec<u64> = (1..12).map(|seed| passes(seed, scheduler)).collect();
        assert_eq!(histories, again, "{scheduler:?}");
        assert_ne!(histories[0], histories[1], "{scheduler:?}");
    }
}
