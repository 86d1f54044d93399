//! The kernel's and the C library's interface, where a program under the library saw something else than without it.
//!
//! Each is a small C program that died, hung or was told something wrong. They need a C compiler, and userfaultfd with
//! faults from the kernel handed over (root, or access to `/dev/userfaultfd`); without either the tests say so and pass.

use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

const RAM: &str = "33554432";
const PATIENCE: Duration = Duration::from_secs(60);

/// The library, built now, as no dependency of a test can be a shared library.
fn library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        let test = std::env::current_exe().unwrap();
        let profile = test.parent().unwrap().parent().unwrap();
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["build", "--quiet", "--workspace", "--target-dir"]);
        cargo.arg(profile.parent().unwrap());
        if profile.ends_with("release") {
            cargo.arg("--release");
        }
        let built = cargo.status().unwrap();
        assert!(built.success(), "the library does not build");
        profile.join("libmillpond_preload.so")
    })
}

fn compile(name: &str, directory: &Path, more: &[&str]) -> PathBuf {
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

fn preloaded(program: &Path) -> Command {
    let mut command = Command::new(program);
    command
        .env("LD_PRELOAD", library())
        .env("MILLPOND_RAM", RAM);
    command
}

/// Runs a command to its end, which must come.
fn finish(mut command: Command) -> Output {
    let program = PathBuf::from(command.get_program());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
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

/// Whether programs can be run under the library here; says why not.
fn is_possible() -> bool {
    if Command::new("cc").arg("--version").output().is_err() {
        println!("skipped: no C compiler (cc)");
        return false;
    }
    let output = finish(preloaded(Path::new("/bin/true")));
    if output.status.code() == Some(125) {
        let reason = String::from_utf8_lossy(&output.stderr);
        println!("skipped: {}", reason.trim_end());
        return false;
    }
    assert!(output.status.success(), "{output:?}");
    true
}

fn is_right(name: &str) {
    if !is_possible() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let output = finish(preloaded(&compile(name, directory.path(), &[])));
    assert!(output.status.success(), "{output:?}");
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
}

/// A library that was loaded so had the C library's `free`, and the process was aborted by it.
#[test]
fn a_library_that_is_bound_deeply_shares_the_programs_allocator() {
    if !is_possible() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let more = ["-shared", "-fPIC"];
    let extension = compile("extension", directory.path(), &more);
    let named = directory.path().join("extension.so");
    std::fs::rename(extension, &named).unwrap();
    let program = compile(
        "deep_bound",
        directory.path(),
        &["-ldl", "-Wl,-rpath,$ORIGIN"],
    );
    let mut command = preloaded(&program);
    command.arg(&named);
    let output = finish(command);
    assert!(output.status.success(), "{output:?}");
}

/// A core had the whole reservation: 327 GiB by its length, 11 s to write. It has what the program has in memory.
#[test]
fn a_core_has_the_programs_memory_and_no_reservation() {
    let pattern = std::fs::read("/proc/sys/kernel/core_pattern").unwrap_or_default();
    let is_plain = pattern
        .first()
        .is_some_and(|&byte| byte != b'|' && byte != b'/');
    if !is_plain || !is_possible() {
        println!("skipped: cores go elsewhere here, or nothing can be run");
        return;
    }
    for more in [None, Some("unmap")] {
        let directory = tempfile::tempdir().unwrap();
        let program = compile("aborts", directory.path(), &[]);
        let mut shell = Command::new("sh");
        shell.args([
            "-c",
            "ulimit -c unlimited 2>/dev/null || exit 9; LD_PRELOAD=$0 exec \"$@\"",
        ]);
        shell.arg(library()).arg(&program).args(more);
        shell.env("MILLPOND_RAM", RAM).current_dir(directory.path());
        let output = finish(shell);
        if output.status.code() == Some(9) {
            println!("skipped: no limit on cores can be lifted here");
            return;
        }
        assert_eq!(output.status.signal(), Some(6), "{output:?}");
        let core = std::fs::read_dir(directory.path())
            .unwrap()
            .find_map(|entry| {
                let path = entry.unwrap().path();
                let name = path.file_name().unwrap().to_string_lossy().into_owned();
                name.starts_with("core").then_some(path)
            });
        let core = core.expect("no core");
        let len = core.metadata().unwrap().len();
        assert!(len < 256 << 20, "a core of {len} bytes");
        let sevens = std::fs::read(&core).unwrap();
        let sevens = sevens.iter().filter(|&&byte| byte == 7).count();
        assert!(sevens >= 8 << 20, "only {sevens} bytes of 8 MiB");
    }
}

/// The kernel found our reservation where the mapping was to grow to.
#[test]
fn a_growing_mapping_grows_in_a_former_hole() {
    is_right("growing");
}

/// Holes of the space were told to be mapped, and nothing to be allocated.
#[test]
fn questions_are_answered_as_without_us() {
    is_right("asked");
}
