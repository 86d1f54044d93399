//! The way in which every benchmark of parts is run: the options that all of them have, the lock and what is put back,
//! the processes that are measured, and the result.

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

/// The parts of a benchmark, by the names that `--only` takes and JSON has.
pub trait Parts: ValueEnum + Copy + PartialEq + Send + Sync + 'static {
    /// Name and version of the JSON form; later versions only add fields.
    const SCHEMA: &'static str;
    /// The field of the JSON form that says what the kernel's side ran on, if it swapped.
    const KERNEL: Option<&'static str> = None;

    /// Says what the figures are: times in which unit, and folios of which order.
    fn units(order: &str) -> String;

    /// Whether another benchmark would disturb this part, or this part another benchmark.
    fn wants_quiet(self) -> bool {
        true
    }
}

/// The options that all benchmarks of parts have.
#[derive(clap::Args, Debug)]
#[group(skip)]
pub struct Asked<N: Parts, const ROUNDS: u16 = 5> {
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
pub struct Bench {
    /// What was measured so far, and what was left out.
    pub summary: Summary,
    /// The runner of measured processes.
    pub workers: Workers,
    /// The lock and what is to be put back, for root.
    pub guard: Option<Guard>,
    /// The rounds of each side.
    pub rounds: u16,
    /// What the kernel's side ran on.
    kernel: Option<Setting>,
}

/// The rounds of each side.
pub type SidesRounds<S, T> = Vec<(S, Vec<T>)>;

impl Bench {
    /// Measures what is asked for by `measure`, puts everything back, and prints. Returns 1 when memory held what it
    /// must not.
    ///
    /// # Errors
    /// When a worker fails, something cannot be put back, or a signal asked for the end.
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

    /// Begins: takes the lock, if it is wanted, and has nothing measured yet. It comes before any thread is started.
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
        // Root takes the lock even where nothing of the machine is changed, so that no two benchmarks disturb each
        // other.
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

    /// Puts everything back, and prints. Returns 1 when memory held what it must not.
    ///
    /// # Errors
    /// When something cannot be put back, or a signal asked for the end.
    pub fn finish(self, json: bool) -> Result<u8, BenchError> {
        self.guard.map_or(Ok(()), Guard::finish)?;
        self.workers.check()?;
        self.summary.conclude(json)
    }

    /// Takes the rounds of a part.
    ///
    /// # Errors
    /// When JSON has no form for the part.
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

    /// Measures a part: all rounds of all sides, each round by a process that does `job`.
    ///
    /// # Errors
    /// When a process fails, or a signal asked for the end.
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

    /// Measures once by a process that is written down, so that it is ended with what was made for it.
    ///
    /// # Errors
    /// When the process fails, or a signal asked for the end.
    pub fn guarded<T: DeserializeOwned>(&mut self, job: &Job) -> Result<T, BenchError> {
        self.workers.measure(job, self.guard.as_mut())
    }

    /// Runs `measure` beside the kernel's swap of a size for `work`, which is put back afterwards, or without it: then
    /// the kernel's side of the part is noted as left out.
    ///
    /// # Errors
    /// The errors of `measure`, or those of making swap and putting it back.
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

    /// Puts back what was made for a measurement.
    ///
    /// # Errors
    /// The first thing that could not be put back.
    pub fn put_back(&mut self) -> Result<(), BenchError> {
        self.guard.as_mut().map_or(Ok(()), Guard::put_back)
    }

    /// Whether the kernel gives huge pages to those who ask; if not, its side of the part is noted as left out.
    pub fn has_huge_pages(&mut self, name: impl Parts) -> bool {
        let what = format!("{}, the kernel's huge pages", side::name(&name));
        self.can(&what, mapping::huge_pages())
    }

    /// Whether programs can be run under Millpond; if not, that side of the part is noted as left out.
    pub fn has_run(&mut self, name: impl Parts) -> bool {
        let what = format!("{} under millpond run", side::name(&name));
        self.can(&what, under_run::can_run_by(DeliveryChoice::Auto))
    }

    /// Whether it can be done, by the answer; if not, `what` is noted as left out.
    pub fn can(&mut self, what: &str, answer: Result<(), Skip>) -> bool {
        answer.map_err(|why| self.summary.skip(what, &why)).is_ok()
    }
}

/// Whether `part` is among those that `--only` names; all parts are when it names none.
pub fn is_asked_for<T: PartialEq>(only: &[T], part: T) -> bool {
    only.is_empty() || only.contains(&part)
}
