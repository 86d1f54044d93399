//! The words of the command line, from which its help, its manual pages and its completions are made.

use crate::{bench, doctor, help, metrics, record, remote, replay, run, stat, top};
use clap::{Parser, Subcommand};

/// Run a program in less RAM than it touches
#[derive(Parser, Debug)]
#[command(name = "millpond", version, disable_help_subcommand = true)]
pub struct Cli {
    /// The command that was chosen.
    #[command(subcommand)]
    pub command: Command,
}

/// What `millpond` can do.
#[derive(Subcommand, Debug)]
pub enum Command {
    /// Run a program under a RAM budget
    Run(run::RunArgs),
    /// Check whether `millpond run` works here, and say what to change if it does not
    Doctor(doctor::DoctorArgs),
    /// Run a program and record which pages it touches, for `millpond replay`
    Record(record::RecordArgs),
    /// Count the page faults that a recorded trace takes in less memory, policy by policy
    Replay(replay::ReplayArgs),
    /// Print the counters of a program that runs under a budget, like vmstat
    Stat(stat::StatArgs),
    /// Print the counters of all programs under a budget for Prometheus, or serve them
    Metrics(metrics::MetricsArgs),
    /// Watch the programs that run under a budget, like top
    Top(top::TopArgs),
    /// Maintain the stores beyond the machine that hold programs' memory
    Remote(remote::RemoteArgs),
    /// Compare Millpond with the kernel on this machine, using `millpond-bench`
    #[command(disable_help_flag = true)]
    Bench(bench::BenchArgs),
    /// Explain a command, or a topic such as budget, store or tell
    Help(help::HelpArgs),
}
