//! Regions over files that are only read.

mod common;

use common::{
    MIB, PAGE, Rng, alone, deliveries, is_numbered, is_over, page_is, pages, small, stress_time,
    write_numbered, write_page,
};
use millpond::{Advice, Delivery, FileError, FileRegion, Manager, MapFileError, Mode, RangeError};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::os::unix::process::ExitStatusExt;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering::SeqCst};
use std::thread;
use std::time::Instant;

/// A file of numbered pages, and of `more` bytes of another one.
fn file(bytes: usize, more: usize) -> File {
    let mut file = tempfile::tempfile_in("/var/tmp").unwrap();
    write_numbered(&mut file, bytes, more, 0);
    file
}

fn map(manager: &Manager, file: &File) -> FileRegion {
    // SAFETY: no test looks at bytes that it changes through the file.
    unsafe { manager.map_file(file, .., Mode::ReadOnly) }.unwrap()
}

#[test]
fn a_file_larger_than_the_budget_is_read_in_place_and_nothing_of_it_is_stored() {
    for delivery in deliveries() {
        let file = file(64 * MIB, 100);
        let manager = small().delivery(delivery).build().unwrap();
        let region = map(&manager, &file);
        assert_eq!(region.len(), 64 * MIB + 100);
        for lap in 0..3 {
            assert!(is_numbered(&region), "{delivery:?}, lap {lap}");
        }
        let mut last = [0; PAGE];
        write_page(&mut last, pages(64 * MIB));
        assert_eq!(region.as_slice()[64 * MIB..], last[..100]);
        let stats = manager.stats();
        assert_eq!((stats.vm.pswpout, stats.store.slots), (0, 0), "{stats:#?}");
        assert!(stats.vm.pgsteal_file > pages(100 * MIB), "{stats:#?}");
        assert!(
            stats.vm.pgpgin > pages(150 * MIB) && stats.vm.pgpgout == 0,
            "{stats:#?}"
        );
        assert!(stats.vm.workingset_refault_file > 0, "{stats:#?}");
        assert!(stats.faults.read.count > 0 && stats.faults.load.count == 0);
        drop(region);
        let vm = manager.stats().vm;
        assert_eq!((vm.nr_mapped, vm.nr_limbo), (0, 0), "{vm:#?}");
    }
}

#[test]
fn the_last_page_is_zeros_beyond_the_files_end() {
    let file = file(0, 100);
    let region = map(&small().build().unwrap(), &file);
    // SAFETY: all of the page is the region's.
    let page = unsafe { std::slice::from_raw_parts(region.as_ptr(), PAGE) };
    assert!(page[..100].iter().any(|&byte| byte != 0));
    assert!(page[100..].iter().all(|&byte| byte == 0));
}

#[test]
fn a_stream_reads_by_large_folios_and_a_lone_touch_by_a_page() {
    let file = file(32 * MIB, 0);
    let manager = Manager::builder().ram(64 << 20).build().unwrap();
    let region = map(&manager, &file);
    let mut rng = Rng(7);
    for _ in 0..50 {
        let at = rng.below(region.len() / PAGE) * PAGE;
        assert!(page_is(&region.as_slice()[at..at + PAGE], pages(at)));
    }
    let alone = manager.stats();
    assert!(alone.vm.pgpgin < 100, "{alone:#?}");
    drop(region);
    let region = map(&manager, &file);
    assert!(is_numbered(&region));
    let stream = manager.stats().faults.read.count - alone.faults.read.count;
    assert!(stream < 100, "{stream} faults for 8,192 pages");
}

