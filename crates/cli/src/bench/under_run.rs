//! Measured processes under `millpond run`: the same executable, started by itself with the preload library.

use super::{BenchError, Skip};
use crate::run::env;
use std::process::Command;

/// Whether programs can be run under Millpond's allocator here.
///
/// # Errors
/// Why not.
pub fn can_run() -> Result<(), Skip> {
    env::find_library().map_err(|error| Skip(error.to_string()))?;
    crate::doctor::require_for_run().map_err(|error| Skip(error.to_string()))
}

/// `millpond run OPTIONS --ram RAM -- millpond bench-worker WORKER`.
///
/// # Errors
/// When this executable has no name any more.
pub fn command(ram: u64, options: &[&str], worker: &[String]) -> Result<Command, BenchError> {
    let executable = std::env::current_exe().map_err(BenchError::Start)?;
    let mut command = Command::new(&executable);
    command
        .args(["run", "--report", "none", "--ram", &ram.to_string()])
        .args(options)
        .arg("--")
        .arg(executable)
        .arg("bench-worker")
        .args(worker);
    Ok(command)
}
