//! How every benchmark made of parts is run: the common options, the lock, the restoration of the machine, the
//! measured processes, and the result.

use crate::backing::Backing;
use crate::comparison::Comparison;
use crate::error::{BenchError, Skip};
use crate::guard::Guard;
use crate::jobs::Job;
use crate::kernel_swap::{KernelSwap, Setting};
use crate::mapping;
use crate::order::BenchOrder;
use crate::outcome::Outcome;
use crate::phases::Work;
use crate::rounds::Rounds;
use crate::side::{self, Contender};
use crate::summary::Summary;
use crate::under_run;
use crate::worker::Workers;
use clap::ValueEnum;
use clap::builder::EnumValueParser;
use millpond_cli::run::DeliveryChoice;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt::Display;

/// The parts of a benchmark, by the names that `--only` and JSON use.
pub trait Parts: ValueEnum + Copy + PartialEq + Send + Sync + 'static {
    /// Name and version of the JSON form; later versions only add fields.
    const SCHEMA: &'static str;
    /// The JSON field for the setting in which the kernel's side ran, if it swapped.
    const KERNEL: Option<&'static str> = None;

    /// Describes the figures: the unit of times, and the order of folios.
    fn units(order: &str) -> String;

    /// Whether another benchmark would disturb this part, or this part another benchmark.
    fn wants_quiet(self) -> bool {
        true
    }
}

/// The options that all benchmarks made of parts have.
#[derive(clap::Args, Debug)]
#[group(skip)]
pub struct Asked<N: Parts, const ROUNDS: u16 = 5> {
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
    /// How often each side is measured
    #[arg(long, default_value_t = ROUNDS, value_parser = clap::value_parser!(u16).range(1..=1000))]
    rounds: u16,
    /// Measure only these parts
    #[arg(long, value_name = "PART,...", value_delimiter = ',', value_parser = EnumValueParser::<N>::new())]
    only: Vec<N>,
}

/// A running benchmark.
pub struct Bench {
    /// The measurements so far, and what was skipped.
    pub summary: Summary,
    /// The runner of measured processes.
    pub workers: Workers,
    /// The lock and the list of things to remove or restore, for root.
    pub guard: Option<Guard>,
    /// The number of rounds of each side.
    pub rounds: u16,
    /// The setting in which the kernel's side ran.
    kernel: Option<Setting>,
}

/// The rounds of each side.
pub type SidesRounds<S, T> = Vec<(S, Vec<T>)>;

impl Bench {
    /// Measures by `measure` what was requested, restores the machine, and prints. Returns 1 when memory had wrong
    /// contents.
    ///
    /// # Errors
    /// When a worker fails, something cannot be restored, or a signal ended the benchmark.
    pub fn run<N: Parts, const ROUNDS: u16>(
        asked: &Asked<N, ROUNDS>,
        order: Option<BenchOrder>,
        mut measure: impl FnMut(&mut Self, N) -> Result<(), BenchError>,
    ) -> Result<u8, BenchError> {
        let is_asked_for = |name: &N| is_asked_for(&asked.only, *name);
        let wants_quiet = |name: &N| is_asked_for(name) && name.wants_quiet();
        let wants_quiet = N::value_variants().iter().any(wants_quiet);
        let mut bench = Self::start(N::SCHEMA, N::units, asked.rounds, order, wants_quiet)?;
        for name in N::value_variants() {
            if is_asked_for(name) {
                measure(&mut bench, *name)?;
            }
            let name = side::name(name);
            if !bench.summary.has(&name) {
                bench.summary.field(&name, &())?;
            }
        }
        if let Some(field) = N::KERNEL {
            bench.summary.field(field, &bench.kernel)?;
        }
        bench.finish(asked.json)
    }

    /// Begins a benchmark: takes the lock if the benchmark needs quiet. Must be called before any thread is started.
    ///
    /// # Errors
    /// When another benchmark runs.
    pub fn start(
        schema: &'static str,
        units: fn(&str) -> String,
        rounds: u16,
        order: Option<BenchOrder>,
        wants_quiet: bool,
    ) -> Result<Self, BenchError> {
        let workers = Workers::new().map_err(BenchError::Start)?;
        // Root takes the lock even if the machine is not changed, so that no two benchmarks disturb each other.
        let guard = match wants_quiet {
            true => Guard::acquire_if_root()?,
            false => None,
        };
        let units = units(&order.map_or_else(String::new, |order| order.to_string()));
        Ok(Self {
            summary: Summary::new(schema, units, rounds, order),
            workers,
            guard,
            rounds,
            kernel: None,
        })
    }

    /// Restores the machine, and prints. Returns 1 when memory had wrong contents.
    ///
    /// # Errors
    /// When something cannot be restored, or a signal ended the benchmark.
    pub fn finish(self, json: bool) -> Result<u8, BenchError> {
        self.guard.map_or(Ok(()), Guard::finish)?;
        self.workers.check()?;
        self.summary.conclude(json)
    }

