//! The common part of `bench run` and `bench programs`: runs a program on a side, in a setting that is created before
//! each run and removed after it.

use crate::bench::{Bench, is_asked_for};
use crate::comparison::Comparison;
use crate::error::{BenchError, Skip};
use crate::jobs::Job;
use crate::order::BenchOrder;
use crate::rounds::Rounds;
use crate::run::equal::{Equal, Search};
use crate::run::kernel;
use crate::run::outcome::{Expected, Outcome, Sizes};
use crate::run::program::{Ran, Task};
use crate::run::side::Side;
use crate::side::Contender;
use crate::under_run;
use clap::ValueEnum;
use millpond_cli::run::{DeliveryChoice, StoreChoice, parse_store};
use millpond_cli::size;
use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

/// Bytes of swap for each byte that the program takes without a limit. The factor is more than one, because the
/// processes of a tree are measured separately.
const SWAP_TIMES: u64 = 3;
/// The minimum amount of swap.
pub const SWAP_LEAST: u64 = 256 << 20;
/// Bytes of free memory that are backed for each byte that the program takes: the byte itself, and what a store keeps
/// of it.
const WARM_TIMES: u64 = 2;

/// How programs are run on the sides.
#[derive(clap::Args, Clone, Debug)]
pub struct How {
    /// Millpond's store, as for `millpond run`
    #[arg(long, value_name = "auto|zram|file[:PATH]", default_value = "auto", value_parser = parse_store)]
    store: StoreChoice,
    /// The order of Millpond's folios
    #[arg(long, default_value = "adaptive")]
    pub order: BenchOrder,
    /// The directory in which the kernel's swap file is created
    #[arg(long, value_name = "DIRECTORY", default_value = "/var/tmp")]
    swap_directory: PathBuf,
}

/// A measured program.
#[derive(Clone, Copy, Debug)]
pub struct Program<'a> {
    /// The program and its arguments.
    pub words: &'a [OsString],
    /// Additional environment variables.
    pub environment: &'a [(&'static str, OsString)],
}

/// The memory of a program.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The budget, or the limit of the group.
    pub ram: u64,
    /// The size of the kernel's swap.
    pub swap_bytes: u64,
    /// The limit at which the group and zram together use `ram`, once it is found.
    pub equal: Option<u64>,
}

impl Limits {
    /// Limits for a program that takes `peak` bytes by itself, and should get about `ram`.
    #[must_use]
    pub fn of(peak: u64, ram: u64) -> Self {
        Self {
            ram: ram.next_multiple_of(1 << 20).max(size::MIN_RAM),
            swap_bytes: (SWAP_TIMES * peak)
                .next_multiple_of(1 << 20)
                .max(SWAP_LEAST),
            equal: None,
        }
    }
}

/// A program on all of its sides.
pub type Compared = Comparison<Side, Sizes, Outcome>;

/// A runner of programs.
pub struct Runner {
    how: How,
    /// The maximum time of a program in seconds.
    patience: Option<u64>,
    /// The benchmark, with the list of things to restore.
    pub bench: Bench,
}

impl Runner {
    /// Creates a runner. Takes the lock if the user is root.
    ///
    /// # Errors
    /// When another benchmark runs.
    pub fn new(how: How, schema: &'static str, rounds: u16) -> Result<Self, BenchError> {
        let units =
            |order: &str| format!("times are seconds; Millpond's folios are of order {order}");
        let bench = Bench::start(schema, units, rounds, Some(how.order), true)?;
        let patience = None;
        Ok(Self {
            how,
            patience,
            bench,
        })
    }

    /// Sets how much memory the next program takes by itself.
    pub fn expect(&mut self, peak: u64) {
        self.bench.workers.take(WARM_TIMES * peak);
    }

    /// Sets the maximum time of the next runs.
    pub fn set_patience(&mut self, seconds: Option<u64>) {
        self.patience = seconds;
    }

