//! The core's prediction of what more memory would save, beside what it saves.
//!
//! `cargo run --release -p millpond-replay --example curve -- DIRECTORY [PERCENT,…]`
//!
//! Every `NAME.vz.zst` of the directory is replayed in caches of 10, 25 and 50 % of its footprint, and in caches that
//! are larger by a quarter, a half, as much again and twice as much, where these are smaller than the footprint. In
//! traces called `pg_*` bit 0 says whether an access writes. Shares are of the major faults of the smaller cache: those
//! that did not happen in the larger one, by the smaller one's counters ([`Curve`]) and in truth. The LRU share is the
//! part that the larger cache would have spared if it had followed LRU: where the truth is less than that, it is the
//! policy that falls short of the prediction. The last line says how many predictions are within a tenth of the major
//! faults.

mod common;

use common::{Arguments, load};
use millpond_replay::core_policy::CorePolicy;
use millpond_replay::curve::Curve;
use millpond_replay::stack_distance::StackDistances;
use std::collections::HashMap;
use std::process::ExitCode;

/// Quarters of the cache that are added.
const QUARTERS: [u32; 4] = [1, 2, 4, 8];
/// Share of the major faults by which a prediction may be off.
const WITHIN: f64 = 0.1;

fn main() -> ExitCode {
    let Arguments {
        mut traces,
        percents,
    } = match Arguments::parse() {
        Ok(arguments) => arguments,
        Err(what) => {
            eprintln!("{what}");
            return ExitCode::from(2);
        }
    };
    traces.sort();
    println!("| trace | cache | major faults | more | predicted | in truth | off | LRU |");
    println!("| --- | --- | --- | --- | --- | --- | --- | --- |");
    let (mut all, mut good, mut short) = (0, 0, 0);
    for path in traces {
        let (name, trace) = load(&path);
        let lru = StackDistances::of(&trace);
        let mut larger = HashMap::new();
        let mut replay = |pages: u32| -> Curve {
            let replayed = || CorePolicy::replay(&trace, pages).map(|policy| policy.curve());
            *larger
                .entry(pages)
                .or_insert_with(|| replayed().unwrap_or_else(|error| panic!("{error}")))
        };
        for percent in &percents {
            let pages = (u64::from(trace.footprint()) * percent / 100).max(4) as u32;
            let curve = replay(pages);
            for more in QUARTERS.map(|quarters| pages / 4 * quarters) {
                if pages + more >= trace.footprint() || curve.faults() == 0 {
                    continue;
                }
                let predicted = curve.avoided(u64::from(more));
                let spared = |left: u64| 1.0 - left as f64 / curve.faults() as f64;
                let truth = spared(replay(pages + more).faults());
                let of_lru = spared(lru.misses(pages + more) - u64::from(trace.footprint()));
                let off = predicted - truth;
                let behind = of_lru > truth + 0.5 * off && off > WITHIN;
                all += 1;
                good += u32::from(off.abs() <= WITHIN);
                short += u32::from(behind);
                println!(
                    "| {name} | {percent} % | {} | {more} | {predicted:.3} | {truth:.3} | {off:+.3}{} | {of_lru:.3} |",
                    curve.faults(),
                    match (off.abs() > WITHIN, behind) {
                        (true, true) => " (policy)",
                        (true, false) => " (!)",
                        _ => "",
                    }
                );
            }
        }
    }
    println!(
        "{good} of {all} predictions within {WITHIN}; {short} of the others promise what LRU would have kept"
    );
    ExitCode::from(u8::from(all == 0))
}
