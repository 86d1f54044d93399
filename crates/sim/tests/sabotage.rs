//! The checks can fail: each deliberate way of breaking the simulated world is noticed.
//!
//! A judge that never convicts is worth nothing. Every sabotage here would be a silent loss of data or a hang in a real
//! program. Each gets this many seeds because most seeds have little of what some of them need.

use millpond_sim::mmu::MmuSabotage;
use millpond_sim::profile::WITH_GROUPS;
use millpond_sim::{Options, Sabotage, run};

fn verdict(sabotage: Sabotage) -> String {
    verdict_of(Options {
        events: 5000,
        sabotage: Some(sabotage),
        ..Options::default()
    })
}

fn verdict_of(options: Options) -> String {
    let failures = (1..=60).filter_map(|seed| run(seed, options).failure);
    let what = failures.map(|failure| failure.what).next();
    what.unwrap_or_else(|| panic!("{:?} was not noticed", options.sabotage))
}

/// Whether `what` is the verdict of a wrong read: a thread that reads the page notices, or a look at the page of a base
/// that would be read in its place, or zeros are taken for a purge that was not told.
fn reads_wrong(what: &str) -> bool {
    let ways = ["reads", "stands for", "was purged"];
    ways.iter().any(|way| what.contains(way))
}

#[test]
fn a_lost_write_is_noticed() {
    let what = verdict(Sabotage::Mmu(MmuSabotage::LoseWrite));
    assert!(reads_wrong(&what), "{what}");
}

#[test]
fn a_frame_that_was_not_cleared_is_noticed() {
    let what = verdict(Sabotage::Mmu(MmuSabotage::KeepOld));
    assert!(reads_wrong(&what), "{what}");
}

#[test]
fn discarded_bytes_that_come_back_are_noticed() {
    let what = verdict(Sabotage::Mmu(MmuSabotage::Resurrect));
    assert!(reads_wrong(&what), "{what}");
}

#[test]
fn a_store_with_another_slots_bytes_is_noticed() {
    let what = verdict(Sabotage::StaleStore(5));
    assert!(reads_wrong(&what), "{what}");
}

#[test]
fn a_lost_wake_up_is_noticed() {
    let what = verdict(Sabotage::SwallowWakes);
    assert!(
        what.contains("nobody can move") || what.contains("does not come to"),
        "{what}"
    );
}

#[test]
fn a_page_that_zeroing_forgot_is_noticed() {
    let what = verdict(Sabotage::Mmu(MmuSabotage::ForgetPage));
    assert!(
        reads_wrong(&what) || what.contains("was not dropped"),
        "{what}"
    );
}

#[test]
fn bytes_that_come_back_after_zeros_were_seen_are_noticed() {
    let what = verdict(Sabotage::Mmu(MmuSabotage::UndoZeroing));
    assert!(
        reads_wrong(&what) || what.contains("was not dropped"),
        "{what}"
    );
}

#[test]
fn a_drop_of_a_page_that_was_written_to_is_noticed() {
    let what = verdict(Sabotage::Mmu(MmuSabotage::DropWritten));
    assert!(
        reads_wrong(&what) || what.contains("after a recount"),
        "{what}"
    );
}

#[test]
fn a_purge_after_the_mark_was_taken_back_is_noticed() {
    let what = verdict_of(Options {
        freeing: Some(500),
        sabotage: Some(Sabotage::HastyOwner),
        ..Options::default()
    });
    assert!(reads_wrong(&what), "{what}");
}

/// The verdict about a world with many snapshots.
fn verdict_of_snapshots(sabotage: Sabotage) -> String {
    verdict_of(Options {
        events: 8000,
        snapshots: Some(60),
        sabotage: Some(sabotage),
        ..Options::default()
    })
}

#[test]
fn a_copy_of_another_page_is_noticed() {
    let what = verdict_of_snapshots(Sabotage::Mmu(MmuSabotage::StaleCopy));
    assert!(reads_wrong(&what), "{what}");
}

#[test]
fn a_page_that_is_not_handed_over_is_noticed() {
    let what = verdict_of_snapshots(Sabotage::Mmu(MmuSabotage::LeaveBehind));
    assert!(
        what.contains("the core takes") || what.contains("is Empty"),
        "{what}"
    );
}

#[test]
fn a_page_that_does_not_move_along_is_noticed() {
    let what = verdict_of(Options {
        events: 8000,
        snapshots: Some(0),
        remaps: Some(60),
        sabotage: Some(Sabotage::Mmu(MmuSabotage::LeaveBehind)),
        ..Options::default()
    });
    assert!(what.contains("moved to"), "{what}");
}

#[test]
fn a_slot_that_is_not_given_back_is_noticed() {
    let what = verdict(Sabotage::KeepSlot);
    assert!(
        what.contains("slots in the store") || what.contains("save to"),
        "{what}"
    );
}

#[test]
fn a_discard_that_reaches_the_other_heir_is_noticed() {
    let what = verdict_of_snapshots(Sabotage::Mmu(MmuSabotage::DropBelow));
    assert!(reads_wrong(&what), "{what}");
}

#[test]
fn a_wake_up_that_is_lost_in_a_base_is_noticed() {
    let what = verdict_of_snapshots(Sabotage::SwallowBaseWakes);
    assert!(
        what.contains("nobody can move") || what.contains("does not come to"),
        "{what}"
    );
}

/// A run that a discard gathers must end where another actor's page may be.
#[test]
fn a_run_that_goes_too_far_is_noticed() {
    let what = verdict(Sabotage::Overrun);
    assert!(
        reads_wrong(&what) || what.contains("the core takes") || what.contains("holds nothing"),
        "{what}"
    );
}

/// The verdict about a world with groups.
fn verdict_of_groups(sabotage: Sabotage) -> String {
    let options = Options {
        events: 8000,
        sabotage: Some(sabotage),
        ..Options::default()
    };
    let seeds = WITH_GROUPS..WITH_GROUPS + 60;
    let mut failures = seeds.filter_map(|seed| run(seed, options).failure);
    let what = failures.next().map(|failure| failure.what);
    what.unwrap_or_else(|| panic!("{sabotage:?} was not noticed"))
}

#[test]
fn a_region_left_between_two_groups_is_noticed() {
    let what = verdict_of_groups(Sabotage::LeaveMove);
    // The group that memory belongs to decides which group has to give, too.
    let ways = [
        "says that",
        "is answered with Refused",
        "which is below its low",
    ];
    assert!(ways.iter().any(|way| what.contains(way)), "{what}");
}

#[test]
fn limits_that_are_not_passed_on_are_noticed() {
    let what = verdict_of_groups(Sabotage::KeepLimits);
    // The cap on lazily freed memory is a limit, too: the core trims to the cap that it knows.
    let ways = ["is charged with", "a trim to"];
    assert!(ways.iter().any(|way| what.contains(way)), "{what}");
}
