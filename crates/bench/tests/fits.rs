//! `millpond bench fits` runs each of its programs on each side that can run on this machine, and gets right answers.
//! The amounts are small, as nothing is measured here.

mod common;
#[path = "../../cli/tests/programs/harness.rs"]
#[expect(
    dead_code,
    reason = "the budgets and reports of programs are looked at elsewhere"
)]
mod harness;
#[path = "common/parts.rs"]
#[expect(
    dead_code,
    reason = "no run of this benchmark is ended by a signal here"
)]
mod parts;

use common::{alone, machine};
use harness::millpond;
use parts::{compared, number, patiently, side};
use serde_json::Value;
use std::process::Command;

const PARTS: [&str; 11] = [
    "redis_set",
    "redis_get",
    "heap_reads",
    "sqlite",
    "http",
    "nginx",
    "make",
    "script",
    "tests",
    "node",
    "java",
];

#[test]
fn every_program_gives_right_answers_on_every_side() {
    let _alone = alone();
    let before = machine();
    let output = patiently(Command::new(millpond()).args([
        "bench",
        "fits",
        "--json",
        "--rounds=1",
        "--amount=2",
    ]));
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
    assert_eq!(machine(), before.unlocked());
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["schema"], "millpond-bench-fits/3");
    let skipped = report["skipped"].as_array().unwrap();
    for skip in skipped {
        println!("skipped: {skip}");
    }
    for name in PARTS {
        let part = &report[name];
        if part.is_null() {
            assert!(skipped.iter().any(|skip| skip["what"] == name), "{name}");
            continue;
        }
        for each in part["sides"].as_array().unwrap() {
            let (name, median) = (&each["side"], &each["median"]);
            assert_eq!(median["wrong"], 0, "{part}");
            assert_eq!(median["store_bytes"], 0, "{name}: all of its memory fits");
            assert!(number(&median["seconds"]) > 0.0, "{name}");
        }
        assert_eq!(side(part, "plain")["store_bytes"], 0);
    }
    // A time, and the bytes of the store, for each measured delivery.
    let deliveries = PARTS.map(|name| report[name]["ratios"].as_array().map_or(0, Vec::len));
    assert_eq!(compared(&report).len(), deliveries.iter().sum::<usize>());
}

#[test]
fn bad_options_are_refused() {
    parts::bad_options_are_refused(
        "fits",
        &[
            ("--amount=0", "--amount"),
            ("--ram=1", "--ram"),
            ("--only=nothing", "--only"),
        ],
    );
}
