//! Regions over files whose changes are the file's.

mod common;

use common::{
    MIB, PAGE, Rng, alone, deliveries, numbered_file as file, page_is, small, ways, write_page,
};
use millpond::{FileError, FileRegion, GrowFileError, Manager, MapFileError, Mode};
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::FileExt;
use std::process::{Command, Stdio};

fn map(manager: &Manager, file: &File) -> FileRegion {
    // SAFETY: nobody but the region changes the file.
    unsafe { manager.map_file(file, .., Mode::Shared) }.unwrap()
}

fn contents(file: &File) -> Vec<u8> {
    let mut bytes = vec![0; file.metadata().unwrap().len() as usize];
    file.read_exact_at(&mut bytes, 0).unwrap();
    bytes
}

/// Written at random, by each way in which pages travel, synced occasionally, and compared by an independent reader.
#[test]
fn synced_bytes_are_in_the_file_and_dropped_pages_come_back() {
    let bytes = 32 * MIB;
    for (delivery, take_out) in ways() {
        let file = file(bytes);
        let manager = small()
            .delivery(delivery)
            .take_out(take_out)
            .build()
            .unwrap();
        let mut region = map(&manager, &file);
        let mut model = contents(&file);
        let mut rng = Rng(5);
        for round in 0..4 {
            for step in 0..2_000 {
                let at = rng.below(bytes / PAGE) * PAGE;
                let page = at..(at + PAGE * (1 + rng.below(8))).min(bytes);
                let memory = &mut region.as_mut_slice().unwrap()[page.clone()];
                assert_eq!(memory, &model[page.clone()], "round {round}, step {step}");
                if rng.below(3) > 0 {
                    memory[rng.below(PAGE)] = step as u8;
                    model[page.clone()].copy_from_slice(memory);
                }
            }
            region.sync(0..bytes).unwrap();
            assert!(
                contents(&file) == model,
                "{delivery:?}, {take_out:?}, round {round}"
            );
        }
        assert_eq!(region.as_slice(), model);
        region.as_mut_slice().unwrap()[77] ^= 1;
        model[77] ^= 1;
        drop(region);
        assert!(contents(&file) == model, "the end of a region is a sync");
        let stats = manager.stats();
        assert_eq!(
            (stats.vm.pswpout, stats.store.slots, stats.vm.nr_mapped),
            (0, 0, 0)
        );
        assert!(stats.vm.pgpgout > 0, "{stats:#?}");
    }
}

#[test]
fn unchanged_pages_are_not_written() {
    let file = file(24 * MIB);
    let manager = small().build().unwrap();
    let region = map(&manager, &file);
    let read = |region: &FileRegion| {
        let mut pages = region.as_slice().chunks(PAGE).enumerate();
        pages.all(|(number, page)| page_is(page, number as u64))
    };
    assert!(read(&region));
    // A change made by others to a page that is not ours to write stays.
    let (at, foreign) = (5 * PAGE as u64, [0xaa; PAGE]);
    file.write_all_at(&foreign, at).unwrap();
    region.sync(0..24 * MIB).unwrap();
    drop(region);
    let mut page = [0; PAGE];
    file.read_exact_at(&mut page, at).unwrap();
    assert_eq!(page, foreign);
    assert_eq!(manager.stats().vm.pgpgout, 0);
}

#[test]
fn bytes_outside_the_range_stay_and_a_longer_range_extends_the_file() {
    for delivery in deliveries() {
        let file = file(PAGE);
        let before = contents(&file);
        let manager = small().delivery(delivery).build().unwrap();
        // SAFETY: nobody but the region changes its range, and nobody looks at the rest through it.
        let map = |range| unsafe { manager.map_file(&file, range, Mode::Shared) }.unwrap();
        let mut region = map(100..2 * PAGE as u64 + 10);
        assert_eq!(file.metadata().unwrap().len(), 2 * PAGE as u64 + 10);
        file.write_all_at(&[9; 50], 0).unwrap();
        region.as_mut_slice().unwrap()[1] = 1;
        let end = region.len() - 1;
        region.as_mut_slice().unwrap()[end] = 2;
        region.sync(0..end + 1).unwrap();
        let now = contents(&file);
        assert_eq!(
            (&now[..50], &now[50..101]),
            (&[9; 50][..], &before[50..101])
        );
        assert_eq!(
            (now[101], now[2 * PAGE + 9], now.len()),
            (1, 2, 2 * PAGE + 10)
        );
        assert!(now[PAGE..2 * PAGE + 9].iter().all(|&byte| byte == 0));
    }
}

