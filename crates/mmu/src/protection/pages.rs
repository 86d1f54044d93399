//! The core's operations on pages that are watched through protections.
//!
//! The caller holds the folios in flight, so nobody else works on the same pages. Threads of the program may touch
//! them at any time, and find them closed.

use core::ffi::c_void;
use core::ops::Range;

use rustix::io::Errno;
use rustix::mm::Advice;

use millpond_core::PAGE_SIZE;

use super::Protection;
use super::wishes::Wish;
use crate::report;
use crate::sys::advise::Span;
use crate::sys::mm::madvise;
use crate::sys::{own_memory, remap};

impl Protection {
    /// Writes `len` bytes from `from` into absent pages at `at`, and opens them. Returns false on failure; then the
    /// pages are absent.
    ///
    /// # Safety
    /// `from` is readable, and not a part of the arena.
    pub(crate) unsafe fn install(&self, at: usize, from: usize, len: usize) -> bool {
        let pages = self.span(at, len);
        // SAFETY: the caller guarantees the source.
        if unsafe { self.come_marked(at, Some(from), len) } {
            return true;
        }
        if self.wishes.has_foreign(pages.clone()) || !self.are_unmarked(pages.clone()) {
            return false;
        }
        // SAFETY: the pages are absent and closed, so no thread sees them; the caller guarantees the source.
        let written = unsafe { own_memory::write(self.mem(), from, len, at) } == len;
        if !written {
            self.discard(pages);
            return false;
        }
        self.come(pages)
    }

    /// Turns absent pages into zeros, and opens them. Returns the same as [`install`](Self::install).
    pub(crate) fn install_zeros(&self, at: usize, len: usize) -> bool {
        let pages = self.span(at, len);
        // SAFETY: there is no source.
        if unsafe { self.come_marked(at, None, len) } {
            return true;
        }
        let can_come = !self.wishes.has_foreign(pages.clone()) && self.are_unmarked(pages.clone());
        if !can_come || !self.come(pages.clone()) {
            return false;
        }
        for (run, wish) in self.wishes.runs(pages) {
            if wish.has(Wish::WRITE) {
                let (at, len) = (self.addr(run.start) as *mut c_void, run.len() * PAGE_SIZE);
                // The kernel supplies all of the pages in one call, where each touch would be a call of its own. It
                // may refuse: then it supplies them at the touch.
                // SAFETY: the advice has the effect of writing the same bytes.
                let _ = unsafe { madvise(at, len, Advice::LinuxPopulateWrite) };
            }
        }
        true
    }

    /// Closes the marked ones among these absent pages, and removes their marks, unless the kernel refuses.
    fn are_unmarked(&self, pages: Range<usize>) -> bool {
        let has_marks = self.marked.next(pages.clone(), true) < pages.end;
        !has_marks || self.unmark(&self.lock.lock(), pages).is_ok()
    }

    /// Opens pages that now have their bytes.
    fn come(&self, pages: Range<usize>) -> bool {
        let locked = self.lock.lock();
        self.there.fill(pages.clone(), true);
        let refused = match self.show(&locked, pages.clone()) {
            Ok(()) => return true,
            Err(errno) => errno,
        };
        // If everything is mapped, retrying would go on for ever: all of the arena is parked by now.
        let (at, len) = (self.addr(pages.start), pages.len() * PAGE_SIZE);
        if refused == Errno::NOMEM && remap::is_mapped_unlocked(at, len) {
            report::stop(format_args!(
                "the page at {at:#x} cannot be opened ({refused}): the program has too many mappings, raise \
                 vm.max_map_count; or the kernel promises no more memory, set vm.overcommit_memory to 0 or 1"
            ));
        }
        self.there.fill(pages.clone(), false);
        self.shut_surely(&locked, pages.clone());
        drop(locked);
        self.discard(pages);
        false
    }

    /// Copies `len` bytes of absent or present pages at `from`, whatever their protection, to absent pages at `at`,
    /// through `buffer`. Returns the same as [`install`](Self::install).
    ///
    /// # Safety
    /// The buffer is writable memory that no reference covers, and not a part of the arena.
    pub(crate) unsafe fn copy(&self, at: usize, from: usize, len: usize, buffer: Span) -> bool {
        let pages = self.span(at, len);
        let unmarked = self.are_unmarked(pages.clone()) && self.are_unmarked(self.span(from, len));
        if self.wishes.has_foreign(pages.clone()) || !unmarked {
            return false;
        }
        for offset in (0..len).step_by(buffer.len) {
            let part = Span {
                len: buffer.len.min(len - offset),
                ..buffer
            };
            // SAFETY: the caller guarantees the buffer; the destination is absent and closed, so no thread sees it.
            let copied = unsafe {
                own_memory::read(self.mem(), &[part], from + offset) == part.len
                    && own_memory::write(self.mem(), part.start, part.len, at + offset) == part.len
            };
            if !copied {
                self.discard(pages);
                return false;
            }
        }
        self.come(pages)
    }

    /// Closes pages to be captured: from now on no thread writes to them. Returns false if they stay as they are.
    pub(crate) fn begin_capture(&self, at: usize, len: usize) -> bool {
        let pages = self.span(at, len);
        let locked = self.lock.lock();
        self.there.fill(pages.clone(), false);
        let closed = self.shut(&locked, pages.clone()).is_ok();
        if !closed {
            self.there.fill(pages.clone(), true);
            let _ = self.show(&locked, pages);
        }
        closed
    }

    /// Reads closed pages into frames, which follow each other in `into`. Returns the number of bytes.
    ///
    /// # Safety
    /// The frames are leased.
    pub(crate) unsafe fn read(&self, at: usize, into: &[Span]) -> usize {
        // SAFETY: the caller guarantees it.
        unsafe { own_memory::read(self.mem(), into, at) }
    }

    /// Drops pages whose capture is complete.
    pub(crate) fn end_capture(&self, at: usize, len: usize) {
        self.discard(self.span(at, len));
    }

    /// Undoes [`begin_capture`](Self::begin_capture).
    pub(crate) fn undo_capture(&self, at: usize, len: usize) {
        let pages = self.span(at, len);
        let locked = self.lock.lock();
        self.there.fill(pages.clone(), true);
        // Pages that cannot be opened now are parked.
        let _ = self.show(&locked, pages);
    }

    /// Closes ranges of any length that are about to be dropped.
    pub(crate) fn leave(&self, spans: impl Iterator<Item = Span>) {
        let locked = self.lock.lock();
        for span in spans {
            let pages = self.span(span.start, span.len);
            self.there.fill(pages.clone(), false);
            self.shut_surely(&locked, pages);
        }
    }

    /// Writes zeros over present pages, whatever their protection.
    pub(crate) fn zero(&self, at: usize, len: usize, zeros: Span) {
        for offset in (0..len).step_by(zeros.len) {
            let part = zeros.len.min(len - offset);
            // SAFETY: under the core's contract the caller guarantees that nobody uses the pages meanwhile.
            unsafe { own_memory::write(self.mem(), zeros.start, part, at + offset) };
        }
    }
}
