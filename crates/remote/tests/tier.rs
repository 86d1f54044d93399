//! The tier as a store: saved contents come back from wherever they are, and a loss in the store affects nothing else.

mod common;

use common::{data, files_in, local, open, settings, wait_until};
use millpond_core::port::{
    Forks, LoadError, Recompress, Recompressed, SaveError, Saved, Slots, StoreUsage, Upkeep,
};
use millpond_core::{Order, SlotId, SlotPart};
use millpond_remote::{
    Remote, RemoteConfig, RemoteStats, RemoteStore, RemovedRun, clean, clean_dry_run,
};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

/// Saves a number of slots of 64 KiB, each with its own contents.
fn fill(store: &RemoteStore, slots: u32) {
    for slot in 0..slots {
        assert_eq!(
            store.save(SlotId(slot), None, &data(slot, 16)),
            Ok(Saved::Stored),
            "{slot}"
        );
    }
}

fn load(store: &RemoteStore, slot: u32) -> Result<(), LoadError> {
    let mut out = vec![0; 64 << 10];
    store.load(SlotId(slot), 0, &mut out)?;
    assert!(
        out == data(slot, 16),
        "slot {slot} came back with other contents"
    );
    Ok(())
}

#[test]
fn all_slots_come_back_and_nothing_is_left() {
    let directory = tempfile::tempdir().unwrap();
    let url = format!("fs://{}", directory.path().display());
    let store = open(settings(&url, 2 << 20));
    fill(&store, 256);
    assert!(
        RemoteStats::of(&store).slots > 150,
        "{:?}",
        RemoteStats::of(&store)
    );
    for slot in (0..256).rev() {
        load(&store, slot).unwrap();
    }
    // Single pages come from the chunk that contains them.
    for slot in 0..256 {
        let mut page = vec![0; 4096];
        let first = (slot % 16) as u16;
        store.load(SlotId(slot), first, &mut page).unwrap();
        assert!(
            page == data(slot, 16)[usize::from(first) * 4096..][..4096],
            "{slot}"
        );
    }
    let usage = store.usage();
    assert_eq!((usage.slots, usage.logical_bytes), (256, 16 << 20));
    (0..256).for_each(|slot| store.release(SlotId(slot)));
    assert_eq!(store.usage().slots, 0);
    assert_eq!(
        store.load(SlotId(3), 0, &mut [0; 4096]),
        Err(LoadError::Missing)
    );
    wait_until("all objects are deleted", || {
        RemoteStats::of(&store).objects == 0
    });
    drop(store);
    // Empty directories were once left.
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
}

/// Each separately touched page of a chunk once caused a request for the whole chunk: a walk that touched every other
/// page fetched each byte eight times.
#[test]
fn the_pages_of_a_chunk_are_fetched_once() {
    let directory = tempfile::tempdir().unwrap();
    let url = format!("fs://{}", directory.path().display());
    let store = open(settings(&url, 1 << 20));
    fill(&store, 100);
    let before = RemoteStats::of(&store);
    for first in (0..16).step_by(2) {
        let mut page = vec![0; 4096];
        store.load(SlotId(0), first as u16, &mut page).unwrap();
        assert!(page == data(0, 16)[first * 4096..][..4096], "page {first}");
    }
    let after = RemoteStats::of(&store);
    assert_eq!(after.loads - before.loads, 8, "the first slot is far");
    let bytes = after.fetched_bytes - before.fetched_bytes;
    assert!((1..70_000).contains(&bytes), "{bytes} bytes were fetched");
}

/// Evicts all pages of a slot again, as `bytes`. Returns what the store does with them.
fn leaves(store: &RemoteStore, slot: u32, bytes: &[u8]) -> Saved {
    let part = SlotPart {
        slot: SlotId(slot),
        first: 0,
        order: Order::new(4).unwrap(),
    };
    let copy = SlotId(1000 + slot);
    let saved = store.save(copy, Some(part), bytes).unwrap();
    if saved == Saved::Stored {
        store.release(copy);
    }
    saved
}

/// Evicts a slot with its first contents, which must be saved again.
fn is_saved(store: &RemoteStore, slot: u32) {
    assert_eq!(
        leaves(store, slot, &data(slot, 16)),
        Saved::Stored,
        "{slot}"
    );
}

/// Makes a store whose slots 0 to 99 are remote, with a thread that reads them in order.
fn far_slots(url: &str, memory_bytes: u64) -> RemoteStore {
    let store = open(RemoteConfig {
        memory_bytes,
        ..settings(url, 1 << 20)
    });
    fill(&store, 160);
    assert!(
        RemoteStats::of(&store).slots > 110,
        "{:?}",
        RemoteStats::of(&store)
    );
    store
}

