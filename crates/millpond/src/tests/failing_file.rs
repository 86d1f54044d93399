//! Files whose medium fails: the error is of the page and the moment, and of no other memory.

use crate::{Advice, Delivery, FileError, FileRegion, Manager, Mode, Order, StoreKind};
use millpond_core::{Backing, Descriptors, FileFault, Kind, PAGE_SIZE, WriteFault};
use rustix::io::Errno;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Barrier};
use std::time::Instant;

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

    fn ram_bytes(&self) -> u64 {
        0
    }
}

/// Pages around a bad one come in though it would have come in one read with them, and the page itself comes in when
/// the medium has recovered.
#[test]
fn only_the_bad_page_itself_is_an_error() {
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
    let region = FileRegion::over(region, Mode::ReadOnly);
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

/// Two threads had touched a page that could not be read. Each forgot the failure and had the page read again, and the
/// second did so though the first had the page by then, with what the program had written to it.
#[test]
fn two_retries_of_a_failed_page_lose_no_write() {
    const PAGES: usize = 8192;
    let manager = Manager::builder()
        .ram(64 << 20)
        .store(StoreKind::compressed_ram())
        .delivery(Delivery::InThread)
        .order(Order::ZERO);
    let manager = manager.build().unwrap();
    let file = Arc::new(Failing {
        page: AtomicU32::new(u32::MAX),
        reads: AtomicU64::new(0),
    });
    let region = manager.file_region(PAGES * PAGE_SIZE, Kind::File, Arc::clone(&file) as _);
    let region = FileRegion::over(region.unwrap(), Mode::ReadOnly);
    // No page comes ahead of its turn.
    let all = 0..PAGES * PAGE_SIZE;
    region.advise(all, Advice::Random).unwrap();
    let page = |number: usize| number * PAGE_SIZE..(number + 1) * PAGE_SIZE;
    let turn = Barrier::new(3);
    let mut failed = 0;
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let (region, turn, page) = (&region, &turn, &page);
            scope.spawn(move || {
                for number in 0..PAGES {
                    turn.wait();
                    let byte = region.as_ptr().wrapping_add(page(number).start + thread);
                    // SAFETY: the byte is the region's, and this thread's alone.
                    unsafe { byte.cast_mut().write_volatile(0xa0 + thread as u8) };
                    turn.wait();
                }
            });
        }
        for number in 0..PAGES {
            file.page.store(number as u32, SeqCst);
            failed += usize::from(region.populate(page(number)).is_err());
            file.page.store(u32::MAX, SeqCst);
            turn.wait();
            turn.wait();
        }
    });
    let mut lost = 0;
    for number in 0..PAGES {
        let mut bytes = [0; 3];
        region.read_at(page(number).start, &mut bytes).unwrap();
        lost += usize::from(bytes != [0xa0, 0xa1, number as u8]);
    }
    assert_eq!((failed, lost), (PAGES, 0));
}

/// A file that takes nothing. Each page counts as changed.
struct Refusing {
    refuses: AtomicBool,
    asked: AtomicU64,
    written: AtomicU64,
}

impl Backing for Refusing {
    fn read(&self, _: u32, out: &mut [u8], _: Descriptors) -> Result<(), FileFault> {
        out.fill(0);
        Ok(())
    }

    fn is_as_read(&self, _: u32, _: &[u8]) -> bool {
        false
    }

    fn write_back(&self, page: u32, bytes: &[u8], _: Descriptors) -> Result<bool, WriteFault> {
        self.asked.fetch_add(1, SeqCst);
        if self.refuses.load(SeqCst) {
            let why = FileFault::Io(Errno::NOSPC.raw_os_error());
            return Err(WriteFault { page, why });
        }
        let pages = (bytes.len() / PAGE_SIZE) as u64;
        self.written.fetch_add(pages, SeqCst);
        Ok(true)
    }

    fn ram_bytes(&self) -> u64 {
        0
    }
}

/// A file that took nothing kept reclaim from asking the store, too: an anonymous region beside it stayed in memory, as
/// much of it as was touched, above the budget. Beside a file that fills a third of the budget with what it does not
/// take, a region of four budgets keeps to the rest; and when the file takes something again, all of it goes there.
#[test]
fn an_unwritable_file_does_not_block_reclaim_of_another_region() {
    const BUDGET: usize = 24 << 20;
    for delivery in [Delivery::InThread, Delivery::Handler] {
        let manager = Manager::builder()
            .ram(BUDGET as u64)
            .store(StoreKind::compressed_ram())
            .store_outside_budget(true)
            .delivery(delivery);
        let manager = manager.build().unwrap();
        let file = Arc::new(Refusing {
            refuses: AtomicBool::new(true),
            asked: AtomicU64::new(0),
            written: AtomicU64::new(0),
        });
        let bytes = BUDGET / 3;
        let stuck = manager.file_region(bytes, Kind::File, Arc::clone(&file) as _);
        let stuck = stuck.unwrap();
        stuck.populate(0..bytes).unwrap();
        stuck.advise(0..bytes, Advice::PageOut).unwrap();
        let mut healthy = manager.region(4 * BUDGET).unwrap();
        for round in 1..=3_u8 {
            for page in healthy.as_mut_slice().chunks_mut(PAGE_SIZE) {
                assert!(page[1..].iter().all(|&byte| byte == round - 1));
                page[1..].fill(round);
            }
        }
        let stats = manager.stats();
        assert!(file.asked.load(SeqCst) > 0, "{delivery:?}");
        assert_eq!(file.written.load(SeqCst), 0);
        assert_eq!(stats.vm.over_limit, 0, "{delivery:?}: {stats:#?}");
        // Folios in flight come on top.
        assert!(
            stats.peak_bytes <= (BUDGET + (1 << 20)) as u64,
            "{stats:#?}"
        );
        file.refuses.store(false, SeqCst);
        // The file is asked again once a second.
        let since = Instant::now();
        while file.written.load(SeqCst) < (bytes / PAGE_SIZE) as u64 {
            healthy.as_mut_slice().fill(9);
            assert!(since.elapsed().as_secs() < 60, "{:#?}", manager.stats());
        }
    }
}

