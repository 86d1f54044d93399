//! Chunks: 2 MiB from the kernel, aligned, with the records of the spans in them.
//!
//! The records lie in front of the pages, in the same mapping, so that shifts lead from an object's handle to its span.
//! Pages get RAM a batch at a time, and keep it for the next span when their span is dissolved. If RAM is short, free
//! pages give theirs back ([`Header::give_back`]): the runs between spans of many lengths are too short for most spans,
//! and a store at its limit had a tenth of its RAM there.
//!
//! A batch costs 0.5 µs a page, which was a sixth of the whole time to fill a store with data that compresses four to
//! one. A store that already has much RAM requests a whole chunk at once, as a huge page: 0.1 µs a page. The unused
//! part of the chunk is small compared with such a store.

use super::class::{Class, MAX_SPAN};
use crate::mem::{self, Mapping, PAGE};
use rustix::io::Errno;
use std::mem::size_of;
use std::ops::Range;

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
    /// The neighbours in the list of the class's spans that have room.
    pub(crate) prev: u32,
    pub(crate) next: u32,
    pub(crate) class: u8,
    /// The distance in pages from the span's first one. At the span's other pages only this field is valid.
    pub(crate) back: u8,
}

/// The records of a chunk. A zeroed header is that of an empty chunk.
#[repr(C)]
pub(crate) struct Header {
    /// One bit for each page that is in a span.
    used: [u64; WORDS],
    /// One bit for each page that has RAM.
    backed: [u64; WORDS],
    pub(crate) spans: [Span; CHUNK_BYTES / PAGE],
}

/// The reason why no run was found.
pub(crate) enum NoRun {
    /// No run is long enough.
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
            // SAFETY: this is the whole of a mapping that is ours.
            unsafe { mem::populate_huge(base, CHUNK_BYTES) };
        }
        let header: *mut Header = mapping.into_raw().cast();
        if at_once {
            // SAFETY: the mapping has room for a header, and zeros are a valid one.
            unsafe { mark(&mut (*header).backed, 0..CHUNK_PAGES, true) };
        }
        Ok(header)
    }

    /// Returns a chunk to the kernel.
    ///
    /// # Safety
    /// `chunk` came from [`Header::map`], is no longer used and was not unmapped before.
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
        let backed: u32 = self.backed.iter().map(|word| word.count_ones()).sum();
        (HEADER_BYTES + backed as usize * PAGE) as u64
    }

    /// The first page of the lowest run of `pages` free pages.
    fn find(&self, pages: usize) -> Option<usize> {
        self.free_runs()
            .find(|run| run.len() >= pages)
            .map(|run| run.start)
    }

    /// The runs of pages that are in no span.
    fn free_runs(&self) -> impl Iterator<Item = Range<usize>> {
        runs(&self.used, 0..CHUNK_PAGES, false)
    }

    /// The length in pages of the longest span that could be made.
    pub(crate) fn longest_run(&self) -> usize {
        let lengths = self.free_runs().map(|run| run.len());
        lengths.max().unwrap_or(0).min(MAX_SPAN)
    }

    /// Makes a span for `class` with all objects free. It may take at most `room` bytes of RAM. Returns the span's
    /// first page and the bytes of RAM that it took.
    pub(crate) fn new_span(
        &mut self,
        number: u8,
        class: Class,
        room: u64,
    ) -> Result<(usize, u64), NoRun> {
        let pages = usize::from(class.pages);
        let start = self.find(pages).ok_or(NoRun::Fragmented)?;
        let took = self
            .populate(start..start + pages, room)
            .ok_or(NoRun::Limit)?;
        mark(&mut self.used, start..start + pages, true);
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
        let pages = start..start + usize::from(class.pages);
        mark(&mut self.used, pages, false);
    }

    /// Gives RAM to these free pages, and to free pages after them if `room` allows. Returns the number of bytes taken.
    fn populate(&mut self, pages: Range<usize>, room: u64) -> Option<u64> {
        let without = || runs(&self.backed, pages.clone(), false);
        let Some(first) = without().next() else {
            return Some(0);
        };
        let room = usize::try_from(room / PAGE as u64).unwrap_or(usize::MAX);
        let least: usize = without().map(|run| run.len()).sum();
        if least > room {
            return None;
        }
        let batch = first.start..(first.start + BATCH).min(CHUNK_PAGES);
        let behind = runs(&self.used, pages.end..batch.end.max(pages.end), false).next();
        let end = behind
            .filter(|run| run.start == pages.end)
            .map_or(pages.end, |run| run.end.min(pages.end + room - least));
        let mut took = 0;
        let (backed, all) = (self.backed, pages.start..end);
        for run in runs(&backed, all, false) {
            took += run.len();
            // SAFETY: the pages are this chunk's.
            unsafe { mem::populate(self.page(run.start), run.len() * PAGE) };
            mark(&mut self.backed, run, true);
        }
        Some((took * PAGE) as u64)
    }

    /// Returns the RAM of whole runs of free pages to the kernel, until at least `pages` pages are given back or none
    /// are left. Returns the number of bytes.
    pub(crate) fn give_back(&mut self, pages: usize) -> u64 {
        let mut gave = 0;
        let (used, backed) = (self.used, self.backed);
        for free in runs(&used, 0..CHUNK_PAGES, false) {
            for run in runs(&backed, free, true) {
                if gave >= pages {
                    break;
                }
                gave += run.len();
                // SAFETY: the pages are this chunk's, and in no span, so their contents are not needed.
                unsafe { mem::give_back(self.page(run.start), run.len() * PAGE) };
                mark(&mut self.backed, run, false);
            }
        }
        (gave * PAGE) as u64
    }

    /// The address of a page.
    fn page(&mut self, page: usize) -> *mut u8 {
        // SAFETY: the header lies at the start of its mapping, and the pages of this chunk follow it.
        unsafe {
            (&raw mut *self)
                .cast::<u8>()
                .add(HEADER_BYTES + page * PAGE)
        }
    }
}

/// The runs of pages in `within` whose bits are set, or are clear.
fn runs(
    bits: &[u64; WORDS],
    within: Range<usize>,
    set: bool,
) -> impl Iterator<Item = Range<usize>> {
    let mut at = within.start;
    std::iter::from_fn(move || {
        let start = next(bits, at, set).filter(|&page| page < within.end)?;
        at = next(bits, start, !set).map_or(within.end, |end| end.min(within.end));
        Some(start..at)
    })
}

/// The first page from `at` on whose bit is set, or is clear.
fn next(bits: &[u64; WORDS], at: usize, set: bool) -> Option<usize> {
    let flip = if set { 0 } else { u64::MAX };
    let mut word = at / 64;
    let mut found = (bits.get(word)? ^ flip) & (u64::MAX << (at % 64));
    while found == 0 {
        word += 1;
        found = bits.get(word)? ^ flip;
    }
    Some(word * 64 + found.trailing_zeros() as usize)
}

/// Sets the bits of these pages, or clears them.
fn mark(bits: &mut [u64; WORDS], pages: Range<usize>, set: bool) {
    for page in pages {
        let bit = 1 << (page % 64);
        debug_assert_eq!(bits[page / 64] & bit == 0, set);
        bits[page / 64] ^= bit;
    }
}
