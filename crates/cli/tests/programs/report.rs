//! `millpond run --report`: a page and the same figures as JSON, of real runs. What a browser makes of the page is
//! looked at by `.ci/report`.

use crate::harness::{MIB, alone, can_run, millpond, read_report};
use millpond_board::EngagedFor;
use serde_json::Value;
use std::fs;
use std::process::{Command, Output};
use tempfile::TempDir;

const PYTHON: &str = "/usr/bin/python3";

/// Two processes that fill more than their budgets and read it back, for a second at least.
const WORK: &str = "
import os, time
def work(mib):
    data = bytearray(mib << 20)
    for at in range(0, len(data), 4096):
        data[at] = 1 + at // 4096 % 250
    end = time.monotonic() + 1
    while time.monotonic() < end:
        assert sum(data[::4096]) > 0
child = os.fork()
work(48 if child == 0 else 64)
if child == 0:
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
";

fn run(directory: &TempDir, options: &[&str], script: &str) -> Output {
    run_in("32M", directory, options, script)
}

fn run_in(ram: &str, directory: &TempDir, options: &[&str], script: &str) -> Output {
    let ran = Command::new(millpond())
        .args(["run", "--ram", ram])
        .args(options)
        .args(["--", PYTHON, "-c", script])
        .current_dir(directory)
        .env_remove("MILLPOND_PRELOAD")
        .output()
        .unwrap();
    assert!(
        ran.status.success(),
        "{}",
        String::from_utf8_lossy(&ran.stderr)
    );
    ran
}

fn numbers(of: &Value) -> Vec<u64> {
    let list = of.as_array().unwrap_or_else(|| panic!("{of} is a list"));
    list.iter().map(|value| value.as_u64().unwrap()).collect()
}

/// The series end with the sums of the report, and lie within the run.
#[test]
fn report_of_a_run_has_its_series_and_an_html_page() {
    if !can_run(&[(PYTHON, "python3")]) {
        return;
    }
    let _alone = alone();
    let directory = TempDir::new().unwrap();
    let options = [
        "--report", "text", "--report", "out.html", "--report", "out.json",
    ];
    let ran = run(&directory, &options, WORK);
    let text = String::from_utf8(ran.stderr).unwrap();
    assert!(text.lines().count() <= 24, "{text}");
    assert!(
        text.lines().last().unwrap().starts_with("  next "),
        "{text}"
    );
    assert!(!text.contains('\x1b'), "a pipe gets no colours: {text}");

    let report = read_report(&directory.path().join("out.json"));
    assert_eq!(report["schema"], "millpond-run/1");
    assert!(text.ends_with(&format!("{}\n", report["next"].as_str().unwrap())));
    let wall = report["wall_ns"].as_u64().unwrap();
    let processes = report["processes"].as_array().unwrap();
    assert_eq!(processes.len(), 2, "{report:#}");
    for process in processes {
        let series = &process["series"];
        let at = numbers(&series["at_ns"]);
        assert!(at.len() > 5 && at.is_sorted(), "{at:?}");
        assert!(series["from_ns"].as_u64().unwrap() <= at[0]);
        assert!(*at.last().unwrap() <= wall, "{at:?} in {wall}");
        for name in ["in_bytes", "out_bytes", "fault_load_count"] {
            let counted = numbers(&series[name]);
            assert!(counted.is_sorted(), "{name}: {counted:?}");
            assert_eq!(counted.last(), process[name].as_u64().as_ref(), "{name}");
        }
        let resident = numbers(&series["rss_bytes"]);
        assert!(*resident.iter().max().unwrap() > 16 * MIB, "{resident:?}");
    }
    let loads: u64 = numbers(&report["latency"]["load"]).iter().sum();
    let counted = processes
        .iter()
        .map(|one| one["fault_load_count"].as_u64().unwrap());
    assert_eq!(loads, counted.sum::<u64>());
    assert!(report["fault_load_ns"].as_u64().unwrap() <= report["fault_ns"].as_u64().unwrap());

    let page = fs::read_to_string(directory.path().join("out.html")).unwrap();
    assert!(page.starts_with("<!DOCTYPE html>"));
    for part in [
        "Memory over time",
        "How long faults took",
        "Processes",
        "</html>",
    ] {
        assert!(page.contains(part), "{part}");
    }
    assert_eq!(
        page.matches("<h3>").count(),
        2,
        "a drawing for each process"
    );
}

