//! Replays a seed, or looks for a new one that fails.

use clap::Parser;
use millpond_race::{Options, Scheduler, run};
use millpond_sim::rng::Rng;
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// New seeds are drawn below this bound: they are short enough to type.
const SEEDS: u64 = 1 << 24;

/// The real driver over simulated memory, under a scheduler that can be repeated.
#[derive(Parser)]
#[command(version)]
struct Args {
    /// Run this seed.
    #[arg(long, required_unless_present = "seconds", conflicts_with = "seconds")]
    seed: Option<u64>,
    /// Run new random seeds for so many seconds.
    #[arg(long)]
    seconds: Option<u64>,
    /// The scheduler that decides which thread goes on; without the option a seed is run with each.
    #[arg(long)]
    scheduler: Option<Scheduler>,
    /// Write what the threads do to standard error.
    #[arg(long)]
    log: bool,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let schedulers = match args.scheduler {
        Some(scheduler) => vec![scheduler],
        None => vec![Scheduler::Random, Scheduler::Pct],
    };
    let passes = |seed| {
        schedulers
            .iter()
            .all(|&scheduler| tell(seed, scheduler, args.log))
    };
    let passed = match (args.seed, args.seconds) {
        (Some(seed), _) => passes(seed),
        (None, seconds) => {
            let end = Instant::now() + Duration::from_secs(seconds.unwrap_or(0));
            let now = SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .unwrap_or_default();
            let mut rng = Rng::new(now.as_nanos() as u64);
            let mut seeds = 0_u64;
            let mut passed = true;
            while passed && Instant::now() < end {
                passed = passes(rng.word() % SEEDS);
                seeds += u64::from(passed);
            }
            println!("{seeds} seeds passed");
            passed
        }
    };
    if passed {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// Runs a seed, and reports how it failed.
fn tell(seed: u64, scheduler: Scheduler, log: bool) -> bool {
    let options = Options {
        scheduler,
        sabotage: None,
        log,
    };
    let Err(what) = run(seed, options) else {
        return true;
    };
    let name = match scheduler {
        Scheduler::Random => "random",
        Scheduler::Pct => "pct",
    };
    println!("seed {seed}, {name}: FAILED: {what}");
    println!(
        "replay: cargo run --profile checked -p millpond-race --features shuttle -- --seed {seed} --scheduler {name}"
    );
    false
}
