//! `millpond bench swap` runs the rounds of all sides, in turns.
//!
//! Each round runs Millpond at every order and then the kernel.

mod report;

use crate::backing::Backing;
use crate::error::{BenchError, Skip};
use crate::guard::Guard;
use crate::jobs::Job;
use crate::kernel_swap::KernelSwap;
use crate::millpond_side::{How, ServedBy};
use crate::order::BenchOrder;
use crate::phases::{Manner, Phases, Work};
use crate::rounds::print;
use crate::worker::Workers;
use report::{KernelSide, MillpondSide, Skipped, SwapReport, What};

/// `millpond bench swap`'s arguments.
#[derive(clap::Args, Debug)]
pub struct SwapArgs {
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
    /// How often each side is measured
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=1000))]
    rounds: u16,
    /// The orders of Millpond's folios; Millpond is measured with each of them
    #[arg(long, value_delimiter = ',', default_value = "4,2,0,adaptive")]
    orders: Vec<BenchOrder>,
    /// Which thread serves Millpond's faults
    #[arg(long, value_name = "WHO", default_value = "in-thread")]
    delivery: ServedBy,
    /// Measure this side alone
    #[arg(long, value_name = "SIDE")]
    only: Option<Only>,
    #[command(flatten)]
    backing: Backing,
    #[command(flatten)]
    manner: Manner,
    #[command(flatten)]
    work: Work,
}

/// A side of the benchmark.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
enum Only {
    /// Millpond
    Millpond,
    /// Kernel swap in a memory cgroup
    Kernel,
}

/// Measures, restores the machine, and prints.
///
/// # Errors
/// When a worker fails, something cannot be restored, or a signal ended the benchmark.
pub fn swap(args: &SwapArgs) -> Result<u8, BenchError> {
    let workers = Workers::new().map_err(BenchError::Start)?;
    let mut skipped = Skipped::default();
    let mut orders = args.orders.clone();
    orders.dedup();
    if args.only == Some(Only::Kernel) {
        orders.clear();
        skipped.millpond = Some("--only kernel".to_owned());
    }
    let mut guard = Guard::acquire_if_root()?;
    let kernel = match set_up_kernel(args, guard.as_mut()) {
        Ok(kernel) => Some(kernel),
        Err(BenchError::Skipped(why)) => {
            skipped.kernel = Some(why.to_string());
            None
        }
        Err(error) => return Err(error),
    };

    let (work, manner) = (args.work, args.manner);
    let how = |order| How {
        order,
        delivery: args.delivery,
        backing: args.backing.clone(),
    };
    let mut ours: Vec<Vec<Phases>> = vec![Vec::new(); orders.len()];
    let mut kernels = Vec::new();
    for _ in 0..args.rounds {
        for (&order, rounds) in orders.iter().zip(&mut ours) {
            let job = Job::Millpond(how(order), work, manner);
            rounds.push(workers.measure(&job, None)?);
        }
        if let Some(kernel) = &kernel {
            let job = Job::KernelSwap(kernel.group().to_owned(), work, manner);
            kernels.push(workers.measure(&job, guard.as_mut())?);
        }
    }
    let setting = kernel.map(|kernel| kernel.setting);
    guard.map_or(Ok(()), Guard::finish)?;
    workers.check()?;

    let sides = orders
        .iter()
        .zip(ours)
        .map(|(&order, rounds)| MillpondSide {
            order,
            side: rounds.into(),
        });
    let kernel_side = setting.map(|setting| KernelSide {
        setting,
        side: kernels.into(),
    });
    let what = What {
        rounds: args.rounds.into(),
        delivery: args.delivery,
        store: args.backing.medium,
        manner,
    };
    let report = SwapReport::new(&work, what, sides.collect(), kernel_side, skipped);
    print(args.json, &report).map_err(BenchError::Print)?;
    Ok(u8::from(!report.all_right()))
}

fn set_up_kernel(args: &SwapArgs, guard: Option<&mut Guard>) -> Result<KernelSwap, BenchError> {
    if args.only == Some(Only::Millpond) {
        return Err(Skip("--only millpond".to_owned()).into());
    }
    match guard {
        Some(guard) => KernelSwap::set_up(guard, &args.work, &args.backing),
        None => Err(Skip::needs_root().into()),
    }
}
