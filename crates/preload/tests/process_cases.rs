//! How processes under the library end, and what limits of a process do to them.
//!
//! As in `fork_cases.rs`: C programs at a third of the memory that they touch, which need a C compiler and userfaultfd;
//! without either the tests say so and pass. Each program's source tells its story.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(60);

fn library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        let test = std::env::current_exe().unwrap();
        let profile = test.parent().unwrap().parent().unwrap();
        // As a part of the workspace, as `./test` has done already: by itself its dependencies would have other
        // features.
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["build", "--quiet", "--workspace", "--target-dir"]);
        cargo.arg(profile.parent().unwrap());
        if profile.ends_with("release") {
            cargo.arg("--release");
        }
        assert!(
            cargo.status().unwrap().success(),
            "the library does not build"
        );
        profile.join("libmillpond_preload.so")
    })
}

/// Runs the program under the library to its end, which must come; a whole process group ends with it.
fn run(program: &Path, arguments: &[&str]) -> Output {
    use std::os::unix::process::CommandExt;
    let child = Command::new(program)
        .args(arguments)
        .env("LD_PRELOAD", library())
        .env("MILLPOND_RAM", "33554432")
        .process_group(0)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let group = rustix::process::Pid::from_child(&child);
    let (sender, receiver) = std::sync::mpsc::channel();
    let reader = std::thread::spawn(move || sender.send(child.wait_with_output()));
    let Ok(output) = receiver.recv_timeout(PATIENCE) else {
        let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        panic!("{} hangs", program.display());
    };
    reader.join().unwrap().unwrap();
    output.unwrap()
}

fn is_possible() -> bool {
    if Command::new("cc").arg("--version").output().is_err() {
        println!("skipped: no C compiler (cc)");
        return false;
    }
    let output = run(Path::new("/bin/true"), &[]);
    if output.status.code() == Some(125) {
        println!("skipped: {}", String::from_utf8_lossy(&output.stderr));
        return false;
    }
    assert!(output.status.success(), "{output:?}");
    true
}

/// Compiles the program and runs it with each of the arguments: it ends well, prints `printed` and nothing else.
fn is_right(name: &str, arguments: &[&str], printed: &str) {
    if !is_possible() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let program = directory.path().join(name);
    let source = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/c")).join(name);
    let compiled = Command::new("cc")
        .args(["-O1", "-Wall", "-Wextra", "-Werror", "-pthread", "-o"])
        .arg(&program)
        .arg(source.with_extension("c"))
        .status()
        .unwrap();
    assert!(compiled.success(), "{name}.c does not compile");
    let output = run(&program, arguments);
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    assert_eq!(String::from_utf8_lossy(&output.stdout), printed);
}

#[test]
fn the_last_thread_of_several_ends_the_process() {
    is_right("last_thread_ends", &[], "ended\n");
}

#[test]
fn the_only_thread_ends_the_process() {
    is_right("last_thread_ends", &["alone"], "ended\n");
}

#[test]
fn the_last_thread_of_a_child_ends_it() {
    is_right("last_thread_ends", &["child"], "ended\n");
}

#[test]
fn a_full_table_of_descriptors_keeps_no_child_from_going_on() {
    is_right("fork_with_full_table", &[], "");
}

/// What a shell's `ulimit` does to the programs that it starts: each works, or ends with a status and with whole lines
/// that say whose they are.
///
/// Found: with eight descriptors every program ended by SIGSEGV. jemalloc could not ask how memory may be promised, so
/// it had mapped some without access before it had our hooks, and what those did about that was nothing. A line of
/// ours had no name and no end, and one advised to grant userfaultfd where descriptors were missing.
///
/// Under a limit on data that was there before, the manager's tables were refused, and the program aborted.
#[test]
fn limits_end_a_program_with_a_line_or_not_at_all() {
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
        let output = run(Path::new("/bin/bash"), &["-c", &script]);
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
