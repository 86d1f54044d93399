//! The messages and statuses of `millpond run` when it does not start the program.

mod common;
#[path = "common/install.rs"]
mod install;

use common::{can_run, millpond, open_directory, run, stub};
use install::install;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn message(output: &Output, status: i32) -> String {
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(status), "{text}");
    assert!(text.starts_with("millpond: "), "{text}");
    assert!(output.stdout.is_empty(), "{text}");
    text
}

#[test]
fn invalid_size_is_refused_with_its_value_and_a_remedy() {
    for (size, part) in [
        ("0", "16 MiB"),
        ("15M", "16 MiB"),
        ("-1", "16 MiB"),
        ("99999999999999999999G", "at most"),
        ("lots", "64M"),
        ("", "64M"),
    ] {
        let argument = format!("--ram={size}");
        let output = Command::new(millpond())
            .args(["run", &argument, "--", "true"])
            .output()
            .unwrap();
        let text = message(&output, 2);
        assert!(text.contains(size) && text.contains(part), "{text}");
    }
}

#[test]
fn invalid_order_is_refused_with_its_value_and_the_choices() {
    for order in ["10", "-1", "adaptive:", "adaptive:10", "Adaptive", ""] {
        let argument = format!("--order={order}");
        let output = run(&[&argument], &["true"]).output().unwrap();
        let text = message(&output, 2);
        assert!(text.contains(&format!("{order:?} is no order")), "{text}");
        assert!(text.contains("adaptive:MAX"), "{text}");
    }
}

#[test]
fn limit_for_an_absent_store_is_refused_with_option_and_remedy() {
    for (options, words) in [
        (
            &["--remote-max", "1G"][..],
            ["--remote-max", "auto,s3://BUCKET/PREFIX"],
        ),
        (
            &["--store", "zram", "--file-max", "1G"],
            ["--file-max", "--store auto"],
        ),
        (
            &["--store", "redis://user:secret@localhost/0"],
            ["beyond the machine", "auto,URL"],
        ),
    ] {
        let text = message(&run(options, &["true"]).output().unwrap(), 2);
        assert!(words.iter().all(|word| text.contains(word)), "{text}");
        assert!(!text.contains("secret"), "{text}");
    }
}

/// The HTTP client takes minutes to build, so it is omitted from a plain build.
#[cfg(not(feature = "remote"))]
#[test]
fn command_built_without_remote_stores_says_how_to_get_them() {
    let options = ["--store", "auto,redis://user:secret@localhost/0"];
    let text = message(&run(&options, &["true"]).output().unwrap(), 2);
    assert!(
        !text.contains("secret") && text.contains("--features remote"),
        "{text}"
    );
}

#[test]
fn bad_options_are_status_2() {
    for options in [
        ["--store", "tape"],
        ["--store", "file:"],
        ["--order", "10"],
        ["--on-store-full", "weep"],
        ["--report", ""],
    ] {
        message(&run(&options, &["true"]).output().unwrap(), 2);
    }
    message(
        &Command::new(millpond())
            .args(["run", "--ram", "64M"])
            .output()
            .unwrap(),
        2,
    );
    message(
        &Command::new(millpond())
            .args(["run", "true"])
            .output()
            .unwrap(),
        2,
    );
}

/// The one line after `millpond: ` used to begin with `error: ` or lacked a line end. An unknown option was taken for
/// the program's name, and a mistyped form of the report for a file's name.
#[test]
fn each_bad_invocation_has_its_status_and_a_line_that_names_the_value() {
    for (arguments, status, value) in [
        ("run --ram 64M --no-such -- true", 2, "--no-such"),
        ("run --ram 64M --no-such true", 2, "--no-such"),
        ("run --ram 64M -x true", 2, "-x"),
        ("run --ram 64M --reprot=json -- true", 2, "--reprot"),
        ("run --ram 64M --report xml true", 2, "xml"),
        ("run --ram 64M --report=TEXT true", 2, "TEXT"),
        (
            "run --ram 64M --store zram --encrypt true",
            2,
            "--store zram",
        ),
        ("run --ram 64M --store tape true", 2, "tape"),
        ("run --ram 64M --store file: true", 2, "file:"),
        ("run --ram 64M --order 10 true", 2, "10"),
        ("run --ram 64M --on-store-full weep true", 2, "weep"),
        ("run --ram 64M --lazy-purge maybe true", 2, "maybe"),
        ("run --ram 64M --ram 32M true", 2, "--ram"),
        ("run --ram 64X true", 2, "64X"),
        ("run --ram 1M true", 2, "1M"),
        ("run --ram= true", 2, "--ram"),
        ("run --ram", 2, "--ram"),
        ("run --ram 64M", 2, "PROGRAM"),
        ("run true", 2, "--ram"),
        ("run --ram 64M -- no-such-program", 127, "no-such-program"),
        ("run --ram 64M /no/such/program", 127, "/no/such/program"),
        ("run --ram 64M -- --no-such", 127, "--no-such"),
        ("run --ram 64M /", 126, "/"),
        ("run --ram 64M /etc/passwd", 126, "/etc/passwd"),
        ("record --ram 64M --no-such true", 2, "--no-such"),
        ("stat none", 2, "none"),
        ("replay --ram 10", 2, "TRACE"),
        ("no-such", 2, "no-such"),
        ("--no-such", 2, "--no-such"),
        ("", 2, "Usage"),
    ] {
        let words = arguments.split(' ').filter(|word| !word.is_empty());
        let output = Command::new(millpond()).args(words).output().unwrap();
        let text = message(&output, status);
        assert!(text.contains(value), "{arguments}: {text}");
        assert!(text.ends_with('\n'), "{arguments}: {text}");
        assert!(!text.contains("error: "), "{arguments}: {text}");
    }
}

