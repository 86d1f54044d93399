//! Helpers for benchmarks that have parts: running one of them, and finding a side in its report.

use super::common::{LOCK, alone, machine};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// The command `millpond bench NAME --json --only PART OPTIONS`.
pub fn bench(name: &str, part: &str, options: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_millpond-bench"));
    command.args([name, "--json", "--only", part]).args(options);
    command
}

/// The report of a successful run of one round. Prints the reason and returns `None` if no run can succeed here.
pub fn report(name: &str, part: &str, options: &[&str]) -> Option<Value> {
    let mut command = bench(name, part, options);
    let Output {
        status,
        stdout,
        stderr,
    } = patiently(command.arg("--rounds=1"));
    let text = String::from_utf8_lossy(&stderr);
    if text.contains("userfaultfd") {
        println!("skipped: {text}");
        return None;
    }
    assert!(
        status.success(),
        "{text}\n{}",
        String::from_utf8_lossy(&stdout)
    );
    let report: Value = serde_json::from_slice(&stdout).unwrap();
    assert_eq!(report["schema"], format!("millpond-bench-{name}/2"));
    assert_eq!(report["rounds"], 1);
    assert!(report["machine"]["cores"].as_u64().unwrap() > 0);
    Some(report)
}

/// Runs a benchmark. Waits if a benchmark of another test binary holds the lock; its runs are short.
pub fn patiently(command: &mut Command) -> Output {
    let until = Instant::now() + Duration::from_secs(60);
    loop {
        let output = command.output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        if !text.contains("another benchmark is running") || Instant::now() >= until {
            return output;
        }
        std::thread::sleep(Duration::from_millis(200));
    }
}

/// The medians of a side of a part.
pub fn side(part: &Value, name: impl Into<Value>) -> &Value {
    let name = name.into();
    let sides = part["sides"].as_array().unwrap();
    let found = sides.iter().find(|side| side["side"] == name);
    &found.unwrap_or_else(|| panic!("no {name} in {part}"))["median"]
}

/// The figure as a number.
pub fn number(value: &Value) -> f64 {
    value
        .as_f64()
        .unwrap_or_else(|| panic!("{value} is no number"))
}

/// The number of figures of the report for which CI's comparison has a target. The comparison must understand every
/// report, and judge each of these figures.
pub fn wants(report: &Value) -> usize {
    let lines = compared(report);
    for line in &lines {
        let judged = line.ends_with(": met") || line.ends_with(": MISSED");
        assert!(judged && line.contains(", wanted at "), "{line}");
    }
    lines.len()
}

/// The output of CI's comparison for the report, one line per figure.
pub fn compared(report: &Value) -> Vec<String> {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../.ci/compare");
    let mut child = Command::new("python3")
        .arg(script)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    serde_json::to_writer(child.stdin.take().unwrap(), report).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(matches!(output.status.code(), Some(0 | 1)), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().map(str::to_owned).collect()
}

/// Checks that each of the options ends the benchmark before it measures, with a message that contains the text.
pub fn bad_options_are_refused(name: &str, bad: &[(&str, &str)]) {
    for (option, text) in bad {
        let output = Command::new(env!("CARGO_BIN_EXE_millpond-bench"))
            .args([name, option])
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(2), "{option}");
        assert!(String::from_utf8_lossy(&output.stderr).contains(text));
    }
}

/// Ends a long run by a signal as soon as it has a worker, and checks that neither worker nor lock remains.
fn ends_without_leaving_anything(mut command: Command) {
    let mut child = command
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let pid = Pid::from_child(&child);
    let until = Instant::now() + Duration::from_secs(60);
    let workers = loop {
        let workers = children(pid);
        if !workers.is_empty() {
            break workers;
        }
        if child.try_wait().unwrap().is_some() {
            println!("skipped: another benchmark is running");
            return;
        }
        if Instant::now() >= until {
            // The run would otherwise measure for hours, with the swap and the lock that other tests need.
            kill_process(pid, Signal::TERM).unwrap();
            child.wait().unwrap();
            panic!("the benchmark did not begin");
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    kill_process(pid, Signal::TERM).unwrap();
    assert_eq!(
        child.wait().unwrap().code(),
        Some(128 + Signal::TERM.as_raw())
    );
    assert!(!Path::new(LOCK).exists());
    for worker in workers {
        assert!(
            !Path::new(&format!("/proc/{worker}/exe")).exists(),
            "{worker}"
        );
    }
}

/// Ends a long run by a signal, and checks that the machine is as it was.
pub fn ends_with_the_machine_as_it_was(command: Command) {
    let _alone = alone();
    let before = machine();
    if before.lock {
        println!("skipped: another benchmark is running");
        return;
    }
    ends_without_leaving_anything(command);
    assert_eq!(machine(), before);
}

/// Processes started by the first thread of `pid`.
fn children(pid: Pid) -> Vec<String> {
    let pid = pid.as_raw_nonzero();
    let text = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
    text.unwrap_or_default()
        .split_whitespace()
        .map(str::to_owned)
        .collect()
}
