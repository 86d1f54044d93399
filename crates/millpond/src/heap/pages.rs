//! Pages of a heap's segments that hold no allocation, and go back to the manager.
//!
//! `dlmalloc` does not say which of its pages are free, and finding out by its books would bring them all in. So each
//! page has a count here, beside the managed memory: the number of allocations that touch it, a byte for 4 KiB.
//!
//! Allocations that touch no page between two places leave one free chunk there: `dlmalloc` joins neighbours at once.
//! It writes only to the chunk's first 64 bytes and its last 16. So a page that no allocation touches, between two such
//! pages, holds nothing, and nothing reads it before it is written. The first and the last page of a segment hold its
//! own record, and count as used for ever.
//!
//! Such pages are lazily freed: using them again costs no fault unless memory was short meanwhile.

use crate::region::Region;
use millpond_core::PAGE_SIZE;
use std::collections::BTreeMap;
use std::ops::Range;

/// Bytes before an allocation that are its own: the chunk's head.
const HEAD: usize = 16;
/// Bytes behind an allocation that may be its own.
const FOOT: usize = 16;

struct Segment {
    region: Region,
    /// Number of allocations that touch each page: 130 at most, as a chunk has 32 bytes at least.
    counts: Vec<u8>,
}

#[derive(Default)]
pub struct Pages {
    /// The segments by their first address.
    segments: BTreeMap<usize, Segment>,
}

impl Pages {
    pub fn add(&mut self, region: Region) {
        let pages = region.len() / PAGE_SIZE;
        let mut counts = vec![0; pages];
        // The last page of the region is not `dlmalloc`'s; the one before it is the segment's last.
        for at in [0, pages - 2, pages - 1] {
            counts[at] = 1;
        }
        let start = region.as_ptr().addr();
        self.segments.insert(start, Segment { region, counts });
    }

    /// Ends a segment. False when there is none at `start`.
    pub fn remove(&mut self, start: usize) -> bool {
        self.segments.remove(&start).is_some()
    }

    /// Notes that there is an allocation.
    pub fn hold(&mut self, start: usize, len: usize) {
        let found = self.touched(start, len);
        let (segment, touched) = found.expect("an allocation lies in a segment");
        for count in &mut segment.counts[touched] {
            *count += 1;
        }
    }

    /// Notes that an allocation is gone, for `dlmalloc` too, and gives back the pages that hold nothing any more. Its
    /// segment may be gone with it.
    pub fn release(&mut self, start: usize, len: usize) {
        if let Some((segment, touched)) = self.touched(start, len) {
            for count in &mut segment.counts[touched.clone()] {
                *count -= 1;
            }
            segment.give_back(touched);
        }
    }

    /// The segment that an allocation lies in, with the pages of it that the allocation touches.
    fn touched(&mut self, start: usize, len: usize) -> Option<(&mut Segment, Range<usize>)> {
        let (base, segment) = self.segments.range_mut(..=start).next_back()?;
        let offset = start - base;
        let touched = (offset - HEAD) / PAGE_SIZE..(offset + len + FOOT).div_ceil(PAGE_SIZE);
        (offset < segment.region.len()).then_some((segment, touched))
    }
}

impl Segment {
    /// Lazily frees the pages that hold nothing since `touched` were released.
    fn give_back(&mut self, touched: Range<usize>) {
        // Only the first and the last page can be used by others. With the pages beside them they may have become the
        // inside of a free chunk.
        let counts = &self.counts;
        let inside = |at: &usize| counts[at - 1..=at + 1] == [0; 3];
        let around =
            touched.start.saturating_sub(1).max(1)..(touched.end + 1).min(counts.len() - 1);
        let (first, last) = (around.clone().find(inside), around.rev().find(inside));
        let Some((first, last)) = first.zip(last) else {
            return;
        };
        // Pinned pages are left as they are.
        let _ = self
            .region
            .lazy_free(first * PAGE_SIZE..(last + 1) * PAGE_SIZE);
    }
}
