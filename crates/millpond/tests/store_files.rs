//! A store of several files: data that does not fit in a small one goes to the next, and all of it comes back.

mod common;

use common::{MIB, Rng};
use millpond::{BuildError, Manager, StoreFile, StoreKind};
use std::path::Path;

const RAM: usize = 16 * MIB;
const DATA: usize = 64 * MIB;

fn fill(page: &mut [u8], number: usize) {
    let mut rng = Rng(number as u64 + 1);
    for word in page.chunks_exact_mut(8) {
        word.copy_from_slice(&rng.next().to_le_bytes());
    }
}

fn holds(page: &[u8], number: usize) -> bool {
    let mut rng = Rng(number as u64 + 1);
    page.chunks_exact(8)
        .all(|word| word == rng.next().to_le_bytes())
}

fn files(dir: &Path) -> StoreKind {
    let file = |name: &str, mib: u64, priority| StoreFile {
        path: dir.join(name),
        max_bytes: Some(mib << 20),
        priority,
    };
    StoreKind::Files {
        files: vec![
            file("last", 256, -5),
            file("first", 8, 7),
            file("second", 8, 7),
        ],
        force_tmpfs: true,
    }
}

#[test]
fn data_that_one_file_has_no_room_for_goes_to_the_next() {
    let dir = tempfile::tempdir().unwrap();
    let builder = Manager::builder().ram(RAM as u64).store(files(dir.path()));
    let manager = builder.build().unwrap();
    let mut region = manager.region(DATA).unwrap();
    for round in 0..2 {
        for (number, page) in region.as_mut_slice().chunks_mut(4096).enumerate() {
            assert!(
                round == 0 || holds(page, number),
                "page {number} in round {round}"
            );
            fill(page, number);
        }
    }
    let len = |name: &str| dir.path().join(name).metadata().unwrap().len();
    assert!(
        len("first") > 6 << 20 && len("first") <= 8 << 20,
        "{}",
        len("first")
    );
    assert!(
        len("second") > 6 << 20 && len("second") <= 8 << 20,
        "{}",
        len("second")
    );
    assert!(len("last") > 16 << 20, "{}", len("last"));
    assert_eq!(manager.stats().store_failures, 0);
    drop(region);
    drop(manager);
    assert_eq!(["first", "second", "last"].map(len), [0; 3]);
}

#[test]
fn an_empty_list_of_files_is_refused_with_a_remedy() {
    let kind = StoreKind::Files {
        files: Vec::new(),
        force_tmpfs: true,
    };
    let error = Manager::builder()
        .ram(RAM as u64)
        .store(kind)
        .build()
        .err()
        .unwrap();
    assert!(matches!(error, BuildError::Store(_)), "{error:?}");
    let text = format!("{error:?} {error}");
    assert!(
        text.contains("NoFiles") && text.contains("name a file"),
        "{text}"
    );
}

/// The limit of the file used to be respected only with a store beyond the machine after it (`millpond run --file-max`
/// without a URL).
#[test]
fn the_file_of_a_run_keeps_to_its_limit() {
    let dir = tempfile::tempdir_in("/var/tmp").unwrap();
    for (file_bytes, has_room) in [(None, true), (Some(8 << 20), false), (Some(0), false)] {
        let store = StoreKind::OfRun {
            front: Box::new(StoreKind::Auto {
                directory: Some(dir.path().to_owned()),
            }),
            relay: None,
            file_bytes,
        };
        let manager = Manager::builder().ram(RAM as u64).store(store).build();
        let manager = manager.unwrap();
        let mut region = manager.region(DATA).unwrap();
        for (number, page) in region.as_mut_slice().chunks_mut(4096).enumerate() {
            fill(page, number);
        }
        let pages = region.as_slice().chunks(4096).enumerate();
        assert!(pages.into_iter().all(|(number, page)| holds(page, number)));
        let failures = manager.stats().store_failures;
        assert_eq!(failures == 0, has_room, "{file_bytes:?}: {failures}");
    }
}
