//! `cargo xtask`: what is done with the checkout that cargo has no command for.

mod dist;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// Work on the checkout
#[derive(Parser)]
#[command(name = "cargo xtask")]
struct Args {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Make the archive that is handed out: command, libraries, header, manual pages, completions
    Dist(dist::DistArgs),
}

fn main() -> ExitCode {
    let Args { task } = Args::parse();
    let done = match task {
        Task::Dist(args) => dist::dist(&args),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("cargo xtask: {error}");
            ExitCode::FAILURE
        }
    }
}
