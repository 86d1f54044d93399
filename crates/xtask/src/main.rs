//! `cargo xtask`: work on the checkout for which cargo has no command.

mod dist;
mod docs;
mod package;
mod scripts;
mod tool;

use clap::{Parser, Subcommand};
use std::error::Error;
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
    /// Make the distributions: an archive, a Debian package, a wheel, a container image
    Dist(dist::DistArgs),
    /// Make the packages of all published crates, and try them
    Package(package::PackageArgs),
    /// Write the pages that are generated from tables in the sources
    Docs,
    /// Run the checks that every change must pass
    Ci,
    /// Replay a seed of the simulator
    Sim(scripts::SimArgs),
    /// Compare Millpond with the kernel
    Bench(scripts::BenchArgs),
}

fn main() -> ExitCode {
    let Args { task } = Args::parse();
    let done: Result<(), Box<dyn Error>> = match task {
        Task::Dist(args) => dist::dist(&args).map_err(Into::into),
        Task::Package(args) => package::package(&args).map_err(Into::into),
        Task::Docs => docs::docs().map_err(Into::into),
        Task::Ci => scripts::ci().map_err(Into::into),
        Task::Sim(args) => scripts::sim(&args).map_err(Into::into),
        Task::Bench(args) => scripts::bench(&args).map_err(Into::into),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("cargo xtask: {error}");
            ExitCode::FAILURE
        }
    }
}
