//! Shared code of the tests of C programs under the library: compiles a program, runs it with the library and without
//! it, and ends it if it does not end by itself.
//!
//! These tests need a C compiler and userfaultfd. Without either they say so and pass. The sources are in `tests/c`.
//! Faults are delivered in the library's default way, which is directly, or as `MILLPOND_DELIVERY` says. Anything
//! that direct delivery does not support is tested with a handler, if this user may have one.
#![allow(dead_code, reason = "each test binary uses a part")]

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// The budget of a program, in bytes: a third of the memory that most of them touch.
pub const RAM: &str = "33554432";
/// The time after which a program is assumed to hang. None takes a tenth of it on an idle machine.
const PATIENCE: Duration = Duration::from_secs(300);

/// Returns the library, which is built now because no dependency of a test can be a shared library.
pub fn library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        // This is the directory of this profile in the target directory; a test is in its `deps`.
        let test = std::env::current_exe().unwrap();
        let profile = test.parent().unwrap().parent().unwrap();
        let mut cargo = Command::new(env!("CARGO"));
        // The library is built as part of the workspace, as `./test` has already done: built alone, its dependencies
        // would have other features.
        cargo.args(["build", "--quiet", "--workspace"]);
        cargo.args(["--exclude", "millpond-remote", "--target-dir"]);
        cargo.arg(profile.parent().unwrap());
        if profile.ends_with("release") {
            cargo.arg("--release");
        }
        let built = cargo.status().unwrap();
        assert!(built.success(), "the library does not build");
        profile.join("libmillpond_preload.so")
    })
}

/// Returns whether there is a C compiler. Prints a line if there is none.
pub fn has_compiler() -> bool {
    let is_there = Command::new("cc").arg("--version").output().is_ok();
    if !is_there {
        println!("skipped: no C compiler (cc)");
    }
    is_there
}

/// Returns whether programs can be compiled and run under the library here. Prints a line that says why if not.
pub fn is_possible() -> bool {
    if !has_compiler() {
        return false;
    }
    is_run(preloaded(Path::new("/bin/true")))
}

/// Returns whether the library manages the program of this command. Prints a line that says why if not.
fn is_run(command: Command) -> bool {
    let output = finish(command);
    if output.status.code() == Some(125) {
        let reason = String::from_utf8_lossy(&output.stderr);
        println!("skipped: {}", reason.trim_end());
        return false;
    }
    assert!(output.status.success(), "{output:?}");
    true
}

/// Returns whether features that direct delivery lacks (`docs/INTERFACE.md`) can be tested with a handler. If not,
/// prints a line that says what is skipped: this user may have none, or `MILLPOND_DELIVERY` in the tests' environment
/// says `direct`.
pub fn is_by_handler(what: &str) -> bool {
    let directly = std::env::var_os("MILLPOND_DELIVERY").is_some_and(|how| how == "direct");
    let is_possible = !directly && is_handler_possible();
    if !is_possible {
        println!("left out without a handler: {what}");
    }
    is_possible
}

/// Compiles `c/NAME.c`. The compiler must treat the C library's functions like any others, so that it omits no call.
pub fn compile(name: &str, directory: &Path, more: &[&str]) -> PathBuf {
    let source = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/c"));
    let program = directory.join(name);
    let status = Command::new("cc")
        .args(["-O1", "-Wall", "-Wextra", "-Werror", "-fno-builtin"])
        .args(["-pthread", "-o"])
        .arg(&program)
        .arg(source.join(name).with_extension("c"))
        .args(more)
        .status()
        .unwrap();
    assert!(status.success(), "{name}.c does not compile");
    program
}

/// Returns a command that runs without the library, whatever the tests themselves run under.
pub fn bare(program: &Path) -> Command {
    let mut command = Command::new(program);
    command.env_remove("LD_PRELOAD");
    command
}

/// Returns a command that runs under the library, with the budget of [`RAM`].
pub fn preloaded(program: &Path) -> Command {
    let mut command = unasked(program);
    if let Some(delivery) = std::env::var_os("MILLPOND_DELIVERY") {
        command.env("MILLPOND_DELIVERY", delivery);
    }
    command
}

/// Returns a command that runs under the library with faults served by a handler.
pub fn by_handler(program: &Path) -> Command {
    let mut command = unasked(program);
    command.env("MILLPOND_DELIVERY", "handler");
    command
}

/// Returns whether this user may have faults served by a handler.
pub fn is_handler_possible() -> bool {
    finish(by_handler(Path::new("/bin/true"))).status.success()
}

/// Returns a command that runs under the library with the delivery that the library chooses by default.
pub fn unasked(program: &Path) -> Command {
    let mut command = Command::new(program);
    command
        .env("LD_PRELOAD", library())
        .env("MILLPOND_RAM", RAM)
        .env_remove("MILLPOND_DELIVERY");
    from_its_start(&mut command);
    command
}

/// Has a process managed from its start: these tests are of managed processes. Another moment may be asked for.
pub fn from_its_start(command: &mut Command) {
    if std::env::var_os("MILLPOND_ENGAGE").is_none() {
        command.env("MILLPOND_ENGAGE", "start");
    }
}

