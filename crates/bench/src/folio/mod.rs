//! `millpond bench folio`: compares one setting for every access pattern with the kernel's mechanism for each.
//!
//! | part | question | file |
//! | --- | --- | --- |
//! | `swap` | what does it cost to fill and read twice the budget, and how much comes in unrequested? | |
//! | `mix` | what do both patterns cost at the same time in one region? | [`mix`](mod@mix) |
//! | `touch` | what does a first touch cost if everything fits? | [`touch`](mod@touch) |
//! | `sparse` | how much memory does a program hold that touches little of much? | [`sparse`](mod@sparse) |
//! | `header` | what does a program pay if it allocates much and uses almost nothing? | [`header`](mod@header) |
//! | `snapshot` | what do an image of memory and writes to shared memory cost? | [`snapshot`](mod@snapshot) |
//! | `latency` | how much slower than the usual fault are the slowest? | [`latency`](mod@latency) |
//!
//! `swap` runs the phases of `bench swap`, compared with kernel swap to zram in a memory cgroup. That benchmark runs
//! each pattern with the order that suits it. Here one setting serves all phases of one process: memory that the fill
//! left in large folios is read at random, and memory that the random reads scattered is read in order. Memory that
//! was brought in unrequested is counted during the random reads, relative to the requested memory: see
//! [`BroughtIn`](crate::phases::BroughtIn).
//!
//! As in the other benchmarks, each measurement is a fresh process, and the sides of a part take turns in every
//! round. In JSON an order as a side means Millpond at this order, and `kernel_swap` describes the setting of the
//! kernel's side of `swap` and `mix`.

pub mod header;
pub mod latency;
pub mod mix;
mod side;
pub mod snapshot;
pub mod sparse;
pub mod touch;

use crate::bench::{Asked, Bench, Parts};
use crate::error::BenchError;
use crate::jobs::Job;
use crate::kernel_swap::KernelSwap;
use crate::millpond_side::How;
use crate::order::BenchOrder;
use crate::phases::{Manner, Phases, Work};
use crate::under_run;
use millpond_cli::size::Human;
pub use side::Side;

/// `millpond bench folio`'s arguments.
#[derive(clap::Args, Debug)]
pub struct FolioArgs {
    #[command(flatten)]
    asked: Asked<Part>,
    /// The order of Millpond's folios in all parts
    #[arg(long, default_value = "adaptive")]
    order: BenchOrder,
    #[command(flatten)]
    work: Work,
    #[command(flatten)]
    mix: mix::Sizes,
    #[command(flatten)]
    touch: touch::Sizes,
    #[command(flatten)]
    sparse: sparse::Sizes,
    #[command(flatten)]
    header: header::Sizes,
    #[command(flatten)]
    snapshot: snapshot::Sizes,
    #[command(flatten)]
    latency: latency::Sizes,
}

/// A part of the benchmark.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
enum Part {
    /// Fill a region of twice the budget, read it at random, read it in order
    Swap,
    /// Read at random and in order, at the same time in one region
    Mix,
    /// Touch memory that fits into the budget for the first time
    Touch,
    /// Touch single bytes far from each other
    Sparse,
    /// Allocate large blocks and use only a header of each
    Header,
    /// Take a snapshot of memory, and write to the shared pages
    Snapshot,
    /// Compare the slowest faults with the median fault
    Latency,
}

impl Parts for Part {
    const SCHEMA: &'static str = "millpond-bench-folio/2";
    const KERNEL: Option<&'static str> = Some("kernel_swap");

    fn units(_order: &str) -> String {
        "times are µs; Millpond's rows are named by their order".to_owned()
    }
}

/// Measures, restores the machine, and prints. Returns 1 when memory had wrong contents.
///
/// # Errors
/// When a worker fails, something cannot be restored, or a signal ended the benchmark.
pub fn folio(args: &FolioArgs) -> Result<u8, BenchError> {
    let ours = Side::Ours(args.order);
    Bench::run(&args.asked, Some(args.order), |bench, part| match part {
        Part::Swap => swap(bench, args),
        Part::Mix => mix(bench, args),
        Part::Touch => {
            let sizes = args.touch;
            let heading = format!(
                "first touch of {}, a page of 4 KiB",
                Human(sizes.memory_bytes)
            );
            let sides = beside_the_kernel(bench, part, &[ours, Side::fixed(9), Side::fixed(4)]);
            let job = |side| Job::FolioTouch(side, sizes);
            bench.processes::<touch::Outcome, _, _>(part, heading, sizes, &sides, job)
        }
        Part::Sparse => {
            let sizes = args.sparse;
            let (memory, stride) = (Human(sizes.memory_bytes), Human(sizes.stride_bytes));
            let heading = format!("one byte each {stride} over {memory}");
            let sides = [Side::fixed(0), ours, Side::fixed(4)];
            let job = |side| Job::FolioSparse(side, sizes);
            bench.processes::<sparse::Outcome, _, _>(part, heading, sizes, &sides, job)
        }
        Part::Header => header(bench, args),
        Part::Snapshot => {
            let sizes = args.snapshot;
            let memory = Human(sizes.memory_bytes);
            let heading = format!("image of {memory} (kernel: fork), writing a page");
            let sides = beside_the_kernel(bench, part, &[ours]);
            let job = |side| Job::FolioSnapshot(side, sizes);
            bench.processes::<snapshot::Outcome, _, _>(part, heading, sizes, &sides, job)
        }
        Part::Latency => latency(bench, args),
    })
}

