use super::*;
use crate::file::noise::noise;
use crate::file::{FileStoreConfig, Location};
use millpond_core::SlotId;
use millpond_core::port::{Saved, Slots, Upkeep};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;
/// Number of bytes in the slots of these tests.
const SLOT: usize = 256 << 10;

fn store(path: &Path) -> FileStore {
    let config = FileStoreConfig {
        location: Location::File(path.to_path_buf()),
        force_tmpfs: true,
        ..FileStoreConfig::in_directory(path)
    };
    FileStore::create(&config).unwrap()
}

fn save(store: &FileStore, slot: u32, seed: u64) {
    let saved = store.save(SlotId(slot), None, &noise(seed, SLOT));
    assert_eq!(saved, Ok(Saved::Stored), "slot {slot}");
}

fn holds(store: &FileStore, slot: u32, seed: u64) -> bool {
    let mut out = vec![0; SLOT];
    store.load(SlotId(slot), 0, &mut out).unwrap();
    out == noise(seed, SLOT)
}

/// Does what the driver does in `count` seconds.
fn seconds(store: &FileStore, count: u32) {
    for _ in 0..count {
        while store.give_room_back() {}
    }
}

/// The bytes that the file takes on the device.
fn allocated(path: &Path) -> u64 {
    path.metadata().unwrap().blocks() * 512
}

/// A once large file takes little more than twice its contents plus the spare blocks, and its contents are right,
/// before and after the holes are filled again.
#[test]
fn room_that_is_unneeded_for_a_while_is_given_back() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store");
    let store = store(&path);
    (0..256).for_each(|slot| save(&store, slot, slot.into()));
    let full = allocated(&path);
    assert!(full >= 64 * MIB);
    // One slot in sixteen stays, so the free blocks form many runs.
    let stays = |slot: &u32| slot.is_multiple_of(16);
    for slot in (0..256).filter(|slot| !stays(slot)) {
        store.release(SlotId(slot));
    }
    seconds(&store, LOOKS - 1);
    assert_eq!(allocated(&path), full, "the room may be needed again");
    // The room is needed again: nothing goes.
    for slot in (0..256).filter(|slot| !stays(slot)) {
        save(&store, slot, slot.into());
    }
    seconds(&store, LOOKS);
    assert_eq!(allocated(&path), full);
    for slot in (0..256).filter(|slot| !stays(slot)) {
        store.release(SlotId(slot));
    }
    seconds(&store, 2 * LOOKS + 1);
    let left = allocated(&path);
    let Holes { refused, .. } = store.areas[0].blocks().holes;
    if refused {
        println!(
            "skipped in part: the file system of {} knows no holes",
            path.display()
        );
    } else {
        assert!(left <= (4 + 16 + 2) * MIB, "{left} bytes are left");
    }
    assert!(
        (0..256)
            .filter(stays)
            .all(|slot| holds(&store, slot, slot.into()))
    );
    for slot in (0..256).filter(|slot| !stays(slot)) {
        save(&store, slot, !u64::from(slot));
    }
    for slot in 0..256 {
        let seed = if stays(&slot) {
            slot.into()
        } else {
            !u64::from(slot)
        };
        assert!(holds(&store, slot, seed), "slot {slot}");
    }
}

/// Threads save into blocks that are about to leave the device, or have left it. A map that handed out such blocks
/// before they have left would lose the bytes written there: without the marking of leaving blocks, this test fails.
#[test]
fn writes_made_while_blocks_leave_the_file_are_kept() {
    let seconds = std::env::var("MILLPOND_STRESS_SECS");
    let seconds = seconds
        .ok()
        .and_then(|value| value.parse().ok())
        .unwrap_or(1.0);
    let until = Instant::now() + Duration::from_secs_f64(seconds);
    let directory = tempfile::tempdir().unwrap();
    let store = &store(&directory.path().join("store"));
    let (done, holes) = (&AtomicBool::new(false), &AtomicU64::new(0));
    std::thread::scope(|scope| {
        let savers: Vec<_> = (0..2)
            .map(|thread| {
                scope.spawn(move || {
                    let slots = thread * 16..thread * 16 + 16;
                    let mut round = 0;
                    while Instant::now() < until {
                        round += 1;
                        let seed = |slot: u32| u64::from(slot) << 32 | round;
                        slots.clone().for_each(|slot| save(store, slot, seed(slot)));
                        for slot in slots.clone() {
                            assert!(holds(store, slot, seed(slot)), "slot {slot}, round {round}");
                            store.release(SlotId(slot));
                        }
                    }
                })
            })
            .collect();
        scope.spawn(|| {
            while !done.load(Relaxed) {
                store.areas[0].blocks().holes.want(u64::MAX);
                holes.fetch_add(store.give_room_back().into(), Relaxed);
            }
        });
        let ended: Vec<_> = savers.into_iter().map(|saver| saver.join()).collect();
        done.store(true, Relaxed);
        ended.into_iter().for_each(|saver| saver.unwrap());
    });
    let Holes { refused, .. } = store.areas[0].blocks().holes;
    assert!(refused || holes.load(Relaxed) > 0, "this tested nothing");
}
