//! The command in a directory of its own.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// The executable, copied so that no library of another build lies next to it.
pub fn install(directory: &Path) -> PathBuf {
    fs::create_dir_all(directory).unwrap();
    fs::set_permissions(directory, fs::Permissions::from_mode(0o755)).unwrap();
    let program = directory.join("millpond");
    fs::copy(env!("CARGO_BIN_EXE_millpond"), &program).unwrap();
    // A child that another test was just starting may have inherited the descriptor through which the copy was written.
    // Until that child runs its own program, the copy is a busy text file and cannot be run. This was seen once, as a
    // panic of the first user.
    while let Err(error) = Command::new(&program).arg("--version").output() {
        assert_eq!(error.kind(), ErrorKind::ExecutableFileBusy, "{error}");
        std::thread::sleep(Duration::from_millis(5));
    }
    program
}
