//! `millpond bench workingset` measures every part, reads back no wrong byte, and restores the machine. The sizes are
//! small and the rounds few, as nothing is measured here; only results that do not depend on the machine's speed are
//! checked.

mod common;
#[path = "common/parts.rs"]
mod parts;

use common::{alone, machine};
use parts::{
    bad_options_are_refused, compared, ends_with_the_machine_as_it_was, number, side, wants,
};
use serde_json::Value;
use std::fs;
use std::process::Command;

fn report(part: &str, options: &[&str]) -> Option<Value> {
    let before = machine();
    let report = parts::report("workingset", part, options)?;
    assert_eq!(machine(), before.unlocked());
    Some(report)
}

/// The sides of a part: Millpond's, and the kernel's if it can run.
fn sides(report: &Value, part: &str) -> Vec<&'static str> {
    let skipped = report["skipped"].as_array().unwrap();
    match skipped.first() {
        Some(why) => println!("skipped: {why}"),
        None => return vec!["millpond", "kernel"],
    }
    assert_eq!(report[part]["sides"].as_array().unwrap().len(), 1);
    vec!["millpond"]
}

#[test]
fn a_new_set_is_read_from_the_store_at_least_once() {
    let _alone = alone();
    let options = ["--shift-ram=16M", "--shift-scan=4", "--shift-passes=6"];
    let Some(report) = report("shift", &options) else {
        return;
    };
    for name in sides(&report, "shift") {
        let median = side(&report["shift"], name);
        assert_eq!(median["wrong_pages"], 0, "{name}");
        let over = number(&median["faults_over_set"]);
        assert!((0.98..=6.0).contains(&over), "{name}: {median}");
        let sides = report["shift"]["sides"].as_array().unwrap();
        let found = sides.iter().find(|found| found["side"] == name).unwrap();
        let passes = found["rounds"][0]["major_faults"].as_array().unwrap();
        assert!(!passes.is_empty() && passes.len() <= 6, "{passes:?}");
        let first = number(&passes[0]);
        assert!(
            first > 3600.0,
            "all 3686 pages were in the store: {passes:?}"
        );
    }
    assert_eq!(wants(&report), 1);
    assert!(report["scan"].is_null());
}

#[test]
fn a_scan_reads_the_store_and_the_hot_set_was_in_memory_before() {
    let _alone = alone();
    let Some(report) = report("scan", &["--scan-ram=16M"]) else {
        return;
    };
    for name in sides(&report, "scan") {
        let median = side(&report["scan"], name);
        assert_eq!(median["wrong_pages"], 0, "{name}");
        assert_eq!(median["scanned"], 40_960, "{name}");
        assert_eq!(median["hot_accesses"], 40_960, "{name}");
        // A side that reads ahead has fewer faults than pages.
        let faults = number(&median["scan_faults"]);
        assert!((1000.0..=40_960.0).contains(&faults), "{name}: {median}");
        let ratio = 1.0 - number(&median["hot_faults"]) / 40_960.0;
        assert!((number(&median["hit_ratio"]) - ratio).abs() < 1e-9);
    }
    assert_eq!(wants(&report), 1);
}

#[test]
fn a_quiet_group_has_refaults_of_its_own_and_a_thrashing_one_more() {
    let _alone = alone();
    let options = ["--groups-ram=32M", "--groups-accesses=20000"];
    let Some(report) = report("groups", &options) else {
        return;
    };
    let groups = &report["groups"];
    for company in ["alone", "beside"] {
        let median = side(groups, company);
        assert_eq!(median["wrong_pages"], 0, "{company}");
        let ratio = number(&median["refault_ratio"]);
        assert!((0.05..0.6).contains(&ratio), "{company}: {median}");
        let usage = number(&median["usage_bytes"]);
        assert!(usage <= 32e6 * 0.45, "{company}: {median}");
        let others = number(&median["others_faults"]);
        assert_eq!(others > 5000.0, company == "beside", "{company}: {median}");
    }
    assert_eq!(wants(&report), 1);
}

