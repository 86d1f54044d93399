//! Streams over files are read ahead: the bytes are the file's, several reads are in flight, and nothing is left of a
//! region that ends during that.

mod common;

use common::{MIB, PAGE, deliveries, is_over, numbered_file, page_is, pages, small, stress_time};
use millpond::{FileRegion, Manager, Mode};
use std::fs::File;
use std::ops::Range;
use std::thread;
use std::time::Instant;

fn map(manager: &Manager, file: &File) -> FileRegion {
    // SAFETY: nobody changes the file while it is mapped.
    unsafe { manager.map_file(file, .., Mode::ReadOnly) }.unwrap()
}

fn is_right(region: &FileRegion, range: Range<usize>) -> bool {
    let first = pages(range.start);
    let pages = region.as_slice()[range].chunks_exact(PAGE);
    (first..)
        .zip(pages)
        .all(|(number, page)| page_is(page, number))
}

/// Streams that begin at several places, upwards and downwards, in threads of their own, and one thread's pages at
/// random between them: all in a quarter of the file.
#[test]
fn concurrent_streams_read_what_the_file_holds() {
    let bytes = 96 * MIB;
    let file = numbered_file(bytes);
    for delivery in deliveries() {
        let manager = small().delivery(delivery).build().unwrap();
        let region = map(&manager, &file);
        thread::scope(|scope| {
            let region = &region;
            for start in [0, 40 * MIB, 41 * MIB + PAGE] {
                scope.spawn(move || {
                    assert!(is_right(region, start..bytes), "{delivery:?} from {start}");
                });
            }
            scope.spawn(move || {
                for at in (0..bytes / MIB).rev() {
                    assert!(is_right(region, at * MIB..(at + 1) * MIB), "{delivery:?}");
                }
            });
        });
        let stats = manager.stats();
        assert!(stats.vm.pgpgin >= pages(bytes), "{stats:#?}");
        // What is in flight comes on top: four threads of the program's, and the readers.
        assert!(stats.peak_bytes <= stats.ram + MIB as u64, "{stats:#?}");
        drop(region);
        let vm = manager.stats().vm;
        assert_eq!((vm.nr_mapped, vm.nr_limbo), (0, 0), "{vm:#?}");
    }
}

/// Regions that end while they are read ahead. Anonymous memory at their addresses is zeros, and the next region there
/// is another file's.
#[test]
fn a_region_that_ends_during_read_ahead_leaves_nothing_behind() {
    let bytes = 24 * MIB;
    let file = numbered_file(bytes);
    for delivery in deliveries() {
        let manager = small().delivery(delivery).build().unwrap();
        let end = Instant::now() + stress_time();
        let mut rounds = 0_usize;
        while !is_over(end, rounds >= 20) {
            let region = map(&manager, &file);
            let start = region.as_ptr();
            let read = (2 + rounds % 7) * MIB;
            assert!(is_right(&region, 0..read), "{delivery:?}, round {rounds}");
            drop(region);
            let anonymous = manager.region(bytes).unwrap();
            assert_eq!(anonymous.as_ptr().cast_const(), start, "the same addresses");
            let bytes = anonymous.as_slice().chunks(PAGE).step_by(7);
            assert!(
                bytes.flatten().all(|&byte| byte == 0),
                "{delivery:?}, round {rounds}"
            );
            rounds += 1;
        }
        let vm = manager.stats().vm;
        assert_eq!((vm.nr_mapped, vm.nr_limbo), (0, 0), "{vm:#?}");
    }
}

/// A file is truncated while a stream approaches its end: a futile read-ahead causes no error for anyone, and the pages
/// come in when the file has them again.
#[test]
fn a_futile_read_ahead_is_not_an_error() {
    let bytes = 16 * MIB;
    let file = numbered_file(bytes);
    for delivery in deliveries() {
        let manager = small().delivery(delivery).build().unwrap();
        let region = map(&manager, &file);
        file.set_len(8 * MIB as u64).unwrap();
        assert!(is_right(&region, 0..8 * MIB), "{delivery:?}");
        let mut page = [0; PAGE];
        assert!(region.read_at(12 * MIB, &mut page).is_err());
        file.set_len(bytes as u64).unwrap();
        region.read_at(12 * MIB, &mut page).unwrap();
        assert_eq!(page, [0; PAGE]);
        drop(region);
        let whole = numbered_file(bytes);
        let region = map(&manager, &whole);
        assert!(is_right(&region, 0..bytes), "{delivery:?}");
    }
}

/// A first scan of a file longer than memory evicted all pages in repeated use: the file's pages had no shadows yet, so
/// nothing showed that memory could not keep them. A file that fits is left alone.
#[test]
fn a_first_stream_over_a_file_longer_than_memory_is_dropped_behind() {
    for (bytes, is_dropped) in [(96 * MIB, true), (6 * MIB, false)] {
        let file = numbered_file(bytes);
        let manager = small().build().unwrap();
        let region = map(&manager, &file);
        assert!(is_right(&region, 0..bytes));
        let vm = manager.stats().vm;
        assert_eq!(vm.drop_behind > 0, is_dropped, "{bytes}: {vm:#?}");
    }
}
