//! Flaws found in other user-space pagers, as far as they concern a library. Each has a test here so that it never
//! becomes one of ours. (Flaws that concern whole programs are in the preload's tests.)

mod common;

use common::{MIB, PAGE, page_is, small, write_page};
use millpond::{OnStoreFull, RangeError, StoreKind};
use std::os::unix::fs::FileExt;
use std::os::unix::process::ExitStatusExt;

/// Store errors are detected: damage on the medium is reported, and never returned as data.
#[test]
fn a_damaged_store_is_reported_and_its_pages_are_lost_not_wrong() {
    let dir = tempfile::tempdir_in("/var/tmp").unwrap();
    let path = dir.path().join("pond");
    let kind = StoreKind::File {
        path: Some(path.clone()),
        max_bytes: None,
        force_tmpfs: true,
    };
    let manager = small().store(kind).build().unwrap();
    let len = 48 * MIB;
    let mut region = manager.region(len).unwrap();
    for (number, page) in region.as_mut_slice().chunks_exact_mut(PAGE).enumerate() {
        write_page(page, number as u64);
    }
    let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    let size = file.metadata().unwrap().len();
    for at in (0..size).step_by(PAGE) {
        file.write_all_at(&[0x5a; 64], at + 100).unwrap();
    }
    let (mut lost, mut right) = (0, 0);
    for number in 0..len / PAGE {
        let range = number * PAGE..(number + 1) * PAGE;
        match region.populate(range.clone()) {
            Ok(()) => {
                assert!(
                    page_is(&region.as_slice()[range], number as u64),
                    "page {number} is wrong"
                );
                right += 1;
            }
            Err(RangeError::Lost { offset }) => {
                assert_eq!(offset, range.start);
                lost += 1;
            }
            Err(other) => panic!("{other}"),
        }
    }
    assert!(lost > 0 && right > 0, "{lost} lost, {right} right");
    // A lost page can be used again once it is discarded.
    region.discard(0..len).unwrap();
    assert!(region.as_slice().iter().all(|&byte| byte == 0));
}

/// A touch of a lost page ends the program visibly, by SIGBUS, with a line on standard error.
#[test]
fn a_touch_of_a_lost_page_is_sigbus() {
    const CHILD: &str = "MILLPOND_TEST_LOST_PAGE";
    if std::env::var_os(CHILD).is_some() {
        touch_lost_pages();
    }
    let me = std::env::current_exe().unwrap();
    let run = std::process::Command::new(me)
        .args(["--exact", "a_touch_of_a_lost_page_is_sigbus", "--nocapture"])
        .env(CHILD, "1")
        .output()
        .unwrap();
    assert_eq!(run.status.signal(), Some(libc::SIGBUS), "{run:?}");
    let said = String::from_utf8_lossy(&run.stderr);
    assert!(said.contains("lost"), "{said}");
}

fn touch_lost_pages() -> ! {
    let dir = tempfile::tempdir_in("/var/tmp").unwrap();
    let path = dir.path().join("pond");
    let kind = StoreKind::File {
        path: Some(path.clone()),
        max_bytes: None,
        force_tmpfs: true,
    };
    let manager = small().store(kind).build().unwrap();
    let mut region = manager.region(48 * MIB).unwrap();
    for (number, page) in region.as_mut_slice().chunks_exact_mut(PAGE).enumerate() {
        write_page(page, number as u64);
    }
    std::fs::OpenOptions::new()
        .write(true)
        .open(&path)
        .unwrap()
        .set_len(0)
        .unwrap();
    drop(dir);
    let sum: u64 = region
        .as_slice()
        .iter()
        .step_by(PAGE)
        .map(|&byte| u64::from(byte))
        .sum();
    println!("not reached: {sum}");
    std::process::exit(3);
}

/// A full store makes memory exceed the budget, and loses nothing.
#[test]
fn a_full_store_loses_nothing() {
    let kind = StoreKind::CompressedRam {
        max_bytes: Some(4 << 20),
    };
    let manager = small()
        .store(kind)
        .on_store_full(OnStoreFull::Exceed)
        .build()
        .unwrap();
    let mut region = manager.region(64 * MIB).unwrap();
    for (number, page) in region.as_mut_slice().chunks_exact_mut(PAGE).enumerate() {
        write_page(page, number as u64);
    }
    for (number, page) in region.as_slice().chunks_exact(PAGE).enumerate() {
        assert!(page_is(page, number as u64), "page {number} is wrong");
    }
    let stats = manager.stats();
    assert!(
        stats.vm.store_failed > 0 && stats.vm.over_limit > 0,
        "{stats:#?}"
    );
}

/// Without any store memory exceeds the budget from the first page on, and nothing is lost.
#[test]
fn no_store_at_all_loses_nothing() {
    let manager = small().store(StoreKind::None).build().unwrap();
    let mut region = manager.region(40 * MIB).unwrap();
    for (number, page) in region.as_mut_slice().chunks_exact_mut(PAGE).enumerate() {
        write_page(page, number as u64);
    }
    for (number, page) in region.as_slice().chunks_exact(PAGE).enumerate() {
        assert!(page_is(page, number as u64), "page {number} is wrong");
    }
}
