//! `millpond bench workingset`: are the right pages in memory? Compares Millpond with kernel swap to zram under the
//! same budget.
//!
//! | part | question | file |
//! | --- | --- | --- |
//! | `shift` | how many major faults does it take to give memory to another working set? | [`shift`](mod@shift) |
//! | `scan` | do pages that are used once evict pages that are used repeatedly? | [`scan`](mod@scan) |
//! | `groups` | does a thrashing group disturb another one? | [`groups`](mod@groups) |
//! | `metadata` | how much memory do the tables take? | [`metadata`](mod@metadata) |
//! | `overhead` | how much of a fault's time does the bookkeeping take? | [`overhead`](mod@overhead) |
//! | `traces` | how does the policy compare with others on real traces? | [`traces`](mod@traces) |
//!
//! As in the other benchmarks, each measurement is a fresh process, and the sides of a part take turns in every
//! round. Folios are of order 0 by default: the question is which pages are chosen, and larger folios bring in
//! neighbours.
//!
//! In JSON `kernel` describes the setting of the kernel's sides, and is null when they were skipped; `traces` is a
//! [`Traces`], not a part with sides.

pub mod groups;
mod memory;
pub mod metadata;
pub mod overhead;
pub mod scan;
pub mod shift;
mod traces;

use crate::bench::{Asked, Bench, Parts};
use crate::error::{BenchError, Skip};
use crate::jobs::Job;
use crate::kernel_swap::KernelSwap;
use crate::order::BenchOrder;
use crate::outcome::Outcome;
use crate::phases::Work;
use crate::side::{name, sides};
use groups::Company;
pub use memory::Place;
use millpond_cli::size::Human;
use overhead::Detection;
use serde::Serialize;
use serde::de::DeserializeOwned;
use traces::Traces;

/// `millpond bench workingset`'s arguments.
#[derive(clap::Args, Debug)]
pub struct WorkingsetArgs {
    #[command(flatten)]
    asked: Asked<Part, 3>,
    /// The order of Millpond's folios in all parts
    #[arg(long, default_value = "0")]
    order: BenchOrder,
    #[command(flatten)]
    shift: shift::Sizes,
    #[command(flatten)]
    scan: scan::Sizes,
    #[command(flatten)]
    groups: groups::Sizes,
    #[command(flatten)]
    metadata: metadata::Sizes,
    #[command(flatten)]
    overhead: overhead::Sizes,
    #[command(flatten)]
    traces: traces::Sizes,
}

/// A part of the benchmark.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
enum Part {
    /// Replace a working set by another
    Shift,
    /// Scan memory while a hot working set is used
    Scan,
    /// Run a group while another one thrashes
    Groups,
    /// Measure the memory of the tables
    Metadata,
    /// Measure the share of a fault's time that bookkeeping takes
    Overhead,
    /// Replay recorded traces
    Traces,
}

impl Parts for Part {
    const SCHEMA: &'static str = "millpond-bench-workingset/2";
    const KERNEL: Option<&'static str> = Some("kernel");

    fn units(order: &str) -> String {
        format!("Millpond's folios are of order {order}")
    }

    /// Replays disturb other measurements only by their processor time.
    fn wants_quiet(self) -> bool {
        self != Self::Traces
    }
}

sides! {
    /// The owner of the memory.
    pub enum Side {
        /// A region under a manager
        Millpond,
        /// Anonymous memory in a memory cgroup, swapped to zram
        Kernel,
    }
    against [Kernel]
}

