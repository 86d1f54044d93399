//! The budget of a manager that names no store.
//!
//! With a budget and no other setting, 512 MiB of random numbers in 64 MiB used to have 517 MiB resident. The store was
//! compressed RAM alone, random numbers do not compress, and with a full store memory exceeds the budget. The default
//! is compressed RAM and then a file, in the directory for temporary files. Where no file can be made there, one line
//! says that the store is compressed RAM alone.

mod common;

use common::{MIB, Rng, alone, status};
use millpond::{Manager, StoreKind};
use std::path::Path;
use std::process::{Command, Output};

const RAM: usize = 32 * MIB;
const DATA: usize = 160 * MIB;
/// Unmanaged memory of the process: its code as it is first run, and the error of the kernel's count of resident pages,
/// to which each processor adds in batches.
const SLACK: usize = 4 * MIB;

/// Bytes of resident memory that came since `before`.
fn resident_since(before: u64) -> usize {
    status(std::process::id(), "VmRSS:").saturating_sub(before) as usize
}

#[test]
fn random_numbers_stay_within_the_budget_with_default_settings() {
    let name = "random_numbers_stay_within_the_budget_with_default_settings";
    alone(name, || {
        let before = status(std::process::id(), "VmRSS:");
        let manager = Manager::builder().ram(RAM as u64).build().unwrap();
        let mut region = manager.region(DATA).unwrap();
        let mut most = 0;
        let mut rng = Rng(0x28);
        for piece in region.as_mut_slice().chunks_mut(MIB) {
            for word in piece.chunks_exact_mut(8) {
                word.copy_from_slice(&rng.next().to_le_bytes());
            }
            most = most.max(resident_since(before));
        }
        let mut rng = Rng(0x28);
        for (number, piece) in region.as_slice().chunks(MIB).enumerate() {
            let mut words = piece.chunks_exact(8);
            assert!(
                words.all(|word| word == rng.next().to_le_bytes()),
                "MiB {number} is wrong"
            );
            most = most.max(resident_since(before));
        }
        let peak = manager.stats().peak_bytes as usize;
        println!("resident {most}, peak {peak} of {RAM}");
        assert!(most <= RAM + SLACK, "{most} resident of {RAM}");
        assert!(peak <= RAM + SLACK, "a peak of {peak} of {RAM}");
        assert!(most > RAM / 2, "only {most} of {RAM} were used");
    });
}

/// Runs the test with this name in a process whose directory for temporary files is this one.
fn with_temporary(directory: &Path, test: &str) -> Output {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env("MILLPOND_TEST_ALONE", "1")
        .env("TMPDIR", directory)
        .output()
        .unwrap()
}

fn is_child() -> bool {
    std::env::var_os("MILLPOND_TEST_ALONE").is_some()
}

/// A manager without an explicit store does without a file that cannot be made, says so in one line that names the
/// directory and the remedy, and keeps its data.
#[test]
fn missing_store_directory_falls_back_to_ram_with_one_message() {
    if is_child() {
        let manager = Manager::builder().ram(RAM as u64).build().unwrap();
        let mut region = manager.region(2 * RAM).unwrap();
        common::fill(&mut region, 0..2 * RAM, 7);
        assert!(common::holds(&region, 0..2 * RAM, 7));
        let usage = manager.stats().store;
        assert!(usage.ram_bytes > 0, "{usage:?}");
        return;
    }
    let name = "missing_store_directory_falls_back_to_ram_with_one_message";
    let scratch = tempfile::tempdir().unwrap();
    // A file can be made in neither directory, even by root: one does not exist, the other lies below a file.
    let file = scratch.path().join("file");
    std::fs::write(&file, b"").unwrap();
    for directory in [scratch.path().join("missing"), file.join("below")] {
        let run = with_temporary(&directory, name);
        let said = String::from_utf8_lossy(&run.stderr);
        assert!(run.status.success(), "{said}");
        let lines: Vec<_> = said
            .lines()
            .filter(|line| line.contains("millpond: "))
            .collect();
        let [line] = lines[..] else {
            panic!("not one line: {said}");
        };
        assert!(line.contains("compressed RAM alone"), "{line}");
        assert!(line.contains(directory.to_str().unwrap()), "{line}");
        assert!(
            line.contains("set TMPDIR to a directory on a disk"),
            "{line}"
        );
    }
}

/// An explicitly requested store is opened, or no manager is built.
#[test]
fn a_requested_store_file_that_cannot_be_made_fails_the_build() {
    if is_child() {
        for store in [StoreKind::Auto { directory: None }, StoreKind::file()] {
            let built = Manager::builder().ram(RAM as u64).store(store).build();
            let error = built.expect_err("there is no directory for its file");
            assert!(error.to_string().contains("missing"), "{error}");
        }
        return;
    }
    let name = "a_requested_store_file_that_cannot_be_made_fails_the_build";
    let scratch = tempfile::tempdir().unwrap();
    let run = with_temporary(&scratch.path().join("missing"), name);
    let said = String::from_utf8_lossy(&run.stderr);
    assert!(run.status.success(), "{said}");
    assert!(!said.contains("compressed RAM alone"), "{said}");
}
