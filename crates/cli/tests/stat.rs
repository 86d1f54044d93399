//! `millpond stat`: which processes it finds, what it says of a manager in another process (this one), and how it ends.
//! What it says of programs under `millpond run` is tested in `programs.rs`.

#[path = "common/busy.rs"]
mod busy;
mod common;

use busy::{alone, busy};
use common::millpond;

use millpond::{Manager, Mode};
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

fn stat(arguments: &[&str]) -> Output {
    let mut stat = Command::new(env!("CARGO_BIN_EXE_millpond"));
    stat.arg("stat").args(arguments).output().unwrap()
}

fn lines(arguments: &[&str]) -> Vec<Value> {
    let output = stat(arguments);
    assert!(output.status.success(), "{output:?}");
    let lines = output.stdout.lines();
    lines
        .map(|line| serde_json::from_str(&line.unwrap()).unwrap())
        .collect()
}

/// Waits until the manager's thread has written down what has happened so far.
fn until(pid: &str, what: impl Fn(&Value) -> bool) -> Value {
    let patience = Instant::now() + Duration::from_secs(20);
    loop {
        let seen = lines(&[pid, "--json"]).remove(0);
        if what(&seen) {
            return seen;
        }
        assert!(Instant::now() < patience, "{seen}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_manager_of_another_process_is_found_watched_and_gone_when_it_ends() {
    let _alone = alone();
    let Some((manager, region)) = busy("index") else {
        return;
    };
    let pid = std::process::id().to_string();
    let stats = manager.stats();
    let truth = stats.vm;
    assert!(truth.pgmajfault > 0 && truth.pswpout > 0, "{truth:?}");
    let seen = until(&pid, |seen| {
        seen["counters"]["pgmajfault"] == truth.pgmajfault
    });
    assert_eq!(seen["schema"], "millpond-stat/1");
    let counters = &seen["counters"];
    for (name, value) in [
        ("pgfault", truth.pgfault),
        ("pgscan_direct", truth.pgscan_direct),
        ("pgsteal_direct", truth.pgsteal_direct),
        ("allocstall", truth.allocstall),
        ("pswpin", truth.pswpin),
        ("pswpout", truth.pswpout),
        ("nr_swapped", truth.nr_swapped),
        ("nr_mapped", truth.nr_mapped),
        ("budget_bytes", 16 << 20),
    ] {
        assert_eq!(counters[name], value, "{name} of {counters}");
    }
    let derived = &seen["derived"];
    let efficiency = derived["direct_efficiency"].as_f64().unwrap();
    let expected = truth.pgsteal_direct as f64 / truth.pgscan_direct as f64;
    assert!((efficiency - expected).abs() < 1e-6, "{derived}");
    assert!(derived["direct_velocity"].as_f64().unwrap() > 0.0);
    assert!(seen["rates"]["pswpout"].as_f64().unwrap() > 0.0);

    // Faults reclaimed, and so some thread waited; averages change every two seconds.
    until(&pid, |seen| {
        let derived = &seen["derived"];
        let some = derived["some_avg10"].as_f64().unwrap();
        some > 0.0 && some >= derived["full_avg10"].as_f64().unwrap()
    });

    // The command says of more memory what the manager itself would say.
    let curve = lines(&[&pid, "--curve", "--json"]).remove(0);
    assert_eq!(curve["schema"], "millpond-curve/1");
    assert_eq!(curve["major_faults"], truth.pgmajfault);
    let more = truth.nr_limit / 4;
    let promised = stats.avoided(more * 4096).unwrap();
    let told = curve["steps"][0]["avoided"].as_f64().unwrap();
    assert!((told - promised).abs() < 1e-6, "{promised}: {curve}");
    assert_eq!(curve["steps"][3]["more_bytes"], 2 * truth.nr_limit * 4096);
    let text = String::from_utf8(stat(&[&pid, "--curve"]).stdout).unwrap();
    assert!(text.contains("would not have happened"), "{text}");
    assert_eq!(text.lines().count(), 5, "{text}");

    // The form for people shows all counters, and then lines.
    let text = String::from_utf8(stat(&[&pid]).stdout).unwrap();
    let line = format!("pgmajfault {}\n", truth.pgmajfault);
    assert!(
        text.contains(&line) && text.contains("efficiency "),
        "{text}"
    );
    let text = String::from_utf8(stat(&[&pid, "0.1", "3"]).stdout).unwrap();
    assert_eq!(text.lines().count(), 5, "two of headings: {text}");

    // The first line is about the time since the start, the others about an interval in which nothing happened.
    let told = lines(&[&pid, "0.3", "2", "--json"]);
    assert_eq!(told.len(), 2);
    assert!(told[0]["rates"]["pgfault"].as_f64().unwrap() > 0.0);
    assert_eq!(told[1]["rates"]["pgfault"], 0.0);
    assert_eq!(
        told[1]["counters"]["pgfault"],
        told[0]["counters"]["pgfault"]
    );

    let listed = |name: &str| {
        let boards = lines(&["--json"]);
        let mine = boards
            .iter()
            .filter(|board| board["pid"] == std::process::id());
        mine.flat_map(|board| board["processes"].as_array().unwrap())
            .filter(|process| process["name"] == name)
            .count()
    };
    let (second, _region) = busy("cache").unwrap();
    assert_eq!((listed("index"), listed("cache")), (1, 1));
    let text = String::from_utf8(stat(&[]).stdout).unwrap();
    let row = text.lines().find(|row| row.ends_with("  index"));
    let row = row.unwrap_or_else(|| panic!("no index in {text}"));
    assert!(row.contains(&pid) && row.contains("library") && row.contains("16 MiB"));
    drop((region, manager));
    assert_eq!((listed("index"), listed("cache")), (0, 1));
    drop(second);
    pages_of_files_are_told(&pid);
}

/// The figures of files have the same names and values in a manager's statistics and in what `stat` says of it.
fn pages_of_files_are_told(pid: &str) {
    let builder = Manager::builder().ram(16 << 20).publish("reader");
    let manager = builder.build().unwrap();
    let file = tempfile::tempfile_in("/var/tmp").unwrap();
    file.set_len(24 << 20).unwrap();
    // SAFETY: nobody else has the file.
    let region = unsafe { manager.map_file(&file, .., Mode::ReadOnly).unwrap() };
    for _ in 0..3 {
        assert!(region.as_slice().iter().all(|&byte| byte == 0));
    }
    let truth = manager.stats().vm;
    assert!(truth.nr_file_pages > 0 && truth.pgpgin > 0, "{truth:?}");
    let told = until(pid, |seen| {
        seen["counters"]["nr_file_pages"] == truth.nr_file_pages
            && seen["counters"]["pgpgin"] == truth.pgpgin
    });
    for (name, value) in [
        ("nr_dirty", truth.nr_dirty),
        ("nr_writeback", truth.nr_writeback),
        ("nr_active_file", truth.nr_active_file),
        ("nr_inactive_file", truth.nr_inactive_file),
        ("workingset_refault_file", truth.workingset_refault_file),
        ("pgscan_file", truth.pgscan_file),
        ("pgsteal_file", truth.pgsteal_file),
        ("pgpgout", truth.pgpgout),
    ] {
        assert_eq!(told["counters"][name], value, "{name} of {told}");
    }
    let text = String::from_utf8(stat(&[pid, "0.1", "1"]).stdout).unwrap();
    assert!(text.contains("files, pages/s"), "{text}");
}

/// A supervised program that waits for its standard input to end.
struct Waiting(Child);

impl Waiting {
    fn start(program: &[&str]) -> Self {
        let run = common::run(&["--report", "none"], program)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut waiting = Self(run);
        let mut line = String::new();
        let output = waiting.0.stdout.as_mut().unwrap();
        BufReader::new(output).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        waiting
    }

    fn pid(&self) -> String {
        self.0.id().to_string()
    }

    fn end(mut self) {
        drop(self.0.stdin.take());
        assert!(self.0.wait().unwrap().success());
    }
}

#[test]
fn a_run_is_listed_and_can_be_watched_until_it_ends() {
    if !common::can_run() {
        return;
    }
    let run = Waiting::start(&["sh", "-c", "echo ready; cat"]);
    let boards = lines(&["--json"]);
    let board = boards.iter().find(|board| board["pid"] == run.0.id());
    let board = board.unwrap_or_else(|| panic!("not listed: {boards:?}"));
    assert_eq!(
        (&board["kind"], &board["name"]),
        (&"run".into(), &"sh".into())
    );
    // The library of these tests is empty, so no process reports.
    assert_eq!(board["processes"], Value::Array(Vec::new()));
    let text = String::from_utf8(stat(&[]).stdout).unwrap();
    assert!(text.contains("run") && text.contains("sh\n"), "{text}");

    let mut watcher = Command::new(millpond())
        .args(["stat", &run.pid(), "3600", "--json"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut told = BufReader::new(watcher.stdout.take().unwrap()).lines();
    told.next().unwrap().unwrap();
    run.end();
    let last: Value = serde_json::from_str(&told.next().unwrap().unwrap()).unwrap();
    assert_eq!(last["schema"], "millpond-stat/1");
    assert!(told.next().is_none());
    assert!(watcher.wait().unwrap().success());
}

#[test]
fn process_without_figures_is_named_in_the_error() {
    let mut sleeper = Command::new("sleep").arg("100").spawn().unwrap();
    let pid = sleeper.id().to_string();
    let message = |arguments: &[&str], status| {
        let output = stat(arguments);
        assert_eq!(output.status.code(), Some(status), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    let text = message(&[&pid], 1);
    assert!(
        text.contains(&pid) && text.contains(".publish(name)"),
        "{text}"
    );
    sleeper.kill().unwrap();
    sleeper.wait().unwrap();
    let text = message(&[&pid], 1);
    assert!(text.contains(&format!("no process {pid}")), "{text}");
    for arguments in [&["0"][..], &["x"], &["1", "0.01"], &["1", "1", "0"]] {
        let text = message(arguments, 2);
        assert!(text.starts_with("millpond: "), "{text}");
    }
}

#[test]
fn a_process_of_another_user_is_not_shown() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: only root can be somebody else");
        return;
    }
    let directory = common::open_directory();
    let program = directory.path().join("millpond");
    fs::copy(millpond(), &program).unwrap();
    let stat = |arguments: &[&str]| {
        let mut stat = Command::new(&program);
        let nobody = 65534;
        stat.arg("stat").args(arguments).uid(nobody).gid(nobody);
        stat.output().unwrap()
    };
    let pid = std::process::id().to_string();
    let output = stat(&[&pid]);
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(
        text.contains("another user") && text.contains(&pid),
        "{text}"
    );
    let output = stat(&[]);
    assert!(output.status.success() && output.stdout.is_empty());
}

#[test]
fn a_reader_that_closes_the_pipe_early_is_not_an_error() {
    let _alone = alone();
    let Some((_manager, _region)) = busy("pipe") else {
        return;
    };
    let mut stat = Command::new(env!("CARGO_BIN_EXE_millpond"))
        .args(["stat", &std::process::id().to_string(), "0.1"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(stat.stdout.take());
    let output = stat.wait_with_output().unwrap();
    assert!(
        output.status.success() && output.stderr.is_empty(),
        "{output:?}"
    );
}
