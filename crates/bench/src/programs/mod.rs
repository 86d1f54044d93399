//! `millpond bench programs`: twelve real programs, each in a half and in a quarter of the memory that it needs.
//!
//! | side | what limits its memory |
//! | --- | --- |
//! | `unlimited` | nothing |
//! | `millpond` | `millpond run` |
//! | `kernel_equal` | a memory cgroup that swaps to zram; both together have the same memory |
//! | `kernel_file` | a memory cgroup that swaps to a file |
//!
//! The sides are those of `bench run`, which describes each in more detail. A program runs twice without a limit
//! before it is measured: that gives its output, its time, and the peak that is halved and quartered. Then its sides
//! take turns. The summary has, for a half and for a quarter, Millpond's time over that of `kernel_equal` for the
//! programs that both finish; how many programs the kernel killed because memory ran out; and whether Millpond stayed
//! within the budget, according to the kernel's count of resident memory (`ru_maxrss`).
//!
//! In JSON `programs` has, for each program and each share (2 is a half of its memory), `name`, `share`, and the
//! fields that `bench run` has for its `program`; `sums` has a [`Sum`] for each share.
//!
//! A run that takes longer than `--patience` times the program's own time is ended, and counts as failed.

mod sums;
mod table;

use crate::error::{BenchError, Failure, Skip};
use crate::run::{self, Expected, How, Limits, Program, Runner, Side};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{fs, io};
use sums::{Shared, Sum};
use table::{Entry, TABLE};
use tempfile::TempDir;

/// The sides that are measured by default.
const SIDES: [Side; 4] = [
    Side::Unlimited,
    Side::Millpond,
    Side::KernelEqual,
    Side::KernelFile,
];
/// The minimum time after which a run is ended, in seconds.
const LEAST_PATIENCE: f64 = 20.0;

/// `millpond bench programs`' arguments.
#[derive(clap::Args, Debug)]
pub struct ProgramsArgs {
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
    /// How often each side is measured
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=1000))]
    rounds: u16,
    /// Measure only these programs
    #[arg(long, value_name = "PROGRAM,...", value_delimiter = ',', value_parser = names())]
    only: Vec<String>,
    /// Measure only these sides
    #[arg(long, value_name = "SIDE,...", value_delimiter = ',')]
    sides: Vec<Side>,
    /// The shares of their memory that programs get: 2 is a half
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_value = "2,4", value_parser = clap::value_parser!(u64).range(1..=64))]
    shares: Vec<u64>,
    /// The maximum time of a run, as a multiple of the program's own time
    #[arg(long, value_name = "TIMES", default_value_t = 100, value_parser = clap::value_parser!(u32).range(2..))]
    patience: u32,
    /// The Python interpreter that has the programs' packages
    #[arg(long, value_name = "FILE")]
    python: Option<PathBuf>,
    #[command(flatten)]
    how: How,
}

fn names() -> clap::builder::PossibleValuesParser {
    TABLE
        .iter()
        .map(|entry| entry.name)
        .collect::<Vec<_>>()
        .into()
}

/// Measures, restores the machine, and prints. Returns 1 when a program's output differed from that without a limit,
/// or a program failed under Millpond.
///
/// # Errors
/// When something cannot be restored, or a signal ended the benchmark.
pub fn programs(args: &ProgramsArgs) -> Result<u8, BenchError> {
    let mut measured = Measured {
        args,
        runner: Runner::new(args.how.clone(), "millpond-bench-programs/3", args.rounds)?,
        python: table::python(args.python.as_deref())?,
        programs: Vec::new(),
    };
    for entry in &TABLE {
        if args.only.is_empty() || args.only.iter().any(|name| name == entry.name) {
            measured.program(entry)?;
        }
    }
    let Measured {
        runner, programs, ..
    } = measured;
    let mut bench = runner.bench;
    for one in &programs {
        bench.summary.table(one.heading(), &one.part);
    }
    let sums = Sum::of_each(&programs);
    for sum in &sums {
        bench.summary.table(sum.heading(), sum);
    }
    bench.summary.field("programs", &programs)?;
    bench.summary.field("sums", &sums)?;
    bench.finish(args.json)
}

