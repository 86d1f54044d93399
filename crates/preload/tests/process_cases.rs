//! Tests of how processes under the library end, and how resource limits affect them.
//!
//! As in `fork_cases.rs`, these are C programs with a budget of a third of the memory that they touch, which need a C
//! compiler and userfaultfd. Without either the tests say so and pass. Each program's source tells its story.

mod common;

use common::{compile, finish, is_possible, preloaded, prints_the_same};
use std::path::Path;

/// Checks that the program succeeds, prints `wanted` and complains of nothing.
fn prints(name: &str, arguments: &[&str], wanted: &str) {
    if !is_possible() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let mut command = preloaded(&compile(name, directory.path(), &[]));
    command.args(arguments);
    assert_eq!(common::printed(command), wanted);
}

#[test]
fn the_last_thread_of_several_ends_the_process() {
    prints("last_thread_ends", &[], "ended\n");
}

/// Covers functions registered with `atexit` that still run when the manager creates a thread.
#[test]
fn the_last_thread_runs_its_slow_exit_handlers_to_the_end() {
    prints("last_thread_ends", &["slowly"], "ended\n");
}

/// Covers a last thread that ends while the manager creates its threads, about a tenth of a second after the start.
#[test]
fn the_last_thread_runs_exit_handlers_while_the_manager_creates_threads() {
    ends_at_every_moment(&[]);
}

/// Covers the same in a child of another than the first thread.
#[test]
fn the_last_thread_of_a_child_runs_exit_handlers_while_the_manager_creates_threads() {
    ends_at_every_moment(&["thread"]);
}

fn ends_at_every_moment(form: &[&str]) {
    if !is_possible() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let program = compile("last_thread_ends", directory.path(), &[]);
    for pause in (90_000..112_000).step_by(300) {
        let mut command = preloaded(&program);
        command.args(form).arg(pause.to_string());
        assert_eq!(common::printed(command), "ended\n", "after {pause} us");
    }
}

#[test]
fn the_only_thread_ends_the_process() {
    prints("last_thread_ends", &["alone"], "ended\n");
}

#[test]
fn the_last_thread_of_a_child_ends_it() {
    prints("last_thread_ends", &["child"], "ended\n");
}

/// Covers a last thread that ends by the bare system call, which the library does not notice.
#[test]
fn the_last_thread_ends_the_process_even_by_a_raw_exit() {
    if !common::is_possible() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let program = common::compile("ends_by_number", directory.path(), &[]);
    let strict = common::is_by_handler("the kernel's strict mode, which no filter can go over to");
    let forms = ["alone", "strict", "several"];
    for form in forms.into_iter().filter(|form| strict || *form != "strict") {
        let ours = match form {
            "strict" => common::by_handler(&program),
            _ => common::preloaded(&program),
        };
        for mut command in [common::bare(&program), ours] {
            command.arg(form);
            let output = common::finish(command);
            assert_eq!(output.status.code(), Some(7), "{form}: {output:?}");
            assert_eq!(output.stdout, b"right\n", "{form}");
        }
    }
}

#[test]
fn failed_execs_leave_all_of_our_threads_running() {
    prints("execs_in_vain", &[], "done\n");
}

#[test]
fn a_full_descriptor_table_does_not_stop_a_child() {
    prints("fork_with_full_table", &[], "");
}

/// Checks the effect of a shell's `ulimit` on the programs that it starts: each works, or ends with a status and with
/// whole lines that name the program.
///
/// The test found that with eight descriptors every program ended by SIGSEGV. jemalloc could not read the overcommit
/// setting, so it had mapped some memory without access before it had our hooks, and the hooks did not handle that.
/// One of our messages had no name and no line end, and another advised granting userfaultfd when descriptors were
/// missing.
///
/// Under a previously set limit on data, the manager's tables were refused, and the program aborted.
#[test]
fn resource_limits_end_a_program_only_with_a_message() {
    if !is_possible() {
        return;
    }
    for limit in [
        "-n 5",
        "-n 6",
        "-n 8",
        "-n 10",
        "-n 12",
        "-n 20",
        "-d 300000",
        "-v 300000",
        "-v 2000000",
    ] {
        // The second shell has the manager start under the limit.
        let script = format!(
            "ulimit {limit}; echo $(/bin/echo in); exec /bin/bash -c 'echo $(/bin/echo in)'"
        );
        let mut shell = preloaded(Path::new("/bin/bash"));
        shell.args(["-c", &script]);
        let output = finish(shell);
        let (out, err) = (
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr),
        );
        let status = output.status.code();
        assert!(matches!(status, Some(0 | 71 | 125)), "{limit}: {output:?}");
        assert!(
            out.lines().all(|line| ["", "in"].contains(&line)),
            "{limit}: {output:?}"
        );
        assert!(err.is_empty() || err.ends_with('\n'), "{limit}: {err}");
        for line in err.lines() {
            let is_ours = line.starts_with("millpond: ");
            assert!(is_ours || line.starts_with("/bin/bash: "), "{limit}: {err}");
            assert!(!line.contains("sysctl"), "{limit}: {err}");
        }
    }
}

/// Covers sudo, which ended by SIGSEGV, and `TMPDIR`, which was not honoured.
#[test]
fn a_programs_own_getenv_is_never_called() {
    if !is_possible() {
        return;
    }
    let directory = tempfile::tempdir_in("/var/tmp").unwrap();
    let place = directory.path().join("temporary");
    std::fs::create_dir(&place).unwrap();
    let program = compile("own_getenv", directory.path(), &[]);
    let plain = std::fs::canonicalize("/var/tmp").unwrap();
    for (temporary, expected) in [
        (place.as_path(), place.as_path()),
        (&directory.path().join("none"), &plain),
    ] {
        for store in ["auto", "file"] {
            let mut command = preloaded(&program);
            command
                .env("TMPDIR", temporary)
                .env("MILLPOND_STORE", store);
            command.arg(expected);
            common::printed(command);
        }
    }
}

/// Covers mutexes that could no longer be acquired: when a thread ends, the kernel marks the mutexes that it still
/// holds, does not wait for absent pages, and stopped at the first one. The same happened to a process for which
/// another one waited: a word that should have been cleared stayed.
#[test]
fn robust_mutexes_of_an_ended_thread_are_released() {
    prints_the_same("owners_end", &[]);
}
