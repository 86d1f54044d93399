//! Dropping pages, giving frames back, and poison.
//!
//! Ranges and frames are dropped in vectors: one system call and one TLB shootdown for up to 64 of them, neighbours
//! merged first. Dropping removes poison too.
//!
//! *Poison* marks pages whose contents are lost, so that a touch is a SIGBUS and not silent zeros. With
//! in-thread delivery nothing is marked: each touch comes to the sink, which answers that the page is lost, and the
//! signal goes on to the program. With a handler thread the kernel must raise the signal, by a mark in the page table
//! (Linux 6.6).

use std::time::Instant;

use millpond_core::{Frame, Order, PageRange};

use super::Uffd;
use crate::pool::Lease;
use crate::sys::advise::{self, Span};
use crate::sys::poison;

/// The most spans in one vector, which is on the stack of the thread that reclaims.
const BATCH: usize = 64;

impl Uffd {
    /// Implements [`Mmu::zap`](millpond_core::Mmu::zap).
    pub(super) fn zap_ranges(&self, ranges: &[PageRange]) {
        let spans = ranges
            .iter()
            .filter(|range| !range.is_empty())
            .map(|range| {
                let start = self.at(range.start);
                Span {
                    start,
                    len: self.at(range.end()) - start,
                }
            });
        if let Some(protection) = &self.protection {
            protection.leave(spans.clone());
        }
        self.discard_spans(spans);
    }

    /// Implements [`Mmu::free_frames`](millpond_core::Mmu::free_frames).
    pub(super) fn discard_frames(&self, frames: &[Frame]) {
        let since = Instant::now();
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
        // A huge page is freed in 8 µs, which says nothing about the price of small ones.
        if frames.iter().all(|frame| frame.order() < Order::MAX) {
            self.costs.freed(pages, since);
        }
    }

    /// Implements [`Mmu::poison`](millpond_core::Mmu::poison).
    pub(super) fn poison_pages(&self, at: PageRange) {
        if self.features.poison && !at.is_empty() {
            poison::mark(self.fd(), self.at(at.start), self.at(at.end()));
        }
    }

    fn discard_spans(&self, spans: impl Iterator<Item = Span>) {
        let mut batch = [Span { start: 0, len: 0 }; BATCH];
        let mut count = 0;
        for span in spans {
            if count > 0 && batch[count - 1].start + batch[count - 1].len == span.start {
                batch[count - 1].len += span.len;
                continue;
            }
            if count == BATCH {
                // SAFETY: the callers hold the folios and frames in flight, and their contents are not wanted any
                // more.
                unsafe { advise::discard(self.pidfd.get(), &batch) };
                count = 0;
            }
            batch[count] = span;
            count += 1;
        }
        // SAFETY: the callers hold the folios and frames in flight, and their contents are not wanted any more.
        unsafe { advise::discard(self.pidfd.get(), &batch[..count]) };
    }
}
