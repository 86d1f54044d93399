//! The files whose pages are the pages of regions (`file.rs`).
//!
//! The table is read by faults and changed when a region begins or ends. Nothing is allocated under its lock: a longer
//! list is made before, and the old one is dropped after.

use arrayvec::ArrayVec;
use millpond_core::{Backing, FileFault, Kind, PageIndex, PageRange};
use millpond_sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use millpond_sync::{Rank, Ranked, RankedRw};
use std::sync::Arc;

/// Number of pages for which the reason of a failed read is kept.
const FAILURES: usize = 64;

/// A region, its file, and whether writes to it stay private to the program. A shared region has its lock.
type Entry = (PageRange, Arc<dyn Backing>, Kind, Option<SyncLock>);

/// The lock for writing copies of a shared region's pages, by a sync and in the background.
type SyncLock = Arc<Ranked<Syncing>>;

/// The state of a shared region's writes.
#[derive(Debug, Default)]
pub(crate) struct Syncing {
    /// Whether the region has ended, as far as the thread that writes back is concerned.
    pub(crate) has_ended: bool,
    /// An error of the device that no sync has reported yet. The kernel reports it once.
    pub(crate) untold: Option<FileFault>,
}

/// A shared region.
pub(crate) struct Shared {
    /// Its pages.
    pub(crate) range: PageRange,
    /// Its file.
    pub(crate) backing: Arc<dyn Backing>,
    /// Held by a thread that writes copies of its pages.
    pub(crate) sync: SyncLock,
}

/// The files of a driver, by the pages of their regions. See the [module](self).
pub(crate) struct Files {
    /// The regions of files, by their first pages.
    table: RankedRw<Vec<Entry>>,
    /// Length of the table, so that a driver without files need not take its lock.
    len: AtomicUsize,
    /// The RAM that the files' tables take together.
    ram_bytes: AtomicU64,
    /// Changes of the table so far.
    changes: AtomicU64,
    /// The pages that recently could not be read, the latest last.
    failures: Ranked<ArrayVec<(PageIndex, FileFault), FAILURES>>,
    /// Whether there are any, so that a successful read need not take their lock.
    failed: AtomicBool,
}

fn shared((range, backing, _, sync): &Entry) -> Option<Shared> {
    Some(Shared {
        range: *range,
        backing: Arc::clone(backing),
        sync: Arc::clone(sync.as_ref()?),
    })
}

impl Files {
    pub(crate) const fn new() -> Self {
        Self {
            table: RankedRw::new(Rank::Files, Vec::new()),
            len: AtomicUsize::new(0),
            ram_bytes: AtomicU64::new(0),
            changes: AtomicU64::new(0),
            failures: Ranked::new(Rank::Files, ArrayVec::new_const()),
            failed: AtomicBool::new(false),
        }
    }

    /// Notes that the pages of `range`, a region of this kind, are those of `backing`.
    pub(crate) fn insert(&self, range: PageRange, backing: Arc<dyn Backing>, kind: Kind) {
        let is_shared = backing.is_written();
        let sync = is_shared.then(|| Arc::new(Ranked::new(Rank::FileSync, Syncing::default())));
        loop {
            let mut longer = Vec::with_capacity(self.len.load(Ordering::SeqCst) + 1);
            let mut table = self.table.write();
            if longer.capacity() <= table.len() {
                continue;
            }
            longer.append(&mut table);
            let place = longer.partition_point(|entry| entry.0.start < range.start);
            longer.insert(place, (range, backing, kind, sync));
            std::mem::swap(&mut *table, &mut longer);
            self.len.store(table.len(), Ordering::SeqCst);
            drop(table);
            self.count_ram();
            return;
        }
    }

