//! `millpond bench run` checks that a program prints the same on every side, reports differences, restores the
//! machine, and ends the processes that the program has started. The kernel's sides need root, and zram or a place
//! for a swap file; the programs are small, as nothing is measured here.

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

use common::{LOCK, alone, machine};
use harness::{can_run, millpond};
use parts::{number, patiently, side};
use rustix::process::{Pid, Signal, geteuid, kill_process};
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const PYTHON: &str = "/usr/bin/python3";
/// A program that takes 64 MiB and uses them twice.
const FILLS: &str = "
numbers = [bytearray(i.to_bytes(4, 'little') * 1024) for i in range(16384)]
print(sum(each[0] + each[4] for each in numbers))
";

fn bench_run(options: &[&str], program: &[&str]) -> Command {
    let mut command = Command::new(millpond());
    command.args(["bench", "run", "--json", "--rounds=1"]);
    command.args(options).arg("--").args(program);
    command
}

#[test]
fn a_program_prints_the_same_on_every_side_and_nothing_is_left() {
    let _alone = alone();
    if !can_run(&[(PYTHON, "python3")]) {
        return;
    }
    let before = machine();
    let output = patiently(&mut bench_run(&[], &[PYTHON, "-c", FILLS]));
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
    assert_eq!(machine(), before.unlocked());
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["schema"], "millpond-bench-run/3");
    let sizes = &report["program"]["sizes"];
    let (ram, peak) = (
        number(&sizes["ram_bytes"]),
        number(&sizes["peak_rss_bytes"]),
    );
    assert!(peak > 7e7 && ram < 0.3 * peak, "{sizes}");
    let skipped = report["skipped"].as_array().unwrap();
    for skip in skipped {
        println!("skipped: {skip}");
    }
    let sides = report["program"]["sides"].as_array().unwrap();
    assert_eq!(sides.len() + skipped.len(), 5);
    // The pages compress well, so at some limit the group and zram together use the budget.
    if skipped.is_empty() {
        let equal = &sizes["equal"];
        let (limit, both) = (
            number(&equal["limit_bytes"]),
            number(&equal["together_bytes"]),
        );
        assert!(limit < ram && (both / ram - 1.0).abs() < 0.1, "{sizes}");
    }
    for each in sides {
        let (name, median) = (&each["side"], &each["median"]);
        assert_eq!(
            (&median["wrong"], &median["failed"]),
            (&0.into(), &0.into()),
            "{name}"
        );
        assert!(number(&median["seconds"]) > 0.0, "{name}");
        let resident = number(&median["peak_rss_bytes"]);
        // Shared pages of a process are not charged to the group, but are resident.
        let limited = resident < ram + 16e6;
        assert_eq!(limited, name != "unlimited", "{name}: {resident} of {ram}");
    }
    let ratios = report["program"]["ratios"].as_array();
    let kernels = sides
        .iter()
        .filter(|side| side["side"].as_str().unwrap().starts_with("kernel"));
    assert_eq!(ratios.map_or(0, Vec::len), kernels.count());
}

/// A program's output is compared with that of the two runs before the measurement. A program whose output or exit
/// status differs each time is reported as such, not as wrong.
#[test]
fn different_output_and_different_exit_are_reported() {
    let _alone = alone();
    let directory = tempfile::tempdir().unwrap();
    // The third run is the measured one.
    let third = |number: usize| {
        let runs = directory.path().join(number.to_string());
        let runs = runs.display();
        format!("echo run >>{runs}; [ $(wc -l <{runs}) -lt 3 ]")
    };
    let cases = [
        (third(0) + " && echo one || echo other", 0, 1, true),
        (third(1) + " || exit 7", 1, 0, true),
        ("echo $$".to_owned(), 0, 0, false),
        ("exit $(($$ % 97 + 1))".to_owned(), 0, 0, false),
    ];
    for (script, failed, wrong, is_repeatable) in cases {
        let program = ["/bin/sh", "-c", &script];
        let output = patiently(&mut bench_run(&["--only=unlimited"], &program));
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        let sizes = &report["program"]["sizes"];
        assert_eq!(sizes["is_repeatable"], is_repeatable, "{script}");
        let median = side(&report["program"], "unlimited");
        assert_eq!(median["failed"], failed, "{script}");
        assert_eq!(median["wrong"], wrong, "{script}");
        assert_eq!(output.status.code(), Some(wrong), "{script}");
    }
}

/// A program was once started with the signal mask of the benchmark, which blocks termination signals: a server that
/// should end on SIGTERM ran forever, and its script waited for it.
#[test]
fn termination_signals_are_forwarded_to_the_program() {
    let _alone = alone();
    let script = "sleep 1000 & kill -TERM $!; wait $!; echo $?";
    let program = ["/bin/sh", "-c", script];
    let output = patiently(&mut bench_run(&["--only=unlimited"], &program));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let median = side(&report["program"], "unlimited");
    assert!(number(&median["seconds"]) < 100.0, "{median}");
}

#[test]
fn a_program_that_is_not_there_is_an_error() {
    let _alone = alone();
    let output = patiently(&mut bench_run(&[], &["/none/such"]));
    assert_eq!(output.status.code(), Some(1));
    assert!(!Path::new(LOCK).exists());
}

/// Processes that the program has started and not waited for are also ended, if there is a group that lists them.
#[test]
fn a_run_ended_by_a_signal_leaves_no_process() {
    let _alone = alone();
    if !geteuid().is_root() {
        println!("skipped: needs root");
        return;
    }
    let before = machine();
    let directory = tempfile::tempdir().unwrap();
    let mark = directory.path().join("pid");
    let script = format!("sleep 1000 & echo $! >{}; wait", mark.display());
    let mut child = bench_run(&["--only=unlimited"], &["/bin/sh", "-c", &script])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let until = Instant::now() + Duration::from_secs(10);
    let sleeper = loop {
        let text = fs::read_to_string(&mark).unwrap_or_default();
        if let Ok(pid) = text.trim().parse::<i32>() {
            break pid;
        }
        if child.try_wait().unwrap().is_some() {
            println!("skipped: another benchmark is running");
            return;
        }
        assert!(Instant::now() < until, "the program did not begin");
        std::thread::sleep(Duration::from_millis(5));
    };
    let pid = Pid::from_child(&child);
    kill_process(pid, Signal::TERM).unwrap();
    let code = child.wait().unwrap().code();
    assert_eq!(code, Some(128 + Signal::TERM.as_raw()));
    assert_eq!(machine(), before.unlocked());
    if has_memory_groups() {
        let alive = Path::new(&format!("/proc/{sleeper}/exe")).exists();
        assert!(!alive, "{sleeper}");
    }
}

fn has_memory_groups() -> bool {
    let enabled = fs::read_to_string("/sys/fs/cgroup/cgroup.subtree_control");
    Path::new("/sys/fs/cgroup/memory").exists()
        || enabled.is_ok_and(|kinds| kinds.contains("memory"))
}