/// Everything that a program read in order was once put into new objects when it left memory again.
#[test]
fn unchanged_data_read_by_a_stream_is_not_sent_again() {
    let directory = tempfile::tempdir().unwrap();
    let url = format!("fs://{}", directory.path().display());
    let store = far_slots(&url, 16 << 20);
    let before = RemoteStats::of(&store);
    let mut stay = 0;
    for slot in 0..100 {
        load(&store, slot).unwrap();
        stay += u32::from(leaves(&store, slot, &data(slot, 16)) == Saved::Unchanged);
    }
    assert!(stay > 90, "{stay} of 100");
    assert_eq!(RemoteStats::of(&store).slots, before.slots);
    // They come again, and whatever has changed is saved, once and for all.
    for slot in 0..100 {
        load(&store, slot).unwrap();
        let mut changed = data(slot, 16);
        changed[7 * 4096 + slot as usize] ^= 1;
        assert_eq!(leaves(&store, slot, &changed), Saved::Stored, "{slot}");
        is_saved(&store, slot);
        load(&store, slot).unwrap();
    }
    // Randomly used slots come closer: each of these was a request.
    let store = far_slots(&url, 16 << 20);
    let mut nearer = 0;
    for turn in 0..100 {
        let slot = turn * 37 % 100;
        load(&store, slot).unwrap();
        nearer += u32::from(leaves(&store, slot, &data(slot, 16)) == Saved::Stored);
    }
    assert!(nearer > 90, "{nearer} of 100");
    // Without any record of memory, everything counts as changed.
    let store = far_slots(&url, 0);
    for slot in 0..100 {
        load(&store, slot).unwrap();
        is_saved(&store, slot);
    }
}

/// A slot number is reused: what was known about the pages of the old slot does not apply to the new one.
#[test]
fn knowledge_about_a_slots_pages_is_forgotten_on_its_release() {
    let store = far_slots("memory://", 16 << 20);
    (0..50).for_each(|slot| load(&store, slot).unwrap());
    for slot in 0..50 {
        store.release(SlotId(slot));
        assert_eq!(
            store.save(SlotId(slot), None, &data(500 + slot, 16)),
            Ok(Saved::Stored)
        );
    }
    wait_until("they are far", || {
        (0..50).for_each(|more| {
            store
                .save(SlotId(2000 + more), None, &data(more, 16))
                .unwrap();
            store.release(SlotId(2000 + more));
        });
        RemoteStats::of(&store).slots > 140
    });
    (0..50).for_each(|slot| is_saved(&store, slot));
}

/// Memory has the last copy of what the store has lost.
#[test]
fn unchanged_data_that_the_store_lost_is_saved_again() {
    let directory = tempfile::tempdir().unwrap();
    let url = format!("fs://{}", directory.path().display());
    let store = far_slots(&url, 16 << 20);
    // Several slots are in one object. Loading the last one finds the object missing.
    (0..40).for_each(|slot| load(&store, slot).unwrap());
    assert_eq!(leaves(&store, 30, &data(30, 16)), Saved::Unchanged);
    load(&store, 30).unwrap();
    load(&store, 31).unwrap();
    for object in files_in(directory.path()) {
        std::fs::remove_file(object).unwrap();
    }
    (0..100).rev().for_each(|slot| {
        let _ = store.load(SlotId(slot), 0, &mut [0; 64 << 10]);
    });
    (0..40).for_each(|slot| is_saved(&store, slot));
}

#[test]
fn the_longest_slots_come_back_by_any_part() {
    let store = open(settings("memory://", 8 << 20));
    for slot in 0..16 {
        assert_eq!(
            store.save(SlotId(slot), None, &data(slot, 512)),
            Ok(Saved::Stored)
        );
    }
    wait_until("most are remote", || RemoteStats::of(&store).slots >= 8);
    for slot in 0..16 {
        let whole = data(slot, 512);
        for (first, pages) in [(0, 512), (511, 1), (15, 2), (16, 16), (100, 300)] {
            let mut out = vec![0; pages * 4096];
            store.load(SlotId(slot), first as u16, &mut out).unwrap();
            assert!(
                out == whole[first * 4096..(first + pages) * 4096],
                "{slot}: {pages} pages from {first}"
            );
        }
    }
    assert_eq!(
        store.load(SlotId(0), 511, &mut [0; 8192]),
        Err(LoadError::Missing)
    );
}

