//! `millpond bench swap` restores the machine however it ends. The tests need root, a kernel with zram, and a place
//! for a swap file; the sizes are small, as nothing is measured here.

mod common;

use common::{LOCK, Machine, alone, machine};
use rustix::process::{Pid, Signal, geteuid, kill_process};
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

fn command(rounds: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_millpond-bench"));
    command.args([
        "swap",
        "--only=kernel",
        "--json",
        "--pages=16384",
        "--ram=32M",
        "--accesses=1000",
    ]);
    command.arg(format!("--rounds={rounds}"));
    command
}

/// The report of a successful run. Prints the output and returns `None` if the run failed for one of `reasons`.
fn report(command: &mut Command, reasons: &[&str]) -> Option<serde_json::Value> {
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    if reasons.iter().any(|why| text.contains(why)) {
        println!("skipped: {text}");
        return None;
    }
    assert!(output.status.success(), "{text}");
    Some(serde_json::from_slice(&output.stdout).unwrap())
}

/// The report of a successful short run. Prints the reason and returns `None` if no run can succeed here.
fn short_run() -> Option<serde_json::Value> {
    if !geteuid().is_root() {
        println!("skipped: needs root");
        return None;
    }
    let report = report(&mut command("1"), &["another benchmark is running"])?;
    if report["kernel"].is_null() {
        println!("skipped: {}", report["skipped"]["kernel"]);
        return None;
    }
    Some(report)
}

/// Starts a long run, and waits until it has its swap device and its worker.
fn in_the_middle(before: &Machine) -> Child {
    let child = command("1000")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let until = Instant::now() + Duration::from_secs(10);
    while machine().swaps == before.swaps
        || !fs::read_to_string(LOCK).is_ok_and(|text| text.contains("\"worker\":["))
    {
        assert!(Instant::now() < until, "the benchmark did not begin");
        std::thread::sleep(Duration::from_millis(5));
    }
    child
}

#[test]
fn a_run_gives_every_number_and_puts_everything_back() {
    let _alone = alone();
    let before = machine();
    let Some(report) = short_run() else { return };
    assert_eq!(machine(), before.unlocked());
    assert_eq!(report["schema"], "millpond-bench-swap/1");
    let round = &report["kernel"]["rounds"][0];
    for phase in ["fill", "random", "sequential", "verify"] {
        assert!(round[phase].as_f64().unwrap() > 0.0, "{round}");
    }
    assert_eq!(round["wrong_pages"], 0);
    assert!(
        round["random_major_faults"].as_u64().unwrap() > 0,
        "nothing was swapped: {round}"
    );
    assert!(
        round["peak_rss_bytes"].as_u64().unwrap() < 48 << 20,
        "the group did not hold it: {round}"
    );
}

/// The run uses incompressible data, written at random, with a file on both sides.
#[test]
fn a_run_over_files_loses_nothing_and_puts_everything_back() {
    let _alone = alone();
    let before = machine();
    let mut command = Command::new(env!("CARGO_BIN_EXE_millpond-bench"));
    command.args(["swap", "--json", "--rounds=1", "--orders=adaptive"]);
    command.args(["--pages=16384", "--ram=32M", "--accesses=1000"]);
    command.args(["--store=file", "--data=noise", "--write"]);
    let reasons = ["another benchmark is running", "userfaultfd", "tmpfs"];
    let Some(report) = report(&mut command, &reasons) else {
        return;
    };
    assert_eq!(machine(), before.unlocked());
    let what = ["store", "data", "write", "store_outside_budget"].map(|field| &report[field]);
    let wanted = serde_json::json!(["file", "noise", true, false]);
    assert_eq!(serde_json::json!(what), wanted);
    let ours = &report["millpond"][0]["rounds"][0];
    assert_eq!(ours["wrong_pages"], 0);
    assert!(
        ours["random_major_faults"].as_u64().unwrap() > 0,
        "nothing was in the file: {ours}"
    );
    let kernel = &report["kernel"];
    if kernel.is_null() {
        println!("skipped in part: {}", report["skipped"]["kernel"]);
        return;
    }
    assert_eq!(kernel["setting"]["file_bytes"], 2 * 16384 * 4096);
    assert_eq!(kernel["setting"]["zram_bytes"], serde_json::Value::Null);
    assert_eq!(kernel["rounds"][0]["wrong_pages"], 0);
    assert!(
        kernel["rounds"][0]["random_major_faults"].as_u64().unwrap() > 0,
        "nothing was swapped: {kernel}"
    );
}

#[test]
fn both_deliveries_do_the_same_work() {
    let _alone = alone();
    for delivery in ["in-thread", "handler"] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_millpond-bench"));
        command.args(["swap", "--only=millpond", "--json", "--rounds=1"]);
        command.args(["--pages=16384", "--ram=32M", "--accesses=1000"]);
        command.args(["--orders=adaptive,0", "--delivery", delivery]);
        let reasons = ["another benchmark is running", "userfaultfd"];
        let Some(report) = report(&mut command, &reasons) else {
            return;
        };
        assert_eq!(report["delivery"], delivery);
        for side in report["millpond"].as_array().unwrap() {
            let round = &side["rounds"][0];
            assert_eq!(round["wrong_pages"], 0);
            assert!(
                round["random_major_faults"].as_u64().unwrap() > 0,
                "{round}"
            );
        }
    }
}

#[test]
fn a_run_ended_by_a_signal_puts_everything_back() {
    let _alone = alone();
    if short_run().is_none() {
        return;
    }
    let before = machine();
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        let mut child = in_the_middle(&before);
        kill_process(Pid::from_child(&child), signal).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(128 + signal.as_raw()));
        assert_eq!(machine(), before, "{signal:?}");
    }
}

#[test]
fn a_killed_run_is_put_back_by_the_next() {
    let _alone = alone();
    if short_run().is_none() {
        return;
    }
    let before = machine();
    let mut child = in_the_middle(&before);
    let second = command("1").output().unwrap();
    assert_eq!(second.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&second.stderr).contains("another benchmark is running"));
    child.kill().unwrap();
    assert_eq!(child.wait().unwrap().signal(), Some(9));
    assert_ne!(machine(), before);
    assert!(short_run().is_some());
    assert_eq!(machine(), before);
}
