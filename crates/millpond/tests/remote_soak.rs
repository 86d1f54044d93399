//! Memory beyond the machine, for longer: numbers of many times the budget and the file come back from services that
//! are disturbed, stopped and restarted all the while. `soak/remote` runs these tests, each in a process of its own,
//! because a page that is lost ends the process.
//!
//! `MILLPOND_SOAK_MIB` says how many MiB of numbers there are (1024).

#[path = "../../remote/tests/common/proxy.rs"]
mod proxy;
#[path = "../../remote/tests/common/cluster.rs"]
mod redis_cluster;
#[path = "../../remote/tests/common/server.rs"]
mod server;

use millpond::{Manager, StoreKind};
use proxy::{Disturbance, Proxy};
use redis_cluster::Cluster;
use server::{Server, set_credentials};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

const MIB: usize = 1 << 20;
/// The budget, and the file's room.
const RAM: u64 = 64 << 20;
const FILE: u64 = 64 << 20;
/// Time from one disturbance to the next.
const TURN: Duration = Duration::from_secs(2);
/// Reads at random. Each is a request or more.
const PLACES: usize = 500;
/// Every so many numbers one is changed, so that every other page is.
const STEP: usize = 1000;

/// Waits for a server.
fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let limit = Instant::now() + Duration::from_secs(60);
    while !holds() {
        assert!(Instant::now() < limit, "{what}: not within 60 seconds");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// The number at a place. Nothing that compresses knows the next.
fn number(at: usize) -> u64 {
    let mut bits = (at as u64)
        .wrapping_add(1)
        .wrapping_mul(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

/// The number at a place after the change.
fn changed(at: usize) -> u64 {
    number(at) ^ u64::from(at.is_multiple_of(STEP))
}

/// Fills, reads in order and at random, changes, and reads all again, while `disturb` is called with 0, 1, 2, ....
fn soak(url: &str, mut disturb: impl FnMut(u32) + Send) {
    let done = AtomicBool::new(false);
    let begun = Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for turn in 0.. {
                let next = Instant::now() + TURN;
                while Instant::now() < next {
                    if done.load(Relaxed) {
                        return;
                    }
                    std::thread::sleep(Duration::from_millis(20));
                }
                disturb(turn);
            }
        });
        // Ends the other thread also when the numbers are not right.
        struct Done<'a>(&'a AtomicBool);
        impl Drop for Done<'_> {
            fn drop(&mut self) {
                self.0.store(true, Relaxed);
            }
        }
        let _done = Done(&done);
        numbers_come_back(url);
    });
    println!(
        "{url}: all is as it was after {} s",
        begun.elapsed().as_secs()
    );
}

fn numbers_come_back(url: &str) {
    let mib = std::env::var("MILLPOND_SOAK_MIB").ok();
    let mib: usize = mib.map_or(1024, |text| {
        text.parse().expect("MILLPOND_SOAK_MIB is a number")
    });
    let words = mib * MIB / 8;
    let directory = tempfile::tempdir_in("/var/tmp").unwrap();
    let store = StoreKind::Remote {
        url: url.parse().unwrap(),
        directory: Some(directory.path().to_owned()),
        file_bytes: FILE,
        max_bytes: None,
    };
    let manager = Manager::builder().ram(RAM).store(store).build().unwrap();
    let mut numbers = manager.vec::<u64>(words).unwrap();
    let begun = Instant::now();
    let passed = |what: &str| println!("{what} after {} s", begun.elapsed().as_secs());
    let lap = |numbers: &[u64], expected: fn(usize) -> u64, what: &str| {
        let wrong = (0..words).find(|&at| numbers[at] != expected(at));
        assert_eq!(wrong, None, "{what}: another number");
        passed(what);
    };
    for (at, place) in numbers.iter_mut().enumerate() {
        *place = number(at);
    }
    passed("filled");
    lap(&numbers, number, "read in order");
    for turn in 0..PLACES {
        let at = number(turn) as usize % words;
        assert_eq!(numbers[at], number(at), "number {at}");
    }
    passed("read at random");
    for at in (0..words).step_by(STEP) {
        numbers[at] ^= 1;
    }
    lap(&numbers, changed, "changed and read again");
    let stats = manager.stats();
    let far = (words as u64 * 8).saturating_sub(2 * (RAM + FILE));
    assert!(stats.store.logical_bytes > far, "{:?}", stats.store);
}

/// Holds all answers back for a while.
fn stall(proxy: &Proxy) {
    proxy.disturb(Disturbance::Stall, u32::MAX);
    std::thread::sleep(Duration::from_millis(700));
    proxy.disturb(Disturbance::None, 0);
}

/// Stops a server for a while.
fn stop(server: &Server) {
    server.freeze();
    std::thread::sleep(Duration::from_secs(1));
    server.thaw();
}

#[test]
#[ignore = "takes minutes: soak/remote"]
fn from_directory() {
    let directory = tempfile::tempdir_in("/var/tmp").unwrap();
    soak(&format!("fs://{}", directory.path().display()), |_| {});
}

#[test]
#[ignore = "takes minutes: soak/remote"]
fn from_redis() {
    let directory = tempfile::tempdir_in("/var/tmp").unwrap();
    let Some(mut redis) = Server::redis(directory.path()) else {
        return;
    };
    let proxy = Proxy::before(redis.port);
    let url = format!("redis://127.0.0.1:{}/0", proxy.port);
    soak(&url, |turn| match turn % 10 {
        0 | 5 => proxy.disturb(Disturbance::Refuse, 2),
        1 | 6 => proxy.disturb(Disturbance::Truncate, 2),
        2 | 7 => proxy.disturb(Disturbance::Flip, 2),
        3 | 8 => stall(&proxy),
        4 => stop(&redis),
        _ => redis.restart(Duration::from_millis(300)),
    });
}

#[test]
#[ignore = "takes minutes: soak/remote"]
fn from_cluster() {
    let directory = tempfile::tempdir_in("/var/tmp").unwrap();
    let Some(mut cluster) = Cluster::start(directory.path()) else {
        return;
    };
    let url = cluster.url();
    soak(&url, |turn| {
        let node = &mut cluster.nodes[turn as usize % 3];
        match turn % 8 {
            7 => node.restart(Duration::from_millis(300)),
            3 => stop(node),
            _ => {}
        }
    });
}

#[test]
#[ignore = "takes minutes: soak/remote"]
fn from_s3() {
    // SAFETY: in this process nothing else reads the environment yet: `soak/remote` runs this test alone.
    unsafe { set_credentials() };
    let Some(moto) = Server::s3() else { return };
    moto.make_bucket();
    let proxy = Proxy::before(moto.port);
    let port = proxy.port;
    let url = format!("s3://pond/team?endpoint=http://127.0.0.1:{port}&region=us-east-1");
    soak(&url, |turn| match turn % 8 {
        0 => proxy.disturb(Disturbance::Answer("500 Internal Server Error"), 2),
        1 => proxy.disturb(Disturbance::Answer("503 Slow Down"), 2),
        2 => proxy.disturb(Disturbance::Answer("404 Not Found"), 2),
        3 => proxy.disturb(Disturbance::Refuse, 2),
        4 => proxy.disturb(Disturbance::Truncate, 2),
        5 => proxy.disturb(Disturbance::Flip, 2),
        6 => stall(&proxy),
        _ => stop(&moto),
    });
}
