//! A panic of ours ends the process by SIGABRT, with its message and its location in one line.
//!
//! The tests cover this case: the fault handler thread panicked ("the driver lost count"), and the program hung forever
//! without any message, since the thread's own descriptor table has no standard error and no thread was left to resolve
//! faults. Each test runs itself once more as a child, which panics in one way; a child that hangs is killed and fails
//! the test.

mod common;

use common::config;
use millpond_core::{PageCount, PageIndex, PageRange};
use millpond_mmu::panics::{self, Ours, Outside};
use millpond_mmu::{
    Delivery, FaultSink, Memory, RealMemory, Resolution, TakeOutMethod, isolate_descriptors,
};
use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::panic::catch_unwind;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

const WAY: &str = "MILLPOND_TEST_PANIC";

/// Runs this test program as a child, which panics in the named way.
fn child(way: &str) -> (ExitStatus, String) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child_that_panics_as_requested", "--nocapture"])
        .env(WAY, way)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let end = Instant::now() + Duration::from_secs(20);
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if Instant::now() > end {
            child.kill().unwrap();
            child.wait().unwrap();
            panic!("{way}: hangs");
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    let mut text = String::new();
    child.stderr.unwrap().read_to_string(&mut text).unwrap();
    (status, text)
}

fn has_ended_the_process(way: &str, message: &str) {
    let (status, text) = child(way);
    assert_eq!(status.signal(), Some(libc::SIGABRT), "{way}: {text}");
    let lines: Vec<&str> = text
        .lines()
        .filter(|line| line.starts_with("millpond: "))
        .collect();
    assert_eq!(lines.len(), 1, "{way}: {text}");
    assert!(lines[0].contains(message), "{way}: {text}");
    assert!(lines[0].contains("panics.rs:"), "{way}: {text}");
}

/// A sink that resolves no fault.
struct Broken {
    private_descriptors: bool,
}

impl FaultSink for Broken {
    fn handler_started(&self) {
        if self.private_descriptors {
            // All descriptors that the arena works with, but not standard error.
            isolate_descriptors(&mut (3..2048).collect::<Vec<i32>>());
        }
    }

    fn fault(&self, page: PageIndex) -> Resolution {
        let states = [0u8; 3];
        panic!("lost count at {page:?} {}", states[page.0 as usize % 3]);
    }
}

/// Raises a fault whose handling panics. The program holds the lock of standard error, which the standard library's
/// hook would wait for.
fn fault(delivery: Delivery) {
    let mmu = RealMemory::new(config(delivery, TakeOutMethod::Copy, 1)).unwrap();
    mmu.open(PageRange::new(PageIndex(0), PageCount(512)))
        .unwrap();
    panics::hook();
    let private_descriptors = delivery == Delivery::Handler;
    mmu.attach(Arc::new(Broken {
        private_descriptors,
    }))
    .unwrap();
    let _held = std::io::stderr().lock();
    // SAFETY: the page is in the arena, which is open.
    unsafe { core::ptr::read_volatile(mmu.addr_of(PageIndex(1)) as *const u8) };
}

#[test]
fn child_that_panics_as_requested() {
    let Ok(way) = std::env::var(WAY) else { return };
    match way.as_str() {
        "handler" => fault(Delivery::Handler),
        "in-thread" => fault(Delivery::InThread),
        "index" => {
            panics::hook();
            let _ours = Ours::enter();
            let none: Vec<u8> = Vec::new();
            std::hint::black_box(none[std::hint::black_box(3)]);
        }
        "expect" => {
            panics::hook_all();
            let none: Option<u8> = std::hint::black_box(None);
            none.expect("it was there");
        }
        "handled" => {
            extern "C" fn never(_: i32) {
                loop {
                    std::thread::sleep(Duration::from_secs(1));
                }
            }
            // SAFETY: the handler only sleeps.
            unsafe { libc::signal(libc::SIGABRT, never as *const () as usize) };
            panics::hook();
            let _ours = Ours::enter();
            panic!("with a handler that never returns");
        }
        "replaced" => {
            panics::hook();
            std::panic::set_hook(Box::new(|_| {}));
            let _ = catch_unwind(|| {
                let _ours = Ours::enter();
                panic!("nobody is told");
            });
        }
        "own" => {
            panics::hook();
            let _ours = Ours::enter();
            let callback = catch_unwind(|| {
                let _theirs = Outside::enter();
                panic!("the callback's own");
            });
            assert!(callback.is_err());
            drop(_ours);
            assert!(catch_unwind(|| panic!("the program's own")).is_err());
        }
        other => unreachable!("{other}"),
    }
}

#[test]
fn a_panic_in_a_fault_ends_the_process_with_either_delivery() {
    for (way, delivery) in [
        ("handler", Delivery::Handler),
        ("in-thread", Delivery::InThread),
    ] {
        if common::usable(delivery, TakeOutMethod::Copy) {
            has_ended_the_process(way, "lost count at PageIndex(1)");
        }
    }
}

#[test]
fn a_bad_index_and_a_failed_expect_end_the_process() {
    has_ended_the_process("index", "index out of bounds");
    has_ended_the_process("expect", "it was there");
}

#[test]
fn a_panic_ends_the_process_although_it_handles_sigabrt() {
    has_ended_the_process("handled", "never returns");
}

#[test]
fn a_panic_ends_the_process_although_it_replaced_the_hook() {
    let (status, text) = child("replaced");
    assert_eq!(status.signal(), Some(libc::SIGABRT), "{text}");
    assert!(text.contains("millpond: a panic inside Millpond"), "{text}");
}

#[test]
fn panics_of_the_program_and_of_its_callbacks_are_its_own() {
    let (status, text) = child("own");
    assert!(status.success(), "{status}: {text}");
    assert!(!text.contains("millpond: "), "{text}");
}
