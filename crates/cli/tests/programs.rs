//! Real programs under the real library have the same output, byte for byte, at a quarter of the peak memory that they
//! take without a budget (16 MiB at least).
//!
//! The jobs are ones that a pager can serve: they work through their memory in an order. Every test needs userfaultfd
//! with faults from the kernel handed over (root, or access to `/dev/userfaultfd`), and says so when it is skipped. A
//! test also says so when a program is not installed, and names the Debian package that has it.

#[path = "programs/harness.rs"]
mod harness;
#[path = "programs/redis.rs"]
mod redis;
#[path = "programs/report.rs"]
mod report;

use harness::{MIB, alone, can_run, read_report, same, same_at_a_quarter, under, watch};
use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;
use tempfile::TempDir;

const PYTHON: &str = "/usr/bin/python3";
const WORK: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/programs/work.py");
const MAKE: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../demo/make_measurements.py"
);

fn python(work: &str) {
    if !can_run(&[(PYTHON, "python3")]) {
        return;
    }
    let _alone = alone();
    let directory = TempDir::new().unwrap();
    same_at_a_quarter(work, &[PYTHON, WORK, work], &directory, &[]);
}

fn measurements(directory: &TempDir, megabytes: u64) -> String {
    let file = directory.path().join("measurements");
    let made = Command::new(PYTHON)
        .args([MAKE, file.to_str().unwrap(), &megabytes.to_string()])
        .status();
    assert!(made.unwrap().success());
    file.to_str().unwrap().to_owned()
}

#[test]
fn python_groups_and_sorts_numbers() {
    python("groups");
}

#[test]
fn python_threads_with_subprocesses() {
    python("threads");
}

#[test]
fn multiprocessing_children_read_their_parents_data() {
    python("pool");
}

#[test]
fn child_reads_memory_as_of_the_fork_while_the_parent_rewrites_it() {
    python("rewritten");
}

#[test]
fn a_daemon_that_closes_every_descriptor_keeps_its_memory() {
    python("closed");
}

#[test]
fn system_calls_fill_and_read_absent_buffers() {
    python("buffers");
}

/// The program fills its memory before the manager's first tick, after loading 10 MiB of libraries that were not
/// counted: it once had 38 MiB in a budget of 29.
#[test]
fn a_mapping_that_grows_keeps_its_bytes_and_the_budget() {
    python("grown");
}

/// A program that works with one order works with all of them, including huge pages.
#[test]
fn programs_print_the_same_with_adaptive_orders() {
    if !can_run(&[(PYTHON, "python3")]) {
        return;
    }
    let _alone = alone();
    let directory = TempDir::new().unwrap();
    for (work, order) in [
        ("groups", "adaptive"),
        ("threads", "adaptive:4"),
        ("rewritten", "adaptive"),
    ] {
        let options = ["--order", order];
        same_at_a_quarter(work, &[PYTHON, WORK, work], &directory, &options);
        let report = read_report(&directory.path().join(format!("{work}.json")));
        assert_eq!(report["order"], order);
    }
}

#[test]
fn sort_sorts_in_memory() {
    if !can_run(&[("/usr/bin/sort", "coreutils"), (PYTHON, "python3")]) {
        return;
    }
    let _alone = alone();
    let directory = TempDir::new().unwrap();
    let file = measurements(&directory, 80);
    // The file is sorted by the time of the measurement, latest first, so that the lines that are compared lie near
    // each other. sort compares lines through pointers; in random order it thrashes at a quarter under any pager.
    let command = [
        "/usr/bin/sort",
        "-S",
        "400M",
        "--parallel=2",
        "-t;",
        "-k4,4r",
        &file,
    ];
    same_at_a_quarter("sort", &command, &directory, &[]);
}

#[test]
fn a_process_tree_sorts_and_stops_early() {
    if !can_run(&[("/usr/bin/sort", "coreutils"), (PYTHON, "python3")]) {
        return;
    }
    let _alone = alone();
    let directory = TempDir::new().unwrap();
    let file = measurements(&directory, 80);
    let script = format!("sort -S 400M --parallel=2 -t ';' -k 4,4r {file} | head -n 2000 | cksum");
    same_at_a_quarter("tree", &["/bin/sh", "-c", &script], &directory, &[]);
}