    /// Compares those of the `asked` sides, or of all, that can run on this machine; the others are reported as
    /// skipped. `measure` makes a run of the program on a side.
    ///
    /// # Errors
    /// Those of `measure`, and when something cannot be restored.
    pub fn compare(
        &mut self,
        asked: &[Side],
        mut limits: Limits,
        should: &Expected,
        program: Vec<String>,
        mut measure: impl FnMut(&mut Self, Side, Limits) -> Result<Ran, BenchError>,
    ) -> Result<Compared, BenchError> {
        let sides = self.sides(asked, limits)?;
        let equal = match sides.contains(&Side::KernelEqual) {
            true => self.find_equal(limits, should, &mut measure)?,
            false => None,
        };
        limits.equal = equal.map(|equal| equal.limit_bytes);
        let mut rounds = Rounds::new(&sides, self.bench.rounds);
        rounds.run(|side| Ok(should.judge(side, &measure(self, side, limits)?)))?;
        let sizes = Sizes {
            ram_bytes: limits.ram,
            peak_rss_bytes: should.peak_rss_bytes,
            is_repeatable: should.is_repeatable,
            program,
            store: self.how.store.to_string(),
            equal,
        };
        Ok(Comparison::new(sizes, rounds.done))
    }

    fn sides(&mut self, asked: &[Side], limits: Limits) -> Result<Vec<Side>, BenchError> {
        let mut sides = Side::value_variants().to_vec();
        sides.retain(|&side| is_asked_for(asked, side));
        let mut here = Vec::new();
        for side in sides {
            match self.try_out(side, limits) {
                Ok(()) => here.push(side),
                // Several programs may have the same sides.
                Err(BenchError::Skipped(why)) => {
                    self.bench.summary.skip_once(&side.to_string(), &why);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(here)
    }

    fn try_out(&mut self, side: Side, limits: Limits) -> Result<(), BenchError> {
        if side == Side::Millpond {
            return Ok(under_run::can_run_by(DeliveryChoice::Auto)?);
        }
        let tried = self.set_up(side, limits).map(drop);
        // This also removes what was created before it turned out that the side cannot run.
        self.bench.put_back()?;
        tried
    }

    fn set_up(&mut self, side: Side, limits: Limits) -> Result<kernel::Setting, BenchError> {
        match &mut self.bench.guard {
            Some(guard) => {
                let directory = &self.how.swap_directory;
                kernel::set_up(guard, side, limits, directory)
            }
            None if side.is_kernel() => Err(Skip::needs_root().into()),
            None => Ok(kernel::Setting::default()),
        }
    }

    /// Makes one run, in its own setting.
    ///
    /// # Errors
    /// When the program cannot be started, something cannot be restored, or a signal ended the benchmark.
    pub fn measure(
        &mut self,
        side: Side,
        limits: Limits,
        program: Program<'_>,
    ) -> Result<Ran, BenchError> {
        self.forget_files();
        let setting = self.set_up(side, limits)?;
        let job = Job::Run(Task {
            side,
            ram: limits.ram,
            store: self.how.store.to_os_string(),
            order: self.how.order,
            group: setting.group,
            zram: setting.zram,
            patience: self.patience,
        });
        let mut command = Command::new("/proc/self/exe");
        command.args(job.to_arguments()?);
        command.arg("--").args(program.words);
        command.envs(program.environment.iter().cloned());
        let guard = self.bench.guard.as_mut();
        let ran = self.bench.workers.measure_command(command, guard)?;
        self.bench.put_back()?;
        Ok(ran)
    }

    /// Makes the kernel drop the page cache. The program's code then counts in every side's memory; otherwise it
    /// would be charged to whoever read it first.
    fn forget_files(&self) {
        if self.bench.guard.is_some() {
            // If the kernel refuses that, as in a container, code only counts on Millpond's side.
            let _ = fs::write("/proc/sys/vm/drop_caches", "3");
        }
    }

    /// Searches the limit of [`Side::KernelEqual`] with runs of that side.
    fn find_equal(
        &mut self,
        limits: Limits,
        should: &Expected,
        measure: &mut impl FnMut(&mut Self, Side, Limits) -> Result<Ran, BenchError>,
    ) -> Result<Option<Equal>, BenchError> {
        let mut search = Search::new(limits.ram);
        while let Some(limit) = search.next() {
            let equal = Some(limit);
            let ran = measure(self, Side::KernelEqual, Limits { equal, ..limits })?;
            let has_finished = should.judge(Side::KernelEqual, &ran).failed == 0;
            search.tell(ran.together_bytes.unwrap_or(0), has_finished);
        }
        Ok(search.best())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_whole_mebibytes_and_leave_room_for_swap() {
        let limits = Limits::of(300 << 20, (75 << 20) + 1);
        assert_eq!((limits.ram, limits.swap_bytes), (76 << 20, 900 << 20));
        let least = Limits::of(1, 1);
        assert_eq!((least.ram, least.swap_bytes), (size::MIN_RAM, SWAP_LEAST));
    }
}
