//! The command as a copy in a directory of its own, so that it uses the library that it holds: the one of a build of
//! the workspace may have been made without the feature `remote`.

#[path = "../common/install.rs"]
mod install;

use install::install;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

pub const PYTHON: &str = "/usr/bin/python3";

/// The command, and the directory of its cache and of the stores' files.
pub struct Here {
    pub directory: TempDir,
    pub millpond: PathBuf,
}

impl Here {
    pub fn new() -> Option<Self> {
        if !Path::new(PYTHON).exists() {
            println!("skipped: no {PYTHON}; apt-get install python3");
            return None;
        }
        let directory = tempfile::tempdir_in("/var/tmp").unwrap();
        let millpond = install(directory.path());
        Some(Self {
            directory,
            millpond,
        })
    }

    pub fn command(&self, program: impl AsRef<Path>) -> Command {
        let mut command = Command::new(program.as_ref());
        command
            .env_remove("MILLPOND_PRELOAD")
            .env("XDG_CACHE_HOME", self.directory.path())
            .env("TMPDIR", self.directory.path());
        command
    }
}

/// The sum of a figure over all processes of a report.
pub fn total(report: &serde_json::Value, key: &str) -> u64 {
    let processes = report["processes"].as_array().unwrap();
    processes.iter().map(|one| one[key].as_u64().unwrap()).sum()
}