#[test]
fn table_memory_meets_its_targets_on_every_side() {
    let _alone = alone();
    let Some(report) = report("metadata", &["--metadata-memory=32M"]) else {
        return;
    };
    assert_eq!(wants(&report), 2);
    for line in compared(&report) {
        assert!(line.ends_with(": met"), "{line}");
    }
}

#[test]
fn bookkeeping_is_timed_against_a_run_without_it() {
    let _alone = alone();
    let options = ["--overhead-ram=16M", "--overhead-accesses=20000"];
    let Some(report) = report("overhead", &options) else {
        return;
    };
    let (on, off) = (
        side(&report["overhead"], "on"),
        side(&report["overhead"], "off"),
    );
    for median in [on, off] {
        assert_eq!(median["wrong_pages"], 0);
        // Half of the memory is present, so one access in two is a fault.
        let majors = number(&median["major_faults"]);
        assert!((8000.0..13_000.0).contains(&majors), "{median}");
        assert!(
            number(&median["core_ns"]) < number(&median["access_ns"]),
            "{median}"
        );
    }
    // Watched folios are sent through limbo more often than others.
    assert!(number(&on["rescues"]) > 0.0, "{on}");
    assert_eq!(wants(&report), 1);
}

#[test]
fn traces_are_replayed_and_compared() {
    let directory = tempfile::tempdir().unwrap();
    let numbers = |name: &str, pages: &mut dyn Iterator<Item = u64>| {
        let text: String = pages.map(|page| format!("{page}\n")).collect();
        fs::write(directory.path().join(name), text).unwrap();
    };
    numbers("loop.txt", &mut (0..20_000).map(|n| n % 1000));
    numbers(
        "pg_loop.txt",
        &mut (0..20_000).map(|n| (n % 1000) * 2 + n % 2),
    );
    fs::write(directory.path().join("README.md"), "no trace").unwrap();
    let traces = format!("--traces={}", directory.path().display());
    // No lock is needed for this part, so another benchmark may run.
    let Some(report) = parts::report("workingset", "traces", &[&traces]) else {
        return;
    };
    let traces = &report["traces"];
    let rows = traces["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 6);
    assert_eq!(traces["policies"][1], "lru");
    for row in rows {
        assert_eq!(row["miss_ratios"][1], 1.0, "LRU in a loop: {row}");
        assert_eq!(row["accesses"], 20_000);
    }
    // The bit that marks writes is not part of the page's number.
    let pages = |row: &Value| row["pages"].as_u64().unwrap();
    assert_eq!([pages(&rows[0]), pages(&rows[3])], [100, 100]);
    let lirs = number(&rows[2]["miss_ratios"][3]);
    assert!((0.5..0.6).contains(&lirs), "{}", rows[2]);
    assert_eq!(number(&traces["geometric_means"][1]), 1.0);
    assert_eq!(wants(&report), 2);

    let output = Command::new(env!("CARGO_BIN_EXE_millpond-bench"))
        .args(["workingset", "--only=traces", "--traces=/nowhere"])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.code() == Some(1) && text.contains("/nowhere"),
        "{text}"
    );
}

#[test]
fn bad_sizes_are_refused_by_name() {
    bad_options_are_refused(
        "workingset",
        &[
            ("--shift-ram=1M", "--shift-ram"),
            ("--shift-passes=0", "--shift-passes"),
            ("--scan-rate=0", "--scan-rate"),
            ("--groups-accesses=1", "--groups-accesses"),
            ("--metadata-memory=100", "--metadata-memory"),
            ("--order=10", "--order"),
            ("--only=everything", "--only"),
        ],
    );
}

#[test]
fn a_run_ended_by_a_signal_leaves_no_lock_and_no_worker() {
    let options = ["--scan-ram=16M", "--rounds=1000"];
    ends_with_the_machine_as_it_was(parts::bench("workingset", "scan", &options));
}
