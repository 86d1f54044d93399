//! Writing back in the background, beside writers, syncs and reclaim.

use crate::{Delivery, FileRegion, Manager, Mode, PAGE_SIZE, StoreKind};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

const MIB: usize = 1 << 20;

fn manager(delivery: Delivery) -> Manager {
    let manager = Manager::builder()
        .ram(16 << 20)
        .store(StoreKind::compressed_ram())
        .delivery(delivery);
    manager.build().unwrap()
}

fn file(bytes: usize) -> File {
    let file = tempfile::tempfile_in("/var/tmp").unwrap();
    file.set_len(bytes as u64).unwrap();
    file
}

fn map(manager: &Manager, file: &File) -> FileRegion {
    // SAFETY: nobody but the region changes the file.
    unsafe { manager.map_file(file, .., Mode::Shared) }.unwrap()
}

fn contents(file: &File) -> Vec<u8> {
    let mut bytes = vec![0; file.metadata().unwrap().len() as usize];
    file.read_exact_at(&mut bytes, 0).unwrap();
    bytes
}

/// The program writes and does nothing else: its bytes are in the file after some seconds, and a sync has nothing to
/// write then.
#[test]
fn written_bytes_reach_the_file_without_a_sync() {
    for delivery in [Delivery::InThread, Delivery::Handler] {
        let (manager, file) = (manager(delivery), file(8 * MIB));
        let mut region = map(&manager, &file);
        let memory = region.as_mut_slice().unwrap();
        for page in memory.chunks_mut(PAGE_SIZE).step_by(3) {
            page[17] = 1;
        }
        let since = Instant::now();
        while contents(&file) != region.as_slice() {
            assert!(since.elapsed() < Duration::from_secs(60), "{delivery:?}");
            thread::sleep(Duration::from_millis(50));
        }
        let modified = || file.metadata().unwrap().modified().unwrap();
        let before = modified();
        region.sync(0..8 * MIB).unwrap();
        assert_eq!(modified(), before, "a sync wrote something: {delivery:?}");
    }
}

/// Threads write all the time, more than the budget, while rounds of the background, syncs and reclaim write the same
/// pages to the file. Each page has a number that only grows. What a sync has returned for is in the file, and at the
/// end the file is as memory: a page that was written to while it was written back has stayed dirty.
#[test]
fn a_page_that_changes_while_it_is_written_back_stays_dirty() {
    const WRITERS: usize = 2;
    let bytes = 24 * MIB;
    for delivery in [Delivery::InThread, Delivery::Handler] {
        let (manager, file) = (manager(delivery), file(bytes));
        let region = map(&manager, &file);
        let stop = AtomicBool::new(false);
        let rounds = AtomicU64::new(0);
        let number = |page: usize| {
            let at = region.as_ptr().wrapping_add(page * PAGE_SIZE + 8);
            // SAFETY: the number is the region's, aligned, and all threads use it by atomics alone.
            unsafe { AtomicU64::from_ptr(at.cast_mut().cast()) }
        };
        thread::scope(|scope| {
            for writer in 0..WRITERS {
                let (number, stop) = (&number, &stop);
                scope.spawn(move || {
                    let mut random = writer as u64 + 1;
                    while !stop.load(SeqCst) {
                        random = random
                            .wrapping_mul(6_364_136_223_846_793_005)
                            .wrapping_add(1);
                        let page = (random >> 33) as usize % (bytes / PAGE_SIZE);
                        number(page).fetch_add(1, SeqCst);
                    }
                });
            }
            let (driver, stop, rounds) = (region.driver_for_tests(), &stop, &rounds);
            scope.spawn(move || {
                while !stop.load(SeqCst) {
                    driver.write_back_now();
                    rounds.fetch_add(1, SeqCst);
                }
            });
            let end = Instant::now() + Duration::from_secs(5);
            let mut syncs = 0;
            while Instant::now() < end || syncs < 3 || rounds.load(SeqCst) < 3 {
                let part = (syncs % 6) * 4 * MIB;
                let pages = part / PAGE_SIZE..(part + 4 * MIB) / PAGE_SIZE;
                let least: Vec<_> = pages
                    .clone()
                    .map(|page| number(page).load(SeqCst))
                    .collect();
                region.sync(part..part + 4 * MIB).unwrap();
                for (page, least) in pages.zip(least) {
                    let mut word = [0; 8];
                    let at = (page * PAGE_SIZE + 8) as u64;
                    file.read_exact_at(&mut word, at).unwrap();
                    let is = u64::from_ne_bytes(word);
                    assert!(
                        is >= least,
                        "page {page} has {is} in the file, and had {least}"
                    );
                }
                syncs += 1;
            }
            stop.store(true, SeqCst);
        });
        region.sync(0..bytes).unwrap();
        assert!(contents(&file) == region.as_slice(), "{delivery:?}");
        assert!(manager.stats().vm.pgpgout > 0);
    }
}

/// Shared regions that end while the background is at them.
#[test]
fn regions_end_while_they_are_written_back() {
    for delivery in [Delivery::InThread, Delivery::Handler] {
        let manager = manager(delivery);
        let stop = AtomicBool::new(false);
        let other_file = file(MIB);
        let other = map(&manager, &other_file);
        thread::scope(|scope| {
            let (driver, stop) = (other.driver_for_tests(), &stop);
            scope.spawn(move || {
                while !stop.load(SeqCst) {
                    driver.write_back_now();
                }
            });
            let end = Instant::now() + Duration::from_secs(3);
            let mut round = 0_u8;
            while Instant::now() < end {
                round = round.wrapping_add(1);
                let file = file(4 * MIB);
                let mut region = map(&manager, &file);
                region.as_mut_slice().unwrap().fill(round);
                drop(region);
                assert!(contents(&file).iter().all(|&byte| byte == round));
            }
            stop.store(true, SeqCst);
        });
        drop(other);
        let vm = manager.stats().vm;
        assert_eq!((vm.nr_mapped, vm.nr_limbo), (0, 0), "{vm:#?}");
    }
}
