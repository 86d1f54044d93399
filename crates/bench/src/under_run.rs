//! Measured processes under `millpond run`: this executable, started by `millpond` with the preload library.

use crate::error::{BenchError, Skip};
use crate::jobs::Job;
use millpond_cli::run::{DeliveryChoice, library};
use millpond_cli::sibling;
use std::process::Command;

/// Has a process managed from its first instruction. What measures Millpond's own work needs that: a process whose
/// memory fits would otherwise be left to the kernel.
pub const MANAGED: &str = "--engage=start";
/// Millpond's handler serves the faults.
pub const BY_HANDLER: [&str; 2] = ["--delivery=handler", MANAGED];
/// The faulting thread serves its faults, from the start.
pub const FROM_START: [&str; 2] = ["--delivery=direct", MANAGED];
/// The faulting thread serves its faults, once the process's memory comes near the budget.
pub const WHEN_NEEDED: [&str; 2] = ["--delivery=direct", "--engage=needed"];

/// Checks that programs can be run here with this delivery.
///
/// # Errors
/// The reason why they cannot be run.
pub fn can_run_by(delivery: DeliveryChoice) -> Result<(), Skip> {
    library::find().map_err(|error| Skip(error.to_string()))?;
    millpond_cli::doctor::require_for_run(delivery).map_err(|error| Skip(error.to_string()))
}

/// The command `millpond run OPTIONS --ram RAM -- millpond-bench worker JOB`.
///
/// # Errors
/// When this executable's file has been removed, or there is no `millpond` beside it.
pub fn command(ram: u64, options: &[&str], job: &Job) -> Result<Command, BenchError> {
    let executable = std::env::current_exe().map_err(BenchError::Start)?;
    let mut command = Command::new(sibling::find(sibling::MILLPOND).map_err(BenchError::Start)?);
    command
        .args(["run", "--report", "none", "--ram", &ram.to_string()])
        .args(options)
        .arg("--")
        .arg(executable)
        .args(job.to_arguments()?);
    Ok(command)
}
