//! `millpond bench start`: the cost of a process that starts and ends at once, with and without `millpond run`.
//!
//! Compilers and shells start thousands of small programs, and each of them pays for starting everything that
//! Millpond has in a process. So one process starts `/bin/true` repeatedly, and then reads what it and its children
//! have used. A ratio is the kernel's median divided by Millpond's, so it is below 1.

use crate::bench::{Asked, Bench, Parts};
use crate::clock::{Clock, micros};
use crate::error::{BenchError, Failure};
use crate::jobs::Job;
use crate::outcome::outcome;
use crate::phases;
use crate::side::sides;
use crate::under_run;
use millpond_cli::run::{DeliveryChoice, cpu_time};
use serde::{Deserialize, Serialize};
use std::io;
use std::process::{Command, Stdio};

/// The program that is started.
const PROGRAM: &str = "/bin/true";
/// The budget: more than such a process needs.
const RAM: u64 = 64 << 20;

/// `millpond bench start`'s arguments.
#[derive(clap::Args, Debug)]
pub struct StartArgs {
    #[command(flatten)]
    asked: Asked<Part>,
    #[command(flatten)]
    sizes: Sizes,
}

/// A part of the benchmark.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
enum Part {
    /// Start one process after the other
    Start,
}

impl Parts for Part {
    const SCHEMA: &'static str = "millpond-bench-start/3";

    fn units(_order: &str) -> String {
        "times are µs a process".to_owned()
    }
}

/// Sizes of one measurement.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, clap::Args)]
#[group(skip)]
pub struct Sizes {
    /// The number of processes to start
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..), value_name = "N")]
    times: u32,
}

sides! {
    /// Who serves the faults of the processes.
    pub enum Side {
        /// Millpond's handler
        Handler,
        /// Millpond, in the faulting thread, from the start
        FromStart,
        /// Millpond, in the faulting thread, once it is needed
        Direct,
        /// The kernel
        Kernel,
    }
    against [Kernel]
}

outcome! {
    /// The mean cost of one process: times in microseconds.
    pub struct Outcome {
        /// Processor time, including its parent's for it.
        cpu: f64,
        /// The time from start to end.
        wall: f64,
        /// Page faults in the process and its parent, as counted by the kernel.
        faults: f64,
    }
    figures {
        time "cpu" = |r| r.cpu,
        time "wall" = |r| r.wall,
        other "faults" = |r| r.faults,
    }
}

/// Measures and prints.
///
/// # Errors
/// When a worker fails, or a signal ended the benchmark.
pub fn start(args: &StartArgs) -> Result<u8, BenchError> {
    let sizes = args.sizes;
    Bench::run(&args.asked, None, |bench, part| {
        let mut sides = vec![Side::Kernel];
        for (side, delivery) in [
            (Side::Direct, DeliveryChoice::Direct),
            (Side::FromStart, DeliveryChoice::Direct),
            (Side::Handler, DeliveryChoice::Handler),
        ] {
            let what = format!("processes by {side}");
            if bench.can(&what, under_run::can_run_by(delivery)) {
                sides.insert(0, side);
            }
        }
        let job = Job::Start(sizes);
        let rounds = bench.rounds::<_, Outcome>(&sides, |bench, side| {
            let options = match side {
                Side::Kernel => return bench.workers.measure(&job, None),
                Side::Handler => under_run::BY_HANDLER,
                Side::FromStart => under_run::FROM_START,
                Side::Direct => under_run::WHEN_NEEDED,
            };
            let command = under_run::command(RAM, &options, &job)?;
            bench.workers.measure_command(command, None)
        })?;
        let heading = format!("{} times {PROGRAM}, one after the other", sizes.times);
        bench.part(part, heading, sizes, rounds)
    })
}

/// Does the job of the measured process.
///
/// # Errors
/// When a process cannot be started.
pub fn work(sizes: &Sizes) -> Result<Outcome, Failure> {
    let (clock, before) = (Clock::start(), spent());
    for _ in 0..sizes.times {
        let status = Command::new(PROGRAM).stdin(Stdio::null()).status()?;
        if !status.success() {
            return Err(io::Error::other(format!("{PROGRAM} ended with {status}")).into());
        }
    }
    let (wall, after) = (clock.wall(), spent());
    let times = f64::from(sizes.times);
    Ok(Outcome {
        cpu: (after.0 - before.0) / times,
        wall: wall / times,
        faults: (after.1 - before.1) / times,
    })
}

/// Processor time in microseconds, and page faults, of this process and of its children that have ended.
fn spent() -> (f64, f64) {
    let (mut cpu, mut faults) = (0.0, 0.0);
    for whom in [libc::RUSAGE_SELF, libc::RUSAGE_CHILDREN] {
        let usage = phases::rusage(whom);
        cpu += micros(cpu_time(&usage));
        faults += usage.ru_minflt as f64;
    }
    (cpu, faults)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parent_measures_time_and_faults_of_a_child() {
        let outcome = work(&Sizes { times: 3 }).unwrap();
        assert!(outcome.wall > 0.0 && outcome.faults > 10.0, "{outcome:?}");
    }
}
