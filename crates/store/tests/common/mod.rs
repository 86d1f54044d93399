//! The shared part of the tests: contents of all kinds, and stores of all kinds.
#![allow(dead_code)]

use millpond_core::SlotId;
use millpond_core::port::{Recompress, Store, Upkeep};
use millpond_core::{Order, SlotPart};
use millpond_store::{
    CompressedRam, CompressedRamConfig, FileArea, FileStore, FileStoreConfig, Location, Spill,
};
use std::path::Path;

/// The part of `slot` from page `first` on that has `len` bytes, as the previous place of contents.
pub fn part(slot: u32, first: u16, len: usize) -> SlotPart {
    SlotPart {
        slot: SlotId(slot),
        first,
        order: Order::new((len / 4096).ilog2() as u8).unwrap(),
    }
}

/// The kind of a folio's contents.
#[derive(Clone, Copy, Debug)]
pub enum Fill {
    Zero,
    Word(u64),
    Noise(u64),
    Text(u64),
    /// Each block of 64 KiB is of another kind.
    Mixed(u64),
}

/// Random numbers that are the same in each run.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        let x = (self.0 ^ self.0 >> 33).wrapping_mul(0xff51afd7ed558ccd);
        x ^ x >> 33
    }
}

pub fn contents(fill: Fill, len: usize) -> Vec<u8> {
    let words = |mut word: Box<dyn FnMut(usize) -> u64>| {
        (0..len / 8).flat_map(|i| word(i).to_ne_bytes()).collect()
    };
    match fill {
        Fill::Zero => vec![0; len],
        Fill::Word(word) => words(Box::new(|_| word)),
        Fill::Noise(seed) => {
            let mut random = Random(seed);
            words(Box::new(move |_| random.next()))
        }
        Fill::Text(seed) => words(Box::new(move |i| seed ^ (i as u64 / 5) << 3)),
        Fill::Mixed(seed) => (0..len.div_ceil(65536))
            .flat_map(|i| {
                let kinds = [
                    Fill::Zero,
                    Fill::Text(seed),
                    Fill::Word(seed),
                    Fill::Noise(seed),
                    Fill::Noise(!seed),
                ];
                contents(kinds[(seed as usize + i) % kinds.len()], 65536.min(len))
            })
            .collect(),
    }
}

/// Makes the store denser in a number of rounds over all of its contents, as if RAM were worth it. Returns the number
/// of calls.
pub fn recompress(store: &dyn Store, rounds: usize) -> usize {
    let (mut calls, mut over) = (0, 0);
    while over < rounds {
        calls += 1;
        match store.recompress(true) {
            Recompress::More => {}
            Recompress::RoundOver => over += 1,
            Recompress::Idle => break,
        }
    }
    calls
}

/// Sets the limit for RAM of a store that has another place. One that has none would be full.
pub fn limit(store: &dyn Store, bytes: u64) {
    if store.tiers().is_some() {
        store.limit_ram(bytes);
    }
}

pub fn ram(max_bytes: Option<u64>) -> CompressedRam {
    CompressedRam::new(CompressedRamConfig { max_bytes }).unwrap()
}

pub fn file(dir: &Path, max_bytes: Option<u64>) -> FileStore {
    FileStore::create(&config(dir, max_bytes)).unwrap()
}

pub fn encrypted(dir: &Path, max_bytes: Option<u64>) -> FileStore {
    let config = FileStoreConfig {
        encrypt: true,
        ..config(dir, max_bytes)
    };
    FileStore::create(&config).unwrap()
}

/// A file store that writes the calling thread's saves asynchronously, if the system allows that.
pub fn behind(dir: &Path, max_bytes: Option<u64>) -> FileStore {
    let store = file(dir, max_bytes);
    store.write_behind();
    store
}

/// A file of 2 MiB, and another behind it.
pub fn two_files(dir: &Path, max_bytes: Option<u64>) -> FileStore {
    let behind = FileArea {
        location: Location::Directory(dir.to_owned()),
        max_bytes: max_bytes.map(|bytes| (bytes - FileStore::MIN_BYTES).max(FileStore::MIN_BYTES)),
        priority: -1,
    };
    let config = FileStoreConfig {
        more: vec![behind],
        ..config(dir, Some(FileStore::MIN_BYTES))
    };
    FileStore::create(&config).unwrap()
}

fn config(dir: &Path, max_bytes: Option<u64>) -> FileStoreConfig {
    FileStoreConfig {
        max_bytes,
        force_tmpfs: true,
        ..FileStoreConfig::in_directory(dir)
    }
}

/// One store of each kind, with little room when `max_bytes` says so.
pub fn stores(dir: &Path, max_bytes: Option<u64>) -> Vec<(&'static str, Box<dyn Store>)> {
    vec![
        ("ram", Box::new(ram(max_bytes))),
        ("file", Box::new(file(dir, max_bytes))),
        ("behind file", Box::new(behind(dir, max_bytes))),
        (
            "full file before a file",
            Box::new(two_files(dir, max_bytes)),
        ),
        ("encrypted file", Box::new(encrypted(dir, max_bytes))),
        (
            "spill",
            Box::new(Spill::new(
                ram(max_bytes.or(Some(4 << 20))),
                file(dir, max_bytes),
            )),
        ),
    ]
}
