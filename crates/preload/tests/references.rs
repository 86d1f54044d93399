//! Programs that give memory to pipes and sockets without a copy, under the library: the far end reads what was given.
//!
//! They need what the programs of `programs.rs` need, and say so where it is missing.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

const RAM: &str = "33554432";
const PATIENCE: Duration = Duration::from_secs(120);

/// The library, built now, as no dependency of a test can be a shared library.
fn library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        let test = std::env::current_exe().unwrap();
        let directory = test.parent().unwrap().parent().unwrap();
        let mut cargo = Command::new(env!("CARGO"));
        // As a part of the workspace: by itself its dependencies would have other features.
        cargo.args(["build", "--quiet", "--workspace", "--target-dir"]);
        cargo.arg(directory.parent().unwrap());
        if directory.ends_with("release") {
            cargo.arg("--release");
        }
        let built = cargo.status().unwrap().success();
        assert!(built, "the library does not build");
        directory.join("libmillpond_preload.so")
    })
}

/// Compiles a program; `None`, with the reason, where it cannot be run under the library.
fn compiled(name: &str, directory: &Path) -> Option<PathBuf> {
    if Command::new("cc").arg("--version").output().is_err() {
        println!("skipped: no C compiler (cc)");
        return None;
    }
    let probe = run(Path::new("/bin/true"), &[], true);
    if probe.status.code() == Some(125) {
        let reason = String::from_utf8_lossy(&probe.stderr);
        println!("skipped: {}", reason.trim_end());
        return None;
    }
    assert!(probe.status.success(), "{probe:?}");
    let source = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/c"));
    let program = directory.join(name);
    let status = Command::new("cc")
        .args(["-O1", "-Wall", "-Wextra", "-Werror", "-pthread", "-o"])
        .arg(&program)
        .arg(source.join(name).with_extension("c"))
        .status();
    assert!(status.unwrap().success(), "{name}.c does not compile");
    Some(program)
}

/// Runs a program to its end, which must come.
fn run(program: &Path, arguments: &[&str], preloaded: bool) -> Output {
    let mut command = Command::new(program);
    command.args(arguments).env_remove("LD_PRELOAD");
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    if preloaded {
        command
            .env("LD_PRELOAD", library())
            .env("MILLPOND_RAM", RAM);
    }
    let child = command.spawn().unwrap();
    let pid = rustix::process::Pid::from_child(&child);
    let (sender, receiver) = std::sync::mpsc::channel();
    let reader = std::thread::spawn(move || sender.send(child.wait_with_output()));
    let Ok(output) = receiver.recv_timeout(PATIENCE) else {
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        panic!("{} hangs", program.display());
    };
    reader.join().unwrap().unwrap();
    output.unwrap()
}

fn is_right(name: &str, arguments: &[&str], runs: usize) {
    let directory = tempfile::tempdir().unwrap();
    let Some(program) = compiled(name, directory.path()) else {
        return;
    };
    for _ in 0..runs {
        let output = run(&program, arguments, true);
        let complaint = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{:?}: {complaint}", output.status);
        assert_eq!(complaint, "");
    }
}

/// Pages that a pipe referred to were moved out, and their frames used for other data.
#[test]
fn what_was_given_to_a_pipe_is_read_from_it() {
    is_right("spliced", &[], 5);
}

/// The same of pages that a socket's queue referred to.
#[test]
fn what_was_sent_without_a_copy_is_received() {
    is_right("zero_copy", &[], 5);
}

#[test]
fn readers_at_far_ends_see_what_was_given_while_memory_is_short() {
    let seconds = std::env::var("MILLPOND_STRESS_SECS").unwrap_or_else(|_| "3".to_owned());
    is_right("racing_references", &[&seconds], 1);
}

/// Full pipes, bad addresses, bad descriptors, signals: all but the two refusals is the kernel's answer.
#[test]
fn calls_that_refer_to_memory_answer_as_the_kernel_does() {
    let directory = tempfile::tempdir().unwrap();
    let Some(program) = compiled("reference_table", directory.path()) else {
        return;
    };
    let [ours, kernel] = [true, false].map(|preloaded| {
        let output = run(&program, &[], preloaded);
        assert!(output.status.success(), "{output:?}");
        assert_eq!(String::from_utf8_lossy(&output.stderr), "");
        String::from_utf8(output.stdout).unwrap()
    });
    let (refused, same): (Vec<&str>, Vec<&str>) =
        ours.lines().partition(|line| line.starts_with("refused"));
    let others = kernel.lines().filter(|line| !line.starts_with("refused"));
    assert_eq!(same, others.collect::<Vec<_>>());
    let expected = [libc::EOPNOTSUPP, libc::EOPNOTSUPP, libc::ENOENT];
    let answers = expected.map(|error| format!("refused -1 {error}"));
    assert_eq!(refused, answers);
}