#[test]
fn a_range_need_not_begin_or_end_at_a_page() {
    let file = file(MIB, 0);
    let manager = small().build().unwrap();
    let mut whole = vec![0; MIB];
    file.read_exact_at(&mut whole, 0).unwrap();
    for (start, end) in [
        (0, 1),
        (128, MIB),
        (4095, 4097),
        (5000, 5001),
        (8192, 700_000),
    ] {
        // SAFETY: nobody changes the file.
        let region = unsafe { manager.map_file(&file, start as u64..end as u64, Mode::ReadOnly) };
        let region = region.unwrap();
        assert_eq!(region.as_slice(), &whole[start..end], "{start}..{end}");
        assert_eq!(region.as_ptr() as usize % PAGE, start % PAGE);
        let mut out = vec![0; end - start];
        region.read_at(0, &mut out).unwrap();
        assert_eq!(out, whole[start..end]);
        let bad = RangeError::Bad {
            start: end - start,
            end: end - start + 1,
            len: end - start,
        };
        assert_eq!(region.read_at(end - start, &mut [0]), Err(bad.into()));
        assert_eq!(
            region.populate(end - start..end - start + 1),
            Err(bad.into())
        );
    }
}

#[test]
fn unmappable_ranges_are_refused_with_a_remedy() {
    let file = file(PAGE, 0);
    let manager = small().address_space(64 << 20).build().unwrap();
    // SAFETY: nothing is mapped.
    let map = |range| unsafe { manager.map_file(&file, range, Mode::ReadOnly) };
    assert!(matches!(
        map(5..5),
        Err(MapFileError::Empty { start: 5, end: 5 })
    ));
    assert!(matches!(
        map(0..4097),
        Err(MapFileError::Beyond { len: 4096, .. })
    ));
    // SAFETY: nothing is mapped.
    let missing = unsafe { manager.map_file("/nowhere/at/all", .., Mode::ReadOnly) };
    assert!(missing.unwrap_err().to_string().contains("/nowhere/at/all"));
    file.set_len(1 << 30).unwrap();
    let large = map(0..1 << 30).unwrap_err();
    assert!(large.to_string().contains("address_space"), "{large}");
    drop(map(0..4096).unwrap());
}

/// The error is that of the operation that meets it, and only of the pages that are missing. When the file has them
/// again, so has the region.
#[test]
fn pages_that_a_file_has_lost_are_errors_until_it_has_them_again() {
    for delivery in deliveries() {
        let file = file(2 * MIB, 0);
        let manager = small().delivery(delivery).build().unwrap();
        let region = map(&manager, &file);
        file.set_len(MIB as u64 + 10).unwrap();
        let mut out = [0; 2 * PAGE];
        region.read_at(MIB - PAGE, &mut out).unwrap();
        let ended = Err(FileError::Ended { offset: MIB + PAGE });
        assert_eq!(region.populate(0..2 * MIB), ended, "{delivery:?}");
        assert_eq!(region.read_at(MIB, &mut out), ended);
        assert_eq!(region.pin(MIB..MIB + 2 * PAGE).map(drop), ended);
        assert_eq!(region.try_read(MIB + PAGE, &mut out), ended.map(|()| true));
        assert_eq!(region.try_read(2 * MIB - PAGE, &mut out[..PAGE]), Ok(false));
        let lost = Err(FileError::Ended {
            offset: 2 * MIB - PAGE,
        });
        assert_eq!(region.populate(2 * MIB - 1..2 * MIB), lost);
        for number in 0..pages(MIB) {
            let at = number as usize * PAGE;
            assert!(page_is(&region.as_slice()[at..at + PAGE], number));
        }
        let mut page = [0; PAGE];
        for number in pages(MIB)..pages(2 * MIB) {
            write_page(&mut page, number);
            file.write_all_at(&page, number * PAGE as u64).unwrap();
        }
        region.populate(MIB + PAGE..2 * MIB).unwrap();
        for number in pages(MIB) + 1..pages(2 * MIB) {
            let at = number as usize * PAGE;
            assert!(
                page_is(&region.as_slice()[at..at + PAGE], number),
                "{delivery:?}"
            );
        }
    }
}