/// A file whose first page cannot be written, and whose device fails, as often as is said. Until a page is known to be
/// written it counts as changed.
struct Unsure {
    page_fails: AtomicU32,
    device_fails: AtomicU32,
    written: AtomicU64,
    is_known: AtomicBool,
}

/// Counts one down. Answers whether there was one.
fn one_less(left: &AtomicU32) -> bool {
    left.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1))
        .is_ok()
}

impl Backing for Unsure {
    fn read(&self, _: u32, out: &mut [u8], _: Descriptors) -> Result<(), FileFault> {
        out.fill(0);
        Ok(())
    }

    fn is_as_read(&self, _: u32, _: &[u8]) -> bool {
        self.is_known.load(SeqCst)
    }

    fn is_written(&self) -> bool {
        true
    }

    fn write_back(&self, first: u32, bytes: &[u8], _: Descriptors) -> Result<bool, WriteFault> {
        if first == 0 && one_less(&self.page_fails) {
            let why = FileFault::Io(Errno::NOSPC.raw_os_error());
            return Err(WriteFault { page: first, why });
        }
        if self.is_known.load(SeqCst) {
            return Ok(false);
        }
        let pages = (bytes.len() / PAGE_SIZE) as u64;
        self.written.fetch_add(pages, SeqCst);
        Ok(true)
    }

    fn sync(&self) -> Result<(), FileFault> {
        let fails = one_less(&self.device_fails);
        self.is_known.store(!fails, SeqCst);
        match fails {
            true => Err(FileFault::Io(Errno::IO.raw_os_error())),
            false => Ok(()),
        }
    }

    fn ram_bytes(&self) -> u64 {
        0
    }
}

/// The device failed under a sync that had a page to report, and the next sync said that all was well: the kernel tells
/// an error of the device once, and what had left memory before it may be lost.
#[test]
fn a_device_error_is_reported_once_even_beside_other_sync_errors() {
    const PAGES: u64 = 16;
    let manager = Manager::builder()
        .ram(16 << 20)
        .store(StoreKind::compressed_ram());
    let manager = manager.build().unwrap();
    let file = Arc::new(Unsure {
        page_fails: AtomicU32::new(1),
        device_fails: AtomicU32::new(1),
        written: AtomicU64::new(0),
        is_known: AtomicBool::new(false),
    });
    let bytes = PAGES as usize * PAGE_SIZE;
    let region = manager.file_region(bytes, Kind::File, Arc::clone(&file) as _);
    let region = FileRegion::over(region.unwrap(), Mode::Shared);
    region.populate(0..bytes).unwrap();
    let page = region.sync(0..bytes);
    assert!(
        matches!(page, Err(FileError::Write { offset: 0, .. })),
        "{page:?}"
    );
    assert_eq!(file.device_fails.load(SeqCst), 0);
    assert_eq!(region.sync(0..bytes), Err(FileError::Sync(Errno::IO)));
    assert!(
        file.written.load(SeqCst) >= PAGES,
        "all pages were dirty again"
    );
    assert_eq!(region.sync(0..bytes), Ok(()));
    // Told at once, where there is nothing else.
    file.device_fails.store(1, SeqCst);
    assert_eq!(region.sync(0..bytes), Err(FileError::Sync(Errno::IO)));
    let before = file.written.load(SeqCst);
    assert_eq!(region.sync(0..bytes), Ok(()));
    assert_eq!(file.written.load(SeqCst), before + PAGES);
}

/// A file of which a read takes as long as the test likes, and fails then.
struct Late {
    began: Barrier,
    end: Barrier,
}

impl Backing for Late {
    fn read(&self, _: u32, _: &mut [u8], _: Descriptors) -> Result<(), FileFault> {
        self.began.wait();
        self.end.wait();
        Err(FileFault::Ended)
    }

    fn ram_bytes(&self) -> u64 {
        0
    }
}

/// A sync came to a folio that another thread was reading, and waited for it to pin it. The read failed, the pin was
/// refused because the page was lost, and the sync said so, though nothing of the file had changed. The simulator has
/// these moments (`a folio that a sync came to was lost` in `sim/src/file.rs`).
#[test]
fn a_sync_during_a_failing_read_succeeds() {
    let manager = Manager::builder()
        .ram(16 << 20)
        .store(StoreKind::compressed_ram())
        .order(Order::ZERO);
    let manager = manager.build().unwrap();
    for _ in 0..20 {
        // The reader, the sync and the test meet when the read has begun; the reader and the test when it ends.
        let file = Arc::new(Late {
            began: Barrier::new(3),
            end: Barrier::new(2),
        });
        let region = manager.file_region(16 * PAGE_SIZE, Kind::File, Arc::clone(&file) as _);
        let region = region.unwrap();
        let pages = region.pages(&(0..16 * PAGE_SIZE));
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| region.populate(5 * PAGE_SIZE..6 * PAGE_SIZE));
            let sync = scope.spawn(|| {
                file.began.wait();
                region.driver().sync_file(pages)
            });
            file.began.wait();
            // The sync gets to the folio meanwhile. Should it be late, this round shows nothing.
            std::thread::sleep(std::time::Duration::from_millis(5));
            file.end.wait();
            reader.join().unwrap().unwrap_err();
            assert_eq!(sync.join().unwrap(), Ok(()));
        });
    }
}
