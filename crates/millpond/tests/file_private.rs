//! Regions over files whose changes are the program's own.

mod common;

use common::{
    MIB, PAGE, Rng, deliveries, numbered_file as file, page_is, pages, small, ways, write_page,
};
use millpond::{FileError, FileRegion, Manager, Mode, RangeError, StoreKind};
use std::fs::File;
use std::os::unix::fs::FileExt;

fn map(manager: &Manager, file: &File) -> FileRegion {
    // SAFETY: nobody changes the file.
    unsafe { manager.map_file(file, .., Mode::Private) }.unwrap()
}

fn is_untouched(file: &File, bytes: usize) -> bool {
    let mut page = [0; PAGE];
    (0..pages(bytes)).all(|number| {
        file.read_exact_at(&mut page, number * PAGE as u64).unwrap();
        page_is(&page, number)
    })
}

#[test]
fn written_pages_go_to_the_store_and_unchanged_ones_are_dropped() {
    let bytes = 48 * MIB;
    for delivery in deliveries() {
        let file = file(bytes);
        let manager = small().delivery(delivery).build().unwrap();
        let mut region = map(&manager, &file);
        for _ in 0..2 {
            let mut read = region.as_slice().chunks(PAGE).enumerate();
            assert!(read.all(|(n, page)| page_is(page, n as u64)));
        }
        let stats = manager.stats();
        assert_eq!((stats.vm.pswpout, stats.store.slots), (0, 0), "{stats:#?}");
        assert!(stats.vm.pswpout_unchanged > pages(bytes), "{stats:#?}");
        assert!(stats.vm.workingset_refault_file > 0, "{stats:#?}");
        // Every 64th page is changed, each by a touch of its own.
        let changed = |number: usize| number % 64 == 5;
        let mut rng = Rng(3);
        for number in (0..bytes / PAGE).filter(|&number| changed(number)) {
            let far = rng.below(bytes / PAGE) * PAGE;
            std::hint::black_box(region.as_slice()[far]);
            region.as_mut_slice().unwrap()[number * PAGE] ^= 0xff;
        }
        for lap in 0..2 {
            for (number, page) in region.as_slice().chunks(PAGE).enumerate() {
                let mut right = [0; PAGE];
                write_page(&mut right, number as u64);
                right[0] ^= if changed(number) { 0xff } else { 0 };
                assert_eq!(page, right, "{delivery:?}, lap {lap}, page {number}");
            }
        }
        let stats = manager.stats();
        assert!(stats.vm.pswpin > 0 && stats.vm.pgpgout == 0, "{stats:#?}");
        assert!(stats.store.logical_bytes < bytes as u64, "{stats:#?}");
        drop(region);
        let stats = manager.stats();
        assert_eq!(
            (stats.vm.nr_mapped, stats.vm.nr_limbo, stats.store.slots),
            (0, 0, 0)
        );
        assert!(is_untouched(&file, bytes));
    }
}

/// Pages are changed, made zeros, and made again what the file holds, in any order and by each way in which pages
/// travel: an empty entry, one of zeros and one in the store are three things.
#[test]
fn agrees_with_a_copy_of_the_file() {
    let bytes = 24 * MIB;
    for (delivery, take_out) in ways() {
        let file = file(bytes);
        let manager = small()
            .delivery(delivery)
            .take_out(take_out)
            .build()
            .unwrap();
        let mut region = map(&manager, &file);
        let mut model = vec![0; bytes];
        file.read_exact_at(&mut model, 0).unwrap();
        let mut rng = Rng(11);
        for step in 0..20_000 {
            let number = rng.below(bytes / PAGE);
            let run = 1 << rng.below(6);
            let range = number * PAGE..((number + run) * PAGE).min(bytes);
            let what = rng.below(10);
            for at in range.step_by(PAGE) {
                let page = at..at + PAGE;
                let memory = &mut region.as_mut_slice().unwrap()[page.clone()];
                assert_eq!(
                    memory,
                    &model[page.clone()],
                    "step {step}, page {}",
                    at / PAGE
                );
                match what {
                    0 => memory.fill(0),
                    1 => file.read_exact_at(memory, at as u64).unwrap(),
                    2 => memory[rng.below(PAGE)] = step as u8,
                    _ => continue,
                }
                model[page.clone()].copy_from_slice(memory);
            }
        }
        assert_eq!(region.as_slice(), model, "{delivery:?}, {take_out:?}");
        let vm = manager.stats().vm;
        assert!(
            vm.pswpout_zero > 0 && vm.pswpout > 0 && vm.pswpout_unchanged > 0,
            "{vm:#?}"
        );
        assert!(is_untouched(&file, bytes));
    }
}

/// If the store has lost a changed page, the file's old bytes do not replace it: the loss is a permanent error.
#[test]
fn a_changed_page_that_the_store_has_lost_does_not_read_as_the_file() {
    let dir = tempfile::tempdir_in("/var/tmp").unwrap();
    let path = dir.path().join("pond");
    let store = StoreKind::File {
        path: Some(path.clone()),
        max_bytes: None,
        force_tmpfs: true,
    };
    let bytes = 48 * MIB;
    let file = file(bytes);
    let manager = small().store(store).build().unwrap();
    let mut region = map(&manager, &file);
    for page in region.as_mut_slice().unwrap().chunks_mut(PAGE) {
        page[7] ^= 0x55;
    }
    File::options()
        .write(true)
        .open(&path)
        .unwrap()
        .set_len(0)
        .unwrap();
    let mut lost = 0;
    let mut page = [0; PAGE];
    for number in 0..pages(bytes) {
        let at = number as usize * PAGE;
        for _ in 0..2 {
            match region.read_at(at, &mut page) {
                Ok(()) => {
                    page[7] ^= 0x55;
                    assert!(
                        page_is(&page, number),
                        "page {number} is not what was written"
                    );
                }
                Err(FileError::Range(RangeError::Lost { offset })) => {
                    assert_eq!(offset, at);
                    lost += 1;
                }
                Err(other) => panic!("{other}"),
            }
        }
    }
    assert!(lost > 0 && lost % 2 == 0, "{lost}");
}

#[test]
fn a_full_store_keeps_written_pages_and_lets_unchanged_ones_go() {
    let store = StoreKind::CompressedRam {
        max_bytes: Some(2 << 20),
    };
    let bytes = 40 * MIB;
    let file = file(bytes);
    let manager = small().store(store).build().unwrap();
    let mut region = map(&manager, &file);
    let written = 24 * MIB;
    for page in region.as_mut_slice().unwrap()[..written].chunks_mut(PAGE) {
        page[9] ^= 1;
    }
    for _ in 0..2 {
        for (number, page) in region.as_slice().chunks(PAGE).enumerate() {
            let mut right = [0; PAGE];
            write_page(&mut right, number as u64);
            right[9] ^= u8::from(number < written / PAGE);
            assert_eq!(page, right, "page {number}");
        }
    }
    let stats = manager.stats();
    assert!(
        stats.vm.store_failed > 0 && stats.vm.over_limit > 0,
        "{stats:#?}"
    );
}
