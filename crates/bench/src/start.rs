//! `millpond bench start`: what a process costs that starts and ends at once, under `millpond run` and by itself.
//!
//! Compilers and shells start thousands of small programs, and each of them pays for the start of everything that
//! Millpond has in a process. So one process starts `/bin/true` again and again, and looks at what it and its children
//! have used by then.
//!
//! The JSON object has `schema` = `millpond-bench-start/2`; later versions only add fields. It has the fields of every
//! benchmark of parts, and one part, `start`, whose figures are those of [`Outcome`]. A ratio is the kernel's median
//! over Millpond's, so it is below 1.

use crate::bench::{self, Asked, Bench};
use crate::clock::{Clock, micros};
use crate::error::{BenchError, Failure};
use crate::part::{self, Contender, Figure, Part, Shown, show};
use crate::phases;
use crate::rounds::{self, Median, of};
use crate::summary::Parts;
use crate::under_run;
use crate::worker::Workers;
use millpond_cli::run::{DeliveryChoice, cpu_time};
use serde::{Deserialize, Serialize};
use std::process::{Command, Stdio};
use std::{fmt, io};

/// The program that starts and ends.
const PROGRAM: &str = "/bin/true";
/// The budget: more than such a process takes.
const RAM: u64 = 64 << 20;

/// `millpond bench start`'s arguments.
#[derive(clap::Args, Debug)]
pub struct StartArgs {
    #[command(flatten)]
    asked: Asked<Name>,
    #[command(flatten)]
    sizes: Sizes,
}

/// A part of the benchmark.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
enum Name {
    /// One process after the other
    Start,
}

impl bench::Name for Name {}

/// Sizes of one measurement.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, clap::Args)]
#[group(skip)]
pub struct Sizes {
    /// How many processes are started
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..), value_name = "N")]
    times: u32,
}

/// Who serves the faults of the processes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
enum Side {
    /// Millpond's handler
    Handler,
    /// Millpond, in the thread that faults
    Direct,
    /// The kernel
    Kernel,
}

impl Side {
    /// How `millpond run` is asked for this side.
    fn delivery(self) -> Option<DeliveryChoice> {
        match self {
            Self::Handler => Some(DeliveryChoice::Handler),
            Self::Direct => Some(DeliveryChoice::Direct),
            Self::Kernel => None,
        }
    }
}

impl Contender for Side {
    fn is_kernel(self) -> bool {
        self == Self::Kernel
    }
}

/// The name that `--delivery` takes.
impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Handler => "handler",
            Self::Direct => "direct",
            Self::Kernel => "kernel",
        })
    }
}

/// The cost of one process, as a mean over all: times in microseconds.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Outcome {
    /// Processor time, that of its parent for it included.
    cpu: f64,
    /// The time from start to end.
    wall: f64,
    /// Page faults that the kernel counts, in process and parent.
    faults: f64,
}

impl Median for Outcome {
    fn median(rounds: &[Self]) -> Self {
        Self {
            cpu: of(rounds, |r| r.cpu),
            wall: of(rounds, |r| r.wall),
            faults: of(rounds, |r| r.faults),
        }
    }
}

impl part::Outcome for Outcome {
    const FIGURES: &'static [Figure<Self>] = &[
        Figure::time("cpu", |r| r.cpu),
        Figure::time("wall", |r| r.wall),
        Figure::other("faults", |r| r.faults),
    ];

    fn wrong(&self) -> u64 {
        0
    }
}

/// The one part.
#[derive(Clone, Debug, Default, Serialize)]
struct StartParts {
    start: Option<Part<Side, Sizes, Outcome>>,
}

impl Parts for StartParts {
    const SCHEMA: &'static str = "millpond-bench-start/2";

    fn all(&self) -> Vec<Option<Shown<'_>>> {
        let heading =
            |sizes: &Sizes| format!("{} times {PROGRAM}, one after the other", sizes.times);
        vec![show(&self.start, heading)]
    }

    fn units(&self, _: &str) -> String {
        "times are µs a process".to_owned()
    }
}

/// Measures and prints.
///
/// # Errors
/// When a worker fails, or a signal asked for the end.
pub fn start(args: &StartArgs) -> Result<u8, BenchError> {
    Bench::run(&args.asked, None, |bench: &mut Bench<StartParts>, _| {
        let mut sides = vec![Side::Kernel];
        for side in [Side::Direct, Side::Handler] {
            match side.delivery().map_or(Ok(()), under_run::can_run_by) {
                Ok(()) => sides.insert(0, side),
                Err(why) => bench.skipped.note(&format!("processes by {side}"), &why),
            }
        }
        let rounds = bench.rounds(&sides, |bench, side| {
            measure(&bench.workers, side, args.sizes)
        })?;
        bench.parts.start = Some(Part::new(args.sizes, rounds));
        Ok(())
    })
}

fn measure(workers: &Workers, side: Side, sizes: Sizes) -> Result<Outcome, BenchError> {
    let mut program = vec!["start".to_owned()];
    program.extend(rounds::options(&[("--times", sizes.times.into())]));
    if side == Side::Kernel {
        return workers.measure(&program, |_, _| Ok(()));
    }
    let command = under_run::command(RAM, &["--delivery", &side.to_string()], &program)?;
    workers.measure_command(command, |_, _| Ok(()))
}

/// Does the work of the measured process, and prints what it measured as JSON.
///
/// # Errors
/// When a process cannot be started.
pub fn work(sizes: Sizes) -> Result<(), BenchError> {
    crate::worker::say_measured(start_all(sizes))
}

fn start_all(sizes: Sizes) -> Result<Outcome, Failure> {
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
    fn no_two_options_are_the_same() {
        use clap::Args;
        StartArgs::augment_args(clap::Command::new("start")).debug_assert();
    }

    #[test]
    fn what_a_process_costs_is_seen_by_its_parent() {
        let outcome = start_all(Sizes { times: 3 }).unwrap();
        assert!(outcome.wall > 0.0 && outcome.faults > 10.0, "{outcome:?}");
    }
}
