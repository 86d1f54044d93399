//! The command `millpond`: run a program in less RAM than it touches, see what happens there and what this machine
//! allows, and measure.

use clap::Parser;
use millpond_cli::command::{Cli, Command};
use millpond_cli::{bench, doctor, help, metrics, print, record, remote, replay, run, stat, top};
use std::error::Error;
use std::process::ExitCode;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) if error.use_stderr() => {
            let text = error.to_string();
            let text = text.strip_prefix("error: ").unwrap_or(&text);
            print::say(format_args!("{}", text.trim_end()));
            return ExitCode::from(2);
        }
        Err(help) => {
            let printed = print::all(help.to_string().as_bytes());
            return finish(printed.map(|()| 0), |_| 1);
        }
    };
    match cli.command {
        Command::Run(args) => finish(run::run(&args), run::RunError::exit_code),
        Command::Doctor(args) => finish(doctor::doctor(&args), |_| 1),
        Command::Record(args) => finish(record::record(&args), record::RecordError::exit_code),
        Command::Replay(args) => finish(replay::replay(&args), |_| 1),
        Command::Stat(args) => finish(stat::stat(&args), |_| 1),
        Command::Metrics(args) => finish(metrics::metrics(&args), |_| 1),
        Command::Top(args) => finish(top::top(&args), |_| 1),
        Command::Remote(args) => finish(remote::remote(&args), remote::RemoteError::exit_code),
        Command::Bench(args) => finish(bench::bench(&args), bench::BenchError::exit_code),
        Command::Help(args) => finish(help::help(&args), |_| 1),
    }
}

fn finish<E: Error>(result: Result<u8, E>, exit_code: impl Fn(&E) -> u8) -> ExitCode {
    match result {
        Ok(status) => ExitCode::from(status),
        Err(error) => {
            print::say(format_args!("{error}"));
            ExitCode::from(exit_code(&error))
        }
    }
}
