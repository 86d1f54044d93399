//! Real forks: which process sees which contents, and which process overwrites which. The program has only one thread,
//! because forks need quiet.

mod common;

use common::{Fill, behind, contents, encrypted, file, limit, ram, two_files};
use millpond_core::SlotId;
use millpond_core::port::{Forks, Saved, Slots, Store, Upkeep};
use millpond_store::Spill;

fn data(slot: u32, version: u64) -> Vec<u8> {
    contents(
        Fill::Mixed(u64::from(slot) * 5 + version * 1000 + 1),
        4096 << (slot % 7),
    )
}

fn check(store: &dyn Store, slots: impl Iterator<Item = u32>, version: u64) {
    for slot in slots {
        let wanted = data(slot, version);
        let mut out = vec![0; wanted.len()];
        let result = store.load(SlotId(slot), 0, &mut out);
        if wanted.iter().any(|byte| *byte != 0) {
            assert_eq!(result, Ok(()), "slot {slot}");
            assert!(
                out == wanted,
                "slot {slot} of version {version} has other bytes"
            );
        }
    }
}

fn save(store: &dyn Store, slots: impl Iterator<Item = u32>, version: u64) {
    for slot in slots {
        assert!(matches!(
            store.save(SlotId(slot), None, &data(slot, version)),
            Ok(Saved::Stored | Saved::AllZero)
        ));
    }
}

/// Moves the contents in RAM before a file to the file, each process's own.
fn trim(store: &dyn Store) {
    limit(store, 128 << 10);
    while store.trim_ram() {}
    limit(store, 1 << 20);
}

/// A pipe on which one side waits until the other has rung.
struct Bell([i32; 2]);

impl Bell {
    fn new() -> Self {
        let mut ends = [0; 2];
        // SAFETY: the array has room for the two descriptors.
        assert_eq!(unsafe { libc::pipe(ends.as_mut_ptr()) }, 0);
        Self(ends)
    }

    fn ring(&self) {
        // SAFETY: one byte is read from a valid address.
        let written = unsafe { libc::write(self.0[1], [1u8].as_ptr().cast(), 1) };
        assert_eq!(written, 1);
    }

    fn wait(&self) {
        let mut byte = [0u8];
        // SAFETY: one byte is written to a valid address.
        let read = unsafe { libc::read(self.0[0], byte.as_mut_ptr().cast(), 1) };
        assert_eq!(read, 1);
    }
}

/// Forks. The child does `work` and exits with whether that went well.
fn fork(work: impl FnOnce()) -> i32 {
    // SAFETY: the child only runs `work` and leaves by `_exit`; the libc's own fork handlers keep
    // malloc usable in it.
    match unsafe { libc::fork() } {
        0 => {
            let well = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)).is_ok();
            // SAFETY: the child leaves at once, and runs nothing of the parent's.
            unsafe { libc::_exit(i32::from(!well)) }
        }
        -1 => panic!("fork failed"),
        pid => pid,
    }
}

fn join(pid: i32) {
    let mut status = -1;
    // SAFETY: the status is written to a valid address.
    assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
    assert_eq!(status, 0, "the child failed; its message is above");
}

fn parent_and_child(store: &dyn Store) {
    save(store, 0..30, 0);
    let (ready, go) = (Bell::new(), Bell::new());
    store.before_fork(1);
    let pid = fork(|| {
        store.after_fork_in_child().unwrap();
        check(store, 0..30, 0);
        (0..10).for_each(|slot| store.release(SlotId(slot)));
        save(store, 0..10, 2);
        save(store, 40..60, 2);
        trim(store);
        ready.ring();
        go.wait();
        // The parent released and overwrote all it could in the meantime.
        check(store, 0..10, 2);
        check(store, 10..30, 0);
        check(store, 40..60, 2);

        // A grandchild reads from three files.
        store.before_fork(2);
        let pid = fork(|| {
            store.after_fork_in_child().unwrap();
            check(store, 0..10, 2);
            check(store, 10..30, 0);
            save(store, 70..80, 3);
            trim(store);
            check(store, 10..30, 0);
            check(store, 70..80, 3);
        });
        join(pid);
        store.child_gone(2);
        (0..60).for_each(|slot| store.release(SlotId(slot)));
        assert_eq!(store.usage().slots, 0);
        assert_eq!(store.usage().stored_bytes, 0);
    });
    ready.wait();
    check(store, 0..30, 0);
    for round in 4..8 {
        (0..30).for_each(|slot| store.release(SlotId(slot)));
        save(store, 0..30, round);
        trim(store);
    }
    go.ring();
    join(pid);
    store.child_gone(1);
    check(store, 0..30, 7);
    (0..30).for_each(|slot| store.release(SlotId(slot)));
    assert_eq!((store.usage().slots, store.usage().stored_bytes), (0, 0));
}

