//! `millpond bench free`: freeing large amounts of memory, compared with `munmap`.
//!
//! | part | question | file |
//! | --- | --- | --- |
//! | `blocked` | how long do the caller and others wait, and what is the total cost? | [`blocked`](mod@blocked) |
//! | `cycle` | what does it cost to free memory and touch as much again? | [`cycle`](mod@cycle) |
//! | `unmap` | how long does an unmodified program under Millpond wait in `munmap`? | [`unmap`](mod@unmap) |
//!
//! As in the other benchmarks, each measurement is a fresh process, and the sides of a part take turns in each round.

pub mod blocked;
pub mod cycle;
pub mod unmap;
mod watch;

use crate::bench::{Asked, Bench, Parts};
use crate::error::BenchError;
use crate::jobs::Job;
use crate::order::BenchOrder;
use crate::side::sides;
use crate::{memory, under_run};
use millpond_cli::size::Human;

/// `millpond bench free`'s arguments.
#[derive(clap::Args, Debug)]
pub struct FreeArgs {
    #[command(flatten)]
    asked: Asked<Part>,
    /// The order of Millpond's folios in all parts
    #[arg(long, default_value = "4")]
    order: BenchOrder,
    #[command(flatten)]
    blocked: blocked::Sizes,
    #[command(flatten)]
    cycle: cycle::Sizes,
    #[command(flatten)]
    unmap: unmap::Sizes,
}

/// A part of the benchmark.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
enum Part {
    /// Free a large amount of memory at once
    Blocked,
    /// Free memory and touch as much again
    Cycle,
    /// Run a program that calls `munmap`
    Unmap,
}

impl Parts for Part {
    const SCHEMA: &'static str = "millpond-bench-free/2";

    fn units(order: &str) -> String {
        format!("the highest of the longest; times are µs; Millpond's folios are of order {order}")
    }
}

sides! {
    /// The owner of the freed memory, and how it is freed.
    pub enum Side {
        /// `Region::free_async`
        FreeAsync,
        /// The end of a region
        Drop,
        /// `Region::discard` of all of it
        Discard,
        /// `munmap` of 4 KiB pages
        Kernel,
        /// `munmap` of transparent huge pages
        KernelHuge,
    }
    against [Kernel, KernelHuge]
}

/// Measures and prints. Returns 1 when memory had wrong contents.
///
/// # Errors
/// When a worker fails, or a signal ended the benchmark.
pub fn free(args: &FreeArgs) -> Result<u8, BenchError> {
    Bench::run(&args.asked, Some(args.order), |bench, part| match part {
        Part::Blocked => blocked(bench, args),
        Part::Cycle => cycle(bench, args),
        Part::Unmap => unmap(bench, args),
    })
}

fn blocked(bench: &mut Bench, args: &FreeArgs) -> Result<(), BenchError> {
    let mut sizes = args.blocked;
    let what = format!("blocked at {}", Human(sizes.memory_bytes));
    if !bench.can(&what, memory::room_for(sizes.memory_bytes)) {
        sizes.memory_bytes = memory::halved_to_fit(sizes.memory_bytes)?;
    }
    let heading = format!("giving {} back", Human(sizes.memory_bytes));
    let job = |side| Job::FreeBlocked(side, args.order, sizes);
    bench.processes::<blocked::Outcome, _, _>(Part::Blocked, heading, sizes, &blocked::SIDES, job)
}

fn cycle(bench: &mut Bench, args: &FreeArgs) -> Result<(), BenchError> {
    let sizes = args.cycle;
    let mut sides = vec![Side::Discard, Side::FreeAsync, Side::Kernel];
    if bench.has_huge_pages(Part::Cycle) {
        sides.push(Side::KernelHuge);
    }
    let memory = Human(sizes.memory_bytes);
    let heading = format!("giving {memory} back and touching as much again");
    let job = |side| Job::FreeCycle(side, args.order, sizes);
    bench.processes::<cycle::Outcome, _, _>(Part::Cycle, heading, sizes, &sides, job)
}

fn unmap(bench: &mut Bench, args: &FreeArgs) -> Result<(), BenchError> {
    let sizes = args.unmap;
    let mut sides = vec![unmap::Side::Kernel];
    if bench.has_run(Part::Unmap) {
        sides.insert(0, unmap::Side::Run);
    }
    let (job, order) = (Job::FreeUnmap(sizes), args.order.to_string());
    let rounds = bench.rounds::<_, unmap::Outcome>(&sides, |bench, side| match side {
        unmap::Side::Kernel => bench.workers.measure(&job, None),
        unmap::Side::Run => {
            let options = [under_run::MANAGED, "--order", &order];
            let command = under_run::command(sizes.ram(), &options, &job)?;
            bench.workers.measure_command(command, None)
        }
    })?;
    let heading = format!("a program's munmap of {}", Human(sizes.memory_bytes));
    bench.part(Part::Unmap, heading, sizes, rounds)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::comparison::{Comparison, Table};

    #[test]
    fn times_are_compared_with_munmap_and_the_longest_wait_counts() {
        let freed = |blocked, cpu, longest_mmap| blocked::Outcome {
            blocked,
            cpu,
            longest_mmap,
            ..blocked::Outcome::default()
        };
        let waits = [9_000.0, 11_000.0, 2_000.0].map(|wait| freed(90.0, 1.0, wait));
        let rounds = vec![
            (Side::FreeAsync, waits.to_vec()),
            (Side::Drop, vec![freed(90_000.0, 1.0, 10_000.0)]),
            (Side::Kernel, vec![freed(100_000.0, 0.9, 90_000.0)]),
        ];
        let blocked = Comparison::new((), rounds);
        let ratio = |figure| blocked.ratio(figure, Side::FreeAsync, Side::Kernel);
        assert_eq!(ratio("blocked"), Some(100_000.0 / 90.0));
        assert_eq!(ratio("cpu"), Some(0.9));
        assert_eq!(blocked.sides[0].measured.median.longest_mmap, 11_000.0);
        assert_eq!(blocked.wrong(), 0);
    }
}