/// Several threads save, load and release their own slots of all lengths at random, while the packing thread moves
/// and rewrites them. So slots are released in every state that they go through.
#[test]
fn random_concurrent_work_reads_back_what_was_saved() {
    let config = RemoteConfig {
        object_bytes: 256 << 10,
        ..settings("memory://", 2 << 20)
    };
    let store = open(config);
    let remote_loads = AtomicU32::new(0);
    std::thread::scope(|scope| {
        for thread in 0..3u32 {
            let (store, remote_loads) = (&store, &remote_loads);
            scope.spawn(move || {
                let mut state = u64::from(thread) + 1;
                let mut next = move |below: u64| {
                    state ^= state << 13;
                    state ^= state >> 7;
                    state ^= state << 17;
                    (state >> 8) % below
                };
                // What each of this thread's slots contains: a seed, and a number of pages.
                let mut held: Vec<Option<(u32, usize)>> = vec![None; 100];
                for step in 0..4000u32 {
                    let own = next(100) as usize;
                    let slot = SlotId(thread * 100 + own as u32);
                    match held[own] {
                        None => {
                            let pages = [1, 1, 4, 16, 32][next(5) as usize];
                            let seed = step * 3 + thread;
                            match store.save(slot, None, &data(seed, pages)) {
                                Ok(saved) => {
                                    assert_eq!(saved, Saved::Stored);
                                    held[own] = Some((seed, pages));
                                }
                                Err(error) => assert_eq!(error, SaveError::Full),
                            }
                        }
                        Some((seed, pages)) if next(3) > 0 => {
                            let first = next(pages as u64) as usize;
                            let count = 1 + next((pages - first) as u64) as usize;
                            let mut out = vec![0; count * 4096];
                            assert_eq!(
                                store.load(slot, first as u16, &mut out),
                                Ok(()),
                                "{slot:?}"
                            );
                            assert!(
                                out == data(seed, pages)[first * 4096..][..count * 4096],
                                "{slot:?}"
                            );
                            remote_loads.fetch_add(1, Relaxed);
                        }
                        Some(_) => {
                            store.release(slot);
                            held[own] = None;
                        }
                    }
                }
                for own in 0..100 {
                    store.release(SlotId(thread * 100 + own));
                }
            });
        }
    });
    let stats = RemoteStats::of(&store);
    assert!(stats.loads > 500 && stats.lost_loads == 0, "{stats:?}");
    assert_eq!(store.usage().slots, 0);
    wait_until("all objects are deleted", || {
        RemoteStats::of(&store).objects == 0
    });
}

/// Three quarters of each object die: the live parts are put together, and the space is freed.
#[test]
fn objects_that_are_mostly_dead_are_rewritten() {
    let config = RemoteConfig {
        object_bytes: 512 << 10,
        ..settings("memory://", 1 << 20)
    };
    let store = open(config);
    fill(&store, 400);
    let before = RemoteStats::of(&store).object_bytes;
    (0..400)
        .filter(|slot| slot % 4 != 0)
        .for_each(|slot| store.release(SlotId(slot)));
    // The contents of the object that is still open are not counted.
    wait_until("the room is given back", || {
        RemoteStats::of(&store).object_bytes < before * 6 / 10
    });
    for slot in (0..400).filter(|slot| slot % 4 == 0) {
        load(&store, slot).unwrap();
    }
}

#[test]
fn room_taken_in_the_store_stays_within_its_limit() {
    let most = 8 << 20;
    let config = RemoteConfig {
        max_bytes: Some(most),
        ..settings("memory://", 1 << 20)
    };
    let store = open(config);
    let mut slot = 0;
    let refused = loop {
        match store.save(SlotId(slot), None, &data(slot, 16)) {
            Ok(_) => slot += 1,
            Err(error) => break error,
        }
        assert!(RemoteStats::of(&store).object_bytes <= most);
        assert!(slot < 1000, "the store never was full");
    };
    assert_eq!(refused, SaveError::Full);
    assert!(slot > 60, "{slot}");
    (0..slot).for_each(|slot| load(&store, slot).unwrap());
    // Freed space is reused.
    (0..slot).for_each(|slot| store.release(SlotId(slot)));
    wait_until("a save succeeds", || {
        store.save(SlotId(1000), None, &data(1, 16)).is_ok()
    });
}