#[test]
fn sqlite_fills_a_database_in_memory_indexes_and_scans_it() {
    if !can_run(&[("/usr/bin/sqlite3", "sqlite3")]) {
        return;
    }
    let _alone = alone();
    let directory = TempDir::new().unwrap();
    let script = directory.path().join("script.sql");
    fs::write(
        &script,
        "create table reading(id integer primary key, station integer, value real, note text);
         with recursive n(i) as (select 1 union all select i + 1 from n where i < 900000)
         insert into reading select i, i % 211, (i * 7919 % 100003) / 7.0,
             printf('note %d of a reading, %032x, taken by %s, checked by nobody, kept for ever; %0120d', i, i * 31, 'x' || i % 13, i)
             from n;
         select count(*), sum(id), round(sum(value), 3), sum(length(note)) from reading;
         create index by_station on reading(station);
         select station, count(*) from reading group by station order by station limit 20;
         select max(note), min(note) from reading;
         update reading set value = value + 1 where id between 1000 and 300000;
         select round(total(value), 3) from reading;
         pragma integrity_check;
         select page_count * page_size > 200000000 from pragma_page_count(), pragma_page_size();\n",
    )
    .unwrap();
    let script = format!(".read {}", script.display());
    let command = ["/usr/bin/sqlite3", ":memory:", &script];
    same_at_a_quarter("sqlite3", &command, &directory, &[]);
}

/// `gcc` only starts other programs; `cc1`, an exec'ed child, takes the memory, and the budget is each process's own.
/// The peak of the children that were waited for is cc1's. Its own 33 MB of code are part of that, so the file must be
/// large for a quarter to leave room for more than code.
#[test]
fn gcc_compiles_a_large_file() {
    if !can_run(&[("/usr/bin/gcc", "gcc")]) {
        return;
    }
    let _alone = alone();
    let directory = TempDir::new().unwrap();
    let mut source = String::new();
    for function in 0..3000 {
        writeln!(
            source,
            "struct s{function} {{ int a, b[{}]; long c; }};\n\
             static int f{function}(struct s{function} *s, int n) {{\n\
             \x20   long sum = {function};\n\
             \x20   for (int i = 0; i < n; i++) {{ s->b[i % {0}] += i * {function}; sum += s->b[(i + 1) % {0}] ^ s->a; }}\n\
             \x20   if (sum > {function}) s->c += sum; else s->a -= n;\n\
             \x20   return (int)(sum + s->c);\n\
             }}\n\
             int g{function}(void *p, int n) {{ return f{function}(p, n) + f{function}(p, n + 1); }}",
            function % 50 + 2
        )
        .unwrap();
    }
    fs::write(directory.path().join("large.c"), source).unwrap();
    let command = ["/usr/bin/gcc", "-O0", "-S", "-o", "-", "large.c"];
    same_at_a_quarter("gcc", &command, &directory, &[]);
}

#[test]
fn redis_saves_in_a_child_while_it_is_written_to() {
    if can_run(&[("/usr/bin/redis-server", "redis-server")]) {
        let _alone = alone();
        redis::saves_and_loads();
    }
}

#[test]
fn exit_status_and_signals_pass_through_while_swapping() {
    if !can_run(&[(PYTHON, "python3")]) {
        return;
    }
    let _alone = alone();
    let directory = TempDir::new().unwrap();
    let at = |name: &str| directory.path().join(name);
    for (work, code, signal) in [
        ("seven", Some(7), None),
        ("segv", None, Some(11)),
        ("term", None, Some(15)),
    ] {
        let mut plain = Command::new(PYTHON);
        plain.args([WORK, work]);
        let free = watch(plain, &at("free"));
        let command = under(24 * MIB, &[], &at("json"), &[PYTHON, WORK, work]);
        let tight = watch(command, &at("tight"));
        assert_eq!(
            (tight.status.code(), tight.status.signal()),
            (code, signal),
            "{work}"
        );
        assert_eq!(free.status.signal(), signal, "{work}");
        assert!(same(&free.output, &tight.output), "{work}");
        let report = read_report(&at("json"));
        assert!(report["major_faults"].as_u64().unwrap() > 0, "{report:#}");
    }
}

/// A full store is reported in one line. The line was lost when standard error was a plain file: the file had been
/// reopened, with an offset of its own, and the program's next output overwrote the line.
#[test]
fn full_store_is_reported_once_and_loses_nothing_or_aborts() {
    if !can_run(&[(PYTHON, "python3")]) {
        return;
    }
    let _alone = alone();
    let directory = TempDir::new().unwrap();
    let at = |name: &str| directory.path().join(name);
    let run = |options: &[&str]| {
        let mut command = under(
            32 * MIB,
            options,
            &at("json"),
            &[PYTHON, WORK, "incompressible"],
        );
        command.stderr(fs::File::create(at("said")).unwrap());
        let ran = watch(command, &at("full"));
        (ran, fs::read_to_string(at("said")).unwrap())
    };
    let mut plain = Command::new(PYTHON);
    plain.args([WORK, "incompressible"]);
    let free = watch(plain, &at("free"));

    let (exceeding, said) = run(&["--store", "zram"]);
    assert!(exceeding.status.success(), "{said}");
    assert!(same(&free.output, &exceeding.output));
    assert_eq!(said.matches("the store is full").count(), 1, "{said}");
    assert_eq!(said.matches("filled").count(), 1, "{said}");

    let (stopped, said) = run(&["--store", "zram", "--on-store-full", "abort"]);
    assert_eq!(stopped.status.signal(), Some(6), "{said}");
    assert!(said.contains("stopping, as asked"), "{said}");
}