#[test]
fn a_file_that_may_not_be_written_is_refused() {
    let dir = tempfile::tempdir_in("/var/tmp").unwrap();
    let path = dir.path().join("x");
    std::fs::write(&path, [1; PAGE]).unwrap();
    let read_only = File::open(&path).unwrap();
    // SAFETY: nothing is mapped.
    let mapped = unsafe {
        small()
            .build()
            .unwrap()
            .map_file(&read_only, .., Mode::Shared)
    };
    assert!(matches!(mapped, Err(MapFileError::File(_))), "{mapped:?}");
}

/// A limit on the size of files simulates a full disk: no page beyond it can be written.
#[test]
fn pages_that_the_file_refuses_stay_and_are_written_later() {
    alone(
        "pages_that_the_file_refuses_stay_and_are_written_later",
        || {
            let bytes = 24 * MIB;
            let file = file(bytes);
            let manager = small().build().unwrap();
            let mut region = map(&manager, &file);
            // SAFETY: the signal of such a limit is ignored, and the limit is this process's own.
            unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
            let limit = |bytes: Option<usize>| {
                let bytes = bytes.map_or(libc::RLIM_INFINITY, |bytes| bytes as u64);
                let limit = libc::rlimit {
                    rlim_cur: bytes,
                    rlim_max: libc::RLIM_INFINITY,
                };
                // SAFETY: the limit is read.
                assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &limit) }, 0);
            };
            limit(Some(MIB));
            for page in region.as_mut_slice().unwrap().chunks_mut(PAGE) {
                page[3] ^= 0x33;
            }
            let refused = region.sync(0..bytes);
            assert!(
                matches!(refused, Err(FileError::Write { offset, .. }) if offset >= MIB),
                "{refused:?}"
            );
            assert!(manager.stats().vm.store_failed > 0);
            let mut page = [0; PAGE];
            for (number, memory) in region.as_slice().chunks(PAGE).enumerate() {
                write_page(&mut page, number as u64);
                page[3] ^= 0x33;
                assert_eq!(memory, page, "page {number}");
            }
            limit(None);
            region.sync(0..bytes).unwrap();
            assert_eq!(contents(&file), region.as_slice());
        },
    );
}

#[test]
fn a_truncated_file_is_not_extended_again() {
    let file = file(2 * MIB);
    let manager = small().build().unwrap();
    let mut region = map(&manager, &file);
    region.as_mut_slice().unwrap()[..PAGE].fill(1);
    region.as_mut_slice().unwrap()[MIB + PAGE..][..PAGE].fill(2);
    file.set_len(MIB as u64).unwrap();
    let ended = region.sync(0..2 * MIB);
    assert!(
        matches!(ended, Err(FileError::Ended { offset }) if offset >= MIB),
        "{ended:?}"
    );
    assert_eq!(file.metadata().unwrap().len(), MIB as u64);
    assert_eq!(contents(&file)[..PAGE], [1; PAGE]);
}

const KILLED: &str = "MILLPOND_TEST_KILLED";
const KILLED_BYTES: usize = 24 * MIB;

