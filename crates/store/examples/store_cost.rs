//! Measures what a page costs: nanoseconds to save and to load, by slot size.
//!
//! `cargo run --release -p millpond-store --example store_cost [DIRECTORY]` measures compressed RAM and, with a
//! directory, a file there too. Each page has 1 KiB of noise, then its own number again and again. Of several rounds
//! the fastest counts.

use millpond_core::SlotId;
use millpond_core::port::{Saved, Store};
use millpond_core::{Order, SlotPart};
use millpond_store::{CompressedRam, CompressedRamConfig, FileStore, FileStoreConfig};
use std::time::Instant;

const PAGES: usize = 16 << 10;
const ROUNDS: usize = 5;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut data = vec![0; PAGES * 4096];
    let mut state = 1u64;
    for (page, bytes) in data.chunks_mut(4096).enumerate() {
        for (i, word) in bytes.as_chunks_mut::<8>().0.iter_mut().enumerate() {
            state = state
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            let noise = state ^ state >> 29;
            *word = if i < 128 { noise } else { page as u64 }.to_ne_bytes();
        }
    }
    println!(
        "{:<28} {:>8} {:>12} {:>12} {:>12} {:>7}",
        "store", "slot", "save ns/pg", "again ns/pg", "load ns/pg", "ratio"
    );
    let ram = CompressedRam::new(CompressedRamConfig::default())?;
    for size in [4096, 16 << 10, 64 << 10, 2 << 20] {
        measure("compressed RAM", &ram, &data, size);
    }
    if let Some(directory) = std::env::args_os().nth(1) {
        let file = FileStore::create(&FileStoreConfig::in_directory(directory))?;
        println!("{}", file.describe());
        for size in [4096, 64 << 10, 2 << 20] {
            measure("file", &file, &data[..data.len() / 4], size);
        }
    }
    Ok(())
}

fn measure(name: &str, store: &dyn Store, data: &[u8], size: usize) {
    let slots = (data.len() / size) as u32;
    let piece = |slot: u32| &data[slot as usize * size..][..size];
    let mut out = vec![0; size];
    let (mut save, mut again, mut load, mut ratio) = (f64::MAX, f64::MAX, f64::MAX, 0.0);
    let per_page = |start: Instant| start.elapsed().as_nanos() as f64 / (data.len() / 4096) as f64;
    for _ in 0..ROUNDS {
        let start = Instant::now();
        for slot in 0..slots {
            assert_eq!(
                store.save(SlotId(slot), None, piece(slot)),
                Ok(Saved::Stored)
            );
        }
        save = save.min(per_page(start));
        let start = Instant::now();
        for slot in 0..slots {
            let previous = SlotPart {
                slot: SlotId(slot),
                first: 0,
                order: Order::new((size / 4096).ilog2() as u8).expect("sizes are folios'"),
            };
            let saved = store.save(SlotId(slots), Some(previous), piece(slot));
            assert_eq!(saved, Ok(Saved::Unchanged));
        }
        again = again.min(per_page(start));
        let start = Instant::now();
        for slot in 0..slots {
            store
                .load(SlotId(slot), 0, &mut out)
                .expect("what was saved");
        }
        load = load.min(per_page(start));
        assert_eq!(out, piece(slots - 1));
        let usage = store.usage();
        ratio = usage.logical_bytes as f64 / usage.stored_bytes as f64;
        (0..slots).for_each(|slot| store.release(SlotId(slot)));
    }
    println!(
        "{name:<28} {:>7}K {save:>12.0} {again:>12.0} {load:>12.0} {ratio:>7.2}",
        size >> 10
    );
}