    /// Adds the rounds of a part to the result.
    ///
    /// # Errors
    /// When the part cannot be written as JSON.
    pub fn part<K, S, T>(
        &mut self,
        name: impl Parts,
        heading: String,
        sizes: S,
        rounds: SidesRounds<K, T>,
    ) -> Result<(), BenchError>
    where
        K: Contender + Display + Serialize,
        S: Serialize,
        T: Outcome + Serialize,
    {
        let part = Comparison::new(sizes, rounds);
        self.summary.table(heading, &part);
        self.summary.field(&side::name(&name), &part)
    }

    /// Measures all rounds of all sides.
    ///
    /// # Errors
    /// The first error of `measure`.
    pub fn rounds<S: Copy + PartialEq, T>(
        &mut self,
        sides: &[S],
        mut measure: impl FnMut(&mut Self, S) -> Result<T, BenchError>,
    ) -> Result<SidesRounds<S, T>, BenchError> {
        let mut rounds = Rounds::new(sides, self.rounds);
        rounds.run(|side| measure(self, side))?;
        Ok(rounds.done)
    }

    /// Measures a part: all rounds of all sides, each round in a process that does `job`.
    ///
    /// # Errors
    /// When a process fails, or a signal ended the benchmark.
    pub fn processes<T, K, S>(
        &mut self,
        name: impl Parts,
        heading: String,
        sizes: S,
        sides: &[K],
        job: impl Fn(K) -> Job,
    ) -> Result<(), BenchError>
    where
        T: Outcome + Serialize + DeserializeOwned,
        K: Contender + Display + Serialize,
        S: Serialize,
    {
        let rounds = self.rounds(sides, |bench, side| {
            bench.workers.measure::<T>(&job(side), None)
        })?;
        self.part(name, heading, sizes, rounds)
    }

    /// Measures once, in a process that is recorded with the guard, so that it is ended together with what was made
    /// for it.
    ///
    /// # Errors
    /// When the process fails, or a signal ended the benchmark.
    pub fn guarded<T: DeserializeOwned>(&mut self, job: &Job) -> Result<T, BenchError> {
        self.workers.measure(job, self.guard.as_mut())
    }

    /// Sets up kernel swap that is large enough for `work`, runs `measure`, and removes the swap. If swap cannot be
    /// set up, runs `measure` without it and reports the kernel's side of the part as skipped.
    ///
    /// # Errors
    /// The errors of `measure`, or those of setting up and removing swap.
    pub fn beside_kernel_swap<T>(
        &mut self,
        name: impl Parts,
        work: &Work,
        measure: impl FnOnce(&mut Self, Option<&KernelSwap>) -> Result<T, BenchError>,
    ) -> Result<T, BenchError> {
        let kernel = match &mut self.guard {
            Some(guard) => KernelSwap::set_up(guard, work, &Backing::default()),
            None => Err(Skip::needs_root().into()),
        };
        let kernel = match kernel {
            Ok(kernel) => Some(kernel),
            Err(BenchError::Skipped(why)) => {
                let what = format!("{}, the kernel's side", side::name(&name));
                self.summary.skip(&what, &why);
                None
            }
            Err(error) => return Err(error),
        };
        let measured = measure(self, kernel.as_ref());
        self.put_back()?;
        let measured = measured?;
        if let Some(kernel) = kernel {
            self.kernel = Some(kernel.setting);
        }
        Ok(measured)
    }

    /// Removes what was made for a measurement.
    ///
    /// # Errors
    /// The first thing that could not be removed.
    pub fn put_back(&mut self) -> Result<(), BenchError> {
        self.guard.as_mut().map_or(Ok(()), Guard::put_back)
    }

    /// Whether the kernel gives huge pages on request; if not, its side of the part is reported as skipped.
    pub fn has_huge_pages(&mut self, name: impl Parts) -> bool {
        let what = format!("{}, the kernel's huge pages", side::name(&name));
        self.can(&what, mapping::huge_pages())
    }

    /// Whether programs can be run under Millpond; if not, that side of the part is reported as skipped.
    pub fn has_run(&mut self, name: impl Parts) -> bool {
        let what = format!("{} under millpond run", side::name(&name));
        self.can(&what, under_run::can_run_by(DeliveryChoice::Auto))
    }

    /// Whether `answer` is a success; if not, reports `what` as skipped.
    pub fn can(&mut self, what: &str, answer: Result<(), Skip>) -> bool {
        answer.map_err(|why| self.summary.skip(what, &why)).is_ok()
    }
}

/// Whether `part` is among those that `--only` names. Without `--only`, all parts are.
pub fn is_asked_for<T: PartialEq>(only: &[T], part: T) -> bool {
    only.is_empty() || only.contains(&part)
}
