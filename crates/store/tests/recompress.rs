//! Unused contents of RAM become denser, and do not change, while other threads save, load, forget and release.

mod common;

use common::{Random, file, part, ram, recompress};
use millpond_core::SlotId;
use millpond_core::port::{Recompress, SaveError, Saved, Slots, Store, Upkeep};
use millpond_store::Spill;
use std::sync::Mutex;
use std::time::{Duration, Instant};

const PAGE: usize = 4096;
const MIB: u64 = 1 << 20;

/// Objects as a program has them: addresses that begin alike, small numbers, and words of few letters.
fn objects(seed: u64, len: usize) -> Vec<u8> {
    let mut random = Random(seed);
    let object = |_| {
        let (to, count, name) = (random.next(), random.next(), random.next());
        [
            0x7f31_0000_0000 | (to % (1 << 24)) << 4,
            count % 64,
            u64::from_ne_bytes((0x6161_6161_6161_6161 | name & 0x0707_0707).to_ne_bytes()),
            0x7f31_4444_0010,
        ]
    };
    let words = (0..len / 32).flat_map(object);
    words.flat_map(u64::to_ne_bytes).collect()
}

fn save_until_full(store: &Spill, slots: impl Iterator<Item = u32>, len: usize) -> u32 {
    let mut count = 0;
    for slot in slots {
        let before = store.usages().1.slots;
        let saved = store.save(SlotId(slot), None, &objects(slot.into(), len));
        assert_eq!(saved, Ok(Saved::Stored));
        count += 1;
        if store.usages().1.slots > before {
            break;
        }
    }
    count
}

fn expect_all(store: &dyn Store, slots: std::ops::Range<u32>, len: usize) {
    let mut out = vec![0; len];
    for slot in slots {
        store.load(SlotId(slot), 0, &mut out).unwrap();
        assert!(out == objects(slot.into(), len), "slot {slot}");
    }
}

#[test]
fn full_ram_holds_more_after_recompression_and_all_comes_back() {
    let dir = tempfile::tempdir().unwrap();
    for len in [PAGE, 3 * PAGE, 16 * PAGE, 512 * PAGE] {
        let store = Spill::new(ram(Some(16 * MIB)), file(dir.path(), None));
        // Nothing is gained while RAM has room.
        store.save(SlotId(0), None, &objects(0, len)).unwrap();
        assert_eq!(store.recompress(false), Recompress::Idle);
        let held = save_until_full(&store, 1.., len) + 1;
        let before = store.usages().0;
        assert_eq!(store.recompressed().bytes, 0);
        // What was just saved is young: the first round leaves all of it alone.
        recompress(&store, 1);
        assert_eq!(store.recompressed().bytes, 0, "{len}");
        recompress(&store, 1);
        let (after, done) = (store.usages().0, store.recompressed());
        assert!(
            done.bytes >= before.logical_bytes * 7 / 8,
            "{len}: {done:?}"
        );
        assert_eq!(before.stored_bytes - after.stored_bytes, done.saved);
        assert!(
            done.saved > before.stored_bytes / 5,
            "{len}: {done:?}, {before:?}"
        );
        let (ram, most) = store
            .tiers()
            .map(|tiers| (tiers.ram_bytes, tiers.ram_most))
            .unwrap();
        assert!(ram <= most + most / 32, "{ram} of {most}");
        expect_all(&store, 0..held, len);
        // The room is used for what comes next.
        let more = save_until_full(&store, held.., len);
        assert!(more > held / 8, "{len}: {more} after {held}");
        expect_all(&store, 0..held + more, len);
        // All of it is found unchanged, page by page.
        for slot in [0, held / 2] {
            let data = objects(slot.into(), len);
            for (page, bytes) in data.chunks(PAGE).enumerate() {
                let saved = store.save(
                    SlotId(held + more),
                    Some(part(slot, page as u16, PAGE)),
                    bytes,
                );
                assert_eq!(saved, Ok(Saved::Unchanged), "page {page} of {slot}");
            }
        }
        (0..held + more).for_each(|slot| store.release(SlotId(slot)));
        assert_eq!((store.usage().slots, store.usage().stored_bytes), (0, 0));
    }
}

#[test]
fn used_data_is_left_alone_and_incompressible_data_is_tried_once() {
    let dir = tempfile::tempdir().unwrap();
    let store = Spill::new(ram(Some(8 * MIB)), file(dir.path(), None));
    // Each second slot is noise in seven eighths of it, which no compression makes smaller.
    let noisy = |slot: u32| {
        let mut data = objects(slot.into(), 4 * PAGE);
        let mut random = Random(slot.into());
        for page in data.chunks_mut(PAGE) {
            for word in page[..PAGE / 8 * 6].as_chunks_mut::<8>().0 {
                *word = random.next().to_ne_bytes();
            }
            page[PAGE / 8 * 6..].fill(0);
        }
        data
    };
    let mut end = 0;
    while store.usages().1.slots == 0 {
        let data = match end % 2 {
            0 => objects(end.into(), 4 * PAGE),
            _ => noisy(end),
        };
        store.save(SlotId(end), None, &data).unwrap();
        end += 1;
    }
    recompress(&store, 1);
    // Each fourth slot is used between one round and the next.
    let mut out = vec![0; 4 * PAGE];
    let mut used = 0;
    for slot in (0..end - 1).step_by(4) {
        store.load(SlotId(slot), 0, &mut out).unwrap();
        used += 1;
    }
    recompress(&store, 1);
    let one = store.recompressed();
    let of_each = u64::from(end) / 2 * 4 * PAGE as u64;
    let young = used * 4 * PAGE as u64;
    assert!(
        one.left.abs_diff(of_each) <= 8 * PAGE as u64,
        "{one:?}, {of_each}"
    );
    assert!(
        one.bytes.abs_diff(of_each - young) <= 8 * PAGE as u64,
        "{one:?}, {young}"
    );
    // In the next round these are old, and nothing else is tried.
    recompress(&store, 1);
    let two = store.recompressed();
    assert_eq!(two.left, one.left);
    assert!(
        (two.bytes - one.bytes).abs_diff(young) <= 8 * PAGE as u64,
        "{two:?}"
    );
    recompress(&store, 2);
    assert_eq!(store.recompressed(), two);
    for slot in (0..end).filter(|slot| slot % 2 == 1) {
        store.load(SlotId(slot), 0, &mut out).unwrap();
        assert!(out == noisy(slot), "{slot}");
    }
}

