//! `millpond bench lazyfree`: compares Millpond's lazy freeing of memory with the kernel's.
//!
//! | part | question | file |
//! | --- | --- | --- |
//! | `cycle` | what do freeing and reusing cost without memory pressure? | [`cycle`](mod@cycle) |
//! | `workers` | is freed memory ever read back from the store when memory is short? | [`workers`](mod@workers) |
//! | `ebizzy` | how much does a program gain if its allocator frees lazily? | [`ebizzy`](mod@ebizzy) |
//! | `rss` | are the reported sizes true? | [`rss`](mod@rss) |
//!
//! As in the swap benchmark, each measurement is a fresh process, and the sides of a part take turns in every round.
//! The sides of `rss` are orders, given as numbers. In `ebizzy` lazy purging is compared with eager purging.

pub mod cycle;
mod decay;
pub mod ebizzy;
mod kernel;
mod memory;
mod ours;
pub mod rss;
pub mod workers;

use crate::bench::{Asked, Bench, Parts};
use crate::error::{BenchError, Skip};
use crate::jobs::Job;
use crate::kernel_swap::KernelSwap;
use crate::phases::Work;
use crate::under_run;
pub use memory::Side;
use millpond_cli::run::DeliveryChoice;
use millpond_cli::size::Human;

/// `millpond bench lazyfree`'s arguments.
#[derive(clap::Args, Debug)]
pub struct LazyFreeArgs {
    #[command(flatten)]
    asked: Asked<Part>,
    #[command(flatten)]
    cycle: cycle::Sizes,
    #[command(flatten)]
    workers: workers::Sizes,
    #[command(flatten)]
    ebizzy: ebizzy::Sizes,
    #[command(flatten)]
    rss: rss::Sizes,
}

/// A part of the benchmark.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
enum Part {
    /// Free and rewrite chunks, all of them in memory
    Cycle,
    /// Fill and free twice the budget with several worker threads
    Workers,
    /// Run a program that allocates, under `millpond run`
    Ebizzy,
    /// Compare the resident sizes that Millpond and the kernel report
    Rss,
}

impl Parts for Part {
    const SCHEMA: &'static str = "millpond-bench-lazyfree/2";

    fn units(_order: &str) -> String {
        "times are µs, where nothing else is said".to_owned()
    }
}

/// Measures, restores the machine, and prints. Returns 1 when memory had wrong contents.
///
/// # Errors
/// When a worker fails, something cannot be restored, or a signal ended the benchmark.
pub fn lazyfree(args: &LazyFreeArgs) -> Result<u8, BenchError> {
    Bench::run(&args.asked, None, |bench, part| match part {
        Part::Cycle => cycle(bench, args),
        Part::Workers => twelve_workers(bench, args),
        Part::Ebizzy => ebizzy(bench, args),
        Part::Rss => {
            let sizes = &args.rss;
            let heading = "half of a region lazily freed, by the order of its folios".to_owned();
            let job = |order| Job::LazyFreeRss(order, sizes.memory_bytes);
            bench.processes::<rss::Outcome, _, _>(part, heading, sizes, &sizes.orders, job)
        }
    })
}

/// How often one of the kernel's sides is started if it is killed. All its workers fill at once, sometimes faster
/// than the kernel writes to zram, and then the kernel concludes that memory has run out.
const KERNEL_TRIES: u32 = 4;

fn cycle(bench: &mut Bench, args: &LazyFreeArgs) -> Result<(), BenchError> {
    let sizes = args.cycle;
    let rounds = bench.rounds::<_, cycle::Cycle>(&cycle::SIDES, |bench, side| {
        bench
            .workers
            .measure(&Job::LazyFreeCycle(side, sizes), None)
    })?;
    for (side, rounds) in &rounds {
        for why in rounds.iter().take(1).flat_map(|round| &round.skipped) {
            let what = format!("cycle, {side}");
            bench.summary.skip(&what, &Skip(why.clone()));
        }
    }
    let chunk = Human(sizes.chunk_bytes);
    let heading = format!("free and rewrite, µs a chunk of {chunk}");
    bench.part(Part::Cycle, heading, sizes, rounds)
}