/// Measures, restores the machine, and prints. Returns 1 when memory had wrong contents.
///
/// # Errors
/// When a worker fails, something cannot be restored, or a signal ended the benchmark.
pub fn workingset(args: &WorkingsetArgs) -> Result<u8, BenchError> {
    let order = args.order;
    Bench::run(&args.asked, Some(order), |bench, part| match part {
        Part::Shift => {
            let sizes = args.shift;
            let budget = Human(sizes.budget_bytes);
            let heading = format!("another set of 0.9 of {budget}, a scan going past");
            let work = (sizes.budget_bytes, sizes.pages());
            let job = |place| Job::WorkingsetShift(place, sizes);
            both::<shift::Outcome, _>(bench, args, part, heading, sizes, work, job)
        }
        Part::Scan => {
            let sizes = args.scan;
            let budget = Human(sizes.budget_bytes);
            let heading = format!("a hot set of half of {budget}, a scan of ten times as much");
            let work = (sizes.budget_bytes, sizes.pages());
            let job = |place| Job::WorkingsetScan(place, sizes);
            both::<scan::Outcome, _>(bench, args, part, heading, sizes, work, job)
        }
        Part::Groups => {
            let sizes = args.groups;
            let budget = Human(sizes.budget_bytes);
            let heading =
                format!("a quiet group with 0.4 of {budget}, and one that thrashes in the rest");
            let sides = [Company::Alone, Company::Beside];
            let job = |company| Job::WorkingsetGroups(company, order, sizes);
            bench.processes::<groups::Outcome, _, _>(part, heading, sizes, &sides, job)
        }
        Part::Metadata => {
            let sizes = args.metadata;
            let memory = Human(sizes.memory_bytes);
            let heading = format!("tables for {memory}, all of it resident");
            let job = |_| Job::WorkingsetMetadata(order, sizes);
            bench.processes::<metadata::Outcome, _, _>(part, heading, sizes, &[Side::Millpond], job)
        }
        Part::Overhead => {
            let sizes = args.overhead;
            let (all, ram) = (Human(2 * sizes.budget_bytes), Human(sizes.budget_bytes));
            let heading =
                format!("random reads of {all} in {ram}, with workingset detection and without");
            let sides = [Detection::On, Detection::Off];
            let job = |detection| Job::WorkingsetOverhead(detection, order, sizes);
            bench.processes::<overhead::Outcome, _, _>(part, heading, sizes, &sides, job)
        }
        Part::Traces => traces(bench, &args.traces),
    })
}

fn traces(bench: &mut Bench, sizes: &traces::Sizes) -> Result<(), BenchError> {
    let part = name(&Part::Traces);
    let Some(directory) = &sizes.traces else {
        let why = Skip("name a directory of traces with --traces".to_owned());
        bench.summary.skip(&part, &why);
        return Ok(());
    };
    let traces = Traces::measure(sizes, directory)?;
    let heading = "miss ratios of traces, in parts of their pages".to_owned();
    bench.summary.table(heading, &traces);
    bench.summary.field(&part, &traces)
}

/// Measures Millpond, and the kernel if its side can run here.
fn both<T: Outcome + Serialize + DeserializeOwned, S: Serialize>(
    bench: &mut Bench,
    args: &WorkingsetArgs,
    part: Part,
    heading: String,
    sizes: S,
    (ram, pages): (u64, usize),
    job: impl Fn(Place) -> Job,
) -> Result<(), BenchError> {
    let work = Work {
        pages: pages as u64,
        ram,
        accesses: 1,
    };
    let rounds = bench.beside_kernel_swap(part, &work, |bench, kernel| {
        let mut sides = vec![Side::Millpond];
        sides.extend(kernel.map(|_| Side::Kernel));
        bench.rounds::<_, T>(&sides, |bench, side| {
            bench.guarded(&job(Place {
                side,
                order: args.order,
                cgroup: KernelSwap::group_of(kernel, side),
            }))
        })
    })?;
    bench.part(part, heading, sizes, rounds)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::Median;

    #[test]
    fn set_is_not_steady_if_one_round_never_was() {
        let steady = |rounds: &[Option<u64>]| {
            let outcome = |&steady_after: &Option<u64>| shift::Outcome {
                steady_after,
                ..shift::Outcome::default()
            };
            let rounds: Vec<_> = rounds.iter().map(outcome).collect();
            shift::Outcome::median(rounds.iter()).steady_after
        };
        assert_eq!(steady(&[Some(2), Some(2)]), Some(2));
        assert_eq!(steady(&[Some(2), None, Some(2)]), None);
    }
}
