//! Services that are continually disturbed, stopped and restarted while a program uses memory in them, and a test for
//! each of them.

#[path = "proxy.rs"]
mod proxy;
#[path = "cluster.rs"]
mod redis_cluster;
#[path = "server.rs"]
mod server;
#[path = "wait.rs"]
mod wait;

use proxy::{Disturbance, Proxy};
use redis_cluster::Cluster;
use server::{Server, set_credentials};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};
use wait::wait_until;

/// The budget, and the file's room.
pub const RAM: u64 = 64 << 20;
pub const FILE: u64 = 64 << 20;
/// The time from one disturbance to the next.
const TURN: Duration = Duration::from_secs(2);

/// Returns the MiB of numbers: `MILLPOND_SOAK_MIB`, or 1024.
pub fn mebibytes() -> usize {
    let mib = std::env::var("MILLPOND_SOAK_MIB").ok();
    mib.map_or(1024, |text| {
        text.parse().expect("MILLPOND_SOAK_MIB is a number")
    })
}

/// Does `work` with memory at `url`, while `disturb` is called with 0, 1, 2, ....
fn disturbed(url: &str, work: impl FnOnce(&str), mut disturb: impl FnMut(u32) + Send) {
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
        // Also ends the other thread if the numbers are wrong.
        struct Done<'a>(&'a AtomicBool);
        impl Drop for Done<'_> {
            fn drop(&mut self) {
                self.0.store(true, Relaxed);
            }
        }
        let _done = Done(&done);
        work(url);
    });
    println!(
        "{url}: all is as it was after {} s",
        begun.elapsed().as_secs()
    );
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

/// Does `work` with memory in a directory, which nothing disturbs.
pub fn in_directory(work: impl FnOnce(&str)) {
    let directory = tempfile::tempdir_in("/var/tmp").unwrap();
    let url = format!("fs://{}", directory.path().display());
    disturbed(&url, work, |_| {});
}

/// Does `work` with memory in Redis, if there is one.
pub fn in_redis(work: impl FnOnce(&str)) {
    let directory = tempfile::tempdir_in("/var/tmp").unwrap();
    let Some(mut redis) = Server::redis(directory.path()) else {
        return;
    };
    let proxy = Proxy::before(redis.port);
    let url = format!("redis://127.0.0.1:{}/0", proxy.port);
    disturbed(&url, work, |turn| match turn % 10 {
        0 | 5 => proxy.disturb(Disturbance::Refuse, 2),
        1 | 6 => proxy.disturb(Disturbance::Truncate, 2),
        2 | 7 => proxy.disturb(Disturbance::Flip, 2),
        3 | 8 => stall(&proxy),
        4 => stop(&redis),
        _ => redis.restart(Duration::from_millis(300)),
    });
}

/// Does `work` with memory in a Redis cluster, if there is one.
pub fn in_cluster(work: impl FnOnce(&str)) {
    let directory = tempfile::tempdir_in("/var/tmp").unwrap();
    let Some(mut cluster) = Cluster::start(directory.path()) else {
        return;
    };
    disturbed(&cluster.url(), work, |turn| {
        let node = &mut cluster.nodes[turn as usize % 3];
        match turn % 8 {
            7 => node.restart(Duration::from_millis(300)),
            3 => stop(node),
            _ => {}
        }
    });
}

/// Does `work` with memory in moto's S3, if there is one.
///
/// # Safety
/// Nothing else reads or writes the environment at the same time.
pub unsafe fn in_s3(work: impl FnOnce(&str)) {
    // SAFETY: the caller's contract.
    unsafe { set_credentials() };
    let Some(moto) = Server::s3() else { return };
    moto.make_bucket();
    let proxy = Proxy::before(moto.port);
    let port = proxy.port;
    let url = format!("s3://pond/team?endpoint=http://127.0.0.1:{port}&region=us-east-1");
    disturbed(&url, work, |turn| match turn % 8 {
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

/// Defines the tests: each service, with this work.
macro_rules! tests {
    ($work:expr) => {
        #[test]
        #[ignore = "takes minutes: soak/remote"]
        fn from_directory() {
            soak::in_directory($work);
        }

        #[test]
        #[ignore = "takes minutes: soak/remote"]
        fn from_redis() {
            soak::in_redis($work);
        }

        #[test]
        #[ignore = "takes minutes: soak/remote"]
        fn from_cluster() {
            soak::in_cluster($work);
        }

        #[test]
        #[ignore = "takes minutes: soak/remote"]
        fn from_s3() {
            // SAFETY: `soak/remote` runs this test alone in its process.
            unsafe { soak::in_s3($work) };
        }
    };
}
pub(crate) use tests;
