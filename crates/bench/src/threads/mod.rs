//! `millpond bench threads`: compares the fault rate of two threads with that of one.
//!
//! | part | what the threads read |
//! | --- | --- |
//! | `random` | pages at random, each thread its own sequence over the whole region |
//! | `in_order` | the region's pages in order, each thread its own part |
//! | `in_pieces` | the region's pages in order, each thread the next 2 MiB that no other has taken |
//!
//! A part of the region that stays in memory takes almost no time to read. In `in_order` most of that belongs to one
//! thread, which is soon done, and the time is that of the other; in `in_pieces` both have work until the end.
//!
//! If the faulting thread serves itself, two threads on two processors could fault at twice the rate, except for what
//! they share: the core's lock, the kernel's lock on the address space, and the interrupts with which one processor
//! tells the other that a page has left. A handler is one thread for all. The kernel's swap to zram is measured for
//! comparison.
//!
//! In JSON a `side` has `who` and `threads`, and `kernel_swap` is the setting of the kernel's side. Times are
//! microseconds of wall time, whatever the number of threads. A ratio is the time of one thread divided by that of
//! more threads: the factor by which their fault rate is higher.

mod side;
mod work;

use crate::bench::{Asked, Bench, Parts, is_asked_for};
use crate::error::BenchError;
use crate::jobs::Job;
use crate::kernel_swap::KernelSwap;
use crate::order::BenchOrder;
use crate::phases::Work;
use clap::ValueEnum;
use millpond_cli::size::Human;
use serde::{Deserialize, Serialize};
pub use side::{Run, Who};
use work::Outcome;
pub use work::{Task, work};

/// `millpond bench threads`' arguments.
#[derive(clap::Args, Debug)]
pub struct ThreadsArgs {
    #[command(flatten)]
    asked: Asked<Part>,
    /// The order of Millpond's folios
    #[arg(long, default_value = "adaptive")]
    order: BenchOrder,
    /// Measure only these sides
    #[arg(long, value_name = "SIDE,...", value_delimiter = ',')]
    sides: Vec<Who>,
    /// The number of threads that are compared with one
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u16).range(2..=256), value_name = "N")]
    threads: u16,
    #[command(flatten)]
    work: Work,
}

/// A part of the benchmark.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, clap::ValueEnum)]
#[value(rename_all = "snake_case")]
pub enum Part {
    /// Read at random
    Random,
    /// Read in order, each thread in its own part
    InOrder,
    /// Read in order, each thread the next 2 MiB
    InPieces,
}

impl Parts for Part {
    const SCHEMA: &'static str = "millpond-bench-threads/2";
    const KERNEL: Option<&'static str> = Some("kernel_swap");

    fn units(order: &str) -> String {
        format!("times are µs, of all threads together; Millpond's folios are of order {order}")
    }
}

/// Measures, restores the machine, and prints. Returns 1 when memory had wrong contents.
///
/// # Errors
/// When a worker fails, something cannot be restored, or a signal ended the benchmark.
pub fn threads(args: &ThreadsArgs) -> Result<u8, BenchError> {
    Bench::run(&args.asked, Some(args.order), |bench, part| {
        measure(bench, part, args)
    })
}

fn measure(bench: &mut Bench, part: Part, args: &ThreadsArgs) -> Result<(), BenchError> {
    let all = |bench: &mut Bench, kernel: Option<&KernelSwap>| {
        bench.rounds::<_, Outcome>(&runs(args, kernel), |bench, run| {
            bench.guarded(&Job::Threads(Task {
                part,
                run,
                order: args.order,
                cgroup: KernelSwap::group_of(kernel, run),
                work: args.work,
            }))
        })
    };
    let rounds = match is_asked_for(&args.sides, Who::Kernel) {
        true => bench.beside_kernel_swap(part, &args.work, all)?,
        false => all(bench, None)?,
    };
    let how = match part {
        Part::Random => "at random",
        Part::InOrder => "in order",
        Part::InPieces => "in order by pieces",
    };
    let (memory, ram) = (Human(args.work.pages * 4096), Human(args.work.ram));
    let heading = format!("{memory} in {ram}, read {how}");
    bench.part(part, heading, args.work, rounds)
}

/// The requested sides that can run here, each with one thread and with more.
fn runs(args: &ThreadsArgs, kernel: Option<&KernelSwap>) -> Vec<Run> {
    let who = Who::value_variants().iter().copied();
    let here = who
        .filter(|&who| is_asked_for(&args.sides, who))
        .filter(|&who| who != Who::Kernel || kernel.is_some());
    here.flat_map(|who| [1, args.threads].map(|threads| Run { who, threads }))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::comparison::{Comparison, Table};

    #[test]
    fn two_threads_are_compared_with_one() {
        let faulted = |micros, wrong_pages| Outcome {
            fault: micros,
            cpu: micros,
            page: micros,
            major_faults: 1,
            wrong_pages,
        };
        let run = |threads| Run {
            who: Who::Direct,
            threads,
        };
        let rounds = vec![
            (run(1), vec![faulted(8.0, 0)]),
            (run(2), vec![faulted(5.0, 0), faulted(5.0, 1)]),
        ];
        let part = Comparison::new((), rounds);
        assert_eq!(part.ratio("fault", run(2), run(1)), Some(1.6));
        assert_eq!(part.wrong(), 1);
    }
}