#[test]
fn the_report_of_a_run_without_a_file_has_no_series() {
    if !can_run(&[(PYTHON, "python3")]) {
        return;
    }
    let _alone = alone();
    let directory = TempDir::new().unwrap();
    let ran = run(&directory, &["--report", "json"], "print(1)");
    let report: Value = serde_json::from_slice(&ran.stderr).unwrap();
    assert!(report["processes"][0].get("series").is_none());
    assert!(report.get("series_step_ns").is_none());
    let ran = run(&directory, &["--report", "none"], "print(1)");
    assert!(ran.stderr.is_empty());
}

/// Checks that a child that does little stays dormant, and that its parent engages when it exceeds the budget.
#[test]
fn the_report_counts_processes_that_stayed_dormant() {
    if !can_run(&[(PYTHON, "python3")]) {
        return;
    }
    let _alone = alone();
    let directory = TempDir::new().unwrap();
    let script = "
import os
child = os.fork()
if child == 0:
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
data = bytearray(b'x' * (96 << 20))
assert data.count(b'x') == 96 << 20
";
    let options = [
        "--engage", "needed", "--report", "text", "--report", "out.json",
    ];
    let ran = run_in("64M", &directory, &options, script);
    let text = String::from_utf8_lossy(&ran.stderr).into_owned();
    assert!(text.contains("2, 1 of them dormant to the end"), "{text}");
    let report = read_report(&directory.path().join("out.json"));
    let seen = |field: &str| {
        let processes = report["processes"].as_array().unwrap();
        let of = |one: &Value| one[field].as_u64().unwrap();
        (of(&processes[0]), of(&processes[1]))
    };
    assert_eq!(seen("dormant"), (0, 1));
    let (parent, child) = seen("engaged_ns");
    assert!(parent > 0 && child == 0, "{parent} {child}");
    assert_eq!(seen("engaged_for"), (EngagedFor::Memory as u64, 0));
    let peak = report["peak_resident_bytes"].as_u64().unwrap();
    assert!(peak <= 65 * MIB, "{peak}");
}

/// Checks that the report of a single process says that it was dormant, or why it engaged.
#[test]
fn the_report_says_why_a_process_engaged() {
    if !can_run(&[(PYTHON, "python3")]) {
        return;
    }
    let _alone = alone();
    let directory = TempDir::new().unwrap();
    for (script, wanted) in [
        ("print(1)", "dormant: its memory has not come near"),
        (
            "import threading as t; w = t.Thread(target=print); w.start(); w.join()",
            "dormant: its memory has not come near",
        ),
        (
            "import ctypes; ctypes.CDLL(None).unshare(0)",
            ", for a call that a dormant process cannot serve",
        ),
        (
            "data = bytearray(b'x' * (96 << 20))",
            ", as its memory might not have fit",
        ),
    ] {
        let options = ["--report", "text"];
        let ran = run_in("64M", &directory, &options, script);
        let text = String::from_utf8_lossy(&ran.stderr).into_owned();
        let line = text.lines().find(|line| line.starts_with("  managed "));
        assert!(line.is_some_and(|line| line.contains(wanted)), "{text}");
    }
    let options = ["--engage", "start", "--report", "text"];
    let ran = run_in("64M", &directory, &options, "print(1)");
    let text = String::from_utf8_lossy(&ran.stderr).into_owned();
    assert!(!text.contains("  managed "), "{text}");
}

/// Colours are for a terminal, and not for one whose user has asked for none. The variables that
/// also decide are taken away: with `CI` set, colours are for every terminal, as logs show them.
#[test]
fn colours_are_taken_out_where_they_are_not_wanted() {
    if !can_run(&[(PYTHON, "python3"), ("/usr/bin/script", "bsdutils")]) {
        return;
    }
    let coloured = |variables: &[(&str, &str)]| {
        let command = format!("{} run --ram 32M -- /bin/true", millpond().display());
        let ran = Command::new("/usr/bin/script")
            .args(["--quiet", "--command", &command, "/dev/null"])
            .env("TERM", "xterm")
            .env_remove("NO_COLOR")
            .env_remove("CLICOLOR")
            .env_remove("CLICOLOR_FORCE")
            .env_remove("CI")
            .envs(variables.iter().copied())
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&ran.stdout).into_owned();
        assert!(text.contains("exit status 0"), "{text}");
        text.contains('\x1b')
    };
    assert!(coloured(&[]));
    assert!(!coloured(&[("NO_COLOR", "1")]));
    assert!(!coloured(&[("TERM", "dumb")]));
}
