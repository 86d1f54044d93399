//! Tests with programs that do not take the signal by which they are asked to end.
//!
//! The fault was found with a program that hung with its signals blocked: `millpond run` received TERM, forwarded it,
//! and neither said anything nor ended. A program that catches or ignores a signal is left alone, as it would be
//! without a supervisor.

#[allow(dead_code, reason = "each test binary uses a part")]
mod common;
#[path = "common/started.rs"]
mod started;

use common::{can_run, run};
use rustix::process::Signal;
use started::{send, started};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Stdio};
use std::time::Duration;

/// A program that blocks TERM and INT, as it finds them blocked by the process that starts `millpond`.
fn deaf() -> Child {
    let mut command = run(
        &["--report=none"],
        &["sh", "-c", "echo ready; exec sleep 60"],
    );
    // SAFETY: signal sets on the stack, and calls that are allowed between fork and exec.
    unsafe {
        command.pre_exec(|| {
            let mut set = std::mem::zeroed();
            libc::sigemptyset(&mut set);
            libc::sigaddset(&mut set, libc::SIGTERM);
            libc::sigaddset(&mut set, libc::SIGINT);
            libc::sigprocmask(libc::SIG_BLOCK, &set, std::ptr::null_mut());
            Ok(())
        });
    }
    started(command.stderr(Stdio::piped())).0
}

/// Waits until the kernel has stopped a process.
fn wait_for_stop(pid: &str) {
    let status = format!("/proc/{pid}/status");
    while !std::fs::read_to_string(&status)
        .unwrap()
        .contains("State:\tT")
    {
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// The signal by which the run ended, and the text on standard error.
fn end_of(mut child: Child) -> (Option<i32>, String) {
    let status = child.wait().unwrap();
    let mut said = String::new();
    let mut stderr = child.stderr.take().unwrap();
    stderr.read_to_string(&mut said).unwrap();
    (status.signal(), said)
}

#[test]
fn program_that_never_takes_a_signal_is_killed_with_a_message() {
    if !can_run() {
        return;
    }
    let child = deaf();
    send(&child, Signal::TERM);
    let (signal, said) = end_of(child);
    assert_eq!(signal, Some(libc::SIGKILL), "{said}");
    let lines: Vec<&str> = said.lines().collect();
    assert!(
        lines.len() == 2
            && lines[0].contains("has not taken SIGTERM")
            && lines[1].ends_with("did not take SIGTERM; ended by SIGKILL"),
        "{said}"
    );
}

#[test]
fn a_second_request_kills_the_program_at_once() {
    if !can_run() {
        return;
    }
    for second in [Signal::TERM, Signal::INT] {
        // Both are asked to end at the same time, and one of them once more when it has been told that this ends it.
        let (mut asked_once, mut asked_twice) = (deaf(), deaf());
        send(&asked_once, Signal::TERM);
        send(&asked_twice, Signal::TERM);
        let mut stderr = BufReader::new(asked_twice.stderr.take().unwrap());
        let mut said = String::new();
        stderr.read_line(&mut said).unwrap();
        assert!(said.contains("has not taken SIGTERM"), "{said}");
        send(&asked_twice, second);
        let status = asked_twice.wait().unwrap();
        assert_eq!(status.signal(), Some(libc::SIGKILL), "{said}");
        assert!(asked_once.try_wait().unwrap().is_none(), "{said}");
        assert_eq!(end_of(asked_once).0, Some(libc::SIGKILL));
    }
}

#[test]
fn program_that_takes_its_signals_is_never_killed() {
    if !can_run() {
        return;
    }
    let caught = "trap 'echo caught' TERM; echo ready; i=0; \
                  while [ $i -lt 120 ]; do sleep 0.1; i=$((i+1)); done; exit 3";
    let ignored = "trap '' TERM; echo ready; sleep 12; exit 3";
    let stopped = "echo $$; kill -STOP $$; exit 3";
    let run = |script| {
        let mut command = run(&["--report=none"], &["sh", "-c", script]);
        started(command.stderr(Stdio::piped()))
    };
    let (stopped, pid) = run(stopped);
    let mut children = [run(caught).0, run(ignored).0, stopped];
    wait_for_stop(&pid);
    for _ in 0..2 {
        children.iter().for_each(|child| send(child, Signal::TERM));
        std::thread::sleep(Duration::from_millis(600));
    }
    std::thread::sleep(Duration::from_secs(10));
    assert!(
        children[2].try_wait().unwrap().is_none(),
        "a stopped program is not deaf"
    );
    send(&children[2], Signal::CONT);
    let [caught, ignored, stopped] = children.map(end_of);
    assert_eq!(
        (caught.0, ignored.0),
        (None, None),
        "{} {}",
        caught.1,
        ignored.1
    );
    assert_eq!(stopped.0, Some(libc::SIGTERM), "{}", stopped.1);
    assert_eq!(caught.1 + &ignored.1 + &stopped.1, "");
}
