//! Replays a seed, runs the fixed ones, or looks for a new one that fails.

use std::iter;
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use clap::Parser;
use millpond_sim::profile::SEEDS;
use millpond_sim::report::Coverage;
use millpond_sim::rng::Rng;
use millpond_sim::{Options, Run, run, run_each, seeds};

/// Run the deterministic simulation of the Millpond core
#[derive(Parser)]
#[command(version)]
struct Args {
    /// Replay this seed and print its log
    #[arg(required_unless_present_any = ["fixed", "fresh"])]
    seed: Option<u64>,
    /// Run the fixed list of seeds
    #[arg(long, conflicts_with = "seed")]
    fixed: bool,
    /// Run new random seeds for SECS seconds, after the fixed seeds if --fixed is given as well
    #[arg(long, value_name = "SECS", conflicts_with = "seed")]
    fresh: Option<u64>,
    /// How many events happen before the simulated program is asked to end
    #[arg(long, default_value_t = Options::default().events)]
    events: u64,
    /// Check the whole state of the core after every N events
    #[arg(long, value_name = "N", default_value_t = Options::default().check_every,
          value_parser = clap::value_parser!(u64).range(1..))]
    check_every: u64,
    /// How many operations in 1000 free memory lazily or concern volatile ranges. Without this option the seed draws it
    #[arg(long, value_name = "PER_MILLE")]
    freeing: Option<u32>,
    /// How many operations in 1000 take a snapshot. Without this option the seed draws it
    #[arg(long, value_name = "PER_MILLE")]
    snapshots: Option<u32>,
    /// How many operations in 1000 move pages or change a region's length. Without this option the seed draws it
    #[arg(long, value_name = "PER_MILLE")]
    remaps: Option<u32>,
    /// Print no log for a seed that passes
    #[arg(long)]
    quiet: bool,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let options = Options {
        events: args.events,
        check_every: args.check_every,
        freeing: args.freeing,
        snapshots: args.snapshots,
        remaps: args.remaps,
        ..Options::default()
    };
    let mut results = Results::default();
    if let Some(seed) = args.seed {
        let run = run(seed, options);
        if !args.quiet {
            run.log.lines().for_each(|line| println!("{line}"));
        }
        results.add(&run, &args);
        return results.finish();
    }
    if args.fixed && !run_each(seeds::FIXED, options, |run| results.add(&run, &args)) {
        return results.finish();
    }
    if let Some(secs) = args.fresh {
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        let mut rng = Rng::new(now.as_nanos() as u64);
        let end = Instant::now() + Duration::from_secs(secs);
        // These seeds are short enough to type, and produce every kind of world.
        let fresh = iter::repeat_with(|| rng.word() % SEEDS).take_while(|_| Instant::now() < end);
        run_each(fresh, options, |run| results.add(&run, &args));
    }
    results.finish()
}

/// What the runs so far have shown.
#[derive(Default)]
struct Results {
    total: Coverage,
    /// How a run failed, and the command that replays it. No other run is looked at after it.
    failure: Option<String>,
}

impl Results {
    /// Prints the result of a run, and returns false if the run failed.
    fn add(&mut self, run: &Run, args: &Args) -> bool {
        self.total.add(&run.coverage);
        let Some(failure) = &run.failure else {
            println!(
                "seed {}: passed, {} events in {} steps",
                run.seed, run.events, run.steps
            );
            return true;
        };
        println!("{}", run.log.about(failure.page, 60));
        self.failure = Some(format!(
            "seed {}: FAILED after {} events: {}\n{}",
            run.seed,
            run.events,
            failure.what,
            replay(run.seed, args)
        ));
        false
    }

    /// Prints what was seen, and then, as the last lines, what failed: these are the lines that a log always keeps.
    fn finish(&self) -> ExitCode {
        print!("seen:\n{}", self.total);
        let Some(failure) = &self.failure else {
            return ExitCode::SUCCESS;
        };
        println!("{failure}");
        ExitCode::FAILURE
    }
}

/// The command that replays a seed with the options of this run.
fn replay(seed: u64, args: &Args) -> String {
    let option =
        |name, value: Option<u32>| value.map_or(String::new(), |n| format!(" --{name} {n}"));
    format!(
        "replay: cargo run --profile checked -p millpond-sim -- {seed} --events {} --check-every 1{}{}{}",
        args.events,
        option("freeing", args.freeing),
        option("snapshots", args.snapshots),
        option("remaps", args.remaps)
    )
}
