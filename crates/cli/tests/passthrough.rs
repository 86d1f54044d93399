//! A program under `millpond run` behaves, and is treated, as if nothing stood between it and the shell.

mod common;
#[path = "common/started.rs"]
mod started;

use common::{can_run, run};
use started::{send, started};
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const QUIET: [&str; 1] = ["--report=none"];

/// Runs `script` in `sh` until it has printed a line.
fn begun(script: &str) -> (Child, String) {
    started(&mut run(&QUIET, &["sh", "-c", script]))
}

#[test]
fn exit_status_arguments_and_streams_pass_through() {
    if !can_run() {
        return;
    }
    assert_eq!(
        run(&QUIET, &["sh", "-c", "exit 7"])
            .status()
            .unwrap()
            .code(),
        Some(7)
    );
    let mut child = run(
        &QUIET,
        &[
            "sh",
            "-c",
            "printf '<%s>' \"$@\"; cat; echo err >&2",
            "sh",
            "a b",
            "",
            "--ram",
        ],
    )
    .stdin(Stdio::piped())
    .stdout(Stdio::piped())
    .stderr(Stdio::piped())
    .spawn()
    .unwrap();
    child.stdin.take().unwrap().write_all(b"in").unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "<a b><><--ram>in");
    assert_eq!(String::from_utf8_lossy(&output.stderr), "err\n");
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn a_signal_that_kills_the_program_kills_the_supervisor() {
    if !can_run() {
        return;
    }
    for (name, number) in [
        ("SEGV", 11),
        ("TERM", 15),
        ("KILL", 9),
        ("ABRT", 6),
        ("PIPE", 13),
    ] {
        let status = run(&QUIET, &["sh", "-c", &format!("kill -{name} $$")])
            .status()
            .unwrap();
        assert_eq!(status.signal(), Some(number), "{name}");
        assert!(!status.core_dumped(), "{name}");
    }
}

/// A program that is ended by a filter cannot say why.
#[test]
fn supervisor_reports_a_probable_kill_by_a_filter() {
    if !can_run() {
        return;
    }
    let output = run(&QUIET, &["sh", "-c", "kill -SYS $$"]).output().unwrap();
    assert_eq!(output.status.signal(), Some(31));
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(
        text.starts_with("millpond: ") && text.contains("seccomp filter"),
        "{text}"
    );
}

#[test]
fn signals_sent_to_the_supervisor_reach_the_program() {
    if !can_run() {
        return;
    }
    use rustix::process::Signal;
    for (name, signal) in [
        ("TERM", Signal::TERM),
        ("HUP", Signal::HUP),
        ("USR1", Signal::USR1),
        ("INT", Signal::INT),
    ] {
        let script = format!("trap 'exit 9' {name}; echo ready; while :; do sleep 0.02; done");
        let (mut child, _) = begun(&script);
        send(&child, signal);
        assert_eq!(child.wait().unwrap().code(), Some(9), "{name}");
    }
    let (mut child, _) = begun("echo ready; exec sleep 100");
    send(&child, Signal::TERM);
    assert_eq!(child.wait().unwrap().signal(), Some(15));
}