/// The pages that a program writes in its round `round`.
fn pages_of(round: u64) -> impl Iterator<Item = usize> {
    let mut rng = Rng(round.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    (0..300).map(move |_| rng.below(KILLED_BYTES / PAGE))
}

fn write_and_sync_for_ever(path: &str) -> ! {
    let manager = small().build().unwrap();
    // SAFETY: nobody else changes the file.
    let mut region = unsafe { manager.map_file(path, .., Mode::Shared) }.unwrap();
    for round in 1_u64.. {
        for page in pages_of(round) {
            let memory = &mut region.as_mut_slice().unwrap()[page * PAGE..(page + 1) * PAGE];
            for word in memory.chunks_exact_mut(8) {
                word.copy_from_slice(&round.to_le_bytes());
            }
        }
        region.sync(0..KILLED_BYTES).unwrap();
        println!("synced {round}");
    }
    unreachable!("rounds do not end")
}

/// A program that is killed while pages are written back, by syncs and by reclaim, leaves each synced page intact, and
/// all others with either their old or their new contents: MILLPOND_KILLS times, or 5.
#[test]
fn a_kill_leaves_every_synced_byte() {
    if let Ok(path) = std::env::var(KILLED) {
        write_and_sync_for_ever(&path);
    }
    let kills = std::env::var("MILLPOND_KILLS")
        .ok()
        .and_then(|n| n.parse().ok());
    let dir = tempfile::tempdir_in("/var/tmp").unwrap();
    for kill in 0..kills.unwrap_or(5_usize) {
        let path = dir.path().join("x");
        let file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(&path)
            .unwrap();
        file.set_len(KILLED_BYTES as u64).unwrap();
        let mut program = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "a_kill_leaves_every_synced_byte", "--nocapture"])
            .env(KILLED, &path)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(program.stdout.take().unwrap()).lines();
        let rounds = lines.filter_map(|line| line.ok()?.split("synced ").nth(1)?.parse().ok());
        let (mut synced, wanted) = (0, 2 + kill as u64 % 5);
        for round in rounds {
            synced = synced.max(round);
            if round == wanted {
                std::thread::sleep(std::time::Duration::from_millis(7 * (kill as u64 % 11)));
                program.kill().unwrap();
            }
        }
        program.wait().unwrap();
        assert!(synced >= wanted);
        let mut least = vec![0; KILLED_BYTES / PAGE];
        for round in 1..=synced {
            pages_of(round).for_each(|page| least[page] = round);
        }
        let next: Vec<usize> = pages_of(synced + 1).collect();
        for (number, page) in contents(&file).chunks(PAGE).enumerate() {
            let words: Vec<u64> = page
                .chunks(8)
                .map(|w| u64::from_le_bytes(w.try_into().unwrap()))
                .collect();
            let is = |round: u64| words.iter().all(|&word| word == round);
            let newer = next.contains(&number)
                && words.iter().all(|&w| w == least[number] || w == synced + 1);
            assert!(
                is(least[number]) || newer,
                "kill {kill}: page {number} is {:?}",
                &words[..4]
            );
        }
    }
}

/// A region that grows has what was written to it, zeros behind, and a file that is as long; others do not grow.
#[test]
fn a_shared_region_grows_with_its_file() {
    for delivery in deliveries() {
        let file = file(2 * MIB);
        let manager = small().delivery(delivery).build().unwrap();
        // SAFETY: nobody but the region changes the file.
        let map = |mode| unsafe { manager.map_file(&file, 100.., mode) }.unwrap();
        let mut region = map(Mode::Shared);
        let mut model = contents(&file)[100..].to_vec();
        for len in [2 * MIB, 2 * MIB + 1, 5 * MIB + 77, 40 * MIB] {
            let at = model.len() / 3;
            region.as_mut_slice().unwrap()[at] ^= 1;
            model[at] ^= 1;
            region.grow(len).unwrap();
            model.resize(len, 0);
            assert_eq!(region.len(), len);
            assert!(region.as_slice() == model, "{delivery:?}, {len}");
            assert_eq!(file.metadata().unwrap().len(), len as u64 + 100);
            *region.as_mut_slice().unwrap().last_mut().unwrap() = 9;
            *model.last_mut().unwrap() = 9;
        }
        region.grow(1).unwrap();
        assert_eq!(region.len(), model.len(), "a region is never made shorter");
        let beyond = region.grow(usize::MAX);
        assert!(matches!(beyond, Err(GrowFileError::Map(_))), "{beyond:?}");
        assert!(region.as_slice() == model, "it is as it was");
        drop(region);
        assert!(contents(&file)[100..] == model);
        for mode in [Mode::ReadOnly, Mode::Private] {
            let grown = map(mode).grow(100 * MIB);
            assert_eq!(grown, Err(GrowFileError::NotShared));
        }
    }
}