/// Returns a command that runs under the library with faults served in the thread that faults.
pub fn direct(program: &Path) -> Command {
    let mut command = preloaded(program);
    command.env("MILLPOND_DELIVERY", "direct");
    command
}

/// Returns whether programs can be compiled and run with direct delivery here. Prints a line that says why if not.
pub fn is_direct_possible() -> bool {
    has_compiler() && is_run(direct(Path::new("/bin/true")))
}

/// Runs a command to its end, which must come. If it does not, its children are ended as well: one of them may be the
/// process that hangs and keeps the pipes open.
pub fn finish(mut command: Command) -> Output {
    let program = PathBuf::from(command.get_program());
    command
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    let group = rustix::process::Pid::from_child(&child);
    let (sender, receiver) = std::sync::mpsc::channel();
    // The output is read from the start: a program that prints more than a pipe holds would wait for a reader.
    let reader = std::thread::spawn(move || sender.send(child.wait_with_output()));
    let Ok(output) = receiver.recv_timeout(PATIENCE) else {
        let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        panic!(
            "{} hangs: it has not ended after {PATIENCE:.1?}",
            program.display()
        );
    };
    reader.join().unwrap().unwrap();
    output.unwrap()
}

/// Returns the output of a command, which must succeed and complain of nothing.
pub fn printed(command: Command) -> String {
    in_order(finish(command))
}

fn in_order(output: Output) -> String {
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{:?}: {complaint}", output.status);
    assert_eq!(complaint, "");
    String::from_utf8(output.stdout).unwrap()
}

/// The run of a program without the library, whose time is printed next to its time under the library.
pub struct Pace {
    output: Output,
    took: Duration,
}

impl Pace {
    /// Runs the program without the library.
    pub fn of(program: &Path, arguments: &[&str]) -> Self {
        let mut command = bare(program);
        command.args(arguments);
        let began = Instant::now();
        let output = finish(command);
        Self {
            took: began.elapsed(),
            output,
        }
    }

    /// Returns the output of the program, which must have succeeded. Some programs check things that only the library
    /// does, and are only timed.
    pub fn native(self) -> String {
        in_order(self.output)
    }

    /// Returns the output of the same program under the library, as for [`printed`].
    pub fn printed(&self, command: Command) -> String {
        let program = PathBuf::from(command.get_program());
        let began = Instant::now();
        let output = printed(command);
        let name = program.file_name().unwrap().display();
        println!(
            "{name}: {:.1?} under the library, {:.1?} without it",
            began.elapsed(),
            self.took
        );
        output
    }
}

/// Checks that the program succeeds under the library and complains of nothing.
pub fn is_right(name: &str, arguments: &[&str]) {
    is_right_under(preloaded, name, arguments);
}

/// The same with a command made by `make`.
pub fn is_right_under(make: fn(&Path) -> Command, name: &str, arguments: &[&str]) {
    if !is_possible() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let program = compile(name, directory.path(), &[]);
    let pace = Pace::of(&program, arguments);
    let mut command = make(&program);
    command.args(arguments);
    pace.printed(command);
}

/// Returns the output of the program under the library, and without it.
pub fn tables(name: &str, arguments: &[&str]) -> Option<[String; 2]> {
    tables_under(preloaded, name, arguments)
}

fn tables_under(make: fn(&Path) -> Command, name: &str, arguments: &[&str]) -> Option<[String; 2]> {
    if !is_possible() {
        return None;
    }
    let directory = tempfile::tempdir().unwrap();
    let program = compile(name, directory.path(), &[]);
    let pace = Pace::of(&program, arguments);
    let mut command = make(&program);
    command.args(arguments);
    Some([pace.printed(command), pace.native()])
}

/// Checks that the program succeeds with direct delivery and without the library, and prints the same.
pub fn prints_the_same_directly(name: &str) {
    if !is_direct_possible() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let program = compile(name, directory.path(), &[]);
    let pace = Pace::of(&program, &[]);
    let ours = pace.printed(direct(&program));
    are_equal(&ours, &pace.native());
}

/// Compares two outputs line by line, as a table has hundreds of lines.
pub fn are_equal(ours: &str, kernel: &str) {
    let differences: Vec<_> = ours
        .lines()
        .zip(kernel.lines())
        .filter(|(ours, kernel)| ours != kernel)
        .map(|(ours, kernel)| format!("here   {ours}\nkernel {kernel}"))
        .collect();
    assert!(differences.is_empty(), "{}", differences.join("\n"));
    assert_eq!(ours.lines().count(), kernel.lines().count());
}

/// Checks that the program succeeds under the library and without it, and prints the same.
pub fn prints_the_same(name: &str, arguments: &[&str]) {
    if let Some([ours, kernel]) = tables(name, arguments) {
        are_equal(&ours, &kernel);
    }
}

/// The same with a handler. `what` is a feature that only a handler has.
pub fn prints_the_same_by_handler(name: &str, arguments: &[&str], what: &str) {
    if is_by_handler(what)
        && let Some([ours, kernel]) = tables_under(by_handler, name, arguments)
    {
        are_equal(&ours, &kernel);
    }
}

/// Returns the length of a race, in seconds.
pub fn seconds() -> String {
    std::env::var("MILLPOND_STRESS_SECS").unwrap_or_else(|_| "3".to_owned())
}
