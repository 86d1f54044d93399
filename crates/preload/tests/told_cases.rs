//! The answers that a program gets when it asks how much memory there is.

mod common;

use common::{RAM, bare, compile, finish, is_possible, preloaded};
use std::path::{Path, PathBuf};

/// Covers a sort of 135 MiB of lines in 34 MiB that took minutes: it believed that it had the machine's 24 GiB, read
/// all lines into memory and used them at random.
#[test]
fn a_program_is_told_its_budget_by_every_way_of_asking() {
    if !is_possible() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let program = compile("told_memory", directory.path(), &[]);
    for (tell, told) in [(None, RAM), (Some("budget"), RAM), (Some("machine"), "0")] {
        let mut command = preloaded(&program);
        command.arg(told);
        if let Some(tell) = tell {
            command.env("MILLPOND_TELL", tell);
        }
        let output = finish(command);
        assert!(output.status.success(), "{tell:?}: {output:?}");
    }
}

#[test]
fn an_unknown_tell_word_fails_the_start() {
    if !is_possible() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let program = compile("told_memory", directory.path(), &[]);
    let mut command = preloaded(&program);
    command.arg("0").env("MILLPOND_TELL", "nothing");
    let output = finish(command);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        !output.status.success() && said.contains("MILLPOND_TELL=nothing"),
        "{output:?}"
    );
    assert!(said.contains("budget or machine"), "{said}");
}

/// Runs a program that prints one number. Returns `None`, with a line that says why, if the program is missing.
fn figure(program: &str, arguments: &[&str], pattern: &str) -> Option<u64> {
    if !is_possible() {
        return None;
    }
    if bare(Path::new(program)).arg("--version").output().is_err() {
        println!("skipped: no {program}");
        return None;
    }
    let mut command = preloaded(Path::new(program));
    command.args(arguments).env("MILLPOND_RAM", "268435456");
    let output = finish(command);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let line = text.lines().find(|line| line.contains(pattern));
    let digits = |line: &str| {
        let behind = line.split_once(pattern)?.1;
        let start = behind.find(|c: char| c.is_ascii_digit())?;
        let number = behind[start..]
            .split(|c: char| !c.is_ascii_digit())
            .next()?;
        number.parse().ok()
    };
    Some(
        line.and_then(digits)
            .unwrap_or_else(|| panic!("{pattern}: {output:?}")),
    )
}

/// A JVM uses a quarter of the reported memory for its heap. It asks by `sysconf` and reads its control group's
/// files.
#[test]
fn a_jvm_chooses_its_heap_by_the_budget() {
    let arguments = ["-XX:+PrintFlagsFinal", "-version"];
    if let Some(heap) = figure("java", &arguments, " MaxHeapSize") {
        assert!((32 << 20..=128 << 20).contains(&heap), "{heap}");
    }
}

/// Node's `os.totalmem` reads `/proc/meminfo` or asks `sysinfo`, by version.
#[test]
fn node_reports_the_budget_as_total_memory() {
    if let Some(total) = figure(
        "node",
        &["-p", "'total ' + require('os').totalmem()"],
        "total ",
    ) {
        assert_eq!(total, 256 << 20);
    }
}

/// Python gets the figures from `os.sysconf`, and its packages from `/proc/meminfo`.
#[test]
fn python_reports_the_budget_as_total_memory() {
    let script = "import os; print('pages', os.sysconf('SC_PHYS_PAGES'))\nprint(open('/proc/meminfo').read())";
    if let Some(pages) = figure("python3", &["-c", script], "pages ") {
        assert_eq!(pages, (256 << 20) / 4096);
    }
    if let Some(total) = figure("python3", &["-c", script], "MemTotal:") {
        assert_eq!(total, 256 << 10);
    }
}

/// Returns the files that state the limits of this process's control group and those above it.
fn limits() -> Vec<PathBuf> {
    let own = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let mut found = Vec::new();
    for line in own.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else {
            continue;
        };
        let (mount, name) = match controllers {
            "" => ("/sys/fs/cgroup", "memory.max"),
            "memory" => ("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
            _ => continue,
        };
        let own = Path::new(path);
        for above in own.ancestors() {
            let below = above.strip_prefix("/").unwrap_or(above);
            found.push(Path::new(mount).join(below).join(name));
        }
    }
    found.retain(|path| std::fs::read(path).is_ok());
    found
}

/// The limits reported for the process's control groups are never more than the budget, and otherwise the real ones.
#[test]
fn the_limits_of_control_groups_read_as_the_budget() {
    let files = limits();
    if files.is_empty() || !is_possible() {
        println!("skipped: no control group with a limit can be read here");
        return;
    }
    for file in files {
        let machine = std::fs::read_to_string(&file).unwrap();
        let budget: u64 = RAM.parse().unwrap();
        let limit = machine
            .trim()
            .parse()
            .map_or(budget, |limit: u64| limit.min(budget));
        for (tell, told) in [("budget", format!("{limit}\n")), ("machine", machine)] {
            let mut command = preloaded(Path::new("cat"));
            command.arg(&file).env("MILLPOND_TELL", tell);
            let output = finish(command);
            assert_eq!(
                String::from_utf8_lossy(&output.stdout),
                told,
                "{tell}: {file:?}: {output:?}"
            );
        }
    }
}
