//! The checks of files can fail: each deliberate way of breaking the files is noticed.
//!
//! In each of these cases a program would lose data that it was told is safe: after a crash the data is missing, or
//! differs from what was written. `KeepAfterFailure` is what the store did when these checks were written
//! (`store/tests/half_written.rs`).

use millpond_sim::disk::DiskSabotage;
use millpond_sim::profile::WITH_FILES;
use millpond_sim::{Options, Sabotage, run};

/// What is said of files that are broken in this way, by the first of 60 seeds that shows it. They begin `first` seeds
/// after the first that has files: what only one seed in sixty shows begins near one.
fn verdict_from(first: u64, how: DiskSabotage) -> String {
    let options = Options {
        events: 6000,
        sabotage: Some(Sabotage::Disk(how)),
        ..Options::default()
    };
    let first = WITH_FILES + first;
    let seeds = first..first + 60;
    let mut failures = seeds.filter_map(|seed| {
        let failure = run(seed, options).failure;
        failure.inspect(|_| println!("seed {seed}"))
    });
    let what = failures.next().map(|failure| failure.what);
    let what = what.unwrap_or_else(|| panic!("{how:?} was not noticed"));
    println!("{how:?}: {what}");
    what
}

fn verdict(how: DiskSabotage) -> String {
    verdict_from(0, how)
}

/// Whether `what` is the verdict of bytes that were written and are not there: when the page leaves, after a crash, or
/// when a thread reads it.
fn lost(what: &str) -> bool {
    let ways = ["but its file has", "a crash leaves", "reads"];
    ways.iter().any(|way| what.contains(way))
}

#[test]
fn a_read_that_was_cut_short_is_noticed() {
    let what = verdict(DiskSabotage::ShortRead);
    assert!(what.contains("reads"), "{what}");
}

#[test]
fn data_forgotten_beyond_a_truncated_end_is_noticed() {
    let what = verdict(DiskSabotage::ForgetCut);
    assert!(lost(&what), "{what}");
}

#[test]
fn a_half_written_page_taken_for_unchanged_is_noticed() {
    let what = verdict_from(60, DiskSabotage::KeepAfterFailure);
    assert!(lost(&what), "{what}");
}

#[test]
fn pages_that_stay_clean_after_a_sync_that_failed_are_noticed() {
    let what = verdict(DiskSabotage::KeepAfterSync);
    assert!(lost(&what), "{what}");
}

#[test]
fn a_sync_that_passes_over_pages_that_leave_is_noticed() {
    let what = verdict(DiskSabotage::SkipLeaving);
    assert!(lost(&what), "{what}");
}

#[test]
fn a_sector_that_lands_elsewhere_is_noticed() {
    let what = verdict(DiskSabotage::Misplace);
    assert!(lost(&what), "{what}");
}
