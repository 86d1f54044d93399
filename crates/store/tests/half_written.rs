//! A partly written page is written again, whatever the program puts there.
//!
//! A write to a full file system, or to a failing medium, may write some of a page's bytes before it fails. The page
//! still counted as changed, because it was compared with what had been read. But if the program reverted its change,
//! the page equalled what was read: it was dropped as unchanged, and the file kept the mixture. The simulator's checks
//! of files find it (`a_half_written_page_taken…` in `sim/tests/files.rs`).
//!
//! The limit on the length of files applies to the whole process, so this test has a process of its own.

use millpond_core::{Backing, Descriptors, FileFault, WriteFault};
use millpond_store::{Access, DataFile, MappedFile};
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;

const PAGE: usize = 4096;

fn limit_files(bytes: libc::rlim_t) {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: both calls are given a limit that lives as long as they last; the signal's handler is the system's.
    unsafe {
        libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
        assert_eq!(libc::getrlimit(libc::RLIMIT_FSIZE, &mut limit), 0);
        limit.rlim_cur = bytes.min(limit.rlim_max);
        assert_eq!(libc::setrlimit(libc::RLIMIT_FSIZE, &limit), 0);
    }
}

#[test]
fn a_half_written_page_is_written_again_even_if_reverted() {
    let file = tempfile::tempfile_in("/var/tmp").unwrap();
    file.write_all_at(&[1; 2 * PAGE], 0).unwrap();
    let data = DataFile::duplicate(file.as_fd(), Access::Write).unwrap();
    let mapped = MappedFile::shared(data, &(0..2 * PAGE as u64), 16).unwrap();
    let mut bytes = [0; 2 * PAGE];
    mapped.read(0, &mut bytes, Descriptors::OfProgram).unwrap();
    bytes.fill(2);
    limit_files(PAGE as libc::rlim_t + 512);
    let failed = mapped.write_back(0, &bytes, Descriptors::OfProgram);
    limit_files(libc::RLIM_INFINITY);
    let why = FileFault::Io(libc::EFBIG);
    assert_eq!(failed, Err(WriteFault { page: 1, why }));
    let mut held = [0; 2 * PAGE];
    file.read_exact_at(&mut held, 0).unwrap();
    let half = PAGE..PAGE + 512;
    assert!(
        held[half.clone()].iter().all(|&byte| byte == 2),
        "a part was written"
    );
    assert!(held[half.end..].iter().all(|&byte| byte == 1));
    bytes[PAGE..].fill(1);
    let again = mapped.write_back(0, &bytes, Descriptors::OfProgram);
    assert_eq!(again, Ok(true));
    file.read_exact_at(&mut held, 0).unwrap();
    assert!(held == bytes, "the mixture has stayed in the file");
}
