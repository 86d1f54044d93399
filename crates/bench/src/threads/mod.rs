//! `millpond bench threads`: how much more often two threads fault than one.
//!
//! | part | what the threads read |
//! | --- | --- |
//! | `random` | pages at random, each thread its own sequence over the whole region |
//! | `in_order` | the region's pages in order, each thread a part of its own |
//! | `in_pieces` | the region's pages in order, each thread the next 2 MiB that no other has taken |
//!
//! A part of the region that stays in memory is read in no time. In `in_order` most of that is one thread's, which is
//! soon done, and the time is that of the other; in `in_pieces` both have work to the end.
//!
//! Where the faulting thread serves itself, two threads on two processors could fault twice as often, but for what they
//! share: the core's lock, the kernel's lock on the address space, and the interruptions by which one processor tells
//! the other that a page has left. A handler is one thread for all. The kernel's swap to zram stands beside it, as the
//! machine's answer to the same question.

mod report;
mod side;
mod work;

use crate::bench::{self, Asked, Bench};
use crate::error::BenchError;
use crate::kernel_swap::KernelSwap;
use crate::order::BenchOrder;
use crate::part::Part;
use crate::phases::Work;
use clap::ValueEnum;
use report::ThreadsParts;
use side::{Run, Who};
pub use work::{Job, work};

/// `millpond bench threads`' arguments.
#[derive(clap::Args, Debug)]
pub struct ThreadsArgs {
    #[command(flatten)]
    asked: Asked<Name>,
    /// The order of Millpond's folios
    #[arg(long, default_value = "adaptive")]
    order: BenchOrder,
    /// Measure these sides alone
    #[arg(long, value_name = "SIDE,...", value_delimiter = ',')]
    sides: Vec<Who>,
    /// How many threads are compared with one
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u16).range(2..=256), value_name = "N")]
    threads: u16,
    #[command(flatten)]
    work: Work,
}

/// A part of the benchmark.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
#[value(rename_all = "snake_case")]
pub enum Name {
    /// Reads at random
    Random,
    /// Reads in order, each thread in a part of its own
    InOrder,
    /// Reads in order, each thread the next 2 MiB
    InPieces,
}

impl bench::Name for Name {}

/// Measures, puts everything back, and prints. Returns 1 when memory held wrong bytes.
///
/// # Errors
/// When a worker fails, something cannot be put back, or a signal asked for the end.
pub fn threads(args: &ThreadsArgs) -> Result<u8, BenchError> {
    Bench::run(&args.asked, Some(args.order), |bench, name| {
        measure(bench, name, args)
    })
}

fn measure(
    bench: &mut Bench<ThreadsParts>,
    name: Name,
    args: &ThreadsArgs,
) -> Result<(), BenchError> {
    let part = report::name_of(name);
    let one = |bench: &mut Bench<ThreadsParts>, kernel: Option<&KernelSwap>| {
        bench.rounds(&runs(args, kernel), |bench, run| {
            let kernel = kernel.filter(|_| run.who == Who::Kernel);
            bench.process(arguments(&part, run, args), kernel)
        })
    };
    let wants_kernel = args.sides.is_empty() || args.sides.contains(&Who::Kernel);
    let rounds = match wants_kernel {
        true => {
            let (rounds, setting) = bench.beside_kernel_swap(&part, &args.work, one)?;
            bench.parts.kernel_swap = setting.or(bench.parts.kernel_swap.take());
            rounds
        }
        false => one(bench, None)?,
    };
    bench.parts.set(name, Part::new(args.work, rounds));
    Ok(())
}

/// The sides that were asked for and are there, each with one thread and with more.
fn runs(args: &ThreadsArgs, kernel: Option<&KernelSwap>) -> Vec<Run> {
    let who = Who::value_variants().iter().copied();
    let here = who
        .filter(|who| args.sides.is_empty() || args.sides.contains(who))
        .filter(|&who| who != Who::Kernel || kernel.is_some());
    here.flat_map(|who| [1, args.threads].map(|threads| Run { who, threads }))
        .collect()
}

fn arguments(part: &str, run: Run, args: &ThreadsArgs) -> Vec<String> {
    let mut arguments = ["threads", part, &run.who.to_string()]
        .map(str::to_owned)
        .to_vec();
    arguments.extend(["--threads".to_owned(), run.threads.to_string()]);
    arguments.extend(["--order".to_owned(), args.order.to_string()]);
    arguments.extend(args.work.to_arguments());
    arguments
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_options_are_the_same() {
        use clap::Args;
        ThreadsArgs::augment_args(clap::Command::new("threads")).debug_assert();
        Job::augment_args(clap::Command::new("worker")).debug_assert();
    }
}
