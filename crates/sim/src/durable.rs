//! What a crash may leave of a shared file, as far as the program knows.
//!
//! A program that has written to a shared region and has then synced it relies on one thing: after a crash, each byte
//! of the file has the value that it had at the sync, or one that it has had since. Which one is not specified: memory
//! may be written back at any time, in any order, and a device may do a part of a write. So the book records, for each
//! line of each page, the values of the line since the last sync. A crash that leaves something else is a failure.
//!
//! ```text
//!   written:  1    2    3    sync begins    4    sync ends    5        may be there after a crash: 3, 4 or 5
//! ```
//!
//! The sync covers the contents of memory when it began; a concurrent write may be in the file or not.
//!
//! Two things weaken the book, both of them outside of what a program is promised. If the file is truncated from
//! outside, zeros may be there as well. If a sync reports that the device may not have what was written, then for pages
//! that had left memory before, any contents are possible, and the next sync does not change that. Both end when a line
//! gets a value that it has not had since, and is synced. An earlier value may be the one that was read there, and a
//! page that equals what was read is not written.

use std::collections::{BTreeMap, BTreeSet};

use millpond_core::{PageIndex, PageRange};

use crate::mmu::{Content, LINES};
use crate::report::{Check, breach};

#[derive(Clone, Debug)]
struct Line {
    /// The possible values, oldest first.
    may: Vec<u64>,
    /// The contents of the file are unknown.
    is_doubtful: bool,
    /// A write of the page will certainly come before the next sync ends, or the file has what the program reads.
    is_sure: bool,
    /// The first of the values that may be there once the ongoing sync has ended.
    begun: usize,
}

/// What a crash may leave of the pages of shared files.
#[derive(Debug, Default)]
pub struct Durable {
    pages: BTreeMap<PageIndex, [Line; LINES]>,
}

impl Durable {
    /// Records that a page of a new file is on the device.
    pub fn begins(&mut self, page: PageIndex, content: Content) {
        let line = |value| Line {
            may: vec![value],
            is_doubtful: false,
            is_sure: true,
            begun: 0,
        };
        self.pages.insert(page, content.map(line));
    }

    /// Forgets the file of a region that has ended.
    pub fn ends(&mut self, range: PageRange) {
        range.pages().for_each(|page| {
            self.pages.remove(&page);
        });
    }

    /// Records a write by the program.
    pub fn wrote(&mut self, page: PageIndex, line: usize, value: u64) {
        if let Some(lines) = self.pages.get_mut(&page) {
            let line = &mut lines[line];
            line.is_sure = !line.is_doubtful || !line.may.contains(&value);
            line.may.push(value);
        }
    }

    /// Records that `page` was zeroed from outside, from a line on.
    pub fn was_cut(&mut self, page: PageIndex, from: usize) {
        for line in self.pages.get_mut(&page).into_iter().flatten().skip(from) {
            line.may.push(0);
            (line.is_doubtful, line.is_sure) = (true, false);
        }
    }

    /// Records that the file's contents of `page` are unknown.
    pub fn is_doubtful(&mut self, page: PageIndex) {
        for line in self.pages.get_mut(&page).into_iter().flatten() {
            (line.is_doubtful, line.is_sure) = (true, false);
        }
    }

    /// Records that a sync of `range` begins.
    pub fn sync_begins(&mut self, range: PageRange) {
        for line in self.lines_in(range) {
            line.begun = match line.is_sure {
                true => line.may.len() - 1,
                false => 0,
            };
        }
    }

    /// Records that the sync of `range` has ended: the device has all pages except those that `failed`.
    pub fn sync_ends(&mut self, range: PageRange, failed: &BTreeSet<PageIndex>) {
        let pages = self.pages.range_mut(range.start..range.end());
        let synced = pages.filter(|(page, _)| !failed.contains(page));
        for line in synced.flat_map(|(_, lines)| lines) {
            if line.is_sure {
                line.may.drain(..line.begun);
                line.is_doubtful &= line.begun == 0;
            }
            line.begun = 0;
        }
    }

    fn lines_in(&mut self, range: PageRange) -> impl Iterator<Item = &mut Line> {
        let pages = self.pages.range_mut(range.start..range.end());
        pages.flat_map(|(_, lines)| lines)
    }

    /// Whether only one value is possible.
    #[must_use]
    pub fn is_certain(&self, page: PageIndex) -> bool {
        let lines = self.pages.get(&page);
        lines.is_some_and(|lines| lines.iter().all(|line| line.may.len() == 1))
    }

    /// Checks what a crash has left of `page`.
    ///
    /// # Errors
    /// The page cannot have these contents.
    pub fn judge(&self, page: PageIndex, left: Content) -> Check {
        let Some(lines) = self.pages.get(&page) else {
            return Ok(());
        };
        for (nth, (line, value)) in lines.iter().zip(left).enumerate() {
            if !line.may.contains(&value) {
                breach!(
                    at page,
                    "a crash leaves {value:x} in line {nth} of {page}, must be one of {:x?}",
                    line.may
                );
            }
        }
        Ok(())
    }

    /// The pages of shared files.
    pub fn pages(&self) -> impl Iterator<Item = PageIndex> + '_ {
        self.pages.keys().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use millpond_core::PageCount;

    const PAGE: PageIndex = PageIndex(3);
    const RANGE: PageRange = PageRange {
        start: PageIndex(0),
        len: PageCount(8),
    };

    fn after(book: &Durable, value: u64) -> bool {
        book.judge(PAGE, [value, 0, 0, 0]).is_ok()
    }

    #[test]
    fn a_sync_covers_data_written_before_it_began() {
        let mut book = Durable::default();
        book.begins(PAGE, [1, 0, 0, 0]);
        book.wrote(PAGE, 0, 2);
        assert!(after(&book, 1) && after(&book, 2) && !after(&book, 3));
        book.sync_begins(RANGE);
        book.wrote(PAGE, 0, 3);
        assert!(after(&book, 1), "the sync has not ended");
        book.sync_ends(RANGE, &BTreeSet::new());
        assert!(!after(&book, 1) && after(&book, 2) && after(&book, 3));
        assert!(book.judge(PAGE, [3, 3, 0, 0]).is_err(), "another line");
    }

    #[test]
    fn pages_that_failed_stay_as_they_were() {
        let mut book = Durable::default();
        book.begins(PAGE, [1, 0, 0, 0]);
        book.wrote(PAGE, 0, 2);
        book.sync_begins(RANGE);
        book.sync_ends(RANGE, &BTreeSet::from([PAGE]));
        assert!(after(&book, 1) && after(&book, 2));
        book.is_doubtful(PAGE);
        book.sync_begins(RANGE);
        book.sync_ends(RANGE, &BTreeSet::new());
        assert!(after(&book, 1), "nobody knows");
        book.wrote(PAGE, 0, 5);
        book.sync_begins(RANGE);
        book.sync_ends(RANGE, &BTreeSet::new());
        assert!(!after(&book, 1) && after(&book, 5));
        book.was_cut(PAGE, 0);
        assert!(after(&book, 0) && after(&book, 5));
    }
}
