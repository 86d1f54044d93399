//! A file whose medium fails: the error is of the page and the moment.

use crate::{FileError, Manager, StoreKind};
use millpond_core::{Backing, Descriptors, FileFault, Kind, PAGE_SIZE};
use rustix::io::Errno;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::SeqCst};

/// A file of which one page cannot be read. Each byte of a page is the page's number.
struct Failing {
    page: AtomicU32,
    reads: AtomicU64,
}

impl Backing for Failing {
    fn read(&self, first: u32, out: &mut [u8], _: Descriptors) -> Result<(), FileFault> {
        self.reads.fetch_add(1, SeqCst);
        for (number, page) in (first..).zip(out.chunks_mut(PAGE_SIZE)) {
            if number == self.page.load(SeqCst) {
                return Err(FileFault::Io(Errno::IO.raw_os_error()));
            }
            page.fill(number as u8);
        }
        Ok(())
    }

    fn is_as_read(&self, _: u32, _: &[u8]) -> bool {
        true
    }

    fn forget(&self, _: Range<u32>) {}

    fn write_back(&self, _: u32, _: &[u8], _: Descriptors) -> Result<bool, FileFault> {
        Ok(false)
    }

    fn sync(&self) -> Result<(), FileFault> {
        Ok(())
    }

    fn ram_bytes(&self) -> u64 {
        0
    }
}

/// Pages around a bad one come in though it would have come in one read with them, and the page itself comes in when
/// the medium has recovered.
#[test]
fn one_bad_page_is_an_error_of_its_own() {
    let manager = Manager::builder()
        .ram(16 << 20)
        .store(StoreKind::compressed_ram());
    let manager = manager.build().unwrap();
    let file = Arc::new(Failing {
        page: AtomicU32::new(77),
        reads: AtomicU64::new(0),
    });
    let bytes = 256 * PAGE_SIZE;
    let region = manager
        .file_region(bytes, Kind::File, Arc::clone(&file) as _)
        .unwrap();
    let region = crate::FileRegion::over(region);
    let bad = Err(FileError::Read {
        offset: 77 * PAGE_SIZE,
        errno: Errno::IO,
    });
    assert_eq!(region.populate(0..bytes), bad);
    for number in (0..256).filter(|&number| number != 77) {
        let mut page = [0; PAGE_SIZE];
        region.read_at(number * PAGE_SIZE, &mut page).unwrap();
        assert!(page.iter().all(|&byte| byte == number as u8), "{number}");
    }
    let mut page = [0; PAGE_SIZE];
    assert_eq!(region.read_at(77 * PAGE_SIZE, &mut page), bad);
    let reads = file.reads.load(SeqCst);
    assert_eq!(
        region.try_read(77 * PAGE_SIZE, &mut page),
        bad.map(|()| true)
    );
    assert_eq!(
        file.reads.load(SeqCst),
        reads,
        "a try does not wait for the file"
    );
    file.page.store(u32::MAX, SeqCst);
    region.read_at(77 * PAGE_SIZE, &mut page).unwrap();
    assert_eq!(page, [77; PAGE_SIZE]);
    assert_eq!(manager.stats().vm.pswpout, 0);
}
