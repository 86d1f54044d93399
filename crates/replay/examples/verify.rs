//! Compares the comparison policies with the figures of another simulator.
//!
//! `cargo run --release -p millpond-replay --example verify -- DIRECTORY`
//!
//! The directory holds traces and a `README.md` with a table of miss ratios: a row for each trace, a column for each
//! policy, and in each cell the ratios for 10, 25 and 50 % of the footprint, separated by `/`. Traces are
//! `NAME.vz.zst`; in those called `pg_*` bit 0 says whether an access writes. Differences above 0.0015 are printed and
//! counted; LIRS, whose implementations differ in how long they remember pages that have left, may differ by 0.03.

use millpond_replay::import::Reading;
use millpond_replay::open;
use millpond_replay::policies::Policy;
use std::process::ExitCode;

const PERCENTS: [u64; 3] = [10, 25, 50];

fn main() -> ExitCode {
    let Some(directory) = std::env::args_os().nth(1) else {
        eprintln!("name the directory with the traces and their README.md");
        return ExitCode::from(2);
    };
    let directory = std::path::PathBuf::from(directory);
    let text = match std::fs::read_to_string(directory.join("README.md")) {
        Ok(text) => text,
        Err(error) => {
            eprintln!("{}: {error}", directory.join("README.md").display());
            return ExitCode::from(2);
        }
    };
    let cells = |line: &str| -> Vec<String> {
        let line = line.trim().trim_matches('|');
        line.split('|').map(|cell| cell.trim().to_owned()).collect()
    };
    let mut policies: Vec<Option<Policy>> = Vec::new();
    let (mut compared, mut off) = (0, 0);
    for line in text.lines().filter(|line| line.starts_with('|')) {
        let row = cells(line);
        if row.iter().any(|cell| cell == "LRU") {
            let name = |cell: &String| cell.to_lowercase().replace('-', "").parse().ok();
            policies = row.iter().map(name).collect();
            continue;
        }
        let path = directory.join(format!("{}.vz.zst", row[0]));
        if policies.is_empty() || !path.exists() {
            continue;
        }
        let reading = Reading {
            write_bit: row[0].starts_with("pg_"),
            instructions: false,
        };
        let trace = match open::load(&path, None, reading) {
            Ok(trace) => trace,
            Err(error) => {
                eprintln!("{error}");
                return ExitCode::from(2);
            }
        };
        let size = |percent| (u64::from(trace.footprint()) * percent / 100) as u32;
        let sizes = PERCENTS.map(size);
        for (policy, cell) in policies.iter().zip(&row) {
            let Some(policy) = policy else { continue };
            let misses = policy
                .misses(&trace, &sizes)
                .expect("sizes that can be replayed");
            let theirs = cell.split('/').map(|n| n.trim().parse::<f64>());
            for ((ours, theirs), percent) in misses.iter().zip(theirs).zip(PERCENTS) {
                let Ok(theirs) = theirs else { continue };
                let ours = ours.misses as f64 / trace.len() as f64;
                let allowed = if *policy == Policy::Lirs {
                    0.03
                } else {
                    0.0015
                };
                compared += 1;
                if (ours - theirs).abs() > allowed {
                    off += 1;
                    println!("{} {policy} {percent} %: {ours:.4}, there {theirs}", row[0]);
                }
            }
        }
    }
    println!("{compared} figures compared, {off} differ");
    ExitCode::from(u8::from(off > 0 || compared == 0))
}
