//! Tests of encryption: saved contents cannot be read in an encrypted store's file, but all of them can be loaded from
//! it.

mod common;

use common::{Fill, contents};
use millpond_core::SlotId;
use millpond_core::port::{Forks, LoadError, Saved, Slots};
use millpond_store::{FileStore, FileStoreConfig, Location};
use std::collections::HashSet;
use std::fs;
use std::path::Path;

const WORD: &[u8] = b"pond water, still";

fn store(path: &Path, encrypt: bool) -> FileStore {
    let config = FileStoreConfig {
        location: Location::File(path.to_owned()),
        force_tmpfs: true,
        encrypt,
        ..FileStoreConfig::in_directory(path)
    };
    FileStore::create(&config).unwrap()
}

/// Pages that hold a word, with one of noise between each two, so that some are compressed and others are not.
fn secrets(len: usize) -> Vec<u8> {
    let mut bytes = contents(Fill::Noise(len as u64), len);
    for page in bytes.chunks_mut(8192) {
        page[100..100 + WORD.len()].copy_from_slice(WORD);
    }
    bytes
}

/// Saves folios of all sizes, with enough small ones to fill batches. Returns the resulting contents of the file.
fn fill(store: &FileStore, path: &Path) -> Vec<u8> {
    for (slot, len) in sizes() {
        let saved = store.save(SlotId(slot), None, &secrets(len));
        assert_eq!(saved, Ok(Saved::Stored));
    }
    // Waiting batches are written before a fork.
    store.before_fork(1);
    store.child_gone(1);
    fs::read(path).unwrap()
}

fn sizes() -> impl Iterator<Item = (u32, usize)> {
    let sizes = [4096, 8192, 16 << 10, 64 << 10, 256 << 10, 2 << 20, 4096];
    (0..).zip(sizes.into_iter().cycle().take(70))
}

fn has(bytes: &[u8], word: &[u8]) -> bool {
    bytes.windows(word.len()).any(|window| window == word)
}

#[test]
fn no_plaintext_is_in_the_file_and_all_of_it_comes_back() {
    let dir = tempfile::tempdir().unwrap();
    // The search finds the word in a file that is not encrypted.
    let plain = dir.path().join("plain");
    assert!(has(&fill(&store(&plain, false), &plain), WORD));

    let path = dir.path().join("sealed");
    let store = store(&path, true);
    let file = fill(&store, &path);
    assert!(!has(&file, WORD), "the word is in the file");
    // Slots of the same length have the same contents, but no two blocks of the file are alike.
    let written: Vec<&[u8]> = file
        .chunks(4096)
        .filter(|block| block.iter().any(|&byte| byte != 0))
        .collect();
    let different: HashSet<&[u8]> = written.iter().copied().collect();
    assert_eq!(different.len(), written.len());
    assert!(written.len() > 2000, "{}", written.len());
    for (slot, len) in sizes() {
        let data = secrets(len);
        let mut out = vec![0; len];
        store.load(SlotId(slot), 0, &mut out).unwrap();
        assert!(out == data, "slot {slot}");
        // This loads a page of the middle alone.
        let page = len / 4096 / 2;
        let out = &mut out[..4096];
        store.load(SlotId(slot), page as u16, out).unwrap();
        assert!(*out == data[page * 4096..][..4096], "page {page} of {slot}");
    }
}

/// Checks that an overwritten block, and a block replaced by its earlier contents, are detected.
#[test]
fn foreign_writes_are_detected_as_damage() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("sealed");
    let store = store(&path, true);
    let save = |slot, seed| {
        let data = contents(Fill::Noise(seed), 64 << 10);
        assert_eq!(store.save(SlotId(slot), None, &data), Ok(Saved::Stored));
        data
    };
    let mut out = vec![0; 64 << 10];
    save(0, 1);
    let before = fs::read(&path).unwrap();
    store.release(SlotId(0));
    let data = save(1, 2);
    store.load(SlotId(1), 0, &mut out).unwrap();
    assert!(out == data);
    let now = fs::read(&path).unwrap();
    assert_eq!(
        before.len(),
        now.len(),
        "the second slot is where the first was"
    );
    fs::write(&path, &before).unwrap();
    assert_eq!(store.load(SlotId(1), 0, &mut out), Err(LoadError::Corrupt));
    let mut flipped = now.clone();
    flipped[5000] ^= 1;
    fs::write(&path, &flipped).unwrap();
    assert_eq!(store.load(SlotId(1), 0, &mut out), Err(LoadError::Corrupt));
    fs::write(&path, &now).unwrap();
    store.load(SlotId(1), 0, &mut out).unwrap();
    assert!(out == data);
}
