//! The way in which every benchmark of parts is run: the options that all of them have, the lock and what is put back,
//! the processes that are measured, and the result.

use crate::backing::Backing;
use crate::error::{BenchError, Skip};
use crate::guard::Guard;
use crate::kernel_swap::{KernelSwap, Setting};
use crate::order::BenchOrder;
use crate::part::{Skips, is_asked_for};
use crate::phases::Work;
use crate::rounds::{Rounds, load_average};
use crate::summary::{Parts, Summary};
use crate::worker::Workers;
use clap::ValueEnum;
use clap::builder::EnumValueParser;
use serde::de::DeserializeOwned;

/// The name of a part, as `--only` takes it.
pub trait Name: ValueEnum + Copy + PartialEq + Send + Sync + 'static {
    /// Whether another benchmark would disturb this part, or this part another benchmark.
    fn wants_quiet(self) -> bool {
        true
    }
}

/// The options that all benchmarks of parts have.
#[derive(clap::Args, Debug)]
#[group(skip)]
pub struct Asked<N: Name, const ROUNDS: u16 = 5> {
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
    /// How often each side is measured
    #[arg(long, default_value_t = ROUNDS, value_parser = clap::value_parser!(u16).range(1..=1000))]
    rounds: u16,
    /// Measure these parts alone
    #[arg(long, value_name = "PART,...", value_delimiter = ',', value_parser = EnumValueParser::<N>::new())]
    only: Vec<N>,
}

/// A benchmark while it runs.
pub struct Bench<P> {
    /// The parts that were measured so far.
    pub parts: P,
    /// The list of what was left out.
    pub skipped: Skips,
    /// The runner of measured processes.
    pub workers: Workers,
    /// The lock and what is to be put back, for root.
    pub guard: Option<Guard>,
    rounds: u16,
}

impl<P: Parts + Default> Bench<P> {
    /// Measures what is asked for by `measure`, puts everything back, and prints. Returns 1 when memory held what it
    /// must not.
    ///
    /// # Errors
    /// When a worker fails, something cannot be put back, or a signal asked for the end.
    pub fn run<N: Name, const ROUNDS: u16>(
        asked: &Asked<N, ROUNDS>,
        order: Option<BenchOrder>,
        mut measure: impl FnMut(&mut Self, N) -> Result<(), BenchError>,
    ) -> Result<u8, BenchError> {
        let workers = Workers::new().map_err(BenchError::Start)?;
        let names = N::value_variants().iter().copied();
        let names: Vec<N> = names
            .filter(|&name| is_asked_for(&asked.only, name))
            .collect();
        // Root takes the lock even where nothing of the machine is changed, so that no two benchmarks disturb each
        // other.
        let guard = match names.iter().any(|name| name.wants_quiet()) {
            true => Guard::acquire_if_root()?,
            false => None,
        };
        let mut bench = Self {
            parts: P::default(),
            skipped: Skips::default(),
            workers,
            guard,
            rounds: asked.rounds,
        };
        let load = load_average();
        for name in names {
            measure(&mut bench, name)?;
        }
        bench.guard.map_or(Ok(()), Guard::finish)?;
        bench.workers.check()?;
        let load = [load, load_average()];
        Summary::new(bench.rounds, order, load, bench.parts, bench.skipped).conclude(asked.json)
    }
}

impl<P> Bench<P> {
    /// Measures all rounds of all sides.
    ///
    /// # Errors
    /// The first error of `measure`.
    pub fn rounds<S: Copy + PartialEq, T>(
        &mut self,
        sides: &[S],
        mut measure: impl FnMut(&mut Self, S) -> Result<T, BenchError>,
    ) -> Result<Vec<(S, Vec<T>)>, BenchError> {
        let mut rounds = Rounds::new(sides, self.rounds);
        rounds.run(|side| measure(self, side))?;
        Ok(rounds.done)
    }

    /// Measures all rounds of all sides, each round by the process that `arguments` names.
    ///
    /// # Errors
    /// When a process fails, or a signal asked for the end.
    pub fn processes<S: Copy + PartialEq, T: DeserializeOwned>(
        &mut self,
        sides: &[S],
        arguments: impl Fn(S) -> Vec<String>,
    ) -> Result<Vec<(S, Vec<T>)>, BenchError> {
        self.rounds(sides, |bench, side| {
            bench.workers.measure(&arguments(side), |_, _| Ok(()))
        })
    }

    /// Makes one measurement by the process that `arguments` names, in the cgroup of `kernel` if there is one.
    ///
    /// # Errors
    /// When the process fails, or a signal asked for the end.
    pub fn process<T: DeserializeOwned>(
        &mut self,
        mut arguments: Vec<String>,
        kernel: Option<&KernelSwap>,
    ) -> Result<T, BenchError> {
        if let Some(kernel) = kernel {
            arguments.push("--cgroup".to_owned());
            arguments.push(kernel.group().display().to_string());
        }
        let guard = self.guard.as_mut().filter(|_| kernel.is_some());
        self.workers.measure(&arguments, |pid, start| {
            guard.map_or(Ok(()), |guard| {
                guard.record(|made| made.worker = Some((pid, start)))
            })
        })
    }

    /// Runs `measure` beside the kernel's swap of a size for `work`, which is put back afterwards, or without it: then
    /// the kernel's side of `part` is noted as left out. Returns the setting as well.
    ///
    /// # Errors
    /// The errors of `measure`, or those of making swap and putting it back.
    pub fn beside_kernel_swap<T>(
        &mut self,
        part: &str,
        work: &Work,
        measure: impl FnOnce(&mut Self, Option<&KernelSwap>) -> Result<T, BenchError>,
    ) -> Result<(T, Option<Setting>), BenchError> {
        let kernel = match &mut self.guard {
            Some(guard) => KernelSwap::set_up(guard, work, &Backing::default()),
            None => Err(Skip("making swap and cgroups needs root".to_owned()).into()),
        };
        let kernel = match kernel {
            Ok(kernel) => Some(kernel),
            Err(BenchError::Skipped(why)) => {
                self.skipped
                    .note(&format!("{part}, the kernel's side"), &why);
                None
            }
            Err(error) => return Err(error),
        };
        let measured = measure(self, kernel.as_ref());
        if let Some(guard) = &mut self.guard {
            guard.put_back()?;
        }
        Ok((measured?, kernel.map(|kernel| kernel.setting)))
    }
}
