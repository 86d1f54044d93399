use super::*;
use crate::file::locate;
use crate::file::noise::noise;
use crate::slot_table::Kind;
use millpond_core::SlotId;
use millpond_core::port::{Forks, SaveError, Saved, Slots, Upkeep};
use rustix::fd::AsRawFd;
use rustix::fs::{Mode, OFlags};
use std::path::Path;

const MIB: u64 = 1 << 20;

fn area(dir: &Path, mib: u64, priority: i16) -> FileArea {
    FileArea {
        location: Location::Directory(dir.to_owned()),
        max_bytes: Some(mib * MIB),
        priority,
    }
}

/// A store with these areas.
fn store(mut areas: Vec<FileArea>) -> FileStore {
    let first = areas.remove(0);
    FileStore::create(&FileStoreConfig {
        max_bytes: first.max_bytes,
        force_tmpfs: true,
        encrypt: true,
        priority: first.priority,
        more: areas,
        ..FileStoreConfig::at(first.location)
    })
    .unwrap()
}

fn save(store: &FileStore, slot: u32, len: usize) -> Result<Saved, SaveError> {
    store.save(SlotId(slot), None, &noise(slot, len))
}

fn check(store: &FileStore, slots: impl Iterator<Item = u32>, len: usize) {
    let mut out = vec![0; len];
    for slot in slots {
        assert_eq!(store.load(SlotId(slot), 0, &mut out), Ok(()), "slot {slot}");
        assert!(out == noise(slot, len), "slot {slot}");
    }
}

/// The number of the file that holds a slot.
fn file_of(store: &FileStore, slot: u32) -> usize {
    let pinned = store.table.pin(SlotId(slot)).unwrap();
    let mut blocks = pinned.blocks();
    let block = blocks.find(|block| block.kind != Kind::Fill).unwrap();
    locate(&block).0
}

/// Makes every write to an area's file fail while the value lives.
struct Failing<'a> {
    store: &'a FileStore,
    file: usize,
    good: i32,
    _null: OwnedFd,
}

impl<'a> Failing<'a> {
    fn new(store: &'a FileStore, file: usize) -> Self {
        let null = rustix::fs::open("/dev/null", OFlags::RDONLY, Mode::empty()).unwrap();
        let good = store.files[file].swap(null.as_raw_fd(), Relaxed);
        Self {
            store,
            file,
            good,
            _null: null,
        }
    }
}

impl Drop for Failing<'_> {
    fn drop(&mut self) {
        self.store.files[self.file].store(self.good, Relaxed);
    }
}

#[test]
fn files_of_one_priority_take_turns_by_large_pieces() {
    let dir = tempfile::tempdir().unwrap();
    let store = store((0..3).map(|_| area(dir.path(), 64, 3)).collect());
    let mib = MIB as usize;
    for slot in 0..72 {
        assert_eq!(save(&store, slot, mib), Ok(Saved::Stored));
    }
    for slot in 0..72 {
        assert_eq!(file_of(&store, slot), slot as usize / 8 % 3, "slot {slot}");
    }
    check(&store, 0..72, mib);
    (0..72).for_each(|slot| store.release(SlotId(slot)));
    assert_eq!(store.usage().stored_bytes, 0);
}

#[test]
fn a_file_of_lower_priority_is_used_while_those_above_are_full() {
    let dir = tempfile::tempdir().unwrap();
    for len in [4096, 64 << 10] {
        let area = |mib, priority| area(dir.path(), mib, priority);
        let store = store(vec![area(4, -1), area(2, 5), area(2, 0)]);
        assert_eq!(store.describe().matches("unnamed file in").count(), 3);
        let each = |mib: u64| (mib * MIB) as usize / len;
        let (first, second) = (each(2), each(4));
        let all = each(8);
        for slot in 0..all as u32 {
            assert_eq!(save(&store, slot, len), Ok(Saved::Stored), "slot {slot}");
        }
        assert_eq!(save(&store, all as u32, len), Err(SaveError::Full));
        for slot in 0..all {
            let file = usize::from(slot >= first) + usize::from(slot >= second);
            assert_eq!(
                file_of(&store, slot as u32),
                file,
                "slot {slot} of {len} bytes"
            );
        }
        check(&store, 0..all as u32, len);
        // Room that becomes free in a higher area is used first again.
        let freed = [1, second + 1, 2].map(|slot| slot as u32);
        freed.iter().for_each(|slot| store.release(SlotId(*slot)));
        store.pending.flush(&store.media());
        for (slot, file) in (10_000..).zip([0, 0, 2]) {
            assert_eq!(save(&store, slot, len), Ok(Saved::Stored));
            assert_eq!(file_of(&store, slot), file, "slot {slot} of {len} bytes");
        }
        let left = (0..all as u32).filter(|slot| !freed.contains(slot));
        check(&store, left.clone().chain(10_000..10_003), len);
        left.chain(10_000..10_003)
            .for_each(|slot| store.release(SlotId(slot)));
        store.pending.flush(&store.media());
        assert_eq!(store.usage().stored_bytes, 0);
    }
}