/// Rust's runtime ignores SIGPIPE; a program that inherited that would write to a closed pipe forever.
#[test]
fn a_closed_pipe_ends_the_program() {
    if !can_run() {
        return;
    }
    let mut child = run(&QUIET, &["yes"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut some = [0; 64];
    child.stdout.take().unwrap().read_exact(&mut some).unwrap();
    assert_eq!(child.wait().unwrap().signal(), Some(13));
}

#[test]
fn program_inherits_signal_dispositions_and_mask() {
    if !can_run() {
        return;
    }
    let seen = |ignore: &str| {
        let inner = run(
            &QUIET,
            &["grep", "-E", "^Sig(Ign|Blk)", "/proc/self/status"],
        );
        let mut outer = Command::new("sh");
        outer
            .arg("-c")
            .arg(format!("trap '' {ignore}; exec \"$0\" \"$@\""));
        let output = outer
            .arg(inner.get_program())
            .args(inner.get_args())
            .output()
            .unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let field = |name: &str| {
            let line = text
                .lines()
                .find_map(|line| line.strip_prefix(name))
                .expect(&text);
            u64::from_str_radix(line.trim(), 16).unwrap()
        };
        (field("SigIgn:"), field("SigBlk:"))
    };
    let bit = |signal: i32| 1u64 << (signal - 1);
    let (ignored, blocked) = seen("USR2");
    assert_eq!((ignored & bit(13), ignored & bit(17), blocked), (0, 0, 0));
    assert_ne!(ignored & bit(12), 0);
    let (ignored, _) = seen("PIPE CHLD");
    assert_ne!(ignored & bit(13), 0);
}

#[test]
fn a_killed_supervisor_takes_the_program_with_it() {
    if !can_run() {
        return;
    }
    let (mut child, pid) = begun("echo $$; exec sleep 100");
    child.kill().unwrap();
    child.wait().unwrap();
    let until = Instant::now() + Duration::from_secs(5);
    while std::fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| !stat.contains(") Z "))
    {
        assert!(
            Instant::now() < until,
            "process {pid} outlived its supervisor"
        );
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// ^C goes from the terminal to supervisor and program: the program must see it once and decide.
#[test]
fn a_terminal_interrupt_reaches_the_program_once() {
    if !can_run() {
        return;
    }
    let (mut master, mut slave) = (0, 0);
    // SAFETY: both results are writable; the other arguments may be null.
    let answer = unsafe {
        libc::openpty(
            &mut master,
            &mut slave,
            std::ptr::null_mut(),
            std::ptr::null_mut(),
            std::ptr::null_mut(),
        )
    };
    assert_eq!(answer, 0);
    // SAFETY: the call above made both descriptors, and nobody else owns them.
    let (master, slave) = unsafe { (File::from_raw_fd(master), OwnedFd::from_raw_fd(slave)) };
    let script = "n=0; trap 'n=$((n+1))' INT; echo ready; i=0; \
                  while [ $i -lt 25 ]; do sleep 0.02; i=$((i+1)); done; exit $((n+10))";
    let mut command = run(&QUIET, &["sh", "-c", script]);
    command
        .stdin(slave.try_clone().unwrap())
        .stdout(slave.try_clone().unwrap())
        .stderr(slave);
    // SAFETY: two system calls, allowed between fork and exec.
    unsafe {
        command.pre_exec(|| {
            rustix::process::setsid()?;
            rustix::process::ioctl_tiocsctty(std::io::stdin())?;
            Ok(())
        });
    }
    let mut child = command.spawn().unwrap();
    drop(command);
    let mut line = String::new();
    BufReader::new(&master).read_line(&mut line).unwrap();
    (&master).write_all(b"\x03").unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(11), "{line}");
}

#[test]
fn the_settings_are_in_the_environment() {
    if !can_run() {
        return;
    }
    let script = "echo $MILLPOND_RAM; echo $MILLPOND_STORE; echo $MILLPOND_ON_STORE_FULL; echo $MILLPOND_ORDER; \
                  echo $MILLPOND_LAZY_PURGE; echo $LD_PRELOAD; exec 3>&- 4>&- 5>&- 6>&-; test -w $MILLPOND_BOARD && echo board";
    let mut command = run(
        &[
            "--report=none",
            "--store=file:swap",
            "--on-store-full=abort",
            "--order=adaptive:3",
            "--lazy-purge=off",
        ],
        &["sh", "-c", script],
    );
    let output = command
        .current_dir("/tmp")
        .env("LD_PRELOAD", "")
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(
        lines[..5],
        ["67108864", "file:/tmp/swap", "abort", "adaptive:3", "off"],
        "{text}"
    );
    assert!(
        lines[5].ends_with("libmillpond_preload.so") && lines[6] == "board",
        "{text}"
    );
}

#[test]
fn report_says_how_the_program_ended_and_that_no_slot_was_claimed() {
    if !can_run() {
        return;
    }
    let directory = common::open_directory();
    let file = directory.path().join("report.json");
    let option = format!("--report={}", file.display());
    let output = run(&[&option], &["sh", "-c", "exit 3"]).output().unwrap();
    assert!(
        output.stderr.is_empty(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let report: serde_json::Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    assert_eq!(
        (report["schema"].as_str(), report["exit_code"].as_i64()),
        (Some("millpond-run/1"), Some(3))
    );
    assert!(report["kernel_max_rss_bytes"].as_u64().unwrap() > 0);

    let text = String::from_utf8(
        run(&[], &["sh", "-c", "kill -TERM $$"])
            .output()
            .unwrap()
            .stderr,
    )
    .unwrap();
    assert!(
        text.starts_with("millpond: sh: killed by signal 15"),
        "{text}"
    );
    assert!(text.contains("not in force"), "{text}");
}

#[test]
fn the_resident_set_is_seen_from_outside() {
    if !can_run() {
        return;
    }
    // dd holds a block of 48 MiB while it waits for the reader of its second block.
    let script = "dd if=/dev/zero of=/dev/null bs=48M count=40 2>/dev/null";
    let output = run(&["--report=json"], &["sh", "-c", &format!("exec {script}")])
        .output()
        .unwrap();
    let report: serde_json::Value = serde_json::from_slice(&output.stderr).unwrap();
    assert!(
        report["peak_resident_bytes"].as_u64().unwrap() > 40 << 20,
        "{report}"
    );
}
