//! The driver's watchdog names a fault that waits for a load.

use crate::tests::observed::Observed;
use crate::{Manager, Order, PAGE_SIZE};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::time::Duration;

/// Time of the slow load: the watchdog's patience, and two of its looks.
const LOAD: Duration = Duration::from_secs(12);

static LOADS_ARE_SLOW: AtomicU32 = AtomicU32::new(0);

/// The next load takes longer than the watchdog's patience, as with a device that has gone away.
fn sleep_once() {
    if LOADS_ARE_SLOW.swap(0, SeqCst) == 1 {
        std::thread::sleep(LOAD);
    }
}

/// Reads a page of a managed region whose load does not come back for twelve seconds.
fn wait_for_a_load() {
    const RAM: usize = 16 << 20;
    let mut builder = Manager::builder().ram(RAM as u64).order(Order::ZERO);
    builder.test_store = Some(|| Observed::boxed(sleep_once, |_| {}));
    let manager = builder.build().unwrap();
    let mut region = manager.region(3 * RAM).unwrap();
    for (number, page) in region.as_mut_slice().chunks_mut(PAGE_SIZE).enumerate() {
        page.fill(number as u8 | 1);
    }
    LOADS_ARE_SLOW.store(1, SeqCst);
    let pages = region.as_slice().chunks(PAGE_SIZE).enumerate();
    let right = pages.filter(|(number, page)| page[1] == *number as u8 | 1);
    assert_eq!(right.count(), 3 * RAM / PAGE_SIZE);
    assert_eq!(LOADS_ARE_SLOW.load(SeqCst), 0, "nothing was loaded");
}

#[test]
fn a_fault_that_waits_for_ten_seconds_is_reported_with_its_state() {
    const CHILD: &str = "MILLPOND_TEST_WAITS";
    if std::env::var_os(CHILD).is_some() {
        return wait_for_a_load();
    }
    let name = "tests::slow_load::\
                a_fault_that_waits_for_ten_seconds_is_reported_with_its_state";
    let run = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture"])
        .env(CHILD, "1")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&run.stderr);
    assert!(run.status.success(), "{said}");
    let lines: Vec<_> = said
        .lines()
        .filter(|line| line.contains("has waited for"))
        .collect();
    let [line] = lines[..] else {
        panic!("not one line: {said}");
    };
    assert!(line.starts_with("millpond: a fault at 0x"), "{line}");
    assert!(line.contains(" has waited for 1"), "{line}");
    assert!(line.contains("InFlight"), "{line}");
}
