//! A panic on the background thread ends the process: without that thread nothing would make room any more, and the
//! program's next fault beyond its budget would wait forever. The test runs itself once more as the child that panics.

mod common;

use millpond::BuildError;
use millpond::space::{Space, SpaceOptions};
use std::os::unix::process::ExitStatusExt;
use std::process::Command;
use std::time::Duration;

const WAY: &str = "MILLPOND_TEST_PANIC";

fn options() -> SpaceOptions {
    SpaceOptions {
        on_tick: Some(|| panic!("the tick lost count")),
        ..common::space_options()
    }
}

#[test]
fn a_panic_on_the_housekeeping_thread_ends_the_process() {
    if std::env::var_os(WAY).is_some() {
        millpond_mmu::panics::hook();
        match Space::create(options()) {
            Ok(_) => std::thread::sleep(Duration::from_secs(20)),
            Err(BuildError::Memory(error)) => println!("skipped: {error}"),
            Err(error) => panic!("{error}"),
        }
        return;
    }
    let output = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "a_panic_on_the_housekeeping_thread_ends_the_process",
            "--nocapture",
        ])
        .env(WAY, "1")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    if String::from_utf8_lossy(&output.stdout).contains("skipped: ") {
        println!("skipped: no userfaultfd for faults of the kernel");
        return;
    }
    assert_eq!(output.status.signal(), Some(libc::SIGABRT), "{text}");
    // Builds that check themselves first write the last events of the core.
    let line = text.lines().rfind(|line| line.starts_with("millpond: "));
    let line = line.unwrap_or_default();
    assert!(
        line.contains("the tick lost count") && line.contains("panics.rs:"),
        "{text}"
    );
}
