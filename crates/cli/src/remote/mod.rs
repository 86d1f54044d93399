//! `millpond remote`: manages the memory of programs in stores beyond the machine (`docs/remote.md`).
//!
//! The clients of these stores take minutes to build, so the command includes them only with the cargo feature
//! `remote`. Without it the command line is the same, and the error says how to get a command that includes them.

mod age;
#[cfg(feature = "remote")]
mod clean;

use clap::{Args, Subcommand};
use std::io;
use std::time::Duration;

/// `millpond remote`'s arguments.
#[derive(Args, Debug)]
pub struct RemoteArgs {
    #[command(subcommand)]
    command: RemoteCommand,
}

/// What can be done with a store beyond the machine.
#[derive(Subcommand, Debug)]
enum RemoteCommand {
    /// Remove the objects that killed runs left in a store
    Clean(CleanArgs),
}

/// `millpond remote clean`'s arguments.
#[derive(Args, Debug)]
pub struct CleanArgs {
    /// The store, as programs name it: s3://BUCKET/PREFIX?region=NAME or fs:///DIRECTORY. Credentials come from the
    /// environment
    #[arg(value_name = "URL")]
    pub url: String,
    /// Remove the objects of runs that have shown no sign of life for this long, such as 90m, 12h or 7d. A run
    /// signals that it is alive once a minute while it can reach the store. A live run whose objects are removed
    /// loses memory, so choose a time longer than any interruption
    #[arg(long, value_name = "DURATION", default_value = "1d", value_parser = age::parse)]
    pub older_than: Duration,
    /// Print what would be removed, and remove nothing
    #[arg(long)]
    pub dry_run: bool,
}

/// Why an operation on a store was not done, or not completed.
#[derive(Debug, thiserror::Error)]
pub enum RemoteError {
    /// The command has no clients of stores.
    #[error(
        "this command was built without stores beyond the machine; `cargo install millpond-cli --features remote` \
         makes one that has them"
    )]
    NotBuilt,
    /// The URL names no store.
    #[cfg(feature = "remote")]
    #[error(transparent)]
    Url(#[from] millpond_remote::UrlError),
    /// The store was not cleaned, or not completely.
    #[cfg(feature = "remote")]
    #[error(transparent)]
    Clean(#[from] millpond_remote::CleanError),
    /// The result cannot be printed.
    #[error("cannot print the result: {0}")]
    Print(#[from] io::Error),
}

impl RemoteError {
    /// The exit status for this error: 2 if a different command line would fix it, else 1.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::NotBuilt => 2,
            #[cfg(feature = "remote")]
            Self::Url(_) => 2,
            #[cfg(feature = "remote")]
            Self::Clean(_) => 1,
            Self::Print(_) => 1,
        }
    }
}

/// Carries out the requested operation on a store.
///
/// # Errors
/// When the command has no clients of stores, the store cannot be opened, or nothing can be printed.
pub fn remote(args: &RemoteArgs) -> Result<u8, RemoteError> {
    let RemoteCommand::Clean(args) = &args.command;
    clean_up(args)
}

#[cfg(feature = "remote")]
fn clean_up(args: &CleanArgs) -> Result<u8, RemoteError> {
    clean::clean(&args.url.parse()?, args.older_than, args.dry_run)
}

#[cfg(not(feature = "remote"))]
fn clean_up(_args: &CleanArgs) -> Result<u8, RemoteError> {
    Err(RemoteError::NotBuilt)
}
