//! Examines the page tables: which pages are mapped, and which as huge pages.

use millpond_core::{PAGE_SHIFT, PageCount, PageIndex, PageRange};
use rustix::fd::BorrowedFd;
use rustix::io::Errno;

use super::Common;
use crate::report;
use crate::reservation::HUGE;
use crate::sys::pagemap;

/// A function that finds the present pages of `start..end`, run by run.
type Runs = fn(BorrowedFd<'_>, usize, usize, &mut dyn FnMut(usize, usize)) -> Result<(), Errno>;

impl Common {
    /// Calls `visit` for each run of pages in the range that are mapped now (or that the kernel has swapped out),
    /// lowest first. One run may come as several neighbours.
    pub(crate) fn present_pages(&self, range: PageRange, visit: &mut dyn FnMut(PageRange)) {
        self.look_for_pages(range, pagemap::runs, visit);
    }

    /// [`present_pages`](Self::present_pages) for a long range that the program uses sparsely. If the kernel has no
    /// `PAGEMAP_SCAN` (Linux 6.7), this looks only at leaves where the program may use something: no thread can have
    /// touched the others.
    pub(crate) fn present_pages_of_sparse(
        &self,
        range: PageRange,
        visit: &mut dyn FnMut(PageRange),
    ) {
        if pagemap::has_scan(self.pagemap()) {
            return self.present_pages(range, visit);
        }
        for leaves in self.reach.open_leaves(range) {
            self.look_for_pages(leaves, pagemap::runs_of_sparse, visit);
        }
    }

    fn look_for_pages(&self, range: PageRange, runs: Runs, visit: &mut dyn FnMut(PageRange)) {
        let (start, end) = (self.at(range.start), self.at(range.end()));
        let result = runs(self.pagemap(), start, end, &mut |from, to| {
            let first = PageIndex(((from - self.arena.base()) >> PAGE_SHIFT) as u32);
            visit(PageRange::new(
                first,
                PageCount(((to - from) >> PAGE_SHIFT) as u32),
            ));
        });
        if let Err(errno) = result {
            report::line(format_args!(
                "/proc/self/pagemap cannot be read ({errno}): nothing is counted"
            ));
        }
    }

    /// Whether the page at `addr` is mapped, or swapped out by the kernel.
    pub(crate) fn is_there(&self, addr: usize) -> bool {
        pagemap::is_there(self.pagemap(), addr).unwrap_or_else(|| {
            report::stop(format_args!(
                "/proc/self/pagemap cannot be read: what became of a page is not known, stopped"
            ))
        })
    }

    /// Returns how many pages of the range are now mapped as parts of huge pages: 0 if the kernel does not tell
    /// (before Linux 6.7).
    pub(crate) fn huge_pages(&self, range: PageRange) -> PageCount {
        let bytes = pagemap::huge_bytes(self.pagemap(), self.at(range.start), self.at(range.end()));
        PageCount((bytes.unwrap_or(0) >> PAGE_SHIFT) as u32)
    }

    /// Whether `bytes` are one huge page. Returns false if the kernel does not tell (before Linux 6.7).
    pub(crate) fn is_huge_page(&self, bytes: &[u8]) -> bool {
        let start = bytes.as_ptr().addr();
        bytes.len() == HUGE
            && start.is_multiple_of(HUGE)
            && pagemap::huge_bytes(self.pagemap(), start, start + HUGE) == Ok(HUGE)
    }
}
