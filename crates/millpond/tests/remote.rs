//! Memory beyond the machine: numbers that fit neither in the budget nor in a small file come back from a store
//! elsewhere.

mod common;

use common::{MIB, Rng, can};
use millpond::{BuildError, Delivery, Manager, StoreKind};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const DATA: usize = 64 * MIB;
const WORDS: usize = DATA / 8;

/// Fills 64 MiB of numbers that no codec makes smaller in 16 MiB of RAM, and reads them in order, at random, and again
/// after some have changed.
fn numbers_come_back(url: &str, file_bytes: u64, delivery: Delivery) {
    let directory = tempfile::tempdir().unwrap();
    let store = StoreKind::Remote {
        url: url.parse().unwrap(),
        directory: Some(directory.path().to_owned()),
        file_bytes,
        max_bytes: None,
    };
    let manager = Manager::builder()
        .ram(16 << 20)
        .store(store)
        .delivery(delivery)
        .build()
        .unwrap();
    let mut numbers = manager.vec::<u64>(WORDS).unwrap();
    let mut rng = Rng(5);
    numbers.iter_mut().for_each(|number| *number = rng.next());
    let expected = || {
        let mut rng = Rng(5);
        (0..WORDS).map(move |_| rng.next())
    };
    assert!(
        numbers.iter().copied().eq(expected()),
        "the first lap in order"
    );
    let all: Vec<u64> = expected().collect();
    let mut places = Rng(7);
    for _ in 0..500 {
        let at = places.next() as usize % WORDS;
        assert_eq!(numbers[at], all[at], "number {at}");
    }
    for at in (0..WORDS).step_by(1000) {
        numbers[at] ^= 1;
    }
    let changed = |at: usize| u64::from(at.is_multiple_of(1000));
    assert!(
        (0..WORDS).all(|at| numbers[at] == all[at] ^ changed(at)),
        "the last lap in order"
    );
    let stats = manager.stats();
    assert!(stats.store.logical_bytes > 40 << 20, "{:?}", stats.store);
}

#[test]
fn numbers_come_back_from_a_directory() {
    let directory = tempfile::tempdir().unwrap();
    let url = format!("fs://{}", directory.path().display());
    numbers_come_back(&url, 8 << 20, Delivery::InThread);
    assert!(
        std::fs::read_dir(directory.path())
            .unwrap()
            .flatten()
            .all(|run| {
                // Directories are left, and no objects in them.
                std::fs::read_dir(run.path())
                    .unwrap()
                    .flatten()
                    .all(|entry| entry.path().is_dir())
            })
    );
}

#[test]
fn a_remote_store_works_without_a_local_disk() {
    let directory = tempfile::tempdir().unwrap();
    let url = format!("fs://{}", directory.path().display());
    numbers_come_back(&url, 0, Delivery::InThread);
}

/// The thread that serves faults of others has its own descriptor table, and tried to wake the network's thread through
/// a descriptor missing there: the process stopped.
#[test]
fn numbers_come_back_where_a_handler_serves_faults() {
    if !can(Delivery::Handler) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let url = format!("fs://{}", directory.path().display());
    numbers_come_back(&url, 8 << 20, Delivery::Handler);
}

struct Redis(Child);

impl Drop for Redis {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn numbers_come_back_from_redis() {
    let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let mut command = Command::new("redis-server");
    command.args([
        "--bind",
        "127.0.0.1",
        "--save",
        "",
        "--port",
        &port.to_string(),
    ]);
    let Ok(child) = command.stdout(Stdio::null()).spawn() else {
        eprintln!("skipped: there is no redis-server (apt-get install redis-server)");
        return;
    };
    let _redis = Redis(child);
    let limit = Instant::now() + Duration::from_secs(10);
    while TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err() {
        assert!(Instant::now() < limit, "redis-server does not listen");
        std::thread::sleep(Duration::from_millis(20));
    }
    numbers_come_back(
        &format!("redis://127.0.0.1:{port}/0"),
        8 << 20,
        Delivery::InThread,
    );
}

#[test]
fn an_unreachable_store_fails_the_managers_build() {
    let store = StoreKind::Remote {
        url: "redis://127.0.0.1:1/0".parse().unwrap(),
        directory: Some(std::env::temp_dir()),
        file_bytes: 8 << 20,
        max_bytes: None,
    };
    let error = Manager::builder()
        .ram(16 << 20)
        .store(store)
        .build()
        .unwrap_err();
    assert!(matches!(error, BuildError::Store(_)), "{error:?}");
    assert!(
        error
            .to_string()
            .contains("redis://127.0.0.1:1/0 takes no objects"),
        "{error}"
    );
}