#[test]
fn a_touch_of_a_page_that_the_file_has_lost_is_sigbus() {
    const CHILD: &str = "MILLPOND_TEST_SHORT_FILE";
    let touch = |delivery| {
        let file = file(MIB, 0);
        let manager = small().delivery(delivery).build().unwrap();
        let region = map(&manager, &file);
        file.set_len(PAGE as u64).unwrap();
        println!("not reached: {}", region.as_slice()[5 * PAGE]);
        std::process::exit(3);
    };
    match std::env::var(CHILD).as_deref() {
        Ok("InThread") => touch(Delivery::InThread),
        Ok(_) => touch(Delivery::Handler),
        Err(_) => {}
    }
    for delivery in deliveries() {
        let run = std::process::Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "a_touch_of_a_page_that_the_file_has_lost_is_sigbus",
            ])
            .arg("--nocapture")
            .env(CHILD, format!("{delivery:?}"))
            .output()
            .unwrap();
        assert_eq!(run.status.signal(), Some(libc::SIGBUS), "{run:?}");
        let said = String::from_utf8_lossy(&run.stderr);
        assert!(said.contains("the file has become shorter"), "{said}");
    }
}

static FILE: AtomicI32 = AtomicI32::new(-1);
static SIGNALS: AtomicI32 = AtomicI32::new(0);

/// A program that handles SIGBUS: it makes the file longer again.
extern "C" fn lengthen(_: libc::c_int) {
    SIGNALS.fetch_add(1, SeqCst);
    // SAFETY: the call is safe in a signal handler, and the file is open while the test runs.
    unsafe { libc::ftruncate(FILE.load(SeqCst), MIB as i64) };
}

#[test]
fn a_touch_after_a_failed_one_retries_the_read() {
    use std::os::fd::AsRawFd;
    alone("a_touch_after_a_failed_one_retries_the_read", || {
        // SAFETY: the handler is a function of the right kind.
        unsafe { libc::signal(libc::SIGBUS, lengthen as *const () as libc::sighandler_t) };
        let file = file(MIB, 0);
        let region = map(&small().build().unwrap(), &file);
        FILE.store(file.as_raw_fd(), SeqCst);
        file.set_len(PAGE as u64).unwrap();
        assert_eq!(region.as_slice()[5 * PAGE + 1], 0);
        assert_eq!(SIGNALS.load(SeqCst), 1);
    });
}

/// Pages leave and are read again while threads touch them, pin them and have them prefetched.
#[test]
fn threads_read_what_the_file_holds_while_memory_is_reclaimed() {
    for delivery in deliveries() {
        let file = file(40 * MIB, 0);
        let manager = small().delivery(delivery).build().unwrap();
        let (region, touched) = (map(&manager, &file), AtomicU64::new(0));
        let (end, stop) = (Instant::now() + stress_time() / 2, AtomicBool::new(false));
        thread::scope(|scope| {
            for seed in 1..=3 {
                let (region, touched, stop) = (&region, &touched, &stop);
                scope.spawn(move || {
                    let mut rng = Rng(seed);
                    let mut copy = vec![0; PAGE];
                    while !stop.load(SeqCst) {
                        let number = rng.below(region.len() / PAGE);
                        let range = number * PAGE..(number + 1) * PAGE;
                        match rng.below(8) {
                            0 => region.read_at(range.start, &mut copy).unwrap(),
                            1 => {
                                let pinned = region.pin(range.clone()).unwrap();
                                copy.copy_from_slice(&region.as_slice()[range]);
                                drop(pinned);
                            }
                            2 => {
                                region.prefetch(range).unwrap();
                                continue;
                            }
                            3 => {
                                region.advise(range, Advice::PageOut).unwrap();
                                continue;
                            }
                            _ => copy.copy_from_slice(&region.as_slice()[range]),
                        }
                        assert!(page_is(&copy, number as u64), "page {number}");
                        touched.fetch_add(1, SeqCst);
                    }
                });
            }
            while !is_over(end, touched.load(SeqCst) > 20_000) {
                assert!(is_numbered(&region));
            }
            stop.store(true, SeqCst);
        });
        let vm = manager.stats().vm;
        assert!(
            vm.workingset_refault_file > 0 && vm.limbo_rescue > 0,
            "{vm:#?}"
        );
        assert_eq!(vm.pswpout, 0);
    }
}