    /// Forgets the file of a region that has ended.
    pub(crate) fn remove(&self, range: PageRange) {
        if self.len.load(Ordering::SeqCst) == 0 {
            return;
        }
        let mut table = self.table.write();
        let place = table.iter().position(|entry| entry.0 == range);
        let removed = place.map(|place| table.remove(place));
        self.len.store(table.len(), Ordering::SeqCst);
        drop(table);
        // From here on, what the file shared with others belongs only to them.
        drop(removed);
        self.count_ram();
        let mut failures = self.failures.lock();
        failures.retain(|(page, _)| !range.contains(*page));
    }

    /// Asks all files again how much RAM they take, after a change. A file may then take a lock of the table's rank, so
    /// each is asked outside; a thread that others overtake asks once more.
    fn count_ram(&self) {
        let mut change = self.changes.fetch_add(1, Ordering::SeqCst) + 1;
        loop {
            let file = |place: usize| Some(Arc::clone(&self.table.read().get(place)?.1));
            let files = (0..).map_while(file);
            let sum = files.map(|file| file.ram_bytes()).sum();
            self.ram_bytes.store(sum, Ordering::SeqCst);
            let latest = self.changes.load(Ordering::SeqCst);
            if latest == change {
                return;
            }
            change = latest;
        }
    }

    /// The shared region that `page` is in.
    pub(crate) fn shared_at(&self, page: PageIndex) -> Option<Shared> {
        self.find(page, shared)?
    }

    /// The shared region that `page` is in, or the next one after it.
    pub(crate) fn shared_from(&self, page: PageIndex) -> Option<Shared> {
        if self.len.load(Ordering::SeqCst) == 0 {
            return None;
        }
        let table = self.table.read();
        let first = table.partition_point(|entry| entry.0.end() <= page);
        table[first..].iter().find_map(shared)
    }

    /// The region of a file that `page` is in.
    pub(crate) fn region_of(&self, page: PageIndex) -> Option<PageRange> {
        self.find(page, |&(range, ..)| range)
    }

    /// The file of `page`, and the page's number in it.
    pub(crate) fn of(&self, page: PageIndex) -> Option<(Arc<dyn Backing>, u32)> {
        self.find(page, |(range, backing, _, _)| {
            (Arc::clone(backing), page.0 - range.start.0)
        })
    }

    fn find<T>(&self, page: PageIndex, see: impl FnOnce(&Entry) -> T) -> Option<T> {
        if self.len.load(Ordering::SeqCst) == 0 {
            return None;
        }
        let table = self.table.read();
        let next = table.partition_point(|entry| entry.0.start <= page);
        let entry = table.get(next.checked_sub(1)?)?;
        entry.0.contains(page).then(|| see(entry))
    }

    /// The most RAM that the files' tables take.
    pub(crate) fn ram_bytes(&self) -> u64 {
        self.ram_bytes.load(Ordering::SeqCst)
    }

    /// Whether a page that could not be read should be read from its file again. A page of a private region may have
    /// been written to and lost by the store since, and then the file does not have the lost contents.
    pub(crate) fn may_have_again(&self, page: PageIndex) -> bool {
        let kind = self.find(page, |&(_, _, kind, _)| kind);
        kind.is_some_and(|kind| kind != Kind::Private || self.why(page).is_some())
    }

    /// Notes that pages were read.
    pub(crate) fn had(&self, range: PageRange) {
        if self.failed.load(Ordering::SeqCst) {
            let mut failures = self.failures.lock();
            failures.retain(|(page, _)| !range.contains(*page));
            self.failed.store(!failures.is_empty(), Ordering::SeqCst);
        }
    }

    /// Notes why `page` could not be read.
    pub(crate) fn failed(&self, page: PageIndex, why: FileFault) {
        let mut failures = self.failures.lock();
        failures.retain(|(other, _)| *other != page);
        if failures.is_full() {
            failures.remove(0);
        }
        failures.push((page, why));
        self.failed.store(true, Ordering::SeqCst);
    }