/// The programs that were measured so far.
struct Measured<'a> {
    args: &'a ProgramsArgs,
    runner: Runner,
    python: PathBuf,
    programs: Vec<Shared>,
}

impl Measured<'_> {
    /// Measures a program, or reports why it cannot be measured.
    fn program(&mut self, entry: &Entry) -> Result<(), BenchError> {
        let place = table::is_here(entry, &self.python).and_then(|()| {
            Place::new(entry, &self.python).map_err(|error| Skip(error.to_string()))
        });
        let place = match place {
            Ok(place) => place,
            Err(why) => {
                self.runner.bench.summary.skip(entry.name, &why);
                return Ok(());
            }
        };
        self.runner.set_patience(None);
        let limits = Limits::of(0, 0);
        let runs = [
            place.measure(&mut self.runner, Side::Unlimited, limits)?,
            place.measure(&mut self.runner, Side::Unlimited, limits)?,
        ];
        let slower = runs[0].seconds.max(runs[1].seconds);
        let bound = (slower * f64::from(self.args.patience)).max(LEAST_PATIENCE);
        self.runner.set_patience(Some(bound.ceil() as u64));
        let should = Expected::of(runs);
        self.runner.expect(should.peak_rss_bytes);
        let asked = match self.args.sides.is_empty() {
            true => &SIDES[..],
            false => &self.args.sides[..],
        };
        for &share in &self.args.shares {
            let peak = should.peak_rss_bytes;
            let limits = Limits::of(peak, (peak / share).max(entry.least_mib << 20));
            let words = vec![entry.run.to_owned()];
            let measure = |runner: &mut Runner, side, limits| place.measure(runner, side, limits);
            self.programs.push(Shared {
                name: entry.name,
                share,
                part: self
                    .runner
                    .compare(asked, limits, &should, words, measure)?,
            });
        }
        Ok(())
    }
}

/// The place in which a program runs: its files and its input, which are removed afterwards.
struct Place {
    directory: TempDir,
    words: [OsString; 3],
    environment: Vec<(&'static str, OsString)>,
}

impl Place {
    fn new(entry: &Entry, python: &Path) -> Result<Self, Failure> {
        let directory = tempfile::tempdir_in("/var/tmp")?;
        let inside = |name: &str| directory.path().join(name);
        for name in ["jobs", "input", "work"] {
            fs::create_dir(inside(name))?;
        }
        table::write_files(&inside("jobs"))?;
        let environment = vec![
            ("JOBS", inside("jobs").into()),
            ("INPUT", inside("input").into()),
            ("WORK", inside("work").into()),
            ("PYTHON", python.into()),
            ("PYTHONHASHSEED", "0".into()),
            ("LC_ALL", "C.UTF-8".into()),
        ];
        let words = ["bash".into(), "-c".into(), entry.run.into()];
        let place = Self {
            words,
            environment,
            directory,
        };
        place.make_input(entry)?;
        Ok(place)
    }

    fn make_input(&self, entry: &Entry) -> Result<(), Failure> {
        let status = Command::new("bash")
            .args(["-c", entry.input])
            .envs(self.environment.iter().cloned())
            .status()?;
        match status.success() {
            true => Ok(()),
            false => Err(format!("its input cannot be made by `{}`: {status}", entry.input).into()),
        }
    }

    /// Runs the program in an empty directory `$WORK`.
    fn measure(
        &self,
        runner: &mut Runner,
        side: Side,
        limits: Limits,
    ) -> Result<run::Ran, BenchError> {
        self.empty_work().map_err(BenchError::Start)?;
        let program = Program {
            words: &self.words,
            environment: &self.environment,
        };
        runner.measure(side, limits, program)
    }

    fn empty_work(&self) -> io::Result<()> {
        let work = self.directory.path().join("work");
        fs::remove_dir_all(&work)?;
        fs::create_dir(&work)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_input_command_is_reported_with_its_status() {
        let entry = Entry {
            name: "none",
            commands: &[],
            packages: &[],
            input: "test -d $INPUT && test -f $JOBS/objects.c && exit 3",
            run: "",
            least_mib: 16,
        };
        let error = Place::new(&entry, Path::new("python3"))
            .err()
            .unwrap()
            .to_string();
        assert!(
            error.contains("exit 3") && error.contains("status: 3"),
            "{error}"
        );
    }
}
