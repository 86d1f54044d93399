//! `millpond run --store …,URL`, for longer: a program whose memory is many times its budget and its file reads back
//! what it has written, while the service that holds the rest is disturbed, stopped and restarted. `soak/remote --way
//! run` runs these tests, each in a process of its own.
//!
//! `MILLPOND_SOAK_MIB` says how many MiB the program has (1024).

#[path = "../../remote/tests/common/proxy.rs"]
mod proxy;
#[path = "../../remote/tests/common/cluster.rs"]
mod redis_cluster;
#[path = "../../remote/tests/common/server.rs"]
mod server;
#[path = "../../remote/tests/common/soak.rs"]
mod soak;
#[path = "../../remote/tests/common/wait.rs"]
mod wait;

use soak::{FILE, RAM};
use std::path::Path;
use std::process::Command;
use wait::wait_until;

const PYTHON: &str = "/usr/bin/python3";
const WORK: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/beyond/soak.py");

/// Runs the program with its memory at `url`. The command is a copy in a directory of its own, so that it uses the
/// library that it holds.
fn program_reads_what_it_wrote(url: &str) {
    if !Path::new(PYTHON).exists() {
        println!("skipped: no {PYTHON}; apt-get install python3");
        return;
    }
    let directory = tempfile::tempdir_in("/var/tmp").unwrap();
    let millpond = directory.path().join("millpond");
    std::fs::copy(env!("CARGO_BIN_EXE_millpond"), &millpond).unwrap();
    let report = directory.path().join("report.json");
    let mut run = Command::new(&millpond);
    run.env_remove("MILLPOND_PRELOAD")
        .env("XDG_CACHE_HOME", directory.path())
        .env("TMPDIR", directory.path())
        .args(["run", "--ram", &RAM.to_string()])
        .args(["--file-max", &FILE.to_string()])
        .args(["--store", &format!("auto,{url}"), "--report"])
        .arg(&report)
        .args(["--", PYTHON, WORK, &soak::mebibytes().to_string()]);
    // A child of another thread may still have the descriptor through which the copy was written.
    let mut status = None;
    wait_until("the copy runs", || {
        let started = run.status();
        let is_busy =
            |error: &std::io::Error| error.kind() == std::io::ErrorKind::ExecutableFileBusy;
        status = Some(started);
        !matches!(&status, Some(Err(error)) if is_busy(error))
    });
    let status = status.unwrap().unwrap();
    assert!(status.success(), "{status}");
    let report = std::fs::read(report).unwrap();
    let report: serde_json::Value = serde_json::from_slice(&report).unwrap();
    let processes = report["processes"].as_array().unwrap();
    let total = |key: &str| -> u64 { processes.iter().map(|one| one[key].as_u64().unwrap()).sum() };
    assert!(total("remote_loads") > 1000, "{report:#}");
    assert_eq!(total("remote_lost"), 0, "{report:#}");
}

#[test]
#[ignore = "takes minutes: soak/remote"]
fn from_directory() {
    soak::in_directory(program_reads_what_it_wrote);
}

#[test]
#[ignore = "takes minutes: soak/remote"]
fn from_redis() {
    soak::in_redis(program_reads_what_it_wrote);
}

#[test]
#[ignore = "takes minutes: soak/remote"]
fn from_cluster() {
    soak::in_cluster(program_reads_what_it_wrote);
}

#[test]
#[ignore = "takes minutes: soak/remote"]
fn from_s3() {
    // SAFETY: `soak/remote` runs this test alone in its process.
    unsafe { soak::in_s3(program_reads_what_it_wrote) };
}
