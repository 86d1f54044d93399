//! The store of a process with a server behind it: byte for byte, with several threads, across forks, with processes
//! that are killed, and with a server that refuses or ends.

use millpond_core::port::{Forks, LoadError, SaveError, Saved, Slots, StoreUsage, Upkeep};
use millpond_core::{SlotId, SlotPart};
use millpond_relay::{Relay, Relayed, Server, Supervisor};
use millpond_store::{CompressedRam, CompressedRamConfig};
use std::collections::HashMap;
use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::time::{Duration, Instant};

const PAGE: usize = 4096;

fn ram(max_bytes: u64) -> CompressedRam {
    CompressedRam::new(CompressedRamConfig {
        max_bytes: Some(max_bytes),
    })
    .unwrap()
}

/// Waits until a condition holds.
fn soon(mut what: impl FnMut() -> bool) -> bool {
    let end = Instant::now() + Duration::from_secs(20);
    while !what() {
        if Instant::now() > end {
            return false;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    true
}

/// What the server keeps, as the test sees it.
#[derive(Clone)]
struct Far(Arc<Kept>);

struct Kept {
    inner: CompressedRam,
    /// While set, nothing is accepted.
    refuses: AtomicBool,
    /// Milliseconds that each save takes.
    slow: AtomicU32,
    /// The number of saves that have started, and that have ended.
    begun: AtomicU32,
    ended: AtomicU32,
}

impl Far {
    fn new() -> Self {
        Self(Arc::new(Kept {
            inner: ram(512 << 20),
            refuses: AtomicBool::new(false),
            slow: AtomicU32::new(0),
            begun: AtomicU32::new(0),
            ended: AtomicU32::new(0),
        }))
    }

    fn server(&self) -> Server {
        Server::start(Arc::new(self.clone())).unwrap()
    }

    fn slots(&self) -> u64 {
        self.0.inner.usage().slots
    }

    /// Waits until the server no longer keeps anything.
    fn is_empty_soon(&self) -> bool {
        soon(|| self.slots() == 0)
    }
}

impl Slots for Far {
    fn save(
        &self,
        slot: SlotId,
        previous: Option<SlotPart>,
        data: &[u8],
    ) -> Result<Saved, SaveError> {
        if self.0.refuses.load(SeqCst) {
            return Err(SaveError::Full);
        }
        self.0.begun.fetch_add(1, SeqCst);
        let slow = self.0.slow.load(SeqCst);
        std::thread::sleep(Duration::from_millis(slow.into()));
        let saved = self.0.inner.save(slot, previous, data);
        self.0.ended.fetch_add(1, SeqCst);
        saved
    }

    fn load(&self, slot: SlotId, first_page: u16, out: &mut [u8]) -> Result<(), LoadError> {
        self.0.inner.load(slot, first_page, out)
    }

    fn release(&self, slot: SlotId) {
        self.0.inner.release(slot);
    }
}

impl Upkeep for Far {
    fn usage(&self) -> StoreUsage {
        self.0.inner.usage()
    }
}

impl Forks for Far {
    fn after_fork_in_child(&self) -> Result<(), i32> {
        Ok(())
    }

    fn before_fork(&self, _child: u64) {}

    fn child_gone(&self, _child: u64) {}
}

/// Makes a store with room for some MiB in front.
fn relayed(server: &Server) -> Relayed {
    const ROOM: u64 = 4 << 20;
    let relay = Relay::open(&server.path()).unwrap();
    Supervisor::behind(Box::new(ram(ROOM)), relay, ROOM).unwrap()
}

/// Returns incompressible bytes that are specific to this slot and this use of it.
fn bytes(slot: u32, times: u32, pages: usize) -> Vec<u8> {
    let mut state = u64::from(slot) << 32 | u64::from(times) | 1;
    let words = (0..pages * PAGE / 8).flat_map(|_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_ne_bytes()
    });
    words.collect()
}

fn is_right(store: &Relayed, slot: u32, times: u32, pages: usize) -> bool {
    let mut back = vec![0; pages * PAGE];
    store.load(SlotId(slot), 0, &mut back) == Ok(()) && back == bytes(slot, times, pages)
}

#[test]
fn relayed_data_is_read_back_and_deleted_on_release() {
    let far = Far::new();
    let server = far.server();
    let store = relayed(&server);
    for slot in 0..200 {
        let data = bytes(slot, 0, 16);
        assert_eq!(
            store.save(SlotId(slot), None, &data),
            Ok(Saved::Stored),
            "{slot}"
        );
    }
    assert!(far.slots() > 100 && store.beyond().bytes >= far.slots() * 16 * PAGE as u64);
    for slot in 0..200 {
        assert!(is_right(&store, slot, 0, 16), "{slot}");
        // Each page by itself, and some together.
        let mut part = vec![0; 4 * PAGE];
        store.load(SlotId(slot), 12, &mut part).unwrap();
        assert_eq!(part, bytes(slot, 0, 16)[12 * PAGE..]);
        assert_eq!(
            store.load(SlotId(slot), 13, &mut part),
            Err(LoadError::Missing)
        );
    }
    assert!(store.beyond().loads > 200);
    (0..200).for_each(|slot| store.release(SlotId(slot)));
    let mut page = vec![0; PAGE];
    assert_eq!(store.load(SlotId(7), 0, &mut page), Err(LoadError::Missing));
    store.move_away();
    assert!(far.is_empty_soon());
    assert_eq!((store.beyond().bytes, store.usage().slots), (0, 0));
}

/// Threads with their own slots, of all lengths, that save, read and release at random.
#[test]
fn concurrent_saves_reads_and_releases_are_right() {
    let far = Far::new();
    let server = far.server();
    let store = relayed(&server);
    std::thread::scope(|scope| {
        for thread in 0..4u32 {
            let store = &store;
            scope.spawn(move || {
                let mut mine: HashMap<u32, (u32, usize)> = HashMap::new();
                let mut chance = 88_172_645_463_325_252 + u64::from(thread);
                for times in 0..1500 {
                    chance ^= chance << 13;
                    chance ^= chance >> 7;
                    chance ^= chance << 17;
                    let slot = thread * 64 + (chance >> 8) as u32 % 64;
                    match mine.get(&slot).copied() {
                        None => {
                            let pages = 1 << ((chance >> 20) % 7);
                            let data = bytes(slot, times, pages);
                            if store.save(SlotId(slot), None, &data) == Ok(Saved::Stored) {
                                mine.insert(slot, (times, pages));
                            }
                        }
                        Some((times, pages)) if chance % 3 > 0 => {
                            assert!(is_right(store, slot, times, pages), "{slot}");
                        }
                        Some(_) => {
                            store.release(SlotId(slot));
                            mine.remove(&slot);
                        }
                    }
                    if times % 50 == 0 {
                        store.move_away();
                    }
                }
                for (slot, (times, pages)) in mine {
                    assert!(is_right(store, slot, times, pages), "{slot}");
                    store.release(SlotId(slot));
                }
            });
        }
    });
    store.move_away();
    assert!(far.is_empty_soon(), "{} slots are left", far.slots());
}

#[test]
fn a_refusing_server_counts_as_a_full_store_until_it_accepts() {
    let far = Far::new();
    let server = far.server();
    let store = relayed(&server);
    far.0.refuses.store(true, SeqCst);
    let saved = |slot| store.save(SlotId(slot), None, &bytes(slot, 0, 16));
    let kept = (0..200).take_while(|&slot| saved(slot).is_ok()).count() as u32;
    assert!((20..100).contains(&kept), "{kept}");
    assert_eq!(saved(kept), Err(SaveError::Full));
    assert!((0..kept).all(|slot| is_right(&store, slot, 0, 16)));
    far.0.refuses.store(false, SeqCst);
    assert!((kept..200).all(|slot| soon(|| saved(slot) == Ok(Saved::Stored))));
    assert!((0..200).all(|slot| is_right(&store, slot, 0, 16)));
}

#[test]
fn without_a_server_local_data_stays_and_remote_data_is_an_error() {
    let far = Far::new();
    let server = far.server();
    let store = relayed(&server);
    for slot in 0..150 {
        store.save(SlotId(slot), None, &bytes(slot, 0, 16)).unwrap();
    }
    let there = far.slots();
    drop(server);
    let begin = Instant::now();
    let lost = (0..150)
        .filter(|&slot| !is_right(&store, slot, 0, 16))
        .count() as u64;
    assert_eq!(lost, there);
    assert_eq!(store.beyond().lost_loads, there);
    // Nothing moves any more, and nothing waits.
    let full = (150..300).any(|slot| store.save(SlotId(slot), None, &bytes(slot, 0, 16)).is_err());
    assert!(full && begin.elapsed() < Duration::from_secs(20));
    (0..300).for_each(|slot| store.release(SlotId(slot)));
}

/// Forks a child that does `work`, and returns its process number.
fn in_child(store: &Relayed, number: u64, work: impl FnOnce() -> i32) -> libc::pid_t {
    store.expect_child();
    store.before_fork(number);
    // SAFETY: the child only calls the code under test and ends; no other thread of this process holds a lock that it
    // needs, because the tests that fork run alone.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        let status = match store.after_fork_in_child() {
            Ok(()) => work(),
            Err(_) => 99,
        };
        // SAFETY: the child ends here, without its parent's exit handlers.
        unsafe { libc::_exit(status) };
    }
    pid
}