fn twelve_workers(bench: &mut Bench, args: &LazyFreeArgs) -> Result<(), BenchError> {
    let sizes = args.workers;
    let work = Work {
        pages: sizes.pages(),
        ram: sizes.budget_bytes,
        accesses: 1,
    };
    let rounds = bench.beside_kernel_swap(Part::Workers, &work, |bench, kernel| {
        let mut sides = workers::OURS.to_vec();
        sides.extend(kernel.iter().flat_map(|_| workers::KERNELS));
        bench.rounds::<_, workers::Outcome>(&sides, |bench, side| {
            let group = KernelSwap::group_of(kernel, side);
            let mut tries = if group.is_some() { KERNEL_TRIES } else { 1 };
            let job = Job::LazyFreeWorkers(side, group, sizes);
            loop {
                tries -= 1;
                match bench.guarded(&job) {
                    Err(BenchError::Killed) if tries > 0 => {}
                    measured => break measured,
                }
            }
        })
    })?;
    let (threads, times) = (sizes.threads, sizes.times);
    let (block, budget) = (Human(sizes.block_bytes), Human(sizes.budget_bytes));
    let heading =
        format!("{threads} workers fill and free {block} each {times} times in {budget}, pages");
    bench.part(Part::Workers, heading, sizes, rounds)
}

fn ebizzy(bench: &mut Bench, args: &LazyFreeArgs) -> Result<(), BenchError> {
    let sizes = &args.ebizzy;
    let runs = sizes.runs(!bench.has_run(Part::Ebizzy));
    // The kernel does not count faults that the faulting thread serves itself.
    let delivery = match under_run::can_run_by(DeliveryChoice::Handler) {
        Ok(()) => "handler",
        Err(_) => "auto",
    };
    let rounds = bench.rounds::<_, ebizzy::Outcome>(&runs, |bench, run| {
        let job = Job::LazyFreeEbizzy(run, sizes.program);
        let Some(purge) = run.allocator.purge() else {
            return bench.workers.measure(&job, None);
        };
        let options = [
            under_run::MANAGED,
            "--lazy-purge",
            purge,
            "--delivery",
            delivery,
        ];
        let command = under_run::command(sizes.budget_bytes, &options, &job)?;
        bench.workers.measure_command(command, None)
    })?;
    let heading = "allocating program: threads, how many ms memory is kept, purge".to_owned();
    bench.part(Part::Ebizzy, heading, sizes, rounds)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::comparison::{Comparison, Table};
    use decay::Decay;
    use ebizzy::Allocator;

    #[test]
    fn ratios_are_of_medians() {
        let cycle = |time: f64| cycle::Cycle {
            interleaved: time,
            phased: 2.0 * time,
            vectored: (time > 1.0).then_some(time),
            ..cycle::Cycle::default()
        };
        let rounds = vec![
            (Side::LazyFree, [2.0, 9.0, 1.0].map(cycle).to_vec()),
            (Side::KernelFree, vec![cycle(5.0)]),
            (Side::KernelDontneed, vec![cycle(19.0)]),
        ];
        let part = Comparison::new((), rounds);
        let ratio = |pattern| part.ratio(pattern, Side::LazyFree, Side::KernelFree);
        assert_eq!(ratio("interleaved"), Some(2.5));
        assert_eq!(
            ratio("vectored"),
            Some(5.0 / 5.5),
            "of the rounds that have it"
        );
        assert_eq!(ratio("spinning"), None);
        let mut text = String::new();
        part.write(&mut text).unwrap();
        let compared =
            "interleaved: millpond lazy_free is 2.50 times as fast as kernel MADV_FREE\n";
        assert!(text.contains(compared), "{text}");
    }

    #[test]
    fn lazy_purging_is_compared_with_eager_and_wrong_records_count() {
        let sizes = ebizzy::Sizes {
            threads: vec![2],
            decays: vec![Decay::Own],
            budget_bytes: 1,
            program: ebizzy::Program {
                chunks: 1,
                chunk_bytes: 4096,
                milliseconds: 10,
            },
        };
        let rounds = sizes.runs(false).into_iter().map(|run| {
            let outcome = ebizzy::Outcome {
                records_per_second: 10.0,
                wrong_records: u64::from(run.allocator == Allocator::EagerPurge),
                ..ebizzy::Outcome::default()
            };
            (run, vec![outcome])
        });
        let part = Comparison::new((), rounds.collect());
        let run = |allocator| ebizzy::Run {
            threads: 2,
            decay: Decay::Own,
            allocator,
        };
        let (lazy, eager) = (run(Allocator::LazyPurge), run(Allocator::EagerPurge));
        assert_eq!(part.ratio("µs a record", lazy, eager), Some(1.0));
        assert_eq!(part.ratio("µs a record", eager, lazy), None);
        assert_eq!(part.wrong(), 1);
    }
}