#[test]
fn one_call_takes_no_longer_for_a_slot_of_two_mib() {
    let dir = tempfile::tempdir().unwrap();
    let store = Spill::new(ram(Some(4 * MIB)), file(dir.path(), None));
    save_until_full(&store, 0.., 512 * PAGE);
    let mut before = store.recompressed();
    loop {
        let left = store.recompress(false);
        let now = store.recompressed();
        let done = now.bytes + now.left - before.bytes - before.left;
        assert!(done <= 8 * 4 * PAGE as u64, "{done} bytes at once");
        before = now;
        if left != Recompress::More && now.bytes > 0 {
            break;
        }
    }
}

/// A slot's contents, and which of its pages are still needed.
struct Held {
    slot: u32,
    data: Vec<u8>,
    needed: Vec<bool>,
}

/// One thread that saves, loads, forgets and releases slots of its own, and bumps into those of others.
fn work(store: &dyn Store, numbers: &Mutex<Vec<u32>>, seed: u64, until: Instant) {
    let mut random = Random(seed);
    let mut held: Vec<Held> = Vec::new();
    while Instant::now() < until {
        if held.len() < 60 && random.next() % 5 < 2 {
            let len = PAGE << [0, 0, 1, 2, 2, 4, 4, 6][random.next() as usize % 8];
            let data = objects(random.next(), len);
            let slot = numbers.lock().unwrap().pop().unwrap();
            match store.save(SlotId(slot), None, &data) {
                Ok(Saved::Stored) => held.push(Held {
                    slot,
                    needed: vec![true; len / PAGE],
                    data,
                }),
                Ok(_) | Err(SaveError::Full) => numbers.lock().unwrap().push(slot),
                Err(error) => panic!("{error:?}"),
            }
        } else if !held.is_empty() {
            let at = random.next() as usize % held.len();
            let one = &mut held[at];
            let page = random.next() as usize % one.needed.len();
            let others = one.needed.iter().filter(|&&needed| needed).count() > 1;
            match random.next() % 8 {
                0 if others => {
                    store.forget(part(one.slot, page as u16, PAGE));
                    one.needed[page] = false;
                }
                1 => {
                    let one = held.swap_remove(at);
                    store.release(SlotId(one.slot));
                    numbers.lock().unwrap().push(one.slot);
                }
                _ => expect_page(store, one, page),
            }
        }
    }
    for one in &held {
        (0..one.needed.len()).for_each(|page| expect_page(store, one, page));
        store.release(SlotId(one.slot));
    }
}

fn expect_page(store: &dyn Store, one: &Held, page: usize) {
    if one.needed[page] {
        let mut out = vec![0xa5; PAGE];
        let loaded = store.load(SlotId(one.slot), page as u16, &mut out);
        assert_eq!(loaded, Ok(()), "page {page} of {}", one.slot);
        let data = &one.data[page * PAGE..][..PAGE];
        assert!(out == data, "page {page} of {}", one.slot);
    }
}

#[test]
fn threads_read_their_bytes_during_recompression() {
    let seconds = std::env::var("MILLPOND_STRESS_SECS")
        .ok()
        .and_then(|value| value.parse().ok())
        .unwrap_or(3.0);
    let dir = tempfile::tempdir().unwrap();
    let store = Spill::new(ram(Some(2 * MIB)), file(dir.path(), None));
    let store = &store;
    let numbers = Mutex::new((0..400).collect());
    let until = Instant::now() + Duration::from_secs_f64(seconds);
    std::thread::scope(|scope| {
        for seed in 0..4 {
            let numbers = &numbers;
            scope.spawn(move || work(store, numbers, seed, until));
        }
        // Two threads want the turn, and a third one moves what the limit does not leave.
        for _ in 0..2 {
            scope.spawn(move || {
                while Instant::now() < until {
                    store.recompress(false);
                    std::thread::yield_now();
                }
            });
        }
        scope.spawn(move || {
            let mut random = Random(9);
            while Instant::now() < until {
                store.limit_ram(MIB + random.next() % MIB);
                for _ in 0..random.next() % 3 {
                    store.trim_ram();
                }
                std::thread::sleep(Duration::from_millis(random.next() % 20));
            }
        });
    });
    let (usage, done) = (store.usage(), store.recompressed());
    assert_eq!(
        (usage.slots, usage.logical_bytes, usage.stored_bytes),
        (0, 0, 0)
    );
    assert!(done.bytes > 0, "{done:?}");
}