#[test]
fn a_lost_object_loses_only_its_own_pages() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(settings(
        &format!("fs://{}", directory.path().display()),
        1 << 20,
    ));
    fill(&store, 200);
    let objects = files_in(&directory.path().join(store.back().prefix()).join("o"));
    assert!(objects.len() > 3, "{objects:?}");
    std::fs::remove_file(&objects[1]).unwrap();
    let results: Vec<_> = (0..200).map(|slot| load(&store, slot)).collect();
    let lost = results.iter().filter(|result| result.is_err()).count();
    assert!((1..200 / 3).contains(&lost), "{lost} slots");
    let nodata = LoadError::Io(rustix::io::Errno::NODATA.raw_os_error());
    assert!(
        results
            .iter()
            .all(|result| matches!(result, Ok(())) || *result == Err(nodata)),
        "{results:?}"
    );
    assert_eq!(RemoteStats::of(&store).lost_loads, lost as u64);
}

/// Objects are exchanged for each other, truncated, and changed by one bit. None of the affected pages is accepted.
#[test]
fn no_wrong_object_is_accepted() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(settings(
        &format!("fs://{}", directory.path().display()),
        1 << 20,
    ));
    fill(&store, 300);
    let objects = files_in(&directory.path().join(store.back().prefix()).join("o"));
    assert!(objects.len() > 8, "{objects:?}");
    let (first, second) = (
        std::fs::read(&objects[1]).unwrap(),
        std::fs::read(&objects[2]).unwrap(),
    );
    std::fs::write(&objects[1], &second).unwrap();
    std::fs::write(&objects[2], &first).unwrap();
    let mut changed = std::fs::read(&objects[4]).unwrap();
    changed[40_000] ^= 1;
    std::fs::write(&objects[4], &changed).unwrap();
    let cut = std::fs::read(&objects[6]).unwrap();
    std::fs::write(&objects[6], &cut[..cut.len() / 2]).unwrap();
    let results: Vec<_> = (0..300).map(|slot| load(&store, slot)).collect();
    let corrupt = results
        .iter()
        .filter(|result| **result == Err(LoadError::Corrupt))
        .count();
    // All pages of two objects, half of those of one, and one chunk.
    assert!((20..100).contains(&corrupt), "{corrupt}: {results:?}");
    assert!(
        results.iter().filter(|result| result.is_ok()).count() > 200,
        "{results:?}"
    );
}

/// A chunk of a live slot is damaged in a mostly dead object. The packing thread once read the whole object again and
/// again, because it could move everything but that slot, and so the object never died.
#[test]
fn an_object_that_cannot_be_rewritten_is_read_once() {
    let directory = tempfile::tempdir().unwrap();
    let config = RemoteConfig {
        object_bytes: 512 << 10,
        ..settings(&format!("fs://{}", directory.path().display()), 1 << 20)
    };
    let store = open(config);
    fill(&store, 200);
    for object in files_in(&directory.path().join(store.back().prefix()).join("o")) {
        let mut bytes = std::fs::read(&object).unwrap();
        // In each object, its first slot.
        bytes[20_000] ^= 1;
        std::fs::write(&object, &bytes).unwrap();
    }
    let corrupt: Vec<u32> = (0..200)
        .filter(|&slot| load(&store, slot).is_err())
        .collect();
    assert!(corrupt.len() > 5, "{corrupt:?}");
    (0..200)
        .filter(|slot| !corrupt.contains(slot))
        .for_each(|slot| store.release(SlotId(slot)));
    // Objects continue to be sent; each time one has arrived, the packing thread looks for others to rewrite.
    let mut slot = 1000;
    let mut send_some = || {
        let sent = RemoteStats::of(&store).sent_bytes;
        for _ in 0..60 {
            let saved = store.save(SlotId(slot), None, &data(slot, 16));
            assert_eq!(saved, Ok(Saved::Stored));
            slot += 1;
        }
        wait_until("an object is sent", || {
            RemoteStats::of(&store).sent_bytes > sent
        });
    };
    (0..3).for_each(|_| send_some());
    let read = RemoteStats::of(&store).fetched_bytes;
    (0..3).for_each(|_| send_some());
    assert_eq!(RemoteStats::of(&store).fetched_bytes, read);
    let still = corrupt
        .iter()
        .filter(|&&slot| load(&store, slot) == Err(LoadError::Corrupt))
        .count();
    assert_eq!(still, corrupt.len());
}