fn status(pid: libc::pid_t) -> i32 {
    let mut status = 0;
    // SAFETY: the place belongs to this thread, and the child to this process.
    assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
    if libc::WIFEXITED(status) {
        libc::WEXITSTATUS(status)
    } else {
        128 + libc::WTERMSIG(status)
    }
}

/// Runs a test that forks in a process without other tests.
fn alone(test: &str, body: impl FnOnce()) {
    const NAME: &str = "RELAY_TEST_ALONE";
    if std::env::var_os(NAME).is_some_and(|name| name == test) {
        return body();
    }
    let this = std::env::current_exe().unwrap();
    let ran = std::process::Command::new(this)
        .args(["--exact", test, "--nocapture", "--test-threads=1"])
        .env(NAME, test)
        .status()
        .unwrap();
    assert!(ran.success(), "{test}: {ran}");
}

/// The child reads what the parent had at the fork, whatever the parent releases in the meantime, and both continue
/// independently.
#[test]
fn a_child_reads_its_parents_data_as_of_the_fork() {
    alone("a_child_reads_its_parents_data_as_of_the_fork", || {
        let far = Far::new();
        let server = far.server();
        let store = relayed(&server);
        for slot in 0..150 {
            store.save(SlotId(slot), None, &bytes(slot, 0, 16)).unwrap();
        }
        let (mut changed, mut change) = std::io::pipe().unwrap();
        let child = in_child(&store, 1, || {
            changed.read_exact(&mut [0]).unwrap();
            let all = (0..150).all(|slot| is_right(&store, slot, 0, 16));
            let more = (200..300).all(|slot| {
                store.save(SlotId(slot), None, &bytes(slot, 1, 16)) == Ok(Saved::Stored)
            });
            let again = (200..300).all(|slot| is_right(&store, slot, 1, 16));
            // The child ends while it has its own slots there.
            i32::from(!(all && more && again))
        });
        (0..150).for_each(|slot| store.release(SlotId(slot)));
        for slot in 0..150 {
            store.save(SlotId(slot), None, &bytes(slot, 2, 16)).unwrap();
        }
        change.write_all(&[1]).unwrap();
        assert_eq!(status(child), 0);
        store.child_gone(1);
        assert!((0..150).all(|slot| is_right(&store, slot, 2, 16)));
        (0..150).for_each(|slot| store.release(SlotId(slot)));
        store.move_away();
        assert!(far.is_empty_soon(), "{} slots are left", far.slots());
    });
}

