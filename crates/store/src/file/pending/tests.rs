//! Asynchronous writes: refused, failing, abandoned, and during forks and the store's end.

use crate::file::noise::noise;
use crate::ring::Ring;
use crate::{FileStore, FileStoreConfig, Location, OpenError};
use millpond_core::SlotId;
use millpond_core::port::{Forks, SaveError, Saved, Slots, Upkeep};
use rustix::fd::AsRawFd;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc;

const LARGE: usize = 1 << 20;

fn store(dir: &Path) -> FileStore {
    let config = FileStoreConfig {
        force_tmpfs: true,
        encrypt: true,
        ..FileStoreConfig::in_directory(dir)
    };
    FileStore::create(&config).unwrap()
}

/// A directory on a disk, where writes take a while.
fn on_disk() -> tempfile::TempDir {
    tempfile::tempdir_in("/var/tmp").unwrap()
}

/// Whether this machine gives this thread a ring. A test without one prints that, and continues with the fallback.
fn has_rings() -> bool {
    let ring = Ring::new();
    if let Err(errno) = &ring {
        println!("skipped in part: no ring here ({errno})");
    }
    ring.is_ok()
}

fn save(store: &FileStore, slot: u32, len: usize) -> Result<Saved, SaveError> {
    store.save(SlotId(slot), None, &noise(slot, len))
}

fn save_all(store: &FileStore, slots: std::ops::Range<u32>, len: usize) {
    for slot in slots {
        assert_eq!(save(store, slot, len), Ok(Saved::Stored), "slot {slot}");
    }
}

fn check(store: &FileStore, slots: std::ops::Range<u32>, len: usize) {
    let mut out = vec![0; len];
    for slot in slots {
        assert_eq!(store.load(SlotId(slot), 0, &mut out), Ok(()), "slot {slot}");
        assert!(out == noise(slot, len), "slot {slot}");
    }
}

fn under_way(store: &FileStore) -> u32 {
    store.pending.behind.under_way()
}

/// Saves large slots until one is still in flight when the save returns. A device may be faster than this thread.
fn save_until_under_way(store: &FileStore, first: u32) -> u32 {
    let is_seen = |&slot: &u32| {
        save_all(store, slot..slot + 1, LARGE);
        under_way(store) > 0
    };
    (first..first + 100).find(is_seen).unwrap_or(first + 99) + 1
}

#[test]
fn writes_in_flight_can_be_read_released_and_replaced() {
    let dir = on_disk();
    let store = store(dir.path());
    store.write_behind();
    let mut seen = 0;
    for round in 0..40 {
        let first = round * 10;
        save_all(&store, first..first + 1, LARGE);
        save_all(&store, first + 1..first + 4, 64 << 10);
        save_all(&store, first + 4..first + 8, 4096);
        seen += under_way(&store);
        check(&store, first..first + 1, LARGE);
        check(&store, first + 1..first + 4, 64 << 10);
        check(&store, first + 4..first + 8, 4096);
        if round % 3 > 0 {
            (first..first + 5).for_each(|slot| store.release(SlotId(slot)));
        }
    }
    assert!(seen > 0 || !has_rings(), "nothing was ever under way");
    (0..400).for_each(|slot| store.release(SlotId(slot)));
    store.before_fork(1);
    store.child_gone(1);
    assert_eq!((store.usage().slots, store.usage().stored_bytes), (0, 0));
    assert_eq!(under_way(&store), 0);
    let taken = store.areas[0].blocks().alloc_run(32).unwrap();
    assert_eq!(taken.1, 32);
}

/// Makes the kernel write to a descriptor that is not open for writing. In the meantime, accepted slots are readable
/// and later ones are refused; everything is written once the device works again.
#[test]
fn a_failed_background_write_loses_nothing() {
    let dir = on_disk();
    let store = store(dir.path());
    store.write_behind();
    save_all(&store, 0..4, LARGE);
    let null = rustix::fs::open("/dev/null", OFlags::RDONLY, Mode::empty()).unwrap();
    let good = store.files[0].swap(null.as_raw_fd(), Relaxed);
    let mut taken = Vec::new();
    let mut refused = 0;
    for slot in 10..200 {
        let len = [4096, LARGE, 4096, 64 << 10][slot as usize % 4];
        match save(&store, slot, len) {
            Ok(Saved::Stored) => taken.push((slot, len)),
            Err(SaveError::Io(errno)) if errno == Errno::BADF.raw_os_error() => refused += 1,
            other => panic!("slot {slot}: {other:?}"),
        }
    }
    assert!(refused > 100, "{refused}");
    store.before_fork(1);
    store.child_gone(1);
    taken
        .iter()
        .for_each(|&(slot, len)| check(&store, slot..slot + 1, len));
    store.files[0].store(good, Relaxed);
    let (released, kept) = taken.split_at(taken.len() / 2);
    released
        .iter()
        .for_each(|&(slot, _)| store.release(SlotId(slot)));
    save_all(&store, 300..310, LARGE);
    save_all(&store, 310..400, 4096);
    store.before_fork(2);
    store.child_gone(2);
    check(&store, 0..4, LARGE);
    kept.iter()
        .for_each(|&(slot, len)| check(&store, slot..slot + 1, len));
    check(&store, 300..310, LARGE);
    check(&store, 310..400, 4096);
}

