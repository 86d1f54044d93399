//! Memory beyond the machine, for longer: numbers of many times the budget and the file come back from services that
//! are constantly disturbed, stopped and restarted. `soak/remote` runs these tests, each in a process of its own,
//! because a lost page ends the process.
//!
//! `MILLPOND_SOAK_MIB` says how many MiB of numbers there are (1024).

#[path = "../../remote/tests/common/soak.rs"]
mod soak;

use millpond::{Manager, StoreKind};
use soak::{FILE, RAM};
use std::time::Instant;

const MIB: usize = 1 << 20;
/// Reads at random. Each is a request or more.
const PLACES: usize = 500;
/// The distance between changed numbers: every other page is changed.
const STEP: usize = 1000;

/// The number at a place. Nothing that compresses knows the next.
fn number(at: usize) -> u64 {
    let mut bits = (at as u64)
        .wrapping_add(1)
        .wrapping_mul(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

/// The number at a place after the change.
fn changed(at: usize) -> u64 {
    number(at) ^ u64::from(at.is_multiple_of(STEP))
}

/// Fills, reads in order and at random, changes, and reads all again.
fn numbers_come_back(url: &str) {
    let words = soak::mebibytes() * MIB / 8;
    let directory = tempfile::tempdir_in("/var/tmp").unwrap();
    let store = StoreKind::Remote {
        url: url.parse().unwrap(),
        directory: Some(directory.path().to_owned()),
        file_bytes: FILE,
        max_bytes: None,
    };
    let manager = Manager::builder().ram(RAM).store(store).build().unwrap();
    let mut numbers = manager.vec::<u64>(words).unwrap();
    let begun = Instant::now();
    let passed = |what: &str| println!("{what} after {} s", begun.elapsed().as_secs());
    let lap = |numbers: &[u64], expected: fn(usize) -> u64, what: &str| {
        let wrong = (0..words).find(|&at| numbers[at] != expected(at));
        assert_eq!(wrong, None, "{what}: another number");
        passed(what);
    };
    for (at, place) in numbers.iter_mut().enumerate() {
        *place = number(at);
    }
    passed("filled");
    lap(&numbers, number, "read in order");
    for turn in 0..PLACES {
        let at = number(turn) as usize % words;
        assert_eq!(numbers[at], number(at), "number {at}");
    }
    passed("read at random");
    for at in (0..words).step_by(STEP) {
        numbers[at] ^= 1;
    }
    lap(&numbers, changed, "changed and read again");
    let stats = manager.stats();
    let far = (words as u64 * 8).saturating_sub(2 * (RAM + FILE));
    assert!(stats.store.logical_bytes > far, "{:?}", stats.store);
}

soak::tests!(numbers_come_back);