/// Runs a command whose reader is gone, once on standard output and once on standard error.
fn without_a_reader(arguments: &[&str]) -> [Output; 2] {
    let closed = || std::io::pipe().unwrap().1;
    let mut out = Command::new(millpond());
    let mut err = Command::new(millpond());
    [
        out.args(arguments).stdout(closed()).output().unwrap(),
        err.args(arguments).stderr(closed()).output().unwrap(),
    ]
}

/// `millpond doctor | head -1` used to end with an error, and `millpond --help` with a panic.
#[test]
fn a_reader_that_closes_the_pipe_causes_no_error() {
    for arguments in [
        &["doctor"][..],
        &["doctor", "--json"],
        &["stat"],
        &["stat", "--json"],
        &["stat", "1"],
        &["metrics"],
        &["--help"],
        &["run", "--no-such"],
        &["run", "--ram", "64M", "no-such-program"],
    ] {
        let heard = Command::new(millpond()).args(arguments).output().unwrap();
        for unheard in without_a_reader(arguments) {
            let text = String::from_utf8_lossy(&unheard.stderr);
            assert_eq!(unheard.status, heard.status, "{arguments:?}: {text}");
            assert!(!text.contains("panicked"), "{arguments:?}: {text}");
            assert!(!text.contains("Broken pipe"), "{arguments:?}: {text}");
        }
    }
}

#[test]
fn a_program_that_is_not_there_is_127() {
    for name in ["no-such-program", "/no/such/program", ""] {
        message(&run(&[], &[name]).output().unwrap(), 127);
    }
}