/// Children of children, several at a time, some of which are killed: in the end nothing is left at the server.
#[test]
fn killed_processes_leave_nothing_at_the_server() {
    alone("killed_processes_leave_nothing_at_the_server", || {
        let far = Far::new();
        let server = far.server();
        let store = relayed(&server);
        for slot in 0..100 {
            store.save(SlotId(slot), None, &bytes(slot, 0, 16)).unwrap();
        }
        for round in 0..3 {
            let children: Vec<_> = (1..5u64)
                .map(|number| {
                    in_child(&store, round * 10 + number, || {
                        let grandchild = in_child(&store, 1, || {
                            i32::from(!(0..100).all(|slot| is_right(&store, slot, 0, 16)))
                        });
                        for slot in 100.. {
                            let _ = store.save(SlotId(slot % 400 + 100), None, &bytes(slot, 1, 16));
                            store.release(SlotId(slot % 400 + 100));
                            if slot == 200 && status(grandchild) != 0 {
                                return 1;
                            }
                        }
                        0
                    })
                })
                .collect();
            std::thread::sleep(Duration::from_millis(700));
            for (&child, number) in children.iter().zip(1..) {
                // SAFETY: the child has not been waited for, so the number is still its own.
                unsafe { libc::kill(child, libc::SIGKILL) };
                assert_eq!(status(child), 128 + libc::SIGKILL);
                store.child_gone(round * 10 + number);
            }
            assert!((0..100).all(|slot| is_right(&store, slot, 0, 16)));
        }
        (0..100).for_each(|slot| store.release(SlotId(slot)));
        store.move_away();
        assert!(far.is_empty_soon(), "{} slots are left", far.slots());
    });
}

/// A child that is killed while the server works for it leaves its desk, and others use it. (The number of the slot
/// being saved was once freed with the child's account, and the next slot with that number was refused.)
#[test]
fn desks_of_killed_processes_become_free_again() {
    alone("desks_of_killed_processes_become_free_again", || {
        let far = Far::new();
        let server = far.server();
        let store = relayed(&server);
        for slot in 0..100 {
            store.save(SlotId(slot), None, &bytes(slot, 0, 16)).unwrap();
        }
        far.0.slow.store(400, SeqCst);
        for number in 1..5 {
            assert!(soon(|| far.0.begun.load(SeqCst) == far.0.ended.load(SeqCst)));
            let before = far.0.begun.load(SeqCst);
            let child = in_child(&store, number, || {
                for slot in 100.. {
                    let _ = store.save(SlotId(slot), None, &bytes(slot, 1, 16));
                }
                0
            });
            assert!(soon(|| far.0.begun.load(SeqCst) > before));
            // SAFETY: the child has not been waited for, so the number is still its own.
            unsafe { libc::kill(child, libc::SIGKILL) };
            status(child);
            store.child_gone(number);
        }
        far.0.slow.store(0, SeqCst);
        for slot in 100..200 {
            let data = bytes(slot, 0, 16);
            assert!(soon(
                || store.save(SlotId(slot), None, &data) == Ok(Saved::Stored)
            ));
        }
        assert!((0..200).all(|slot| is_right(&store, slot, 0, 16)));
        (0..200).for_each(|slot| store.release(SlotId(slot)));
        store.move_away();
        assert!(far.is_empty_soon(), "{} slots are left", far.slots());
    });
}
