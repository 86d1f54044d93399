//! Runs four threads that save, load and release concurrently. Slot numbers circulate among them, a fifth thread moves
//! contents from RAM to the file, and a sixth makes them denser.

mod common;

use common::{Fill, Random, contents, limit, part, stores};
use millpond_core::SlotId;
use millpond_core::port::{SaveError, Saved, Store};
use std::sync::Mutex;
use std::time::{Duration, Instant};

const THREADS: u64 = 4;
/// Number of slot numbers that the threads share.
const SLOTS: u32 = 400;

fn work(store: &dyn Store, numbers: &Mutex<Vec<u32>>, seed: u64, until: Instant) {
    let mut random = Random(seed);
    let mut held: Vec<(u32, Vec<u8>)> = Vec::new();
    while Instant::now() < until {
        // Loads wait awake or asleep, and one waits while the other does.
        store.stay_awake(random.next().is_multiple_of(2));
        if held.len() < 40 && random.next() % 5 < 3 {
            let len = 4096 << [0, 0, 0, 1, 2, 4, 4, 5, 7][random.next() as usize % 9];
            let fill = match random.next() % 4 {
                0 => Fill::Noise(random.next()),
                1 => Fill::Text(random.next()),
                2 => Fill::Word(random.next()),
                _ => Fill::Mixed(random.next() | 1),
            };
            let data = contents(fill, len);
            let slot = numbers.lock().unwrap().pop().unwrap();
            let previous = held.first().map(|(slot, _)| part(*slot, 0, len));
            match store.save(SlotId(slot), previous, &data) {
                Ok(Saved::Stored) => held.push((slot, data)),
                Ok(_) | Err(SaveError::Full) => numbers.lock().unwrap().push(slot),
                Err(error) => panic!("{error:?}"),
            }
        } else if !held.is_empty() {
            let at = random.next() as usize % held.len();
            let (slot, data) = &held[at];
            let first = random.next() as usize % (data.len() / 4096);
            // The slots are the thread's own, and one that another thread may be writing or releasing.
            for slot in [*slot, random.next() as u32 % SLOTS] {
                store.expect(part(slot, first as u16, 4096));
                store.expect_bytes(part(slot, first as u16, 4096));
            }
            let mut out = vec![0; data.len() - first * 4096];
            store.load(SlotId(*slot), first as u16, &mut out).unwrap();
            assert!(out == data[first * 4096..], "slot {slot} has other bytes");
            if random.next().is_multiple_of(2) {
                let (slot, _) = held.swap_remove(at);
                store.release(SlotId(slot));
                numbers.lock().unwrap().push(slot);
            }
        }
    }
    for (slot, data) in held {
        let mut out = vec![0; data.len()];
        store.load(SlotId(slot), 0, &mut out).unwrap();
        assert!(out == data);
        store.release(SlotId(slot));
    }
}

#[test]
fn threads_do_not_see_each_others_bytes() {
    let seconds = std::env::var("MILLPOND_STRESS_SECS")
        .ok()
        .and_then(|value| value.parse().ok())
        .unwrap_or(3.0);
    let dir = tempfile::tempdir().unwrap();
    let stores = stores(dir.path(), Some(6 << 20));
    let each = Duration::from_secs_f64(seconds / stores.len() as f64);
    for (name, store) in stores {
        let numbers = Mutex::new((0..SLOTS).collect());
        let until = Instant::now() + each;
        std::thread::scope(|scope| {
            let store = &*store;
            for thread in 0..THREADS {
                let numbers = &numbers;
                scope.spawn(move || {
                    if thread == 0 {
                        store.write_behind();
                    }
                    work(store, numbers, thread, until);
                });
            }
            scope.spawn(move || {
                while Instant::now() < until {
                    store.recompress(false);
                    std::thread::yield_now();
                }
            });
            scope.spawn(move || {
                let mut random = Random(THREADS);
                while Instant::now() < until {
                    limit(store, random.next() % (6 << 20));
                    for _ in 0..random.next() % 4 {
                        store.trim_ram();
                    }
                }
            });
        });
        let usage = store.usage();
        assert_eq!((usage.slots, usage.stored_bytes), (0, 0), "{name}");
    }
}
