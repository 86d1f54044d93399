//! `millpond run --store …,URL`: real programs whose memory goes beyond the machine, to a directory and to a
//! redis-server that the test starts. What they print is what they print without a budget, no object is left, and a
//! process that outlives the program keeps its memory.

#[path = "beyond/here.rs"]
mod here;

use here::{Here, PYTHON, total};
use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

const REDIS: &str = "/usr/bin/redis-server";
const WORK: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/beyond/work.py");

impl Here {
    /// `millpond run` with 32 MiB of RAM, a file of 16 MiB, and `url` behind them.
    fn run(&self, url: &str, more: &[&str], program: &[&str]) -> Command {
        let mut run = self.command(&self.millpond);
        run.args(["run", "--ram", "32M", "--file-max", "16M", "--store"])
            .arg(format!("auto,{url}"))
            .args(more)
            .arg("--")
            .args(program);
        run
    }

    /// A directory for objects, and its URL.
    fn objects(&self) -> (PathBuf, String) {
        let objects = self.directory.path().join("objects");
        fs::create_dir(&objects).unwrap();
        let url = format!("fs://{}", objects.display());
        (objects, url)
    }
}

fn files_in(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut left = vec![directory.to_owned()];
    while let Some(next) = left.pop() {
        for entry in fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                left.push(path)
            } else {
                found.push(path)
            }
        }
    }
    found
}

/// Runs a program to its end, and ends it when that takes too long.
fn output(mut command: Command) -> Output {
    let child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let pid = child.id().cast_signed();
    let (done, ended) = std::sync::mpsc::channel::<()>();
    let guard = std::thread::spawn(move || {
        let waited = ended.recv_timeout(Duration::from_secs(180));
        if waited == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
            // SAFETY: the child has not been waited for, so the number is still its own.
            unsafe { libc::kill(pid, libc::SIGKILL) };
        }
    });
    let output = child.wait_with_output().unwrap();
    drop(done);
    guard.join().unwrap();
    output
}

/// What `work.py` prints for this work, by itself and with its memory at `url`.
fn same(here: &Here, work: &str, url: &str) -> serde_json::Value {
    let mut plain = here.command(PYTHON);
    plain.args([WORK, work]);
    let plain = output(plain);
    assert!(
        plain.status.success(),
        "{}",
        String::from_utf8_lossy(&plain.stderr)
    );
    let report = here.directory.path().join("report.json");
    let more = ["--report", report.to_str().unwrap()];
    let ours = output(here.run(url, &more, &[PYTHON, WORK, work]));
    let said = String::from_utf8_lossy(&ours.stderr);
    assert!(ours.status.success(), "{}: {said}", ours.status);
    assert_eq!(ours.stdout, plain.stdout, "{said}");
    serde_json::from_slice(&fs::read(report).unwrap()).unwrap()
}

#[test]
fn memory_in_a_directory_reads_back_and_no_object_remains() {
    let Some(here) = Here::new() else { return };
    let (objects, url) = here.objects();
    let report = same(&here, "numbers", &url);
    assert!(total(&report, "remote_loads") > 100, "{report:#}");
    assert_eq!(total(&report, "remote_lost"), 0);
    assert_eq!(files_in(&objects), [] as [PathBuf; 0]);
}

#[test]
fn children_read_memory_as_of_the_fork_while_the_parent_rewrites_it() {
    let Some(here) = Here::new() else { return };
    let (objects, url) = here.objects();
    let report = same(&here, "children", &url);
    assert!(
        report["processes"].as_array().unwrap().len() > 3,
        "{report:#}"
    );
    assert_eq!(total(&report, "remote_lost"), 0);
    assert_eq!(files_in(&objects), [] as [PathBuf; 0]);
}

/// A redis-server on a port of its own, ended with this value.
struct Redis(Child, u16);

impl Redis {
    fn start(directory: &Path) -> Option<Self> {
        if !Path::new(REDIS).exists() {
            println!("skipped: no {REDIS}; apt-get install redis-server");
            return None;
        }
        let port = TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap()
            .port();
        let mut command = Command::new(REDIS);
        command
            .args([
                "--port",
                &port.to_string(),
                "--bind",
                "127.0.0.1",
                "--save",
                "",
            ])
            .current_dir(directory)
            .stdout(Stdio::null());
        let this = Self(command.spawn().unwrap(), port);
        let begin = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(
                begin.elapsed() < Duration::from_secs(30),
                "redis-server does not answer"
            );
            std::thread::sleep(Duration::from_millis(50));
        }
        Some(this)
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn memory_in_redis_reads_back_unchanged() {
    let Some(here) = Here::new() else { return };
    let Some(redis) = Redis::start(here.directory.path()) else {
        return;
    };
    let report = same(
        &here,
        "numbers",
        &format!("redis://127.0.0.1:{}/0", redis.1),
    );
    assert!(total(&report, "remote_loads") > 100, "{report:#}");
    assert_eq!(total(&report, "remote_lost"), 0);
}

/// The shell ends when the process that it leaves behind has filled its memory. That reads it later.
#[test]
fn a_process_that_outlives_the_program_keeps_its_memory() {
    let Some(here) = Here::new() else { return };
    let (objects, url) = here.objects();
    let out = here.directory.path().join("out");
    let full = here.directory.path().join("full");
    let late = format!("{PYTHON} {WORK} late {}", full.display());
    let until_full = format!("until [ -e {} ]; do sleep 0.1; done", full.display());
    let script = format!("{late} > {} & {until_full}", out.display());
    let ran = output(here.run(&url, &["--report", "none"], &["/bin/sh", "-c", &script]));
    let said = String::from_utf8_lossy(&ran.stderr).into_owned();
    assert!(ran.status.success(), "{said}");
    assert!(said.contains("waits for them"), "{said}");
    let mut plain = here.command(PYTHON);
    plain.args([WORK, "late", "/dev/null"]);
    assert_eq!(fs::read(&out).unwrap(), output(plain).stdout, "{said}");
    assert_eq!(files_in(&objects), [] as [PathBuf; 0]);
}

#[test]
fn unusable_store_is_reported_before_the_program_starts() {
    let Some(here) = Here::new() else { return };
    let closed = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    for (url, status, words) in [
        (
            format!("redis://127.0.0.1:{closed}/0"),
            125,
            "takes no objects",
        ),
        ("ftp://somewhere/x".to_owned(), 2, "ftp"),
        ("redis://user:secret@127.0.0.1/0".to_owned(), 2, "password"),
    ] {
        let ran = output(here.run(&url, &[], &["/bin/echo", "started"]));
        let said = String::from_utf8_lossy(&ran.stderr);
        assert_eq!(ran.status.code(), Some(status), "{url}: {said}");
        assert!(
            said.contains(words) && !said.contains("secret"),
            "{url}: {said}"
        );
        assert!(ran.stdout.is_empty(), "{url}");
    }
}

/// With no room beyond the machine the budget is exceeded, as with any store that is full, and nothing is lost.
#[test]
fn program_continues_when_the_remote_store_is_full() {
    let Some(here) = Here::new() else { return };
    let (objects, url) = here.objects();
    let ran = output(here.run(
        &url,
        &["--remote-max", "12M", "--report", "none"],
        &[PYTHON, WORK, "numbers"],
    ));
    let said = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "{said}");
    let mut plain = here.command(PYTHON);
    plain.args([WORK, "numbers"]);
    assert_eq!(ran.stdout, output(plain).stdout, "{said}");
    assert_eq!(files_in(&objects), [] as [PathBuf; 0]);
}
