//! Compares every store with a map that simply keeps the bytes.

mod common;

use common::{Fill, contents, limit, part, recompress, stores};
use millpond_core::SlotId;
use millpond_core::port::{Load, LoadError, SaveError, Saved, Store};
use proptest::prelude::*;
use std::collections::HashMap;
use std::ops::Range;

#[derive(Clone, Debug)]
enum Act {
    Save {
        order: u8,
        fill: Fill,
        previous: Option<prop::sample::Index>,
        /// The first page of the part of the previous slot that is meant.
        first: u16,
        same: bool,
    },
    Release(prop::sample::Index),
    /// Limits RAM to this many KiB, and moves the rest.
    Trim(u64),
    /// Makes the contents of RAM denser, in this many rounds.
    Recompress(usize),
    Load {
        which: prop::sample::Index,
        first: u16,
        pages: u16,
    },
    /// Loads several parts together: each has a slot, a first page and a number of pages.
    LoadAll(Vec<(prop::sample::Index, u16, u16)>),
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let fill = prop_oneof![
        1 => Just(Fill::Zero),
        1 => any::<u64>().prop_map(Fill::Word),
        2 => any::<u64>().prop_map(Fill::Noise),
        3 => any::<u64>().prop_map(Fill::Text),
        2 => any::<u64>().prop_map(Fill::Mixed),
    ];
    let index = any::<prop::sample::Index>;
    let order = prop_oneof![4 => 0u8..=4, 1 => 5u8..=9];
    prop::collection::vec(
        prop_oneof![
            5 => (order, fill, prop::option::of(index()), any::<u16>(), any::<bool>()).prop_map(
                |(order, fill, previous, first, same)| Act::Save { order, fill, previous, first, same }
            ),
            2 => index().prop_map(Act::Release),
            1 => (128u64..2048).prop_map(Act::Trim),
            1 => (1usize..3).prop_map(Act::Recompress),
            4 => (index(), any::<u16>(), any::<u16>())
                .prop_map(|(which, first, pages)| Act::Load { which, first, pages }),
            3 => prop::collection::vec((index(), any::<u16>(), any::<u16>()), 1..20).prop_map(Act::LoadAll),
        ],
        1..60,
    )
}

/// A store, and the map with which it is compared.
struct Compared<'a> {
    name: &'a str,
    store: &'a dyn Store,
    model: HashMap<u32, Vec<u8>>,
    /// The number of the slot that was saved last.
    last: u32,
    /// How many saves found no room.
    full: usize,
}

/// Applies everything to the store and to the map and compares them. Returns how many saves found no room.
fn run(name: &str, store: &dyn Store, acts: &[Act]) -> usize {
    let mut compared = Compared {
        name,
        store,
        model: HashMap::new(),
        last: 0,
        full: 0,
    };
    for act in acts {
        match act {
            Act::Save {
                order,
                fill,
                previous,
                first,
                same,
            } => {
                let previous = compared.part_of_previous(previous.as_ref(), *first, 4096 << order);
                compared.save(4096 << order, *fill, previous, *same);
            }
            Act::Trim(kib) => {
                limit(store, kib << 10);
                while store.trim_ram() {}
            }
            Act::Recompress(rounds) => {
                recompress(store, *rounds);
            }
            Act::Release(index) => compared.release(index),
            Act::Load {
                which,
                first,
                pages,
            } => compared.load(which, *first, *pages),
            Act::LoadAll(parts) => compared.load_all(parts),
        }
        compared.expect_usage();
    }
    compared.release_all();
    compared.full
}

