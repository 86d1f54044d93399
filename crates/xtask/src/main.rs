//! `cargo xtask`: what is done with the checkout that cargo has no command for.

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
    /// Make what is handed out: an archive, a Debian package, a wheel, an image of a container
    Dist(dist::DistArgs),
    /// Make the packages of all crates that are published, and try them
    Package(package::PackageArgs),
    /// Write the pages that are made from tables in the sources
    Docs,
    /// Run what every change must pass
    Ci,
    /// Replay a seed of the simulator
    Sim(scripts::SimArgs),
    /// Measure Millpond beside the kernel
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
