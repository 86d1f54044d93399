//! The core's policy beside the textbook ones: miss ratios, their geometric means, and the worst against LRU.
//!
//! `cargo run --release -p millpond-replay --example compare -- DIRECTORY [PERCENT,…]`
//!
//! Every `NAME.vz.zst` of the directory is replayed in caches of 10, 25 and 50 % of its footprint. In traces called
//! `pg_*` bit 0 says whether an access writes. The core is driven through [`Core::handle`](millpond_core::Core::handle)
//! with folios of one page; a miss is an access to a page that is neither mapped nor in limbo. The example exits with
//! an error when the core is more than 5 % above LRU anywhere, or worse on average than the best of the others.

mod common;

use common::{Arguments, load};
use millpond_replay::core_policy::CorePolicy;
use millpond_replay::policies::Policy;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

const OTHERS: [Policy; 5] = [
    Policy::Lru,
    Policy::Arc,
    Policy::Lirs,
    Policy::S3Fifo,
    Policy::Sieve,
];

struct Row {
    name: String,
    percent: u64,
    /// Miss ratios: those of [`OTHERS`], then the core's.
    ratios: Vec<f64>,
    rescues_per_miss: f64,
}

fn main() -> ExitCode {
    let Arguments { traces, percents } = match Arguments::parse() {
        Ok(arguments) => arguments,
        Err(what) => {
            eprintln!("{what}");
            return ExitCode::from(2);
        }
    };
    let (next, rows) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(path) = traces.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let found = replay(path, &percents);
                    rows.lock().expect("no thread panics").extend(found);
                }
            });
        }
    });
    let mut rows = rows.into_inner().expect("no thread panics");
    rows.sort_by(|one, other| (&one.name, one.percent).cmp(&(&other.name, other.percent)));
    ExitCode::from(u8::from(!print(&rows)))
}

fn replay(path: &Path, percents: &[u64]) -> Vec<Row> {
    let (name, trace) = load(path);
    let size = |&percent: &u64| (u64::from(trace.footprint()) * percent / 100).max(2) as u32;
    let sizes: Vec<u32> = percents.iter().map(size).collect();
    let all = trace.len() as f64;
    let others: Vec<_> = OTHERS
        .iter()
        .map(|policy| policy.misses(&trace, &sizes).expect("sizes above zero"))
        .collect();
    let row = |(n, (&percent, &size)): (usize, (&u64, &u32))| {
        let core = CorePolicy::replay(&trace, size)
            .unwrap_or_else(|error| panic!("{name} {percent} %: {error}"));
        let counts = core.counts();
        let mut ratios: Vec<f64> = others
            .iter()
            .map(|all_sizes| all_sizes[n].misses as f64 / all)
            .collect();
        ratios.push(counts.misses() as f64 / all);
        Row {
            name: name.clone(),
            percent,
            ratios,
            rescues_per_miss: counts.rescues as f64 / counts.misses() as f64,
        }
    };
    percents.iter().zip(&sizes).enumerate().map(row).collect()
}

/// Prints all rows, and says whether the core is good enough.
fn print(rows: &[Row]) -> bool {
    println!(
        "| trace | cache | LRU | ARC | LIRS | S3-FIFO | SIEVE | core | core / LRU | rescues a miss |"
    );
    println!("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |");
    let mut worst = 0.0_f64;
    for row in rows {
        let (core, lru) = (row.ratios[OTHERS.len()], row.ratios[0]);
        worst = worst.max(core / lru);
        let cells: Vec<String> = row
            .ratios
            .iter()
            .map(|ratio| format!("{ratio:.4}"))
            .collect();
        let note = if core > 1.05 * lru { " (!)" } else { "" };
        println!(
            "| {} | {} % | {} | {:.3}{note} | {:.2} |",
            row.name,
            row.percent,
            cells.join(" | "),
            core / lru,
            row.rescues_per_miss
        );
    }
    let mean = |n: usize| {
        let sum: f64 = rows.iter().map(|row| row.ratios[n].ln()).sum();
        (sum / rows.len() as f64).exp()
    };
    let means: Vec<f64> = (0..=OTHERS.len()).map(mean).collect();
    let cells: Vec<String> = means.iter().map(|mean| format!("{mean:.4}")).collect();
    println!("| geometric mean | | {} | | |", cells.join(" | "));
    println!("worst against LRU: {worst:.3}");
    let best = means[1..OTHERS.len()]
        .iter()
        .copied()
        .fold(f64::MAX, f64::min);
    worst <= 1.05 && means[OTHERS.len()] <= best
}
