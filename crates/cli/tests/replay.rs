//! `millpond replay`: the output for traces whose misses are known beforehand, and the messages for those that it
//! cannot replay.

use serde_json::Value;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};
use tempfile::TempDir;

const ALL: &str = "workingset,lru,fifo,clock,arc,s3fifo,sieve,lirs,opt";

/// A file of page numbers.
fn trace(directory: &TempDir, pages: impl Iterator<Item = u64>) -> PathBuf {
    let path = directory.path().join("pages.txt");
    let text: String = pages.map(|page| format!("{page}\n")).collect();
    fs::write(&path, text).unwrap();
    path
}

fn replay(trace: &PathBuf, options: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_millpond"))
        .arg("replay")
        .arg(trace)
        .args(options)
        .output()
        .unwrap()
}

fn json(trace: &PathBuf, options: &[&str]) -> Value {
    let output = replay(trace, &[options, &["--json"]].concat());
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

fn message(output: &Output, status: i32) -> String {
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(status), "{text}");
    assert!(text.starts_with("millpond: "), "{text}");
    text
}

#[test]
fn a_cycle_always_misses_with_lru_and_half_hits_with_opt() {
    let directory = TempDir::new().unwrap();
    let trace = trace(&directory, (0..100_000).map(|n| n % 1000));
    let report = json(&trace, &["--ram=50%,1000p,4M", "--policy=lru,opt"]);
    assert_eq!(report["schema"], "millpond-replay/1");
    assert_eq!(report["trace"]["pages"], 1000);
    assert_eq!(report["trace"]["accesses"], 100_000);
    let pages: Vec<_> = report["sizes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|size| size["pages"].clone())
        .collect();
    assert_eq!(pages, [500, 1000, 1024]);
    let misses = |policy: usize, size: usize| {
        report["policies"][policy]["runs"][size]["misses"]
            .as_u64()
            .unwrap()
    };
    assert_eq!([0, 1, 2].map(|size| misses(0, size)), [100_000, 1000, 1000]);
    let opt = misses(1, 0);
    assert!((50_000..51_000).contains(&opt), "{opt}");
}

#[test]
fn all_policies_stand_in_the_table() {
    let directory = TempDir::new().unwrap();
    let trace = trace(&directory, (0..50_000).map(|n| n * n % 997));
    let output = replay(&trace, &["--policy", ALL]);
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    for policy in ALL.split(',') {
        let line = text.lines().find(|line| line.starts_with(policy));
        let ratios: Vec<f64> = line
            .unwrap_or_else(|| panic!("no {policy} in {text}"))
            .split_whitespace()
            .skip(1)
            .map(|word| word.parse().unwrap())
            .collect();
        assert_eq!(ratios.len(), 3, "{text}");
        assert!(
            ratios.iter().all(|ratio| (0.0..=1.0).contains(ratio)),
            "{text}"
        );
    }
}

#[test]
fn a_failed_replay_names_the_cause_and_a_remedy() {
    let directory = TempDir::new().unwrap();
    let path = trace(&directory, 0..100);
    for (options, part) in [
        (&["--policy=mru"][..], "mru"),
        (&["--ram=lots"], "`lots`"),
        (&["--ram=0%"], "0%"),
        (&["--format=tape"], "tape"),
    ] {
        let text = message(&replay(&path, options), 2);
        assert!(text.contains(part), "{text}");
    }
    let text = message(&replay(&path, &["--ram=0.1%"]), 1);
    assert!(text.contains("0.1%") && text.contains("1000p"), "{text}");
    let missing = directory.path().join("missing");
    assert!(message(&replay(&missing, &[]), 1).contains("missing"));
    fs::write(&path, "1\n2\nthree\n").unwrap();
    let text = message(&replay(&path, &["--format=plain"]), 1);
    assert!(text.contains("line 3") && text.contains("three"), "{text}");
    fs::write(&path, "\0\u{1}\u{2}").unwrap();
    assert!(message(&replay(&path, &[]), 1).contains("--format"));
}

#[test]
fn the_curve_is_printed_and_checked() {
    let directory = TempDir::new().unwrap();
    // Two sets are walked in circles, one after the other; the larger one needs 600 pages.
    let small = (0..50_000).map(|n| n % 300);
    let large = (0..50_000).map(|n| 10_000 + n % 600);
    let trace = trace(&directory, small.chain(large));
    let options = ["--ram=200p,400p", "--policy=workingset", "--check-curve"];
    let report = json(&trace, &options);
    let curves = report["curves"].as_array().unwrap();
    assert_eq!(curves.len(), 2);
    for curve in curves {
        let steps = curve["steps"].as_array().unwrap();
        let avoided = |n: usize| steps[n]["avoided"].as_f64().unwrap();
        assert!(
            (1..steps.len()).all(|n| avoided(n - 1) <= avoided(n)),
            "{curve}"
        );
        assert!(curve["major_faults"].as_u64().unwrap() > 0);
    }
    let checks = report["curve_checks"].as_array().unwrap();
    let sizes = |check: &Value| {
        (
            check["pages"].as_u64().unwrap(),
            check["more_pages"].as_u64().unwrap(),
        )
    };
    assert!(
        checks.iter().any(|check| sizes(check) == (400, 400)),
        "{checks:?}"
    );
    let text = String::from_utf8(replay(&trace, &options).stdout).unwrap();
    for part in ["would not have happened", "█", "predicted", "replayed"] {
        assert!(text.contains(part), "{part} is not in {text}");
    }
}

#[test]
fn the_result_is_written_as_a_page_and_as_json() {
    let directory = TempDir::new().unwrap();
    let trace = trace(&directory, (0..100_000).map(|n| n * n % 1009));
    let at = |name: &str| directory.path().join(name);
    let (page, data) = (at("out.html"), at("out.json"));
    let (page_name, data_name) = (page.to_str().unwrap(), data.to_str().unwrap());
    let options = [
        "--report",
        page_name,
        "--report",
        data_name,
        "--check-curve",
    ];
    let output = replay(&trace, &options);
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("miss ratio"), "{text}");
    let report: Value = serde_json::from_slice(&fs::read(&data).unwrap()).unwrap();
    assert_eq!(report, json(&trace, &["--check-curve"]));
    let page = fs::read_to_string(&page).unwrap();
    for part in [
        "<td>workingset</td>",
        "<td>opt</td>",
        "<svg",
        "50% (",
        "</html>",
    ] {
        assert!(page.contains(part), "{part}");
    }
    let nowhere = replay(&trace, &["--report", "/nowhere/out.html"]);
    let said = message(&nowhere, 1);
    assert!(
        said.contains("/nowhere/out.html") && said.contains("--report"),
        "{said}"
    );
}
