//! Forgets pages of slots whose other pages are still needed: those stay unchanged, whatever else happens, and memory
//! is freed.

mod common;

use common::{Fill, Random, contents, limit, part, recompress, stores};
use millpond_core::SlotId;
use millpond_core::port::{Saved, Slots, Store, Upkeep};
use millpond_store::{CompressedRam, CompressedRamConfig};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const PAGE: usize = 4096;

/// A slot, its bytes, and which of its pages are still needed.
struct Held {
    slot: u32,
    data: Vec<u8>,
    needed: Vec<bool>,
}

impl Held {
    fn save(store: &dyn Store, slot: u32, random: &mut Random) -> Option<Self> {
        let order = [0, 1, 2, 2, 4, 4, 5, 9][random.next() as usize % 8];
        let fill = match random.next() % 5 {
            0 => Fill::Noise(random.next()),
            1 => Fill::Word(random.next()),
            2 => Fill::Mixed(random.next() | 1),
            _ => Fill::Text(random.next()),
        };
        let data = contents(fill, PAGE << order);
        let saved = store.save(SlotId(slot), None, &data);
        (saved == Ok(Saved::Stored)).then(|| Self {
            slot,
            needed: vec![true; 1 << order],
            data,
        })
    }

    /// Forgets a part that is needed as a whole, if there is one at a place chosen at random and others are needed.
    fn forget(&mut self, store: &dyn Store, random: &mut Random) {
        let pages = self.needed.len();
        let len = 1 << (random.next() as u32 % pages.ilog2().max(1));
        let first = random.next() as usize % pages / len * len;
        let part_of = first..first + len;
        if len < pages && self.needed[part_of.clone()].iter().all(|&needed| needed) {
            store.forget(part(self.slot, first as u16, len * PAGE));
            self.needed[part_of].fill(false);
        }
    }

    fn check(&self, store: &dyn Store, name: &str) {
        for (page, bytes) in self.data.chunks(PAGE).enumerate() {
            if self.needed[page] {
                let mut out = vec![0xa5; PAGE];
                let loaded = store.load(SlotId(self.slot), page as u16, &mut out);
                assert_eq!(loaded, Ok(()), "{name}: page {page} of {}", self.slot);
                assert!(out == bytes, "{name}: page {page} of {} differs", self.slot);
            }
        }
    }
}

#[test]
fn the_other_pages_stay_and_nothing_is_left_at_the_end() {
    let dir = tempfile::tempdir().unwrap();
    for (name, store) in stores(dir.path(), Some(24 << 20)) {
        let (store, mut random) = (&*store, Random(7));
        let mut held: Vec<Held> = Vec::new();
        for slot in 0..400 {
            held.extend(Held::save(store, slot, &mut random));
            for _ in 0..3 {
                let at = random.next() as usize % held.len();
                held[at].forget(store, &mut random);
                held[at].check(store, name);
            }
            if held.len() > 40 {
                let gone = held.swap_remove(random.next() as usize % held.len());
                store.release(SlotId(gone.slot));
            }
            if random.next().is_multiple_of(8) {
                recompress(store, random.next() as usize % 3);
            }
            if random.next().is_multiple_of(16) {
                limit(store, random.next() % (8 << 20));
                while store.trim_ram() {}
            }
        }
        for one in &held {
            one.check(store, name);
            store.release(SlotId(one.slot));
        }
        let usage = store.usage();
        let left = (usage.slots, usage.logical_bytes, usage.stored_bytes);
        assert_eq!(left, (0, 0, 0), "{name}");
        assert_eq!((usage.same_filled, usage.incompressible), (0, 0), "{name}");
    }
}

#[test]
fn memory_comes_back_page_by_page() {
    let store = CompressedRam::new(CompressedRamConfig::default()).unwrap();
    for slot in 0..64 {
        let text = contents(Fill::Text(slot.into()), 16 * PAGE);
        assert_eq!(store.save(SlotId(slot), None, &text), Ok(Saved::Stored));
    }
    let all = store.usage();
    let mut before = all.stored_bytes;
    for pages in 1..=15 {
        for slot in 0..64 {
            store.forget(part(slot, pages - 1, PAGE));
        }
        let now = store.usage();
        assert!(
            now.stored_bytes < before,
            "{pages} pages: {}",
            now.stored_bytes
        );
        assert_eq!(
            now.logical_bytes,
            all.logical_bytes / 16 * u64::from(16 - pages)
        );
        before = now.stored_bytes;
    }
    assert!(
        before * 10 < all.stored_bytes,
        "{before} of {} are left",
        all.stored_bytes
    );
}

/// A store that forgot too much would be noticed by the first load; one that loses a reader's object, by its bytes.
#[test]
fn pages_are_read_while_their_neighbours_are_forgotten_and_slots_move() {
    let dir = tempfile::tempdir().unwrap();
    let stores = stores(dir.path(), Some(64 << 20));
    let each = Duration::from_secs(2) / stores.len() as u32;
    for (name, store) in stores {
        let store = &*store;
        let until = Instant::now() + each;
        let mut round = 0;
        while Instant::now() < until {
            round += 1;
            let slots: Vec<(u32, Vec<u8>)> = (0..24)
                .map(|slot| {
                    (
                        slot,
                        contents(Fill::Text(round * 100 + u64::from(slot)), 16 * PAGE),
                    )
                })
                .collect();
            for (slot, data) in &slots {
                assert_eq!(store.save(SlotId(*slot), None, data), Ok(Saved::Stored));
            }
            let over = AtomicBool::new(false);
            std::thread::scope(|scope| {
                for seed in 0..2 {
                    let (slots, over) = (&slots, &over);
                    scope.spawn(move || {
                        let mut random = Random(seed + 1);
                        let mut out = vec![0; PAGE];
                        while !over.load(Ordering::Relaxed) {
                            // The last page of each block is always needed.
                            let (slot, data) = &slots[random.next() as usize % slots.len()];
                            let page = random.next() as usize % 4 * 4 + 3;
                            store.load(SlotId(*slot), page as u16, &mut out).unwrap();
                            assert!(out == data[page * PAGE..][..PAGE], "{name}");
                        }
                    });
                }
                let over = &over;
                scope.spawn(move || {
                    while !over.load(Ordering::Relaxed) {
                        store.recompress(false);
                        std::thread::yield_now();
                    }
                });
                scope.spawn(move || {
                    let mut random = Random(9);
                    while !over.load(Ordering::Relaxed) {
                        limit(store, random.next() % (2 << 20));
                        store.trim_ram();
                    }
                });
                let halves: Vec<_> = [0, 1]
                    .map(|half| {
                        scope.spawn(move || {
                            let pages = (0..16).filter(|page| page % 4 != 3);
                            for page in pages {
                                for slot in (0..24).filter(|slot| (slot + page) % 2 == half) {
                                    store.forget(part(slot, page as u16, PAGE));
                                }
                            }
                        })
                    })
                    .into();
                let done: Vec<_> = halves.into_iter().map(|half| half.join()).collect();
                over.store(true, Ordering::Relaxed);
                done.into_iter().for_each(|half| half.unwrap());
            });
            for (slot, _) in &slots {
                store.release(SlotId(*slot));
            }
            assert_eq!(store.usage().stored_bytes, 0, "{name}");
        }
    }
}
