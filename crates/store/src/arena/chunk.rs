//! Chunks: 2 MiB from the kernel, aligned, with the records of the spans in them.
//!
//! The records lie in front of the pages, in the same mapping, so that an object's handle leads to its span by shifts.
//! Pages get RAM from the low end up, a batch at a time, and keep it until the whole chunk is given back.
//!
//! A batch costs 0.5 µs a page, which was a sixth of all time for a fill that is compressed four to one. A store that
//! has much RAM already asks for a whole chunk at once, as a huge page: 0.1 µs a page. The unused part of the chunk
//! is a small part of such a store.

use super::class::{Class, MAX_SPAN};
use crate::mem::{self, Mapping, PAGE};
use rustix::io::Errno;
use std::mem::size_of;

/// Number of pages for objects in a chunk.
pub(crate) const CHUNK_PAGES: usize = CHUNK_BYTES / PAGE - HEADER_BYTES / PAGE;
/// Number of bytes of a chunk.
pub(crate) const CHUNK_BYTES: usize = 2 << 20;
/// Number of bytes in front of a chunk's pages.
pub(crate) const HEADER_BYTES: usize = size_of::<Header>().next_multiple_of(PAGE);
/// Number of pages that get RAM at once.
const BATCH: usize = 32;
/// Number of words with a bit for each page.
const WORDS: usize = CHUNK_BYTES / PAGE / 64;

/// A run of pages with objects of one class. The record is kept at the span's first page.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Span {
    /// One bit for each free object.
    pub(crate) free: u64,
    /// The neighbours in the list of spans of the class that have room.
    pub(crate) prev: u32,
    pub(crate) next: u32,
    pub(crate) class: u8,
    /// The distance in pages from the span's first one. At the span's other pages only this field is valid.
    pub(crate) back: u8,
}

/// The records of a chunk. A header of zeros is that of an empty chunk.
#[repr(C)]
pub(crate) struct Header {
    /// One bit for each page that is in a span.
    used: [u64; WORDS],
    /// Number of pages that have RAM, from the first on.
    populated: u32,
    pub(crate) spans: [Span; CHUNK_BYTES / PAGE],
}

/// The reason why no run was found.
pub(crate) enum NoRun {
    /// There is no run that is long enough.
    Fragmented,
    /// There is a run, but its pages have no RAM yet and the limit forbids more.
    Limit,
}

impl Header {
    /// Maps a new chunk, all of it in RAM if `at_once` is set.
    pub(crate) fn map(at_once: bool) -> Result<*mut Header, Errno> {
        let mapping = Mapping::aligned(CHUNK_BYTES)?;
        let base = mapping.as_ptr();
        if at_once {
            // SAFETY: this is all of a mapping that is ours.
            unsafe { mem::populate_huge(base, CHUNK_BYTES) };
        }
        let header: *mut Header = mapping.into_raw().cast();
        if at_once {
            // SAFETY: the mapping has room for a header, and zeros are a valid one.
            unsafe { (*header).populated = CHUNK_PAGES as u32 };
        }
        Ok(header)
    }

    /// Gives a chunk back to the kernel.
    ///
    /// # Safety
    /// `chunk` came from [`Header::map`], is not used any more and was not given back before.
    pub(crate) unsafe fn unmap(chunk: *mut Header) {
        // SAFETY: the caller guarantees what `from_raw` needs.
        drop(unsafe { Mapping::from_raw(chunk.cast(), CHUNK_BYTES) });
    }

    /// Whether no page is in a span.
    pub(crate) fn is_empty(&self) -> bool {
        self.used == [0; WORDS]
    }

    /// RAM that the chunk takes, header included.
    pub(crate) fn ram(&self) -> u64 {
        (HEADER_BYTES + self.populated as usize * PAGE) as u64
    }

    /// The first page of the lowest run of `pages` free pages.
    fn find(&self, pages: usize) -> Option<usize> {
        let mut at = 0;
        while at + pages <= CHUNK_PAGES {
            let start = self.next(at, true)?;
            let end = self.next(start, false).unwrap_or(CHUNK_PAGES);
            if end - start >= pages {
                return Some(start);
            }
            at = end;
        }
        None
    }

    /// The first page from `at` on that is free, or if `free` is false, the first that is in a span.
    fn next(&self, at: usize, free: bool) -> Option<usize> {
        let flip = if free { u64::MAX } else { 0 };
        let mut word = at / 64;
        let mut bits = (self.used.get(word)? ^ flip) & (u64::MAX << (at % 64));
        while bits == 0 {
            word += 1;
            bits = self.used.get(word)? ^ flip;
        }
        let page = word * 64 + bits.trailing_zeros() as usize;
        (page < CHUNK_PAGES).then_some(page)
    }

    /// The length in pages of the longest span that could be made.
    pub(crate) fn longest_run(&self) -> usize {
        let (mut longest, mut at) = (0, 0);
        while let Some(start) = self.next(at, true) {
            let end = self.next(start, false).unwrap_or(CHUNK_PAGES);
            longest = longest.max(end - start);
            at = end;
        }
        longest.min(MAX_SPAN)
    }

    /// Makes a span for `class` with all objects free. `room` is how many bytes of RAM it may take. The answer is the
    /// span's first page and the bytes of RAM that it took.
    pub(crate) fn new_span(
        &mut self,
        number: u8,
        class: Class,
        room: u64,
    ) -> Result<(usize, u64), NoRun> {
        let pages = usize::from(class.pages);
        let start = self.find(pages).ok_or(NoRun::Fragmented)?;
        let took = self.populate(start + pages, room).ok_or(NoRun::Limit)?;
        self.mark(start, pages, true);
        for (back, span) in self.spans[start..start + pages].iter_mut().enumerate() {
            span.back = back as u8;
        }
        let span = &mut self.spans[start];
        span.free = u64::MAX >> (64 - class.objects);
        span.class = number;
        Ok((start, took))
    }

    /// Frees the pages of the span at page `start`.
    pub(crate) fn free_span(&mut self, start: usize, class: Class) {
        self.mark(start, usize::from(class.pages), false);
    }

    fn mark(&mut self, start: usize, pages: usize, used: bool) {
        for page in start..start + pages {
            let bit = 1 << (page % 64);
            debug_assert_eq!(self.used[page / 64] & bit == 0, used);
            self.used[page / 64] ^= bit;
        }
    }

    /// Gives RAM to all pages before `end`, and to more when `room` allows. The answer is the number of bytes taken.
    fn populate(&mut self, end: usize, room: u64) -> Option<u64> {
        let from = self.populated as usize;
        if end <= from {
            return Some(0);
        }
        let room = usize::try_from(room / PAGE as u64).unwrap_or(usize::MAX);
        let to = end.max(
            (from + BATCH)
                .min(CHUNK_PAGES)
                .min(from.saturating_add(room)),
        );
        if to - from > room {
            return None;
        }
        // SAFETY: the header lies at the start of its mapping, and the pages of this chunk follow it.
        unsafe {
            let base = (&raw mut *self).cast::<u8>().add(HEADER_BYTES);
            mem::populate(base.add(from * PAGE), (to - from) * PAGE);
        }
        self.populated = to as u32;
        Some(((to - from) * PAGE) as u64)
    }
}