/// One of two files fails: no save is refused, no accepted slot is lost, and the file is used again some time after it
/// has recovered.
#[test]
fn a_file_that_fails_leaves_the_saves_to_the_other() {
    let dir = tempfile::tempdir().unwrap();
    let store = store(vec![area(dir.path(), 64, 5), area(dir.path(), 64, 0)]);
    for slot in 0..10 {
        assert_eq!(save(&store, slot, 4096), Ok(Saved::Stored));
    }
    assert_eq!(file_of(&store, 9), 0);
    let lens = [4096, 4096, 8192, 64 << 10, 4096, 256 << 10];
    let len = |slot: u32| lens[slot as usize % lens.len()];
    {
        let _failing = Failing::new(&store, 0);
        for slot in 100..400 {
            assert_eq!(
                save(&store, slot, len(slot)),
                Ok(Saved::Stored),
                "slot {slot}"
            );
        }
        // Everything in the first file waits in a batch, which is read from RAM.
        check(&store, 0..10, 4096);
        (100..400).for_each(|slot| check(&store, slot..slot + 1, len(slot)));
        assert_eq!(file_of(&store, 399), 1);
        store.before_fork(1);
        store.child_gone(1);
    }
    let back = (1000..2024).find(|&slot| {
        assert_eq!(save(&store, slot, 64 << 10), Ok(Saved::Stored));
        file_of(&store, slot) == 0
    });
    let back = back.expect("the first file is used again");
    check(&store, 0..10, 4096);
    (100..400).for_each(|slot| check(&store, slot..slot + 1, len(slot)));
    check(&store, 1000..back + 1, 64 << 10);
}

#[test]
fn where_all_files_fail_saves_are_refused_and_nothing_is_lost() {
    let dir = tempfile::tempdir().unwrap();
    let store = store(vec![area(dir.path(), 64, 0), area(dir.path(), 64, 0)]);
    let mut taken = Vec::new();
    let mut refused = 0;
    {
        let _both = (Failing::new(&store, 0), Failing::new(&store, 1));
        for slot in 0..400 {
            let len = if slot % 7 == 0 { 64 << 10 } else { 4096 };
            match save(&store, slot, len) {
                Ok(Saved::Stored) => taken.push((slot, len)),
                Err(SaveError::Io(errno)) if errno == Errno::BADF.raw_os_error() => refused += 1,
                other => panic!("slot {slot}: {other:?}"),
            }
        }
        taken
            .iter()
            .for_each(|&(slot, len)| check(&store, slot..slot + 1, len));
    }
    assert!(refused > 250 && !taken.is_empty(), "{refused}");
    for slot in 1000..1100 {
        assert_eq!(save(&store, slot, 4096), Ok(Saved::Stored));
    }
    taken
        .iter()
        .for_each(|&(slot, len)| check(&store, slot..slot + 1, len));
    check(&store, 1000..1100, 4096);
}

/// A file whose writes alternately failed and succeeded was sometimes in neither half of the list. A save then found no
/// file, and was told that the store is full.
#[test]
fn a_file_that_comes_and_goes_is_in_every_list() {
    let dir = tempfile::tempdir().unwrap();
    let store = store(vec![area(dir.path(), 8, 0)]);
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Relaxed) {
                if let Some(medium) = store.media().iter().next() {
                    medium.note(Err(Errno::IO));
                    medium.note(Ok(()));
                }
            }
        });
        let all = (0..300_000).all(|_| store.media().iter().count() == 1);
        stop.store(true, Relaxed);
        assert!(all);
    });
}

#[test]
fn more_files_than_a_store_can_have_are_refused_by_number() {
    let dir = tempfile::tempdir().unwrap();
    let config = FileStoreConfig {
        force_tmpfs: true,
        more: vec![area(dir.path(), 4, 0); AREAS],
        ..FileStoreConfig::in_directory(dir.path())
    };
    let error = FileStore::create(&config).err().unwrap().to_string();
    assert!(error.contains("5 files are too many"), "{error}");
    let config = FileStoreConfig {
        more: vec![area(dir.path(), 1, 0)],
        ..config
    };
    let error = FileStore::create(&config).err().unwrap().to_string();
    assert!(error.contains("1048576"), "{error}");
}
