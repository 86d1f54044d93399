//! `millpond bench` hands over to `millpond-bench`. That is a separate program, because a user who only runs programs
//! does not need it.

use crate::sibling;
use clap::Args;
use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// What is handed over.
#[derive(Args, Debug)]
pub struct BenchArgs {
    /// The arguments of `millpond-bench`; `millpond bench --help` lists them
    #[arg(
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "ARGS"
    )]
    pub arguments: Vec<OsString>,
}

/// The reasons why nothing can be measured.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// `millpond-bench` is not installed.
    #[error(
        "{0}; the archive and the packages of Millpond have it, and in a checkout `cargo build --release -p \
         millpond-bench` makes it: put it beside `millpond`"
    )]
    Missing(#[source] io::Error),
    /// `millpond-bench` is installed but cannot be started.
    #[error("cannot start millpond-bench: {0}")]
    Start(#[source] io::Error),
}

impl BenchError {
    /// The exit status for this error, as in a shell.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Missing(_) => 127,
            Self::Start(_) => 126,
        }
    }
}

/// Turns this process into `millpond-bench`.
///
/// # Errors
/// When that is not possible.
pub fn bench(args: &BenchArgs) -> Result<u8, BenchError> {
    let program = sibling::find(sibling::BENCH).map_err(BenchError::Missing)?;
    Err(BenchError::Start(
        Command::new(program).args(&args.arguments).exec(),
    ))
}
