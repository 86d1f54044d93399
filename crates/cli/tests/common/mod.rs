//! `millpond` in a directory of its own, with an empty library where the preload library belongs. These tests look at
//! the supervisor, which must behave the same whatever the library does.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use tempfile::TempDir;

/// The executable with an empty library next to it, in the build's directory. Other tests may make these files at the
/// same time, so they are made under other names and put in place by renaming.
pub fn millpond() -> &'static Path {
    static MADE: OnceLock<PathBuf> = OnceLock::new();
    MADE.get_or_init(|| {
        let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("with-stub");
        fs::create_dir_all(&directory).unwrap();
        let making = TempDir::new_in(&directory).unwrap();
        let made = making.path().join("millpond");
        fs::hard_link(env!("CARGO_BIN_EXE_millpond"), &made).unwrap();
        let program = directory.join("millpond");
        fs::rename(made, &program).unwrap();
        let library = stub(making.path());
        fs::rename(&library, directory.join(library.file_name().unwrap())).unwrap();
        program
    })
}

/// An empty library under the preload library's name. Building needs `cc`, which Rust needs too.
pub fn stub(directory: &Path) -> PathBuf {
    let library = directory.join("libmillpond_preload.so");
    let source = TempDir::new().unwrap();
    let file = source.path().join("stub.c");
    fs::write(&file, "int millpond_stub;\n").unwrap();
    let built = Command::new("cc")
        .args(["-shared", "-fPIC", "-o"])
        .arg(&library)
        .arg(&file)
        .status()
        .unwrap();
    assert!(built.success());
    library
}

/// Runs `millpond run --ram 64M OPTIONS -- COMMAND`, with signals as a terminal has them. A test that runs in the
/// background of a script has inherited that interrupts are ignored, and one that `nohup` started has inherited that
/// hangups are. So would the program under test, and a shell cannot trap a signal that it found ignored.
pub fn run(options: &[&str], command: &[&str]) -> Command {
    let mut run = Command::new(millpond());
    // SAFETY: `signal` is allowed between fork and exec.
    unsafe {
        run.pre_exec(|| {
            for signal in [libc::SIGINT, libc::SIGQUIT, libc::SIGHUP, libc::SIGTERM] {
                libc::signal(signal, libc::SIG_DFL);
            }
            Ok(())
        });
    }
    run.args(["run", "--ram", "64M"])
        .args(options)
        .arg("--")
        .args(command);
    run
}

/// A temporary directory that other users may enter.
pub fn open_directory() -> TempDir {
    let directory = TempDir::new().unwrap();
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
    directory
}

/// Whether programs can be run under a budget here; prints a line when they cannot.
pub fn can_run() -> bool {
    let can = Command::new(millpond())
        .arg("doctor")
        .output()
        .unwrap()
        .status
        .success();
    if !can {
        println!("skipped: userfaultfd is refused here (see `millpond doctor`)");
    }
    can
}
