//! Measures what it costs to save pages to a file: microseconds a page until all is written, while the saver waits for
//! each write, and while its writes are done behind its back.
//!
//! `cargo run --release -p millpond-store --example write_behind DIRECTORY` runs both ways in turns, and prints the
//! median of the rounds and the fastest.

use millpond_core::SlotId;
use millpond_core::port::{Forks, Saved, Slots, Upkeep};
use millpond_store::{FileStore, FileStoreConfig};
use std::time::Instant;

const PAGES: usize = 32 << 10;
const ROUNDS: usize = 7;

/// Pages of which the first `noisy` words of 512 do not compress.
fn data(noisy: usize) -> Vec<u8> {
    let mut state = 1_u64;
    let words = (0..PAGES * 512).flat_map(|at| {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let noise = mixed ^ mixed >> 27;
        let word = if at % 512 < noisy {
            noise
        } else {
            at as u64 / 512
        };
        word.to_ne_bytes()
    });
    words.collect()
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory = std::env::args_os().nth(1).ok_or("name a directory")?;
    let open = |write_behind| {
        let config = FileStoreConfig {
            write_behind,
            ..FileStoreConfig::in_directory(&directory)
        };
        FileStore::create(&config)
    };
    let (waits, behind) = (open(false)?, open(true)?);
    println!("{}", waits.describe());
    println!(
        "{:<12} {:>6}   {:>22}   {:>22}",
        "data", "slot", "waits us/pg (median)", "behind us/pg (median)"
    );
    for (name, noisy) in [("noise", 512), ("a quarter", 128)] {
        let data = data(noisy);
        for size in [4096, 16 << 10, 64 << 10, 2 << 20] {
            let mut times = [Vec::new(), Vec::new()];
            for _ in 0..ROUNDS {
                for (store, times) in [&waits, &behind].into_iter().zip(&mut times) {
                    times.push(save_all(store, &data, size));
                }
            }
            let [waits, behind] = times.map(|mut times| {
                times.sort_by(f64::total_cmp);
                format!("{:.2} ({:.2})", times[0], times[ROUNDS / 2])
            });
            println!("{name:<12} {:>5}K   {waits:>22}   {behind:>22}", size >> 10);
        }
    }
    Ok(())
}

/// Saves all of `data` by slots of this size, and releases it. The answer is the microseconds that a page took.
fn save_all(store: &FileStore, data: &[u8], size: usize) -> f64 {
    store.write_behind();
    let start = Instant::now();
    for (slot, bytes) in (0..).zip(data.chunks_exact(size)) {
        assert_eq!(store.save(SlotId(slot), None, bytes), Ok(Saved::Stored));
    }
    // What is still to be written is written before a fork.
    store.before_fork(0);
    let time = start.elapsed();
    store.child_gone(0);
    (0..(data.len() / size) as u32).for_each(|slot| store.release(SlotId(slot)));
    time.as_secs_f64() * 1e6 / PAGES as f64
}
