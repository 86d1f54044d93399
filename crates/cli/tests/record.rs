//! `millpond record`: real programs leave a trace that can be replayed and that tells what they did.

#[path = "programs/harness.rs"]
#[allow(dead_code, reason = "the tests of programs use the rest")]
mod harness;

use harness::{alone, can_run, millpond};
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use tempfile::TempDir;

const PYTHON: (&str, &str) = ("/usr/bin/python3", "python3");
const SORT: (&str, &str) = ("/usr/bin/sort", "coreutils");

fn record(trace: &Path, options: &[&str], command: &[&str]) -> Output {
    let mut record = Command::new(millpond());
    record.arg("record").arg("-o").arg(trace).args(options);
    record
        .arg("--")
        .args(command)
        .env_remove("MILLPOND_PRELOAD");
    record.output().unwrap()
}

fn replay(trace: &Path, options: &[&str]) -> Value {
    let mut replay = Command::new(millpond());
    let output = replay
        .arg("replay")
        .arg(trace)
        .args(options)
        .arg("--json")
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap();
    let mut names: Vec<_> = entries
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

/// A program walks through 8 MiB four times. With half of it in memory LRU misses nearly all; with twice as much as the
/// window, and with all of it, only the first touches miss.
#[test]
fn a_cyclic_walk_is_recorded_as_a_cycle() {
    let _alone = alone();
    if !can_run(&[PYTHON]) {
        return;
    }
    let directory = TempDir::new().unwrap();
    let trace = directory.path().join("walk");
    let code = "b = bytearray(8 << 20)\nfor _ in range(4):\n  for i in range(0, len(b), 4096): b[i] += 1\nprint(sum(b[::4096]))";
    let output = record(&trace, &["--window=64"], &[PYTHON.0, "-S", "-c", code]);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(output.stdout, b"8192\n");
    assert!(
        stderr(&output).contains("window of 64 pages by python3"),
        "{output:?}"
    );
    assert_eq!(names(directory.path()), ["walk"]);
    let report = replay(&trace, &["--ram=4M,12M,64M", "--policy=lru,opt"]);
    let pages = report["trace"]["pages"].as_u64().unwrap();
    assert!((2048..4096).contains(&pages), "{pages} pages");
    let misses = |policy: usize, size: usize| {
        report["policies"][policy]["runs"][size]["misses"]
            .as_u64()
            .unwrap()
    };
    // Each round touches 2,048 pages anew in 4 MiB, and none in 64.
    assert!(misses(0, 0) >= 4 * 2048, "{report}");
    assert_eq!(misses(0, 2), pages, "{report}");
    assert!(misses(0, 1) < pages + 500, "{report}");
    assert!(misses(1, 0) < misses(0, 0) - 2048, "{report}");
}

#[test]
fn the_longest_stream_is_the_trace_whoever_started_it() {
    let _alone = alone();
    if !can_run(&[PYTHON, SORT, ("/bin/sh", "dash")]) {
        return;
    }
    let directory = TempDir::new().unwrap();
    let (input, trace) = (
        directory.path().join("input"),
        directory.path().join("trace"),
    );
    let numbers = || (0..50_000u64).map(|n| n * 7_919 % 1_000_003);
    let lines: String = numbers().map(|n| format!("{n}\n")).collect();
    fs::write(&input, &lines).unwrap();
    let code = format!(
        "/usr/bin/sort -n --parallel=2 -S 32M {} | tail -1; exit 3",
        input.display()
    );
    let output = record(&trace, &["--window=64"], &["/bin/sh", "-c", &code]);
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    let last = format!("{}\n", numbers().max().unwrap());
    assert_eq!(output.stdout, last.as_bytes());
    let text = stderr(&output);
    assert!(
        text.lines()
            .next()
            .is_some_and(|line| line.contains("by sort")),
        "{text}"
    );
    assert!(!text.contains("missing"), "{text}");
    let report = replay(&trace, &["--ram=25%,50%"]);
    let accesses = report["trace"]["accesses"].as_u64().unwrap();
    assert!(
        accesses > report["trace"]["pages"].as_u64().unwrap(),
        "{report}"
    );
    let left: Vec<_> = names(directory.path())
        .into_iter()
        .filter(|name| name.starts_with('.'))
        .collect();
    assert!(left.is_empty(), "{left:?} are left");
}

#[test]
fn forked_children_have_streams_of_their_own() {
    let _alone = alone();
    if !can_run(&[PYTHON]) {
        return;
    }
    let directory = TempDir::new().unwrap();
    let trace = directory.path().join("forks");
    let code = "import os\nb = bytearray(4 << 20)\nfor n in range(2):\n  if os.fork() == 0:\n    for i in range(0, len(b), 4096): b[i] += 1\n    os._exit(sum(b[::4096]) != 1024)\nprint([os.wait()[1] for n in range(2)])";
    let output = record(&trace, &["--window=64"], &[PYTHON.0, "-S", "-c", code]);
    assert_eq!(output.stdout, b"[0, 0]\n", "{output:?}");
    assert_eq!(
        names(directory.path()),
        ["forks", "forks.2", "forks.3"],
        "{output:?}"
    );
    for name in names(directory.path()) {
        let report = replay(&directory.path().join(name), &["--policy=workingset"]);
        assert!(report["trace"]["accesses"].as_u64().unwrap() > 64);
    }
}

#[test]
fn a_failed_recording_says_why() {
    let _alone = alone();
    if !can_run(&[]) {
        return;
    }
    let directory = TempDir::new().unwrap();
    let trace = directory.path().join("trace");
    let output = record(&trace, &["--window=7"], &["true"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("`7`"), "{output:?}");
    let output = record(&directory.path().join("no/where"), &[], &["true"]);
    assert_eq!(output.status.code(), Some(125));
    assert!(
        stderr(&output).contains("no/where") && stderr(&output).contains("-o"),
        "{output:?}"
    );
    let output = record(&trace, &[], &["no-such-program"]);
    assert_eq!(output.status.code(), Some(127));
    assert!(names(directory.path()).is_empty());
}