#[test]
fn a_program_that_cannot_run_under_a_budget_is_126() {
    let directory = open_directory();
    let put = |name: &str, mode: u32, bytes: &[u8]| {
        let path = directory.path().join(name);
        fs::write(&path, bytes).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let program = fs::read("/bin/true").unwrap();
    let mut short = program.clone();
    short[4] = 1;
    for (path, part) in [
        ("/".to_owned(), "directory"),
        (put("plain", 0o644, &program), "chmod +x"),
        (put("short", 0o755, &short), "32-bit"),
        (
            put("script", 0o755, b"#!/no/such/interpreter\n"),
            "/no/such/interpreter",
        ),
    ] {
        let text = message(&run(&[], &[&path]).output().unwrap(), 126);
        assert!(text.contains(part) && text.contains(&path), "{text}");
    }
    let inner = put("inner", 0o4755, &program);
    // Root may give files away, and then has another user's rights to gain. To any other user a program of root's gives
    // some.
    let given = std::os::unix::fs::chown(&inner, Some(1), None).is_ok();
    let mode = fs::Permissions::from_mode(0o4755);
    fs::set_permissions(&inner, mode).unwrap();
    let inner = if given { &inner } else { "/usr/bin/su" };
    let outer = put("outer", 0o755, format!("#!{inner}\n").as_bytes());
    let text = message(&run(&[], &[&outer]).output().unwrap(), 126);
    assert!(text.contains("set-uid") && text.contains(inner), "{text}");
}

#[test]
fn a_library_that_is_named_and_not_there_is_125() {
    let directory = open_directory();
    let alone = install(directory.path());
    for named in ["/no/where.so", "/"] {
        let command = |arguments: &[&str]| {
            let mut command = Command::new(&alone);
            command.args(arguments).env("MILLPOND_PRELOAD", named);
            command.output().unwrap()
        };
        let text = message(&command(&["run", "--ram", "64M", "true"]), 125);
        assert!(
            text.contains(&format!("MILLPOND_PRELOAD names {named}")) && text.contains("unset"),
            "{text}"
        );
        assert_eq!(command(&["doctor"]).status.code(), Some(1));
    }
}

#[cfg(not(feature = "embed"))]
#[test]
fn a_missing_library_is_125() {
    let directory = open_directory();
    let alone = install(directory.path());
    let mut command = Command::new(&alone);
    command
        .args(["run", "--ram", "64M", "true"])
        .env_remove("MILLPOND_PRELOAD");
    let text = message(&command.output().unwrap(), 125);
    assert!(
        text.contains("MILLPOND_PRELOAD") && text.contains("cargo build"),
        "{text}"
    );
    let doctor = Command::new(&alone)
        .arg("doctor")
        .env_remove("MILLPOND_PRELOAD")
        .output()
        .unwrap();
    assert_eq!(doctor.status.code(), Some(1));
}

#[test]
fn missing_bench_program_is_127_and_a_present_one_gets_all_arguments() {
    let directory = tempfile::TempDir::new().unwrap();
    let program = install(directory.path());
    let bench = |arguments: &[&str]| {
        let mut command = Command::new(&program);
        command.arg("bench").args(arguments);
        command.env("PATH", "/nowhere").output().unwrap()
    };
    let text = message(&bench(&["swap"]), 127);
    let missing = program.with_file_name("millpond-bench");
    assert!(text.contains(missing.to_str().unwrap()), "{text}");
    assert!(text.contains("cargo build"), "{text}");

    fs::write(&missing, "#!/bin/sh\necho \"$@\"\n").unwrap();
    fs::set_permissions(&missing, fs::Permissions::from_mode(0o755)).unwrap();
    let output = bench(&["swap", "--json", "--help", "--", "-x"]);
    assert_eq!(output.stdout, b"swap --json --help -- -x\n");
}

/// What a program under `program run` has in `LD_PRELOAD`, with these variables.
fn loaded(program: &Path, variables: &[(&str, &Path)]) -> PathBuf {
    let mut command = Command::new(program);
    command
        .args([
            "run",
            "--ram=64M",
            "--report=none",
            "sh",
            "-c",
            "echo $LD_PRELOAD",
        ])
        .env_remove("MILLPOND_PRELOAD")
        .envs(variables.iter().copied());
    let output = command.output().unwrap();
    String::from_utf8(output.stdout).unwrap().trim().into()
}

#[test]
fn the_library_is_found_in_each_of_its_places() {
    if !can_run() {
        return;
    }
    let directory = open_directory();
    let program = install(&directory.path().join("bin"));
    let prefix = directory.path().join("lib/millpond");
    fs::create_dir_all(&prefix).unwrap();
    let installed = stub(&prefix);
    assert_eq!(
        loaded(&program, &[]).canonicalize().unwrap(),
        installed.canonicalize().unwrap()
    );
    let beside = stub(&directory.path().join("bin"));
    assert_eq!(loaded(&program, &[]), beside);
    // Whoever names a library means it: until version 0.1.0 the installed ones came before.
    let elsewhere = open_directory();
    let named = stub(elsewhere.path());
    assert_eq!(loaded(&program, &[("MILLPOND_PRELOAD", &named)]), named);
    assert_eq!(
        loaded(&program, &[("MILLPOND_PRELOAD", Path::new(""))]),
        beside
    );
}

/// After `cargo install` there was no library: that installs programs only, and `millpond run` named a checkout that
/// its user did not have.
#[cfg(feature = "embed")]
#[test]
fn a_command_installed_alone_uses_its_embedded_library() {
    if !can_run() {
        return;
    }
    let directory = open_directory();
    let program = install(&directory.path().join("bin"));
    let home = directory.path().join("home");
    fs::create_dir(&home).unwrap();
    let nowhere = Path::new("");
    let seen = loaded(&program, &[("HOME", &home), ("XDG_CACHE_HOME", nowhere)]);
    assert!(seen.starts_with(home.join(".cache/millpond")), "{seen:?}");
    assert!(fs::read(&seen).unwrap().starts_with(b"\x7fELF"));
    // Without a place for it the library is in memory, and the program is managed all the same.
    let mut command = Command::new(&program);
    command
        .args([
            "run",
            "--ram=64M",
            "--report=json",
            "sh",
            "-c",
            "echo $LD_PRELOAD",
        ])
        .env_remove("MILLPOND_PRELOAD")
        .envs([("HOME", nowhere), ("XDG_CACHE_HOME", nowhere)]);
    let output = command.output().unwrap();
    let seen = String::from_utf8(output.stdout).unwrap();
    assert!(
        seen.starts_with("/proc/") && seen.contains("/fd/"),
        "{seen}"
    );
    let report = String::from_utf8(output.stderr).unwrap();
    let report: serde_json::Value = serde_json::from_str(&report).unwrap();
    let processes = report["processes"].as_array().map(Vec::len);
    assert_eq!(processes, Some(1), "{report}");
}

#[test]
fn a_library_that_ld_preload_cannot_name_is_125() {
    let directory = open_directory();
    let spaced = directory.path().join("my tools");
    let program = install(&spaced);
    let library = stub(&spaced);
    let run = |named: &Path| {
        let mut command = Command::new(&program);
        command.args(["run", "--ram=64M", "true"]);
        // What the command writes out must not stay in the home of whoever runs the tests.
        command
            .env("HOME", directory.path())
            .env_remove("XDG_CACHE_HOME");
        command.env("MILLPOND_PRELOAD", named).output().unwrap()
    };
    let text = message(&run(&library), 125);
    assert!(
        text.contains("my tools") && text.contains("MILLPOND_PRELOAD"),
        "{text}"
    );
    // A command that holds the library puts it elsewhere by itself.
    let beside = run(Path::new(""));
    let status = if cfg!(feature = "embed") && can_run() {
        0
    } else {
        125
    };
    assert_eq!(beside.status.code(), Some(status), "{beside:?}");
}

#[test]
fn a_path_in_a_missing_directory_is_125() {
    if !can_run() {
        return;
    }
    for option in [
        "--report=/no/such/place/report",
        "--store=file:/no/such/place/swap",
    ] {
        let text = message(&run(&[option], &["true"]).output().unwrap(), 125);
        assert!(text.contains("/no/such/place"), "{text}");
    }
}

/// A command that will be refused, run by a user without rights who asks for what needs one.
fn run_as_nobody(directory: &Path) -> Command {
    let program = install(directory);
    stub(directory);
    let mut command = Command::new(program);
    command
        .args(["run", "--ram=64M", "--delivery=handler", "true"])
        .uid(65534)
        .gid(65534)
        .current_dir("/");
    command
}

#[test]
fn invalid_delivery_is_refused_with_its_value_and_the_choices() {
    let argument = "--delivery=thread";
    let output = Command::new(millpond())
        .args(["run", "--ram=64M", argument, "--", "true"])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{text}");
    for part in ["thread", "auto", "direct", "handler"] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn a_user_without_userfaultfd_is_told_the_command() {
    let setting = fs::read_to_string("/proc/sys/vm/unprivileged_userfaultfd").unwrap_or_default();
    let device =
        fs::metadata("/dev/userfaultfd").map_or(0, |metadata| metadata.permissions().mode());
    if !rustix::process::geteuid().is_root() || setting.trim() != "0" || device & 0o006 == 0o006 {
        println!(
            "skipped: needs root, vm.unprivileged_userfaultfd=0 and a closed /dev/userfaultfd"
        );
        return;
    }
    let directory = open_directory();
    let mut command = run_as_nobody(directory.path());
    let text = message(&command.output().unwrap(), 125);
    // In a container that was not given the device, nothing inside it helps.
    let is_closed_in = Path::new("/.dockerenv").exists() && !Path::new("/dev/userfaultfd").exists();
    let way_out = match is_closed_in {
        true => "docker run --device",
        false => "sudo",
    };
    assert!(text.contains(way_out), "{text}");
}

/// The command runs as root of a user namespace of its own, with a `/dev` that has nothing in it. The message once
/// named `docker run`, or a sysctl that cannot be set there.
#[test]
fn remedy_in_a_sandbox_without_the_device_concerns_the_sandbox() {
    let script = "mount -t tmpfs none /dev && exec \"$@\"";
    let mut command = Command::new("unshare");
    command
        .args([
            "--user",
            "--map-root-user",
            "--mount",
            "sh",
            "-c",
            script,
            "sh",
        ])
        .arg(millpond())
        .args(["run", "--ram=64M", "--delivery=handler", "true"]);
    let output = match command.output() {
        Ok(output) if output.status.code() == Some(125) => output,
        other => {
            // With the sysctl set there is nothing to refuse; where namespaces are closed the mount fails.
            println!("skipped: no such namespace can be made here, or it may do all: {other:?}");
            return;
        }
    };
    let text = message(&output, 125);
    assert!(
        text.contains("user namespace") && text.contains("bwrap --dev-bind"),
        "{text}"
    );
    assert!(!text.contains("sysctl"), "{text}");
    assert_eq!(text.lines().count(), 1, "{text}");
}

/// Refuses userfaultfd as a container's profile does: with `EPERM`, in this process and those that it starts.
fn refuse_userfaultfd() -> std::io::Result<()> {
    let word = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    // The filter loads the number of the call. If it is userfaultfd's, the call fails; else it is allowed.
    let mut filter = [
        word(0x20, 0, 0, 0),
        word(0x15, 0, 1, libc::SYS_userfaultfd as u32),
        word(0x06, 0, 0, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32),
        word(0x06, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog {
        len: filter.len() as u16,
        filter: filter.as_mut_ptr(),
    };
    // SAFETY: the kernel reads the filter, which lives until then.
    let done = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
            | libc::prctl(
                libc::PR_SET_SECCOMP,
                libc::SECCOMP_MODE_FILTER,
                &raw const program,
            )
    };
    match done {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

/// No sysctl changes what a filter refuses.
#[test]
fn remedy_under_a_filter_is_not_a_sysctl() {
    let is_closed = fs::metadata("/dev/userfaultfd").map_or(true, |metadata| {
        metadata.permissions().mode() & 0o006 != 0o006
    });
    if !rustix::process::geteuid().is_root() || !is_closed {
        println!("skipped: needs root and a /dev/userfaultfd that is closed to others");
        return;
    }
    let directory = open_directory();
    let mut command = run_as_nobody(directory.path());
    // SAFETY: the closure makes system calls only.
    unsafe { command.pre_exec(refuse_userfaultfd) };
    let text = message(&command.output().unwrap(), 125);
    assert!(!text.contains("sysctl"), "{text}");
    assert!(
        text.contains("seccomp profile") || text.contains("container"),
        "{text}"
    );
}

/// The static program ran unmanaged, and the report did not say what it was.
#[test]
fn a_static_program_below_a_shell_is_named_in_the_report() {
    if !can_run() {
        return;
    }
    let directory = open_directory();
    let source = directory.path().join("still.c");
    fs::write(
        &source,
        "#include <unistd.h>\nint main(void) { return usleep(2500000); }\n",
    )
    .unwrap();
    let program = directory.path().join("standing");
    let built = Command::new("cc")
        .arg("-static")
        .arg("-o")
        .arg(&program)
        .arg(&source)
        .output();
    if !built.is_ok_and(|built| built.status.success()) {
        println!("skipped: no static program can be built here");
        return;
    }
    let script = format!("{}; :", program.display());
    let output = run(&["--report=json"], &["sh", "-c", &script])
        .output()
        .unwrap();
    let report: serde_json::Value = serde_json::from_slice(&output.stderr).unwrap();
    let named = report["unmanaged"].as_array().unwrap();
    // The shell has the library of these tests, which is empty.
    assert!(
        named.iter().any(|one| one["name"] == "standing"),
        "{report}"
    );
    assert!(named.iter().all(|one| one["name"] != "sh"), "{report}");
}

/// Covers AddressSanitizer, which complained of the order of libraries, and ThreadSanitizer, which found its addresses
/// taken.
#[test]
fn programs_with_sanitizers_run_or_are_refused_before_they_start() {
    if !can_run() || !Path::new("/usr/bin/gcc").exists() {
        return;
    }
    let directory = tempfile::TempDir::new().unwrap();
    let source = directory.path().join("s.c");
    fs::write(&source, "int main(void) { return 7; }\n").unwrap();
    let with = |kind: &str| {
        let program = directory.path().join(kind);
        let mut compiler = Command::new("/usr/bin/gcc");
        compiler.arg(format!("-fsanitize={kind}")).arg("-o");
        let built = compiler.args([&program, &source]).output().unwrap();
        if !built.status.success() {
            println!("skipped: gcc has no -fsanitize={kind} here");
        }
        let program = program.to_str().unwrap().to_owned();
        built.status.success().then_some(program)
    };
    for (kind, name) in [
        ("address", "AddressSanitizer"),
        ("thread", "ThreadSanitizer"),
    ] {
        let Some(program) = with(kind) else { continue };
        let text = message(&run(&[], &[&program]).output().unwrap(), 126);
        assert!(text.contains(name) && text.contains("-fsanitize"), "{text}");
    }
    if let Some(program) = with("undefined") {
        let output = run(&[], &[&program]).output().unwrap();
        assert_eq!(output.status.code(), Some(7), "{output:?}");
    }
}
