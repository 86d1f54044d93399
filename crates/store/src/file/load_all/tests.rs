use super::*;
use crate::FileStoreConfig;
use crate::file::noise::noise;
use millpond_core::SlotId;
use millpond_core::port::{Saved, Slots, Upkeep};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

const PAGE: usize = 4096;

fn store(dir: &std::path::Path, encrypt: bool) -> FileStore {
    let config = FileStoreConfig {
        encrypt,
        ..FileStoreConfig::in_directory(dir)
    };
    FileStore::create(&config).unwrap()
}

fn on_disk() -> tempfile::TempDir {
    tempfile::tempdir_in("/var/tmp").unwrap()
}

/// Saves these slots, and flushes all batches.
fn save(store: &FileStore, slots: Range<u32>, len: usize) {
    for slot in slots {
        let saved = store.save(SlotId(slot), None, &noise(slot, len));
        assert_eq!(saved, Ok(Saved::Stored));
    }
    store.pending.flush(&store.media());
}

/// Loads the first pages of these slots together.
fn load(store: &FileStore, slots: &[u32], pages: usize) -> Result<Vec<Vec<u8>>, LoadError> {
    let mut outs = vec![vec![0xaa; pages * PAGE]; slots.len()];
    let mut loads: Vec<_> = slots
        .iter()
        .zip(&mut outs)
        .map(|(&slot, out)| Load {
            slot: SlotId(slot),
            first_page: 0,
            out,
        })
        .collect();
    store.load_all(&mut loads).map(|()| outs)
}

fn check(store: &FileStore, slots: &[u32], pages: usize) {
    let outs = load(store, slots, pages).unwrap();
    for (slot, out) in slots.iter().zip(outs) {
        assert!(out == noise(*slot, pages * PAGE), "slot {slot}");
    }
}

/// Sixteen slots from all over the file, different ones each time.
fn scattered(round: u32, of: u32) -> Vec<u32> {
    (0..16).map(|n| (round * 37 + n * 211) % of).collect()
}

#[test]
fn several_parts_come_as_they_would_alone() {
    let dir = on_disk();
    for encrypt in [false, true] {
        let store = store(dir.path(), encrypt);
        save(&store, 0..1024, PAGE);
        save(&store, 2000..2016, 16 * PAGE);
        for awake in [false, true] {
            store.stay_awake(awake);
            for round in 0..40 {
                check(&store, &scattered(round, 1024), 1);
                // Neighbours need one read, one of them is loaded twice, and large slots need none of these reads.
                check(
                    &store,
                    &[round, round + 1, round + 2, round, 900 - round],
                    1,
                );
                check(&store, &[2000, 2007, 2015], 16);
                check(&store, &[2001, 5, 2002, 6, 800], 1);
            }
        }
        // Some of them wait in a batch.
        for slot in 3000..3005 {
            store.save(SlotId(slot), None, &noise(slot, PAGE)).unwrap();
        }
        check(&store, &[3001, 17, 3002, 600, 3003, 333, 3004], 1);
        assert_eq!(load(&store, &[1, 600, 9999], 1), Err(LoadError::Missing));
    }
}

/// Without a context, or while another thread has it, parts are loaded one by one.
#[test]
fn a_context_that_is_taken_is_not_waited_for() {
    let dir = on_disk();
    let store = store(dir.path(), true);
    save(&store, 0..1024, PAGE);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (store, stop) = (&store, &stop);
        scope.spawn(move || {
            while !stop.load(Relaxed) {
                store.stay_awake(true);
                let mut page = [0; PAGE];
                store.load(SlotId(77), 0, &mut page).unwrap();
            }
        });
        let all: Vec<_> = (0..3)
            .map(|thread| {
                scope.spawn(move || {
                    for round in 0..200 {
                        check(store, &scattered(round * 3 + thread, 1024), 1);
                    }
                })
            })
            .collect();
        all.into_iter().for_each(|thread| thread.join().unwrap());
        stop.store(true, Relaxed);
    });
}

/// A file truncated from outside: the remaining part is read, and the missing part is an error.
#[test]
fn a_short_read_is_an_error_of_the_part_that_it_is_short_for() {
    let dir = on_disk();
    let store = store(dir.path(), false);
    save(&store, 0..1024, PAGE);
    rustix::fs::ftruncate(store.file(0).unwrap(), 512 * PAGE as u64 + 100).unwrap();
    let left: Vec<_> = (0..16).map(|n| n * 31).collect();
    check(&store, &left, 1);
    let gone = [3, 100, 700, 400];
    let errno = rustix::io::Errno::IO.raw_os_error();
    assert_eq!(load(&store, &gone, 1), Err(LoadError::Io(errno)));
    let mut page = vec![0; PAGE];
    assert_eq!(
        store.load(SlotId(700), 0, &mut page),
        Err(LoadError::Io(errno))
    );
}

#[test]
fn damage_is_noticed() {
    let dir = on_disk();
    let store = store(dir.path(), false);
    save(&store, 0..1024, PAGE);
    let mut scratch = store.scratches.acquire(PAGE);
    let page = &mut scratch.parts().wire[..PAGE];
    page.fill(1);
    crate::file::io::write_all(store.file(0).unwrap(), page, 600 * PAGE as u64).unwrap();
    drop(scratch);
    assert_eq!(
        load(&store, &[1, 300, 600, 900], 1),
        Err(LoadError::Corrupt)
    );
    check(&store, &[1, 300, 601, 900], 1);
}
