//! Opens and closes pages, and limits the number of mappings.

use core::ffi::c_void;
use core::ops::Range;
use core::sync::atomic::Ordering;

use rustix::io::Errno;
use rustix::mm::MprotectFlags;

use millpond_core::{PAGE_SHIFT, PAGE_SIZE};

use super::Protection;
use super::lock::Locked;
use super::wishes::{LEAF, Wish};
use crate::held::Taking;
use crate::report;
use crate::sys::advise::{self, Span};
use crate::sys::mm::mprotect;

/// The number of leaves with a single run that are skipped in search of one with several, which gains more.
const SINGLE: usize = 64;

impl Protection {
    /// Opens the pages of the range that are there, each with the protection that the program wants.
    ///
    /// # Errors
    /// The kernel's error: something is not mapped there, or does not belong to the arena. Some pages may be open by
    /// then.
    pub(super) fn show(&self, locked: &Locked<'_>, range: Range<usize>) -> Result<(), Errno> {
        for there in self.there.runs(range.clone()) {
            for (run, wish) in self.wishes.runs(there) {
                if wish.prot() == 0 || self.open.has_all(run.clone()) {
                    continue;
                }
                if let Err(errno) = self.protect_pages(locked, run.clone(), wish.prot()) {
                    self.close_what_is_mapped(run);
                    return Err(errno);
                }
                self.set_open(run.clone(), true);
                while self.has_too_many_runs() && self.park_one(&run) {}
            }
        }
        Ok(())
    }

    /// Closes the open pages of the range. Those that are there become parked.
    ///
    /// # Errors
    /// The kernel's error, as for [`show`](Self::show). Some pages may be closed by then.
    pub(super) fn shut(&self, locked: &Locked<'_>, range: Range<usize>) -> Result<(), Errno> {
        let first = self.open.next(range.clone(), true);
        let open = first..self.open.end_of_last(first..range.end);
        if open.is_empty() {
            return Ok(());
        }
        // Whatever lies between open pages of the arena is already closed, and one call covers all of it.
        if !self.wishes.has_foreign(open.clone()) {
            self.protect_pages(locked, open.clone(), 0)?;
            self.set_open(open, false);
            return Ok(());
        }
        for run in self.open.runs(open) {
            self.protect_pages(locked, run.clone(), 0)?;
            self.set_open(run, false);
        }
        Ok(())
    }

    /// Closes a run that could not be opened as a whole because somebody unmapped a part of it without telling us.
    fn close_what_is_mapped(&self, run: Range<usize>) {
        self.set_open(run.clone(), false);
        for page in run {
            let at = self.addr(page) as *mut c_void;
            // SAFETY: the page belongs to the arena, and is closed for everybody as far as the table knows.
            let _ = unsafe { mprotect(at, PAGE_SIZE, MprotectFlags::empty()) };
        }
    }

    /// Like [`shut`](Self::shut), for pages that must not stay open.
    pub(super) fn shut_surely(&self, locked: &Locked<'_>, range: Range<usize>) {
        if let Err(errno) = self.shut(locked, range.clone()) {
            report::stop(format_args!(
                "the memory at {:#x} cannot be closed ({errno}): stopped, to lose nothing silently; ENOMEM means that \
                 the program has too many mappings: raise vm.max_map_count",
                self.addr(range.start)
            ));
        }
    }

    /// Records that pages are open, or closed.
    pub(super) fn set_open(&self, range: Range<usize>, on: bool) {
        let before = self.open.starts(range.clone());
        self.open.fill(range.clone(), on);
        let now = self.open.starts(range);
        // The count may temporarily fall below 0, but only in sums that wrap.
        self.runs
            .fetch_add(now.wrapping_sub(before), Ordering::Relaxed);
    }

    /// Changes the kernel's protection of a range. If there are too many mappings, parks others to make room.
    fn protect_pages(
        &self,
        _locked: &Locked<'_>,
        range: Range<usize>,
        prot: u8,
    ) -> Result<(), Errno> {
        let (at, len) = (self.addr(range.start), range.len() << PAGE_SHIFT);
        let flags = MprotectFlags::from_bits_retain(u32::from(prot));
        loop {
            // SAFETY: the range is a part of the arena, whose protection says whether the bytes are there. References
            // into it are the program's, and a thread that uses one waits at a closed page until it is open again.
            match unsafe { mprotect(at as *mut c_void, len, flags) } {
                Err(Errno::NOMEM) if self.park_one(&range) => {}
                answer => return answer,
            }
        }
    }