#[test]
fn only_leftovers_of_dead_runs_are_cleaned() {
    let directory = tempfile::tempdir().unwrap();
    let url = format!("fs://{}", directory.path().display());
    let dead = directory
        .path()
        .join("millpond-run-0123456789abcdef0123456789abcdef");
    std::fs::create_dir_all(dead.join("o")).unwrap();
    std::fs::write(dead.join("o/0000000000000000"), b"x").unwrap();
    std::fs::write(dead.join("lease"), b"millpond lease\nseconds 1000\n").unwrap();
    std::fs::write(directory.path().join("of somebody else"), b"x").unwrap();
    let store = open(settings(&url, 1 << 20));
    fill(&store, 100);
    let (url, hour) = (url.parse().unwrap(), Duration::from_secs(3600));
    let planned = clean_dry_run(&url, hour).unwrap();
    assert!(dead.join("o/0000000000000000").exists() && dead.join("lease").exists());
    let cleaned = clean(&url, hour).unwrap();
    let removed = RemovedRun {
        name: "millpond-run-0123456789abcdef0123456789abcdef/".to_owned(),
        objects: 1,
        bytes: 1,
    };
    assert_eq!(cleaned.removed, [removed]);
    assert_eq!(planned.removed, cleaned.removed);
    assert_eq!(cleaned.left.len(), 1);
    assert_eq!(cleaned.left[0].name, store.back().prefix());
    assert!(!dead.exists() && directory.path().join("of somebody else").exists());
    (0..100).for_each(|slot| load(&store, slot).unwrap());
}

/// An object that arrives after its run has ended, because a service may carry out a request late, has no lease. It
/// was once left forever.
#[test]
fn an_object_that_came_too_late_is_cleaned_by_its_age() {
    let directory = tempfile::tempdir().unwrap();
    let url = format!("fs://{}", directory.path().display());
    let url = url.parse().unwrap();
    let late = directory
        .path()
        .join("millpond-run-0123456789abcdef0123456789abcdef/o");
    std::fs::create_dir_all(&late).unwrap();
    let objects = ["1", "2"].map(|name| std::fs::File::create(late.join(name)).unwrap());
    let hour = Duration::from_secs(3600);
    let long_ago = std::time::SystemTime::now() - 2 * hour;
    objects[0].set_modified(long_ago).unwrap();
    let cleaned = clean(&url, hour).unwrap();
    assert_eq!((cleaned.removed.len(), cleaned.left.len()), (0, 1));
    assert!(cleaned.left[0].why.contains("no lease"), "{cleaned:?}");
    objects[1].set_modified(long_ago).unwrap();
    let cleaned = clean(&url, hour).unwrap();
    assert_eq!((cleaned.removed[0].objects, cleaned.left.len()), (2, 0));
    assert!(!late.exists());
}

/// Looking at a missing directory used to create it.
#[test]
fn a_directory_that_is_not_there_is_not_made_for_cleaning() {
    let directory = tempfile::tempdir().unwrap();
    let missing = directory.path().join("missing");
    let url = format!("fs://{}", missing.display()).parse().unwrap();
    let refused = clean(&url, Duration::from_secs(3600)).unwrap_err();
    assert!(
        refused.to_string().contains("no such directory"),
        "{refused}"
    );
    assert!(!missing.exists());
}

#[test]
fn the_store_in_front_can_be_a_small_one() {
    let store = Remote::behind(local(256 << 10), settings("memory://", 256 << 10)).unwrap();
    fill(&store, 50);
    (0..50).for_each(|slot| load(&store, slot).unwrap());
}

/// A store in front that has work to do in the background.
struct Busy;

impl Busy {
    const DONE: Recompressed = Recompressed {
        bytes: 3,
        saved: 2,
        left: 1,
    };
}

impl Slots for Busy {
    fn save(&self, _: SlotId, _: Option<SlotPart>, _: &[u8]) -> Result<Saved, SaveError> {
        Err(SaveError::Full)
    }

    fn load(&self, _: SlotId, _: u16, _: &mut [u8]) -> Result<(), LoadError> {
        Err(LoadError::Missing)
    }

    fn release(&self, _: SlotId) {}
}

impl Upkeep for Busy {
    fn usage(&self) -> StoreUsage {
        StoreUsage::default()
    }

    fn give_room_back(&self) -> bool {
        true
    }

    fn recompress(&self, _worth_it: bool) -> Recompress {
        Recompress::More
    }

    fn recompressed(&self) -> Recompressed {
        Self::DONE
    }
}

impl Forks for Busy {
    fn after_fork_in_child(&self) -> Result<(), i32> {
        Ok(())
    }

    fn before_fork(&self, _: u64) {}

    fn child_gone(&self, _: u64) {}
}

/// Methods with a default in the port were once not forwarded to the store in front: with a remote store, compressed
/// RAM was never made denser, and the file did not give back space.
#[test]
fn the_store_in_front_goes_on_with_its_own_work() {
    let store = Remote::behind(Box::new(Busy), settings("memory://", 8 << 20)).unwrap();
    assert!(store.give_room_back());
    assert_eq!(store.recompress(false), Recompress::More);
    assert_eq!(store.recompressed(), Busy::DONE);
}