#[test]
fn child_and_parent_keep_their_own() {
    let dir = tempfile::tempdir().unwrap();
    parent_and_child(&file(dir.path(), None));
    parent_and_child(&encrypted(dir.path(), None));
    parent_and_child(&two_files(dir.path(), None));
    parent_and_child(&behind(dir.path(), None));
    let awake = file(dir.path(), None);
    awake.stay_awake(true);
    parent_and_child(&awake);
    parent_and_child(&ram(None));
    parent_and_child(&Spill::new(ram(Some(1 << 20)), file(dir.path(), None)));
    assert_eq!(
        std::fs::read_dir(dir.path()).unwrap().count(),
        0,
        "no file has a name"
    );
}

/// Forks during asynchronous writes. The child has none of the parent's writes, takes none of the answers to them, and
/// has its own ring for its own writes.
#[test]
fn a_child_writes_behind_by_a_ring_of_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let store = behind(dir.path(), None);
    let noise = |slot: u32, version| contents(Fill::Noise(u64::from(slot) + version), 1 << 20);
    let save = |slots: std::ops::Range<u32>, version| {
        for slot in slots {
            let saved = store.save(SlotId(slot), None, &noise(slot, version));
            assert_eq!(saved, Ok(Saved::Stored));
        }
    };
    let check = |slots: std::ops::Range<u32>, version| {
        let mut out = vec![0; 1 << 20];
        for slot in slots {
            assert_eq!(store.load(SlotId(slot), 0, &mut out), Ok(()), "slot {slot}");
            assert!(out == noise(slot, version), "slot {slot}");
        }
    };
    for round in 0..5 {
        let first = round * 100;
        save(first..first + 8, 1);
        store.before_fork(u64::from(round));
        let pid = fork(|| {
            store.after_fork_in_child().unwrap();
            store.write_behind();
            check(first..first + 8, 1);
            (first..first + 4).for_each(|slot| store.release(SlotId(slot)));
            save(first + 20..first + 28, 2);
            check(first + 20..first + 28, 2);
            check(first + 4..first + 8, 1);
        });
        // The parent's own writes continue at the same time.
        save(first + 40..first + 48, 3);
        join(pid);
        store.child_gone(u64::from(round));
        check(first..first + 8, 1);
        check(first + 40..first + 48, 3);
    }
}

#[test]
fn the_ninth_generation_is_refused() {
    fn descend(store: &dyn Store, depth: u32) {
        let pid = fork(|| match store.after_fork_in_child() {
            Ok(()) => {
                assert!(depth < 8);
                check(store, 0..3 * depth, 1);
                save(store, 3 * depth..3 * depth + 3, 1);
                descend(store, depth + 1);
            }
            Err(errno) => assert_eq!((errno, depth), (libc::EMFILE, 8)),
        });
        join(pid);
    }
    let dir = tempfile::tempdir().unwrap();
    let store = file(dir.path(), None);
    save(&store, 0..3, 1);
    descend(&store, 1);
    check(&store, 0..3, 1);
}

#[test]
fn room_held_for_a_child_comes_back_when_it_is_gone() {
    let dir = tempfile::tempdir().unwrap();
    let store = file(dir.path(), Some(4 << 20));
    let noise = |version| contents(Fill::Noise(version), 2 << 20);
    store.save(SlotId(0), None, &noise(1)).unwrap();
    store.before_fork(9);
    store.release(SlotId(0));
    store.save(SlotId(1), None, &noise(2)).unwrap();
    assert!(
        store.save(SlotId(2), None, &noise(3)).is_err(),
        "the child's blocks were given away"
    );
    store.child_gone(9);
    store.save(SlotId(2), None, &noise(3)).unwrap();
}