/// Millpond's side, and the kernel's if there is one.
fn sides_of_swap(args: &FolioArgs, kernel: Option<&KernelSwap>) -> Vec<Side> {
    let mut sides = vec![Side::Ours(args.order)];
    sides.extend(kernel.map(|_| Side::Kernel));
    sides
}

/// Millpond's sides and the kernel's two, the second only if there are huge pages.
fn beside_the_kernel(bench: &mut Bench, part: Part, ours: &[Side]) -> Vec<Side> {
    let mut sides = ours.to_vec();
    sides.push(Side::Kernel);
    if bench.has_huge_pages(part) {
        sides.push(Side::KernelHuge);
    }
    sides
}

fn swap(bench: &mut Bench, args: &FolioArgs) -> Result<(), BenchError> {
    let (work, manner) = (args.work, Manner::default());
    let rounds = bench.beside_kernel_swap(Part::Swap, &work, |bench, kernel| {
        bench.rounds::<_, Phases>(&sides_of_swap(args, kernel), |bench, side| {
            let job = match (side, kernel) {
                (Side::Ours(order), _) => Job::Millpond(How::by(order), work, manner),
                (_, Some(kernel)) => Job::KernelSwap(kernel.group().to_owned(), work, manner),
                _ => unreachable!("no side that was not set up"),
            };
            bench.guarded(&job)
        })
    })?;
    let (region, budget) = (Human(work.pages * 4096), Human(work.ram));
    let heading = format!("{region} in {budget}, a page or an access");
    bench.part(Part::Swap, heading, work, rounds)
}

fn mix(bench: &mut Bench, args: &FolioArgs) -> Result<(), BenchError> {
    let (work, sizes) = (args.work, args.mix);
    let rounds = bench.beside_kernel_swap(Part::Mix, &work, |bench, kernel| {
        bench.rounds::<_, mix::Outcome>(&sides_of_swap(args, kernel), |bench, side| {
            let group = KernelSwap::group_of(kernel, side);
            bench.guarded(&Job::FolioMix(side, group, work, sizes))
        })
    })?;
    let threads = sizes.threads;
    let heading = format!("the same by threads, half of them in order ({threads}), a page");
    bench.part(Part::Mix, heading, sizes, rounds)
}

fn header(bench: &mut Bench, args: &FolioArgs) -> Result<(), BenchError> {
    let sizes = args.header;
    let runs = sizes.runs(args.order, bench.has_run(Part::Header));
    let job = Job::FolioHeader(sizes);
    let rounds = bench.rounds::<_, header::Outcome>(&runs, |bench, run| {
        let Some(order) = run.order else {
            return bench.workers.measure(&job, None);
        };
        let purge = if run.lazy_purge { "on" } else { "off" };
        let order = order.to_string();
        let options = [under_run::MANAGED, "--order", &order, "--lazy-purge", purge];
        let command = under_run::command(sizes.budget_bytes, &options, &job)?;
        bench.workers.measure_command(command, None)
    })?;
    let heading = format!("malloc of {}, a header, free", Human(sizes.block_bytes));
    bench.part(Part::Header, heading, sizes, rounds)
}

fn latency(bench: &mut Bench, args: &FolioArgs) -> Result<(), BenchError> {
    let sizes = args.latency;
    let orders = [BenchOrder(millpond::Order::ZERO.into()), args.order];
    let runs =
        orders.map(|order| [false, true].map(|background| latency::Run { order, background }));
    let (region, budget) = (Human(2 * sizes.budget_bytes), Human(sizes.budget_bytes));
    let heading = format!("faults at random over {region} in {budget}");
    let job = |run| Job::FolioLatency(run, sizes);
    bench.processes::<latency::Outcome, _, _>(
        Part::Latency,
        heading,
        sizes,
        runs.as_flattened(),
        job,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::comparison::Comparison;

    #[test]
    fn ratios_are_of_medians() {
        let touched = |page| touch::Outcome {
            page,
            ..touch::Outcome::default()
        };
        let ours = "adaptive".parse().unwrap();
        let rounds = vec![
            (ours, [2.0, 9.0, 1.0].map(touched).to_vec()),
            (Side::Kernel, vec![touched(6.0)]),
            (Side::KernelHuge, vec![touched(1.0)]),
        ];
        let part = Comparison::new((), rounds);
        assert_eq!(part.ratio("page", ours, Side::Kernel), Some(3.0));
        assert_eq!(part.ratio("page", ours, Side::KernelHuge), Some(0.5));
        assert_eq!(part.ratio("page", Side::fixed(9), Side::Kernel), None);
    }
}
