//! Drops pages of the arena, and frees frames.
//!
//! Ranges and frames are dropped in vectors: one system call and one TLB shootdown for up to 64 of them, after
//! neighbours are merged. Dropping also removes poison.

use millpond_core::{Frame, PageRange};

use super::Common;
use crate::pool::Lease;
use crate::sys::advise::{self, Span};

/// The maximum number of spans in one vector, which is on the stack of the thread that reclaims.
const BATCH: usize = 64;

impl Common {
    /// Returns the addresses of all nonempty ranges.
    pub(crate) fn spans<'a>(
        &'a self,
        ranges: &'a [PageRange],
    ) -> impl Iterator<Item = Span> + Clone + 'a {
        let ranges = ranges.iter().filter(|range| !range.is_empty());
        ranges.map(|range| {
            let start = self.at(range.start);
            Span {
                start,
                len: self.at(range.end()) - start,
            }
        })
    }

    /// Drops the pages of frames, which become holes. Returns the number of pages.
    pub(crate) fn discard_frames(&self, frames: &[Frame]) -> u32 {
        let mut pages = 0;
        for batch in frames.chunks(BATCH) {
            let mut leases: [Option<Lease<'_>>; BATCH] = [const { None }; BATCH];
            for (lease, &frame) in leases.iter_mut().zip(batch) {
                *lease = Some(self.pool.lease(frame));
                pages += frame.order().pages().0;
            }
            self.discard_spans(leases.iter().flatten().map(|lease| Span {
                start: lease.addr(),
                len: lease.len(),
            }));
        }
        pages
    }

    /// Drops the pages of spans of the arena or of leased frames.
    pub(crate) fn discard_spans(&self, spans: impl Iterator<Item = Span>) {
        let mut batch = [Span { start: 0, len: 0 }; BATCH];
        let mut count = 0;
        for span in spans {
            if count > 0 && batch[count - 1].start + batch[count - 1].len == span.start {
                batch[count - 1].len += span.len;
                continue;
            }
            if count == BATCH {
                // SAFETY: the callers hold the folios and frames in flight, and their contents are no longer wanted.
                unsafe { advise::discard(self.pidfd.get(), &batch) };
                count = 0;
            }
            batch[count] = span;
            count += 1;
        }
        // SAFETY: the callers hold the folios and frames in flight, and their contents are no longer wanted.
        unsafe { advise::discard(self.pidfd.get(), &batch[..count]) };
    }

    /// Drops the pages of one range of the arena or of a leased frame.
    pub(crate) fn drop_pages(&self, start: usize, len: usize) {
        if len > 0 {
            // SAFETY: the caller holds the folio or frame in flight, and its contents are no longer wanted.
            unsafe { advise::discard(None, &[Span { start, len }]) };
        }
    }
}
