//! What the core says that more memory would save, beside what it saves.
//!
//! `cargo run --release -p millpond-replay --example curve -- DIRECTORY [PERCENT,…]`
//!
//! Every `NAME.vz.zst` of the directory is replayed in caches of 10, 25 and 50 % of its footprint, and in caches that are larger by
//! a quarter, a half, as much again and twice as much, where these are smaller than the footprint. In traces called `pg_*` bit 0
//! says whether an access writes. Shares are of the major faults of the smaller cache: those that did not happen in the larger one, by
//! the smaller one's counters ([`Curve`]) and in truth. LRU is what the larger cache would have spared if it had
//! followed LRU: where the truth is less than that, it is the policy that falls short of what was promised. At the
//! end: how many are within a tenth of the major faults.

use millpond_replay::core_policy::CorePolicy;
use millpond_replay::curve::Curve;
use millpond_replay::import::Reading;
use millpond_replay::open;
use millpond_replay::stack_distance::StackDistances;
use std::collections::HashMap;
use std::process::ExitCode;

/// Quarters that are added.
const QUARTERS: [u32; 4] = [1, 2, 4, 8];
/// A prediction may be off by so much of the major faults.
const WITHIN: f64 = 0.1;

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let Some(directory) = args.next() else {
        eprintln!("name the directory with the traces");
        return ExitCode::from(2);
    };
    let percents = args.next().unwrap_or("10,25,50".to_owned());
    let percents: Result<Vec<u64>, _> = percents.split(',').map(str::parse).collect();
    let Ok(percents) = percents else {
        eprintln!("sizes are percents of the footprint, such as 10,25,50");
        return ExitCode::from(2);
    };
    let entries = match std::fs::read_dir(&directory) {
        Ok(entries) => entries,
        Err(error) => {
            eprintln!("{directory}: {error}");
            return ExitCode::from(2);
        }
    };
    let mut paths: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
    paths.retain(|path| path.to_string_lossy().ends_with(".vz.zst"));
    paths.sort();
    println!("| trace | cache | major faults | more | predicted | in truth | off | LRU |");
    println!("| --- | --- | --- | --- | --- | --- | --- | --- |");
    let (mut all, mut good, mut short) = (0, 0, 0);
    for path in paths {
        let name = path.file_name().expect("a file").to_string_lossy();
        let name = name.trim_end_matches(".vz.zst");
        let reading = Reading {
            write_bit: name.starts_with("pg_"),
            instructions: false,
        };
        let trace = open::load(&path, None, reading).unwrap_or_else(|error| panic!("{error}"));
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
