//! `millpond bench programs` runs a program on each side that can run on this machine, summarizes the results, names
//! what it skipped, and restores the machine.

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
    reason = "the parts of other benchmarks have their own options"
)]
mod parts;

use common::{alone, machine};
use harness::{can_run, millpond};
use parts::{bad_options_are_refused, compared, number, patiently, side};
use serde_json::{Value, json};
use std::process::Command;

fn programs(options: &[&str]) -> Value {
    let mut command = Command::new(millpond());
    command.args(["bench", "programs", "--json", "--rounds=1"]);
    let output = patiently(command.args(options));
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["schema"], "millpond-bench-programs/3");
    report
}

#[test]
fn program_runs_in_half_its_memory_and_leaves_nothing_behind() {
    let _alone = alone();
    if !can_run(&[("/usr/bin/sort", "coreutils")]) {
        return;
    }
    let before = machine();
    let report = programs(&["--only=sort", "--shares=2"]);
    assert_eq!(machine(), before.unlocked());
    let skipped = report["skipped"].as_array().unwrap();
    for skip in skipped {
        println!("skipped: {skip}");
    }
    let all = report["programs"].as_array().unwrap();
    assert_eq!(all.len(), 1);
    let program = &all[0];
    assert_eq!(
        (&program["name"], &program["share"]),
        (&json!("sort"), &json!(2))
    );
    let sizes = &program["sizes"];
    let (ram, peak) = (
        number(&sizes["ram_bytes"]),
        number(&sizes["peak_rss_bytes"]),
    );
    assert!(ram < 0.55 * peak, "{sizes}");
    assert_eq!(
        program["sides"].as_array().unwrap().len() + skipped.len(),
        4
    );
    let ours = side(program, "millpond");
    assert_eq!((&ours["failed"], &ours["wrong"]), (&json!(0), &json!(0)));
    let sum = &report["sums"][0];
    assert_eq!((&sum["share"], &sum["programs"]), (&json!(2), &json!(1)));
    assert_eq!(sum["millpond_failed"], json!([]));
    let judged = if sum["over_equal"].is_null() { 2 } else { 4 };
    assert_eq!(compared(&report).len(), judged);
}

#[test]
fn missing_program_is_named_and_left_out() {
    let _alone = alone();
    if !can_run(&[("/usr/bin/python3", "python3")]) {
        return;
    }
    // This Python has no packages: it sees only its own library.
    let directory = tempfile::tempdir().unwrap();
    let python = directory.path().join("python");
    std::fs::write(&python, "#!/bin/sh\nexec /usr/bin/python3 -I -S \"$@\"\n").unwrap();
    let made = Command::new("chmod")
        .arg("+x")
        .arg(&python)
        .status()
        .unwrap();
    assert!(made.success());
    let asked = format!("--python={}", python.display());
    let report = programs(&["--only=duckdb", &asked]);
    assert_eq!(report["programs"], json!([]));
    let skip = &report["skipped"][0];
    assert_eq!(skip["what"], "duckdb");
    assert!(
        skip["why"].as_str().unwrap().contains("pip install duckdb"),
        "{skip}"
    );
}

#[test]
fn bad_options_are_refused_by_name() {
    bad_options_are_refused(
        "programs",
        &[
            ("--only=nothing", "--only"),
            ("--shares=0", "--shares"),
            ("--patience=1", "--patience"),
        ],
    );
}