impl Compared<'_> {
    fn pick(&self, index: &prop::sample::Index) -> Option<u32> {
        let mut slots: Vec<u32> = self.model.keys().copied().collect();
        slots.sort_unstable();
        (!slots.is_empty()).then(|| *index.get(&slots))
    }

    /// All of a slot, or a part of it that a folio of `len` bytes may have come from.
    fn part_of_previous(
        &self,
        which: Option<&prop::sample::Index>,
        first: u16,
        len: usize,
    ) -> Option<(u32, Range<usize>)> {
        let slot = which.and_then(|index| self.pick(index))?;
        let len = self.model[&slot].len().min(len);
        let parts = self.model[&slot].len() / len;
        let first = usize::from(first) % parts * len;
        Some((slot, first..first + len))
    }

    /// Saves bytes of this kind, or with `same` the bytes of that part of the previous slot.
    fn save(&mut self, len: usize, fill: Fill, previous: Option<(u32, Range<usize>)>, same: bool) {
        let name = self.name;
        let old = previous
            .as_ref()
            .map(|(slot, bytes)| self.model[slot][bytes.clone()].to_vec());
        let whole = previous
            .as_ref()
            .is_none_or(|(slot, bytes)| bytes.len() == self.model[slot].len());
        let mut data = contents(fill, old.as_ref().map_or(len, Vec::len));
        if let (Some(old), true) = (&old, same) {
            data.clone_from(old);
        }
        let previous =
            previous.map(|(slot, bytes)| part(slot, (bytes.start / 4096) as u16, bytes.len()));
        self.last += 1;
        let expected = if data.iter().all(|byte| *byte == 0) {
            Saved::AllZero
        } else if old.as_ref() == Some(&data) {
            Saved::Unchanged
        } else {
            Saved::Stored
        };
        match self.store.save(SlotId(self.last), previous, &data) {
            // A file would have to read a part of a block to tell; a slot that is behind RAM comes forward.
            Ok(Saved::Stored)
                if expected == Saved::Unchanged
                    && (name == "spill" || name.ends_with("file") && !whole) => {}
            Ok(saved) => assert_eq!(saved, expected, "{name}"),
            Err(SaveError::Full) if expected == Saved::Stored || !whole => self.full += 1,
            Err(error) => panic!("{name}: {error:?}"),
        }
        let mut out = vec![0; 4096];
        if self.store.load(SlotId(self.last), 0, &mut out) != Err(LoadError::Missing) {
            self.model.insert(self.last, data);
        }
    }

    fn release(&mut self, which: &prop::sample::Index) {
        let Some(slot) = self.pick(which) else {
            return;
        };
        self.store.release(SlotId(slot));
        self.model.remove(&slot);
        let gone = self.store.load(SlotId(slot), 0, &mut [0; 4096]);
        assert_eq!(gone, Err(LoadError::Missing), "{}", self.name);
    }

    /// Loads several parts together, some of which may be of one slot.
    fn load_all(&self, parts: &[(prop::sample::Index, u16, u16)]) {
        let part = |(which, first, pages): &(prop::sample::Index, u16, u16)| {
            let slot = self.pick(which)?;
            let all = (self.model[&slot].len() / 4096) as u16;
            let first = first % all;
            let pages = pages % (all - first).min(8) + 1;
            Some((slot, first, vec![0xaa; usize::from(pages) * 4096]))
        };
        let mut parts: Vec<_> = parts.iter().filter_map(part).collect();
        let mut loads: Vec<_> = parts
            .iter_mut()
            .map(|(slot, first, out)| Load {
                slot: SlotId(*slot),
                first_page: *first,
                out,
            })
            .collect();
        assert_eq!(self.store.load_all(&mut loads), Ok(()), "{}", self.name);
        for (slot, first, out) in &parts {
            let data = &self.model[slot][usize::from(*first) * 4096..][..out.len()];
            assert!(
                out == data,
                "{}: other bytes at page {first} of {slot}",
                self.name
            );
        }
    }

    /// Loads a part of a slot, and more than the slot has, which must be refused.
    fn load(&self, which: &prop::sample::Index, first: u16, pages: u16) {
        let name = self.name;
        let Some(slot) = self.pick(which) else {
            return;
        };
        let data = &self.model[&slot];
        let all = (data.len() / 4096) as u16;
        let first = first % all;
        let pages = pages % (all - first) + 1;
        let part = usize::from(first) * 4096..usize::from(first + pages) * 4096;
        let mut out = vec![0xaa; part.len()];
        let loaded = self.store.load(SlotId(slot), first, &mut out);
        assert_eq!(loaded, Ok(()), "{name}");
        assert!(
            out == data[part],
            "{name}: other bytes at page {first} of {slot}"
        );
        let mut beyond = vec![0; data.len() + 4096];
        let loaded = self.store.load(SlotId(slot), 0, &mut beyond);
        assert_eq!(loaded, Err(LoadError::Missing), "{name}");
    }

    fn expect_usage(&self) {
        let usage = self.store.usage();
        let bytes: u64 = self.model.values().map(|data| data.len() as u64).sum();
        assert_eq!(usage.slots, self.model.len() as u64, "{}", self.name);
        assert_eq!(usage.logical_bytes, bytes, "{}", self.name);
    }

    /// Loads and releases all slots. Nothing is left then.
    fn release_all(&self) {
        let (name, store) = (self.name, self.store);
        for (slot, data) in &self.model {
            let mut out = vec![0xaa; data.len()];
            assert_eq!(store.load(SlotId(*slot), 0, &mut out), Ok(()), "{name}");
            assert!(out == *data, "{name}: slot {slot} has other bytes");
            store.release(SlotId(*slot));
        }
        let usage = store.usage();
        assert_eq!(
            (usage.slots, usage.logical_bytes, usage.stored_bytes),
            (0, 0, 0),
            "{name}"
        );
        assert_eq!((usage.same_filled, usage.incompressible), (0, 0), "{name}");
        // Three scratches of 2 MiB, with two lent while they are written behind the saver's back, and what is cached
        // of the file: half a MiB of clusters, and the tables of its blocks.
        let most = if name == "behind file" {
            8 << 20
        } else {
            4 << 20
        };
        assert!(
            usage.ram_bytes < most,
            "{name} still has {} bytes of RAM",
            usage.ram_bytes
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn stores_keep_what_they_are_given(acts in acts()) {
        let dir = tempfile::tempdir().unwrap();
        for (name, store) in stores(dir.path(), None) {
            run(name, &*store, &acts);
        }
    }

    #[test]
    fn full_stores_refuse_and_lose_nothing(acts in acts()) {
        let dir = tempfile::tempdir().unwrap();
        for (name, store) in stores(dir.path(), Some(2 << 20)) {
            run(name, &*store, &acts);
        }
    }
}

#[test]
fn a_full_store_has_room_after_a_release() {
    let dir = tempfile::tempdir().unwrap();
    for (name, store) in stores(dir.path(), Some(4 << 20)) {
        let noise = |slot: u32| contents(Fill::Noise(slot.into()), 64 << 10);
        let held = (0..)
            .take_while(|slot| store.save(SlotId(*slot), None, &noise(*slot)).is_ok())
            .count() as u32;
        assert!(held >= 56, "{name} takes {held} of 64 KiB in 4 MiB");
        assert_eq!(
            store.save(SlotId(held), None, &noise(held)),
            Err(SaveError::Full),
            "{name}"
        );
        assert_eq!(
            store.save(SlotId(held), Some(part(3, 0, 64 << 10)), &noise(3)),
            Ok(Saved::Unchanged),
            "{name}"
        );
        store.release(SlotId(5));
        assert_eq!(
            store.save(SlotId(held), None, &noise(held)),
            Ok(Saved::Stored),
            "{name}"
        );
        for slot in (0..=held).filter(|slot| *slot != 5) {
            let mut out = vec![0; 64 << 10];
            store.load(SlotId(slot), 0, &mut out).unwrap();
            assert!(out == noise(slot), "{name}");
        }
    }
}

#[test]
fn misuse_is_refused_without_effect() {
    let dir = tempfile::tempdir().unwrap();
    for (name, store) in stores(dir.path(), None) {
        let (one, other) = (contents(Fill::Text(1), 8192), contents(Fill::Text(2), 8192));
        assert_eq!(
            store.save(SlotId(1), None, &one[..100]),
            Err(SaveError::Io(22)),
            "{name}"
        );
        assert_eq!(
            store.save(SlotId(1), None, &one),
            Ok(Saved::Stored),
            "{name}"
        );
        assert_eq!(
            store.save(SlotId(1), None, &other),
            Err(SaveError::Io(17)),
            "{name}"
        );
        // A page that is announced need not be there.
        for (slot, first) in [(1, 1), (1, 2), (1, 511), (2, 0), (2, 511), (u32::MAX, 300)] {
            store.expect(part(slot, first, 4096));
            store.expect_bytes(part(slot, first, 4096));
        }
        let mut out = vec![0; 8192];
        assert_eq!(
            store.load(SlotId(1), 1, &mut out),
            Err(LoadError::Missing),
            "{name}"
        );
        assert_eq!(store.load(SlotId(1), 0, &mut out), Ok(()), "{name}");
        assert!(out == one, "{name}: the slot was overwritten");
        store.release(SlotId(1));
        store.release(SlotId(1));
        store.release(SlotId(u32::MAX));
    }
}

#[test]
fn same_filled_blocks_take_no_space_and_noise_is_counted() {
    let dir = tempfile::tempdir().unwrap();
    for (name, store) in stores(dir.path(), None) {
        store
            .save(SlotId(0), None, &contents(Fill::Word(9), 2 << 20))
            .unwrap();
        let usage = store.usage();
        assert_eq!(
            (usage.slots, usage.same_filled, usage.stored_bytes),
            (1, 1, 0),
            "{name}"
        );
        store
            .save(SlotId(1), None, &contents(Fill::Noise(9), 64 << 10))
            .unwrap();
        assert_eq!(store.usage().incompressible, 1, "{name}");
        assert_eq!(store.usage().stored_bytes, 64 << 10, "{name}");
        store
            .save(SlotId(2), None, &contents(Fill::Text(9), 64 << 10))
            .unwrap();
        assert!(store.usage().stored_bytes < 100 << 10, "{name}");
    }
}

/// Checks that every page of a slot, read by itself and written back as it was, is found unchanged, and with one
/// other byte is not.
#[test]
fn unchanged_and_changed_pages_of_a_slot_are_distinguished() {
    let dir = tempfile::tempdir().unwrap();
    for (name, store) in stores(dir.path(), None) {
        let mut data = contents(Fill::Text(3), 64 << 10);
        // There is a block that one word fills, and one that does not compress.
        data[16 << 10..32 << 10].fill(7);
        data[32 << 10..48 << 10].copy_from_slice(&contents(Fill::Noise(5), 16 << 10));
        assert_eq!(store.save(SlotId(0), None, &data), Ok(Saved::Stored));
        for order in 0..4 {
            let len = 4096 << order;
            for (first, bytes) in (0u16..).step_by(1 << order).zip(data.chunks(len)) {
                let mut page = vec![0; len];
                assert_eq!(store.load(SlotId(0), first, &mut page), Ok(()));
                assert_eq!(page, bytes);
                let previous = Some(part(0, first, len));
                let saved = store.save(SlotId(1), previous, &page).unwrap();
                // A slot that is behind RAM comes forward, once.
                let came = name == "spill" && saved == Saved::Stored;
                if came {
                    let saved = store.save(SlotId(2), Some(part(1, 0, len)), &page);
                    assert_eq!(saved, Ok(Saved::Unchanged), "page {first}, {len} bytes");
                    store.release(SlotId(1));
                }
                assert!(
                    came || saved == Saved::Unchanged,
                    "{name}: page {first}, {len} bytes: {saved:?}"
                );
                page[len - 1] ^= 1;
                let saved = store.save(SlotId(1), previous, &page);
                assert_eq!(
                    saved,
                    Ok(Saved::Stored),
                    "{name}: page {first}, {len} bytes"
                );
                let mut back = vec![0; len];
                assert_eq!(store.load(SlotId(1), 0, &mut back), Ok(()));
                assert_eq!(back, page);
                store.release(SlotId(1));
            }
        }
    }
}