/// The end of the store waits for writes in flight: afterwards the file is empty, and stays empty.
#[test]
fn a_store_that_ends_during_writes_leaves_an_empty_file() {
    let dir = on_disk();
    let path = dir.path().join("file");
    let config = FileStoreConfig::at(Location::File(path.clone()));
    for round in 0..20 {
        // The kernel releases a file, and the previous store's lock on it, a moment after its answer.
        let mut tries = (0..1000).map(|_| {
            let made = FileStore::create(&config);
            if matches!(made, Err(OpenError::InUse { .. })) {
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
            made
        });
        let store = tries.find(|made| !matches!(made, Err(OpenError::InUse { .. })));
        let store = store.expect("the file is free soon").unwrap();
        store.write_behind();
        save_all(&store, 0..3, LARGE);
        save_all(&store, 3..40, 4096);
        drop(store);
        assert_eq!(path.metadata().unwrap().len(), 0, "round {round}");
    }
    // When the kernel has let go of the lock, no write of the last store is under way any more.
    let file = std::fs::File::open(&path).unwrap();
    rustix::fs::flock(&file, rustix::fs::FlockOperation::LockExclusive).unwrap();
    assert_eq!(path.metadata().unwrap().len(), 0);
}

/// The thread that submits the writes ends, or sleeps: nobody waits for it.
#[test]
fn other_threads_do_not_depend_on_the_thread_that_writes_behind() {
    let dir = on_disk();
    let store = store(dir.path());
    for round in 0..10 {
        let first = round * 1000;
        std::thread::scope(|scope| {
            let (said, hear) = mpsc::channel();
            let (leave, left) = mpsc::channel::<()>();
            let store = &store;
            scope.spawn(move || {
                store.write_behind();
                let next = save_until_under_way(store, first);
                said.send(next).unwrap();
                // This thread sleeps in half of the rounds, and ends immediately in the others.
                if round % 2 == 0 {
                    left.recv().unwrap();
                }
            });
            let next = hear.recv().unwrap();
            store.before_fork(u64::from(round));
            assert_eq!(under_way(store), 0);
            store.child_gone(u64::from(round));
            check(store, first..next, LARGE);
            save_all(store, first + 500..first + 540, 4096);
            save_all(store, first + 540..first + 542, LARGE);
            check(store, first + 500..first + 540, 4096);
            let _ = leave.send(());
        });
        (first..first + 542).for_each(|slot| store.release(SlotId(slot)));
    }
    assert_eq!(store.usage().stored_bytes, 0);
}

/// The kernel's threads for a ring are named after the thread that made it. Five of them were seen under `run`, one for
/// each write that extended the file.
#[test]
fn a_ring_has_few_kernel_threads() {
    let dir = on_disk();
    let store = store(dir.path());
    store.write_behind();
    let name = format!("iou-wrk-{}\n", rustix::thread::gettid().as_raw_nonzero());
    let threads = || {
        let tasks = std::fs::read_dir("/proc/self/task").unwrap();
        let names = tasks.map(|task| std::fs::read_to_string(task.unwrap().path().join("comm")));
        names
            .filter(|there| there.as_ref().is_ok_and(|there| *there == name))
            .count()
    };
    for round in 0..20 {
        let first = round * 100;
        save_all(&store, first..first + 64, 4096);
        save_all(&store, first + 64..first + 70, LARGE);
        let seen = threads();
        assert!(seen <= 3, "{seen} threads");
    }
}

/// Makes more stores than a thread has indices for rings, one after the other.
#[test]
fn a_rings_index_is_free_again_with_the_ring() {
    if !has_rings() {
        return;
    }
    for round in 0..40 {
        if let Err(errno) = Ring::new() {
            // Kernels before 6.3 keep indices until the thread ends.
            println!("skipped in part: ring {round} was refused ({errno})");
            return;
        }
    }
}

/// Installs a filter for the calling thread that answers `io_uring_setup` with `answer`, and allows everything else.
fn filter(answer: u32) {
    let rule = |code: u32, k: u32, jt: u8| libc::sock_filter {
        code: code as u16,
        jt,
        jf: 0,
        k,
    };
    let mut rules = [
        rule(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0),
        libc::sock_filter {
            jf: 1,
            ..rule(
                libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K,
                libc::SYS_io_uring_setup as u32,
                0,
            )
        },
        rule(libc::BPF_RET | libc::BPF_K, answer, 0),
        rule(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW, 0),
    ];
    let program = libc::sock_fprog {
        len: rules.len() as u16,
        filter: rules.as_mut_ptr(),
    };
    // SAFETY: the kernel copies the program, whose rules outlive the calls. Only this thread is filtered.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        let mode = libc::SECCOMP_MODE_FILTER;
        assert_eq!(
            libc::prctl(libc::PR_SET_SECCOMP, mode, &raw const program),
            0
        );
    }
}

fn works_without_ring(store: &FileStore) {
    store.write_behind();
    save_all(store, 0..5, LARGE);
    save_all(store, 5..100, 4096);
    assert_eq!(under_way(store), 0);
    check(store, 0..5, LARGE);
    check(store, 5..100, 4096);
}

#[test]
fn a_sandbox_that_refuses_rings_or_kills_for_them_is_tolerated() {
    for errno in [Errno::PERM, Errno::NOSYS, Errno::ACCESS] {
        std::thread::spawn(move || {
            filter(libc::SECCOMP_RET_ERRNO | errno.raw_os_error() as u32);
            assert_eq!(Ring::new().err(), Some(errno));
            let dir = on_disk();
            works_without_ring(&store(dir.path()));
        })
        .join()
        .unwrap();
    }
    // The process survives: under a filter no ring is tried.
    std::thread::spawn(|| {
        filter(libc::SECCOMP_RET_KILL_PROCESS);
        let dir = on_disk();
        works_without_ring(&store(dir.path()));
    })
    .join()
    .unwrap();
}

#[test]
fn a_store_that_may_not_write_behind_does_not() {
    let dir = on_disk();
    let config = FileStoreConfig {
        write_behind: false,
        ..FileStoreConfig::in_directory(dir.path())
    };
    works_without_ring(&FileStore::create(&config).unwrap());
}