    /// Why `page` could not be read, if that was recent.
    pub(crate) fn why(&self, page: PageIndex) -> Option<FileFault> {
        let failures = self.failures.lock();
        let found = failures.iter().find(|(other, _)| *other == page);
        found.map(|(_, why)| *why)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use millpond_core::{Descriptors, PageCount};

    struct Nothing;

    impl Backing for Nothing {
        fn read(&self, _: u32, _: &mut [u8], _: Descriptors) -> Result<(), FileFault> {
            Err(FileFault::Ended)
        }

        fn ram_bytes(&self) -> u64 {
            100
        }
    }

    fn range(start: u32, len: u32) -> PageRange {
        PageRange::new(PageIndex(start), PageCount(len))
    }

    #[test]
    fn a_page_is_found_in_its_region_and_nowhere_else() {
        let files = Files::new();
        assert!(files.of(PageIndex(0)).is_none());
        for (start, len) in [(1024, 10), (0, 512), (4096, 1)] {
            files.insert(range(start, len), Arc::new(Nothing), Kind::File);
        }
        let number = |page| files.of(PageIndex(page)).map(|(_, number)| number);
        assert_eq!(
            [0, 511, 512, 1024].map(number),
            [Some(0), Some(511), None, Some(0)]
        );
        assert_eq!(
            [1033, 1034, 4096, 4097].map(number),
            [Some(9), None, Some(0), None]
        );
        files.failed(PageIndex(1030), FileFault::Io(5));
        assert_eq!(files.ram_bytes(), 300);
        files.remove(range(1024, 10));
        assert_eq!(files.ram_bytes(), 200);
        assert_eq!([511, 1024, 4096].map(number), [Some(511), None, Some(0)]);
        assert_eq!(
            files.why(PageIndex(1030)),
            None,
            "the next region there is another"
        );
    }

    /// The first object of a reader once carried what all of them share, and removed it from the count when it ended.
    #[test]
    fn shared_ram_of_files_is_counted_whichever_ends_first() {
        struct Sharing(Arc<()>);
        impl Backing for Sharing {
            fn read(&self, _: u32, _: &mut [u8], _: Descriptors) -> Result<(), FileFault> {
                Ok(())
            }
            fn ram_bytes(&self) -> u64 {
                600 / Arc::strong_count(&self.0) as u64
            }
        }
        for order in [[0, 1, 2], [2, 0, 1], [1, 2, 0]] {
            let files = Files::new();
            let shared = Arc::new(());
            for place in 0..2 {
                let one = Sharing(Arc::clone(&shared));
                files.insert(range(512 * place, 10), Arc::new(one), Kind::File);
            }
            files.insert(range(1024, 10), Arc::new(Sharing(shared)), Kind::File);
            assert_eq!(files.ram_bytes(), 600);
            for (left, place) in [(600, order[0]), (600, order[1]), (0, order[2])] {
                files.remove(range(512 * place, 10));
                assert_eq!(files.ram_bytes(), left, "{order:?}");
            }
        }
    }

    #[test]
    fn the_latest_failures_are_known() {
        let files = Files::new();
        for page in 0..FAILURES as u32 + 1 {
            files.failed(PageIndex(page), FileFault::Ended);
        }
        files.failed(PageIndex(5), FileFault::Io(5));
        assert_eq!(files.why(PageIndex(0)), None);
        assert_eq!(files.why(PageIndex(1)), Some(FileFault::Ended));
        assert_eq!(files.why(PageIndex(5)), Some(FileFault::Io(5)));
    }

    /// Contents of a private page that the store has lost are not in the file.
    #[test]
    fn a_private_page_is_read_again_only_if_the_file_failed() {
        let files = Files::new();
        files.insert(range(0, 10), Arc::new(Nothing), Kind::File);
        files.insert(range(512, 10), Arc::new(Nothing), Kind::Private);
        let again = |page| files.may_have_again(PageIndex(page));
        assert!(again(0) && !again(512) && !again(1024));
        files.failed(PageIndex(513), FileFault::Io(5));
        assert!(again(513) && !again(512));
        files.had(range(512, 4));
        assert!(!again(513));
    }
}
