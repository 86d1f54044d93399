//! Panics on a thread of ours: each kind of thread checks once a round whether it is to panic
//! ([`millpond_driver::provoke`]).
//!
//! A thread that panicked once unwound and was gone, and the program hung where it waited for that thread. Each test
//! runs itself once more as the child whose thread panics, and which must end by SIGABRT with a line.

use crate::{Manager, StoreKind};
use millpond_core::{PageCount, PageIndex, PageRange};
use millpond_driver::provoke::{Kind, want};
use millpond_driver::{Driver, prefetch};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

const CHILD: &str = "MILLPOND_TEST_PROVOKE";

fn provoke(kind: Kind) {
    let manager = Manager::builder()
        .ram(16 << 20)
        .store(StoreKind::compressed_ram())
        .build()
        .unwrap();
    #[cfg_attr(
        not(debug_assertions),
        expect(unused_mut, reason = "written to where the core is checked")
    )]
    let mut region = manager.region(4 << 20).unwrap();
    let driver: &Arc<Driver> = manager.pond().driver();
    let all = PageRange::new(PageIndex(0), PageCount(1));
    want(kind);
    match kind {
        Kind::Freer => driver.start_freeing().unwrap(),
        Kind::Prefetcher => prefetch::ask(driver, all).unwrap(),
        Kind::Shrinker => {
            let root = manager.root();
            let _guard = manager.register_shrinker(&root, || 1, |_| 1).unwrap();
            for _ in 0..1000 {
                driver.poke_shrinkers();
                std::thread::sleep(Duration::from_millis(10));
            }
        }
        Kind::Watchdog => {}
        #[cfg(debug_assertions)]
        Kind::Core | Kind::Check => does_not_fit(kind, driver, &mut region),
    }
    std::thread::sleep(Duration::from_secs(20));
    drop(region);
}

/// Makes something in the core not fit.
#[cfg(debug_assertions)]
fn does_not_fit(kind: Kind, driver: &Driver, region: &mut crate::Region) {
    use millpond_core::{Commands, Event, Frame, Order};
    region.as_mut_slice()[0] = 1;
    let _ours = millpond_mmu::panics::Ours::enter();
    let mut core = driver.lock();
    if kind == Kind::Core {
        let frame = Frame::new(Order::ZERO, 77);
        core.handle(Event::FrameFreed { frame }, &mut Commands::new());
    }
    core.judge(Err("2 pages are said to be 3".into()));
}

fn ends_the_process(kind: Kind, test: &str) {
    let text = last_words(kind, test);
    let lines = text.lines().filter(|line| line.starts_with("millpond: "));
    let lines: Vec<_> = lines.filter(|line| !is_of_the_past(line)).collect();
    assert_eq!(lines.len(), 1, "{kind:?}: {text}");
    assert!(
        lines[0].contains("lost count of ") && lines[0].contains("provoke.rs:"),
        "{kind:?}: {text}"
    );
}

/// Whether a line is about earlier events, which only builds that check themselves write.
fn is_of_the_past(line: &str) -> bool {
    cfg!(debug_assertions) && line.starts_with("millpond: core ")
}

/// The output of a child whose thread panics. The child itself does not return.
fn last_words(kind: Kind, test: &str) -> String {
    if std::env::var_os(CHILD).is_some() {
        provoke(kind);
        std::process::exit(0);
    }
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            &format!("tests::provoked::{test}"),
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
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(
        output.status.signal(),
        Some(libc::SIGABRT),
        "{kind:?}: {text}"
    );
    text
}

#[test]
fn a_panic_on_the_freeing_thread_ends_the_process() {
    ends_the_process(
        Kind::Freer,
        "a_panic_on_the_freeing_thread_ends_the_process",
    );
}

#[test]
fn a_panic_on_the_prefetching_thread_ends_the_process() {
    ends_the_process(
        Kind::Prefetcher,
        "a_panic_on_the_prefetching_thread_ends_the_process",
    );
}

#[test]
fn a_panic_on_the_shrinker_thread_ends_the_process() {
    ends_the_process(
        Kind::Shrinker,
        "a_panic_on_the_shrinker_thread_ends_the_process",
    );
}

#[test]
fn a_panic_on_the_watchdog_thread_ends_the_process() {
    ends_the_process(
        Kind::Watchdog,
        "a_panic_on_the_watchdog_thread_ends_the_process",
    );
}

/// The core's last events, its answers and its commands stand before the line that says what is wrong.
#[cfg(debug_assertions)]
fn tells_what_came_before(kind: Kind, test: &str, wrong: &str) {
    let text = last_words(kind, test);
    let lines = text.lines().filter(|line| line.starts_with("millpond: "));
    let lines: Vec<_> = lines.collect();
    let (last, before) = lines.split_last().unwrap();
    assert!(last.contains(wrong), "{text}");
    assert!(before.iter().all(|line| is_of_the_past(line)), "{text}");
    let of = |what: &str| before.iter().any(|line| line.contains(what));
    let known = ["Told(CreateRegion", "Answered(Region", "Asked(Zero"];
    assert!(known.into_iter().all(of), "{text}");
    let is_told = |line: &&str| line.contains("Told(FrameFreed");
    assert_eq!(
        before.last().is_some_and(is_told),
        kind == Kind::Core,
        "{text}"
    );
}

#[cfg(debug_assertions)]
#[test]
fn a_panic_of_the_core_prints_the_preceding_events() {
    let test = "a_panic_of_the_core_prints_the_preceding_events";
    tells_what_came_before(Kind::Core, test, "was freed, but not asked to be");
}

#[cfg(debug_assertions)]
#[test]
fn a_failed_check_prints_the_preceding_events() {
    let test = "a_failed_check_prints_the_preceding_events";
    tells_what_came_before(Kind::Check, test, "2 pages are said to be 3");
}
