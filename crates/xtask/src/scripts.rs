//! `cargo xtask ci`, `sim` and `bench`: short names for the programs that check and measure a change. Each becomes
//! the program itself, so that its output, its exit status and Ctrl-C are those of that program.

use crate::tool::{self, TaskError};
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// `cargo xtask sim`'s arguments.
#[derive(clap::Args)]
pub struct SimArgs {
    /// The seed that a failure printed
    seed: u64,
    /// Further arguments of the simulator
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    more: Vec<OsString>,
}

/// `cargo xtask bench`'s arguments.
#[derive(clap::Args)]
pub struct BenchArgs {
    /// The arguments of `millpond-bench`, as `swap --json`; `--help` lists them
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

/// Runs `.ci/run`.
///
/// # Errors
/// When it cannot be started.
pub fn ci() -> Result<(), TaskError> {
    become_program(Command::new(tool::root().join(".ci/run")).current_dir(tool::root()))
}

/// Runs the simulator with one seed.
///
/// # Errors
/// When it cannot be started.
pub fn sim(args: &SimArgs) -> Result<(), TaskError> {
    let seed = args.seed.to_string();
    become_program(
        tool::cargo()
            .args([
                "run",
                "--profile",
                "checked",
                "--quiet",
                "-p",
                "millpond-sim",
                "--",
                "--seed",
                &seed,
            ])
            .args(&args.more),
    )
}

/// Builds everything that is measured, and runs `millpond-bench`.
///
/// # Errors
/// When something cannot be built or started.
pub fn bench(args: &BenchArgs) -> Result<(), TaskError> {
    // `millpond-bench` starts `millpond`, which loads the library in its own directory.
    let packages = [
        "-p",
        "millpond-bench",
        "-p",
        "millpond-cli",
        "-p",
        "millpond-preload",
    ];
    tool::run(
        tool::cargo()
            .args(["build", "--release", "--quiet"])
            .args(packages),
    )?;
    become_program(
        Command::new(tool::target().join("release/millpond-bench")).args(&args.arguments),
    )
}

fn become_program(command: &mut Command) -> Result<(), TaskError> {
    let error = command.exec();
    let name = command.get_program().to_string_lossy().into_owned();
    Err(TaskError::Failed(name, error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_cannot_be_started_is_named() {
        let error = become_program(&mut Command::new("/no/where")).unwrap_err();
        assert!(
            error
                .to_string()
                .starts_with("/no/where failed: No such file"),
            "{error}"
        );
    }
}
