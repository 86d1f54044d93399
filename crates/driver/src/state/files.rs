//! The files whose pages are regions' (`file.rs`).
//!
//! The table is read by faults and changed when a region begins or ends. Nothing is allocated under its lock: a longer
//! list is made beforehand, and the old one is dropped afterwards.

use arrayvec::ArrayVec;
use millpond_core::{Backing, FileFault, PageIndex, PageRange};
use millpond_sync::atomic::{AtomicUsize, Ordering};
use millpond_sync::{Rank, Ranked, RankedRw};
use std::sync::Arc;

/// Pages of which it is known why they could not be had.
const FAILURES: usize = 16;

type Entry = (PageRange, Arc<dyn Backing>);

/// The files of a driver, by the pages of their regions. See the [module](self).
pub(crate) struct Files {
    /// The regions of files, by their first pages.
    table: RankedRw<Vec<Entry>>,
    /// Length of the table, so that a driver without files need not take its lock.
    len: AtomicUsize,
    /// The pages that could not be had of late, the latest last.
    failures: Ranked<ArrayVec<(PageIndex, FileFault), FAILURES>>,
}

impl Files {
    pub(crate) const fn new() -> Self {
        Self {
            table: RankedRw::new(Rank::Files, Vec::new()),
            len: AtomicUsize::new(0),
            failures: Ranked::new(Rank::Files, ArrayVec::new_const()),
        }
    }

    /// Notes that the pages of `range` are those of `backing`.
    pub(crate) fn insert(&self, range: PageRange, backing: Arc<dyn Backing>) {
        loop {
            let mut longer = Vec::with_capacity(self.len.load(Ordering::SeqCst) + 1);
            let mut table = self.table.write();
            if longer.capacity() <= table.len() {
                continue;
            }
            longer.append(&mut table);
            let place = longer.partition_point(|entry| entry.0.start < range.start);
            longer.insert(place, (range, backing));
            std::mem::swap(&mut *table, &mut longer);
            self.len.store(table.len(), Ordering::SeqCst);
            drop(table);
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
        drop(removed);
        let mut failures = self.failures.lock();
        failures.retain(|(page, _)| !range.contains(*page));
    }

    /// The file that `page` is of, and the page's number in it.
    pub(crate) fn of(&self, page: PageIndex) -> Option<(Arc<dyn Backing>, u32)> {
        if self.len.load(Ordering::SeqCst) == 0 {
            return None;
        }
        let table = self.table.read();
        let next = table.partition_point(|entry| entry.0.start <= page);
        let (range, backing) = table.get(next.checked_sub(1)?)?;
        let is_inside = range.contains(page);
        is_inside.then(|| (Arc::clone(backing), page.0 - range.start.0))
    }

    /// Whether `page` is a file's.
    pub(crate) fn has(&self, page: PageIndex) -> bool {
        self.of(page).is_some()
    }

    /// Notes why `page` could not be had.
    pub(crate) fn failed(&self, page: PageIndex, why: FileFault) {
        let mut failures = self.failures.lock();
        failures.retain(|(other, _)| *other != page);
        if failures.is_full() {
            failures.remove(0);
        }
        failures.push((page, why));
    }

    /// Why `page` could not be had, if that was of late.
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
    }

    fn range(start: u32, len: u32) -> PageRange {
        PageRange::new(PageIndex(start), PageCount(len))
    }

    #[test]
    fn a_page_is_found_in_its_region_and_nowhere_else() {
        let files = Files::new();
        assert!(!files.has(PageIndex(0)));
        for (start, len) in [(1024, 10), (0, 512), (4096, 1)] {
            files.insert(range(start, len), Arc::new(Nothing));
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
        files.remove(range(1024, 10));
        assert_eq!([511, 1024, 4096].map(number), [Some(511), None, Some(0)]);
        assert_eq!(
            files.why(PageIndex(1030)),
            None,
            "the next region there is another"
        );
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
}