#[test]
fn small_programs_run_in_the_smallest_budget() {
    if !can_run(&[]) {
        return;
    }
    let _alone = alone();
    let directory = TempDir::new().unwrap();
    let at = |name: &str| directory.path().join(name);
    for command in [
        &["/bin/sh", "-c", "echo one; (echo two); echo three | cat"][..],
        &["/bin/ls", "-l", "/usr/bin"],
        &["/usr/bin/env", "-i", "A=1", "/usr/bin/env"],
        &["/usr/bin/git", "--version"],
        &["/usr/bin/gcc", "--version"],
        &["/usr/bin/find", "/etc", "-maxdepth", "1"],
    ] {
        if !Path::new(command[0]).exists() {
            println!("skipped: no {}", command[0]);
            continue;
        }
        let mut plain = Command::new(command[0]);
        plain.args(&command[1..]);
        let free = watch(plain, &at("free"));
        let tight = watch(under(16 * MIB, &[], &at("json"), command), &at("tight"));
        assert_eq!(free.status, tight.status, "{command:?}");
        assert!(same(&free.output, &tight.output), "{command:?}");
        let peak = read_report(&at("json"))["peak_resident_bytes"]
            .as_u64()
            .unwrap();
        assert!(peak <= 16 * MIB, "{command:?} took {peak} bytes");
    }
}

/// `millpond stat` of a run and of its process, while it runs, gives the same figures.
#[test]
fn a_running_program_can_be_watched_by_either_number() {
    if !can_run(&[(PYTHON, "python3")]) {
        return;
    }
    let _alone = alone();
    let directory = TempDir::new().unwrap();
    let script = "import sys; b = bytearray(64 << 20)\n\
                  for i in range(0, len(b), 4096): b[i] = i // 4096 % 251\n\
                  print('ready', flush=True); sys.stdin.read()";
    let report = directory.path().join("json");
    let mut run = under(32 * MIB, &[], &report, &[PYTHON, "-c", script])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let output = run.stdout.as_mut().unwrap();
    BufReader::new(output).read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    // The last writing of the counters may be from before the line was printed.
    std::thread::sleep(Duration::from_millis(500));
    let stat = |pid: &str| -> serde_json::Value {
        let stat = Command::new(env!("CARGO_BIN_EXE_millpond"))
            .args(["stat", pid, "--json"])
            .output()
            .unwrap();
        assert!(stat.status.success(), "{stat:?}");
        serde_json::from_slice(&stat.stdout).unwrap()
    };
    let whole = stat(&run.id().to_string());
    let process = &whole["processes"][0];
    assert_eq!(process["state"], "running");
    let one = stat(&process["pid"].to_string());
    for name in [
        "pgfault",
        "pswpout",
        "pgsteal_kswapd",
        "pgscan_kswapd",
        "nr_swapped",
    ] {
        let value = whole["counters"][name].as_u64().unwrap();
        assert_eq!(one["counters"][name], value, "{name}");
        assert!(value > 0, "{name} of {whole}");
    }
    assert_eq!(one["counters"]["budget_bytes"], 32 * MIB);
    drop(run.stdin.take());
    assert!(run.wait().unwrap().success());
    // The report says of the process what `stat` would have said at its end.
    let report = &read_report(&report)["processes"][0];
    let told = |name: &str| report[name].as_u64().unwrap();
    assert!(told("pgscan_kswapd") >= one["counters"]["pgscan_kswapd"].as_u64().unwrap());
}

/// A static program loads no library, so no budget would be in force.
#[test]
fn a_static_program_is_refused() {
    if !can_run(&[("/usr/bin/gcc", "gcc")]) {
        return;
    }
    let directory = TempDir::new().unwrap();
    let (source, program) = (
        directory.path().join("s.c"),
        directory.path().join("static"),
    );
    fs::write(&source, "int main(void) { return 0; }\n").unwrap();
    let built = Command::new("/usr/bin/gcc")
        .args(["-static", "-o"])
        .args([&program, &source])
        .output();
    if !built.unwrap().status.success() {
        println!("skipped: no static C library; apt-get install libc6-dev");
        return;
    }
    let report = directory.path().join("json");
    let output = under(16 * MIB, &[], &report, &[program.to_str().unwrap()])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(126), "{text}");
    assert!(text.contains("static"), "{text}");
}
