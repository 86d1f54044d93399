//! What the tests of the tier share. Not every test uses all of it.
#![allow(dead_code)]

mod wait;

use millpond_core::SlotId;
use millpond_core::port::{SaveError, Slots, Store};
use millpond_remote::{Remote, RemoteConfig, RemoteStore, TimeLimits};
use millpond_store::{CompressedRam, CompressedRamConfig};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;
pub use wait::wait_until;

/// Returns pages whose contents depend only on `seed`, and that hardly compress.
pub fn data(seed: u32, pages: usize) -> Vec<u8> {
    let mut state = u64::from(seed).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state & 0x0fff_ffff_ffff_ffff
    };
    (0..pages * 512)
        .flat_map(|_| next().to_le_bytes())
        .collect()
}

/// Returns compressed RAM of this many bytes.
pub fn local(bytes: u64) -> Box<dyn Store> {
    let config = CompressedRamConfig {
        max_bytes: Some(bytes),
    };
    Box::new(CompressedRam::new(config).unwrap())
}

/// Returns time limits that no disturbance reaches.
pub fn patient() -> TimeLimits {
    TimeLimits {
        deadline: Duration::from_secs(20),
        attempt: Duration::from_secs(2),
    }
}

/// Returns settings with small objects, so that there are many, and short limits.
pub fn settings(url: &str, room: u64) -> RemoteConfig {
    RemoteConfig {
        object_bytes: 1 << 20,
        ahead_bytes: 1 << 20,
        limits: patient(),
        ..RemoteConfig::new(url.parse().unwrap(), room)
    }
}

pub fn open(config: RemoteConfig) -> RemoteStore {
    Remote::behind(local(config.local_room), config).unwrap()
}

/// Saves some slots, and retries while the store in front is full.
pub fn save(store: &RemoteStore, slots: Range<u32>) {
    for slot in slots {
        wait_until("a save succeeds", || {
            match store.save(SlotId(slot), None, &data(slot, 16)) {
                Ok(_) => true,
                Err(SaveError::Full) => false,
                Err(error) => panic!("{slot}: {error:?}"),
            }
        });
    }
}

/// Loads some slots. Each must be as it was saved.
pub fn check(store: &RemoteStore, slots: impl Iterator<Item = u32>) {
    for slot in slots {
        let mut out = vec![0; 64 << 10];
        assert_eq!(store.load(SlotId(slot), 0, &mut out), Ok(()), "slot {slot}");
        assert!(
            out == data(slot, 16),
            "slot {slot} came back with other contents"
        );
    }
}

/// Returns all files below a directory, sorted by name.
pub fn files_in(directory: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => files.extend(files_in(&path)),
            false => files.push(path),
        }
    }
    files.sort();
    files
}
