//! `millpond run --store …,URL`, for longer: a program whose memory is many times its budget plus its file reads back
//! what it has written, while the service that holds the rest is disturbed, stopped and restarted. `soak/remote --way
//! run` runs these tests, each in a process of its own.
//!
//! `MILLPOND_SOAK_MIB` says how many MiB the program has (1024).

#[path = "beyond/here.rs"]
mod here;
#[path = "../../remote/tests/common/soak.rs"]
mod soak;

use here::{Here, PYTHON, total};
use soak::{FILE, RAM};

const WORK: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/beyond/soak.py");

/// Runs the program with its memory at `url`.
fn program_reads_what_it_wrote(url: &str) {
    let Some(here) = Here::new() else { return };
    let report = here.directory.path().join("report.json");
    let mut run = here.command(&here.millpond);
    run.args(["run", "--ram", &RAM.to_string()])
        .args(["--file-max", &FILE.to_string()])
        .args(["--store", &format!("auto,{url}"), "--report"])
        .arg(&report)
        .args(["--", PYTHON, WORK, &soak::mebibytes().to_string()]);
    let status = run.status().unwrap();
    assert!(status.success(), "{status}");
    let report = std::fs::read(report).unwrap();
    let report = serde_json::from_slice(&report).unwrap();
    assert!(total(&report, "remote_loads") > 1000, "{report:#}");
    assert_eq!(total(&report, "remote_lost"), 0, "{report:#}");
}

soak::tests!(program_reads_what_it_wrote);
