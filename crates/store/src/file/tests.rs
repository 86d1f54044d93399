use super::*;

fn store(dir: &Path) -> FileStore {
    let config = FileStoreConfig {
        force_tmpfs: true,
        ..FileStoreConfig::in_directory(dir)
    };
    FileStore::create(&config).unwrap()
}

/// Half noise, half text: compresses, but not to nothing.
fn mixed(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed | 1;
    let noise = move |i: usize| {
        state = state
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        if i % 4096 < 2048 {
            (state >> 56) as u8
        } else {
            b'a'
        }
    };
    (0..len).map(noise).collect()
}

#[test]
fn a_flipped_bit_on_the_medium_is_noticed() {
    let dir = tempfile::tempdir().unwrap();
    let store = store(dir.path());
    for (slot, len) in [(0, 4096), (1, 64 << 10), (2, 256 << 10)] {
        let data = mixed(7, len);
        store.save(SlotId(slot), None, &data).unwrap();
        let (_, offset) = locate(
            &store
                .table
                .pin(SlotId(slot))
                .unwrap()
                .blocks()
                .next()
                .unwrap(),
        );
        let (fd, mut scratch) = (store.file(0).unwrap(), store.scratches.acquire(4096));
        io::read_all(fd, scratch.parts().wire, offset).unwrap();
        scratch.parts().wire[99] ^= 1;
        io::write_all(fd, scratch.parts().wire, offset).unwrap();
        drop(scratch);
        let mut out = vec![0; len];
        assert_eq!(
            store.load(SlotId(slot), 0, &mut out),
            Err(LoadError::Corrupt)
        );
        if len > BLOCK {
            let out = &mut out[..BLOCK];
            assert_eq!(store.load(SlotId(slot), 16, out), Ok(()));
            assert_eq!(*out, data[BLOCK..2 * BLOCK]);
        }
    }
}

#[test]
fn descriptors_are_high_and_do_not_survive_exec() {
    let dir = tempfile::tempdir().unwrap();
    let store = store(dir.path());
    let fd = store.file(0).unwrap();
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    if limit.current.is_none_or(|limit| limit > 600) {
        assert!(fd.as_raw_fd() >= 512);
    } else {
        println!("skipped in part: needs a limit of more than 600 descriptors");
    }
    let mut named = Vec::new();
    store.descriptors(&mut |fd| named.push(fd));
    assert_eq!(named, [fd.as_raw_fd(), store.directory.as_raw_fd()]);
    assert!(
        rustix::io::fcntl_getfd(fd)
            .unwrap()
            .contains(rustix::io::FdFlags::CLOEXEC)
    );
}