    /// Parks one leaf that contains no page of `spared`: the next one with several runs or, once so many leaves with
    /// a single run have been seen that there may be no such leaf, the next one with any. Returns false if there is
    /// none.
    fn park_one(&self, spared: &Range<usize>) -> bool {
        let leaves = self.pages.div_ceil(LEAF);
        let hand = self.hand.load(Ordering::Relaxed);
        // Threads that take pages out may be waiting for this lock, so this thread does not wait for them.
        let Some(taking) = Taking::try_begin() else {
            return false;
        };
        let (mut next, mut single) = (None, 0);
        for leaf in (hand..leaves).chain(0..hand) {
            let pages = self.inner_runs(leaf * LEAF..((leaf + 1) * LEAF).min(self.pages));
            let is_spared = pages.start < spared.end && spared.start < pages.end;
            if pages.is_empty() || is_spared || !self.may_park(leaf, &pages, &taking) {
                continue;
            }
            if self.open.starts(pages.start..pages.end - 1) > 1 {
                if self.park(leaf, pages) {
                    return true;
                }
                continue;
            }
            next.get_or_insert((leaf, pages));
            single += 1;
            if single == SINGLE {
                break;
            }
        }
        next.is_some_and(|(leaf, pages)| self.park(leaf, pages))
    }

    fn may_park(&self, leaf: usize, pages: &Range<usize>, taking: &Taking) -> bool {
        let (at, len) = (self.addr(pages.start), pages.len() << PAGE_SHIFT);
        let is_pinned = self.pinned[leaf].load(Ordering::Relaxed) > 0;
        !is_pinned && !taking.is_held(at, len) && !self.wishes.has_foreign(pages.clone())
    }

    /// Closes these runs of a leaf, unless the kernel refuses.
    fn park(&self, leaf: usize, pages: Range<usize>) -> bool {
        let (at, len) = (self.addr(pages.start), pages.len() << PAGE_SHIFT);
        // SAFETY: these are runs of open pages of the arena, and the closed pages between them. No mapping is cut in
        // two, so this works even when there are too many. A thread that touches the pages opens them again.
        if unsafe { mprotect(at as *mut c_void, len, MprotectFlags::empty()) }.is_err() {
            return false;
        }
        self.set_open(pages, false);
        let leaves = self.pages.div_ceil(LEAF);
        self.hand.store((leaf + 1) % leaves, Ordering::Relaxed);
        true
    }

    /// Returns the part of a leaf from its first run of open pages that begins there to its last one that ends there.
    fn inner_runs(&self, leaf: Range<usize>) -> Range<usize> {
        let goes_on =
            |at: usize| at > 0 && at < self.pages && self.open.has(at - 1) && self.open.has(at);
        let first = match goes_on(leaf.start) {
            true => self.open.next(leaf.clone(), false),
            false => leaf.start,
        };
        let first = self.open.next(first..leaf.end, true);
        let mut end = self.open.end_of_last(first..leaf.end);
        while end == leaf.end && first < end && goes_on(end) {
            // The last run extends beyond the leaf, so the part ends before it.
            let mut start = end;
            while start > first && self.open.has(start - 1) {
                start -= 1;
            }
            end = self.open.end_of_last(first..start);
        }
        first..end.max(first)
    }

    /// Drops the pages of a closed range.
    pub(super) fn discard(&self, range: Range<usize>) {
        let span = Span {
            start: self.addr(range.start),
            len: range.len() << PAGE_SHIFT,
        };
        if span.len > 0 {
            // SAFETY: the caller holds the folios in flight, and their contents are no longer wanted.
            unsafe { advise::discard(None, &[span]) };
        }
    }

    /// Returns how the program may use a page.
    pub(super) fn wish(&self, page: usize) -> Wish {
        self.wishes.of(page)
    }

    fn has_too_many_runs(&self) -> bool {
        self.runs() > self.most_runs.load(Ordering::Relaxed)
    }

    /// Whether there are so many runs of open pages that pages should rather leave in a way that ends runs.
    pub(super) fn has_many_runs(&self) -> bool {
        self.runs() > self.most_runs.load(Ordering::Relaxed) / 2
    }

    /// Returns the number of runs of open pages.
    pub(crate) fn runs(&self) -> usize {
        self.runs.load(Ordering::Relaxed)
    }

    /// Test hook: lowers the limit on runs of open pages.
    pub(crate) fn limit_runs(&self, runs: usize) {
        self.most_runs.store(runs, Ordering::Relaxed);
    }
}
