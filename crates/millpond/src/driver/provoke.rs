//! Panics on a thread of ours, for the tests: each kind of thread looks here once a round.
//!
//! A thread that panicked unwound and was gone, and the program hung where it waited for it. Each test runs itself once
//! more as the child whose thread panics, and which must end by SIGABRT with a line.

use crate::driver::Driver;
use crate::{Manager, StoreKind};
use millpond_core::{PageCount, PageIndex, PageRange};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering::SeqCst};
use std::time::{Duration, Instant};

/// Which thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    Freer = 1,
    Prefetcher,
    Shrinker,
    Watchdog,
}

static WANTED: AtomicU8 = AtomicU8::new(0);
const CHILD: &str = "MILLPOND_TEST_PROVOKE";

/// Panics when the test wants this thread to.
pub(super) fn here(kind: Kind) {
    let count = WANTED.load(SeqCst);
    assert!(count != kind as u8, "lost count of {count}");
}

fn provoke(kind: Kind) {
    let manager = Manager::builder()
        .ram(16 << 20)
        .store(StoreKind::compressed_ram())
        .build()
        .unwrap();
    let region = manager.region(4 << 20).unwrap();
    let driver: &Arc<Driver> = manager.pond().driver();
    let all = PageRange::new(PageIndex(0), PageCount(1));
    WANTED.store(kind as u8, SeqCst);
    match kind {
        Kind::Freer => driver.start_freeing().unwrap(),
        Kind::Prefetcher => super::prefetch::ask(driver, all).unwrap(),
        Kind::Shrinker => {
            let root = manager.root();
            let _guard = manager.register_shrinker(&root, || 1, |_| 1).unwrap();
            for _ in 0..1000 {
                driver.poke_shrinkers();
                std::thread::sleep(Duration::from_millis(10));
            }
        }
        Kind::Watchdog => {}
    }
    std::thread::sleep(Duration::from_secs(20));
    drop(region);
}

fn ends_the_process(kind: Kind, test: &str) {
    if std::env::var_os(CHILD).is_some() {
        return provoke(kind);
    }
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            &format!("driver::provoke::{test}"),
            "--nocapture",
        ])
        .env(CHILD, "1")
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let end = Instant::now() + Duration::from_secs(15);
    while child.try_wait().unwrap().is_none() {
        if Instant::now() > end {
            child.kill().unwrap();
            panic!("{kind:?}: the process goes on");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(
        output.status.signal(),
        Some(libc::SIGABRT),
        "{kind:?}: {text}"
    );
    let lines = text.lines().filter(|line| line.starts_with("millpond: "));
    let lines: Vec<_> = lines.collect();
    assert_eq!(lines.len(), 1, "{kind:?}: {text}");
    assert!(
        lines[0].contains("lost count of ") && lines[0].contains("provoke.rs:"),
        "{kind:?}: {text}"
    );
}

#[test]
fn on_the_thread_that_frees() {
    ends_the_process(Kind::Freer, "on_the_thread_that_frees");
}

#[test]
fn on_the_thread_that_prefetches() {
    ends_the_process(Kind::Prefetcher, "on_the_thread_that_prefetches");
}

#[test]
fn on_the_thread_that_calls_shrinkers() {
    ends_the_process(Kind::Shrinker, "on_the_thread_that_calls_shrinkers");
}

#[test]
fn on_the_thread_that_watches() {
    ends_the_process(Kind::Watchdog, "on_the_thread_that_watches");
}
