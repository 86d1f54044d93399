//! `millpond bench lazyfree` measures every side, reads back no wrong byte, and restores the machine. The sizes are
//! small and the rounds few, as nothing is measured here.

mod common;
#[path = "common/parts.rs"]
mod parts;

use common::{alone, machine};
use millpond_cli::run::DeliveryChoice;
use parts::{bad_options_are_refused, ends_with_the_machine_as_it_was, number, side, wants};
use rustix::process::geteuid;
use serde_json::Value;

fn report(part: &str, options: &[&str]) -> Option<Value> {
    parts::report("lazyfree", part, options)
}

#[test]
fn each_way_of_freeing_is_measured_in_each_pattern_it_has() {
    let _alone = alone();
    let sizes = ["--cycle-memory=8M", "--cycle-passes=2"];
    let Some(report) = report("cycle", &sizes) else {
        return;
    };
    let cycle = &report["cycle"];
    for name in [
        "kernel_keep",
        "kernel_free",
        "kernel_dontneed",
        "lazy_free",
        "lazy_free_shared",
        "volatile",
        "discard",
    ] {
        let median = side(cycle, name);
        for pattern in ["interleaved", "phased"] {
            assert!(number(&median[pattern]) > 0.0, "{name}: {median}");
        }
        assert_eq!(median["wrong_pages"], 0, "{name}: {median}");
    }
    for name in ["lazy_free", "lazy_free_shared"] {
        assert!(number(&side(cycle, name)["vectored"]) > 0.0);
    }
    assert!(side(cycle, "volatile")["vectored"].is_null());
    assert_eq!(
        side(cycle, "volatile")["purged"],
        0,
        "there was room for all"
    );
    let faults = |name| number(&side(cycle, name)["faults"]);
    assert!(
        faults("kernel_dontneed") >= 16.0,
        "each page comes back by a fault"
    );
    assert_eq!(wants(&report), 6);
    assert!(report["workers"].is_null() && report["ebizzy"].is_null());
}

#[test]
fn workers_that_free_read_less_than_workers_that_do_not() {
    let _alone = alone();
    let before = machine();
    let sizes = [
        "--worker-threads=4",
        // In a cgroup of 16 MiB the kernel's side was occasionally killed because memory ran out.
        "--worker-block=16M",
        "--worker-ram=32M",
    ];
    let Some(report) = report("workers", &sizes) else {
        return;
    };
    let workers = &report["workers"];
    let reads = |name| side(workers, name)["pswpin"].as_u64().unwrap();
    assert!(reads("keep") > 8192, "nothing was in the store: {workers}");
    assert!(reads("lazy_free") < reads("keep") / 20, "{workers}");
    assert!(reads("discard") < reads("keep") / 20, "{workers}");
    for name in ["lazy_free", "discard", "keep"] {
        let median = side(workers, name);
        assert_eq!(median["wrong_pages"], 0, "{name}: {median}");
        assert_eq!(median["pages_touched"], 4 * 4096 * 5);
    }
    match report["skipped"].as_array().unwrap().first() {
        Some(why) => println!("skipped: {why}"),
        None => assert!(side(workers, "kernel_keep")["pswpin"].as_u64().unwrap() > 0),
    }
    assert_eq!(machine(), before.unlocked());
}

#[test]
fn the_allocating_program_runs_with_and_without_millpond() {
    let _alone = alone();
    let sizes = [
        "--ebizzy-threads=1,2",
        "--ebizzy-chunks=8",
        "--ebizzy-ms=100",
        "--ebizzy-ram=64M",
    ];
    let Some(report) = report("ebizzy", &sizes) else {
        return;
    };
    let runs = report["ebizzy"]["sides"].as_array().unwrap();
    let skipped = report["skipped"].as_array().unwrap();
    match skipped.first() {
        Some(why) => println!("skipped: {why}"),
        None => assert_eq!(report["ebizzy"]["ratios"].as_array().unwrap().len(), 4),
    }
    assert_eq!(runs.len(), if skipped.is_empty() { 10 } else { 2 });
    for run in runs {
        let median = &run["median"];
        assert!(number(&median["records_per_second"]) > 0.0, "{run}");
        assert_eq!(median["wrong_records"], 0, "{run}");
    }
    // The kernel counts the faults that a handler serves.
    let is_counted = millpond_cli::doctor::require_for_run(DeliveryChoice::Handler).is_ok();
    if skipped.is_empty() && is_counted {
        let faults = |allocator: &str| {
            let found = runs.iter().find(|run| {
                let run = &run["side"];
                run["threads"] == 1 && run["decay"] == "0" && run["allocator"] == allocator
            });
            number(&found.unwrap()["median"]["faults"])
        };
        let (lazy, eager) = (faults("lazy_purge"), faults("eager_purge"));
        assert!(
            lazy < eager / 4.0,
            "memory that is used again faults: {lazy} and {eager} a record"
        );
    }
}

#[test]
fn reported_sizes_are_those_that_the_kernel_sees() {
    let _alone = alone();
    let Some(report) = report("rss", &["--rss-memory=64M"]) else {
        return;
    };
    for order in report["rss"]["sides"].as_array().unwrap() {
        let median = &order["median"];
        assert!(number(&median["error"]) <= 0.01, "{order}");
        assert_eq!(median["lazyfree_bytes"], 32 << 20, "{order}");
        assert_eq!(median["wrong_pages"], 0, "{order}");
    }
    assert_eq!(wants(&report), 3);
}

#[test]
fn bad_sizes_are_refused_by_name() {
    bad_options_are_refused(
        "lazyfree",
        &[
            ("--cycle-chunk=100", "--cycle-chunk"),
            ("--worker-block=0", "--worker-block"),
            ("--rounds=0", "--rounds"),
            ("--only=everything", "--only"),
        ],
    );
}

#[test]
fn a_run_ended_by_a_signal_leaves_no_lock_and_no_worker() {
    if !geteuid().is_root() {
        println!("skipped: needs root");
        return;
    }
    let options = ["--rounds=1000", "--ebizzy-ms=60000"];
    ends_with_the_machine_as_it_was(parts::bench("lazyfree", "ebizzy", &options));
}
